/** The dashboard of one node. */

import "uplot/dist/uPlot.min.css";
import "./style.css";
import { events, get, oneAtATime, parsed, Refused } from "./api";
import { Chart, History } from "./charts";
import { addressed, openTenant, search } from "./tenant";
import { ASKED, deniedMost, nameOf, ofGroups, ofKeys, wouldBeDenied } from "./denied";
import type { Listed } from "./denied";
import { askToken, switchRule } from "./dialogs";
import type { Switched } from "./dialogs";
import { fill, fold, h, say } from "./dom";
import { explainer, suggestDomain } from "./explain";
import { unusualGrowth } from "./growth";
import { Holds } from "./holds";
import { health, healthLine, isFaulty, limited, Rates, rules, silence, tiles, troubles } from "./panels";
import { Calls, debts, missing, nodes, Plans, quotaDatabase, regions, shards } from "./stores";
import type { Breaker, Denials, Fleet, Second, State, Top } from "./types";
import { keepTo, moment } from "./words";

/** Silence after which what is shown is called old. */
const SILENCE_MS = 5_000;
const RETRY_MS_MAX = 10_000;

const badge = h("span", { class: "badge", id: "connection", role: "status" }, "connecting");
const name = h("span", { class: "node" });
const notice = h("p", { class: "notice", role: "status" });
const gate = h("section", { id: "gate" });
const trouble = h("section", { id: "troubles", "aria-label": "Faults", "aria-live": "polite" });
const who = h("section", { id: "limited", "aria-label": "Limited most" });
const numbers = h("section", { id: "tiles", "aria-label": "This second" });
const answers = h("div", { class: "plot", role: "img", "aria-label": "Answers of rules by second" });
const durations = h("div", { class: "plot", role: "img", "aria-label": "Durations of checks by second" });
const top = h("div", { class: "scroll" });
const shadowed = h("div", { class: "scroll" });
const growth = h("div", { class: "scroll" });
const healthRow = h("span", {});
const state = h("dl", {});
const list = h("div", { class: "scroll" });
const question = h("div", { class: "explain" });
const planList = h("div", { class: "scroll" });
const shardList = h("div", { class: "scroll" });
const debtList = h("div", {});
const databaseState = h("div", {});
const regionList = h("div", { class: "scroll" });
const nodeList = h("div", {});
const missingList = h("div", {});

const history = new History();
const rates = new Rates();
const calls = new Calls();
const plans = new Plans();
/** The nodes whose lists are told; null before they were asked for. */
let fleet: Fleet | null = null;
let shown: { latest: State | null; heardAt: number; seconds: number; window: "minute" | "hour" } = {
  latest: null,
  heardAt: 0,
  seconds: 300,
  window: "minute",
};
let charts: Chart[] = [];
const holds = new Holds(() => getSelection()?.isCollapsed === false);

/** The plans that a tenant may be put on. */
function planNames(): string[] {
  const { latest } = shown;
  const ofRules = latest?.rules.map((rule) => rule.plan) ?? [];
  const used = latest?.plans.map((plan) => plan.plan) ?? [];
  return [...new Set([...used, ...ofRules])].filter((name) => name !== undefined && name !== "custom").sort() as string[];
}

function open(tenant: string, domain?: string): void {
  openTenant(tenant, planNames, domain);
}

function choice<T extends string | number>(label: string, all: [string, T][], first: T, pick: (value: T) => void): HTMLElement {
  const buttons = all.map(([text, value]) => {
    const button = h("button", { "aria-pressed": String(value === first) }, text);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      pick(value);
    });
    return button;
  });
  return h("div", { class: "choices", role: "group", "aria-label": label }, ...buttons);
}

/** Panels about parts that a node may do without, each with the condition on which it is there. */
const optional: [string, HTMLElement, (state: State) => boolean][] = [
  ["Servers of the store", shardList, (state) => state.store.is_shared],
  ["Hits not in the store", debtList, (state) => state.store.is_shared],
  ["Use of limits by plan, last minute", planList, (state) => state.plans.length > 0],
  ["Quota database", databaseState, (state) => state.quota_database !== null],
  ["Regions", regionList, (state) => state.regions !== null],
  ["Nodes", nodeList, (state) => state.store.is_shared],
];

function panel(title: string, body: HTMLElement, extra?: HTMLElement, class_ = ""): HTMLElement {
  return h("section", { class: `panel ${class_}` }, h("header", {}, h("h2", {}, title), extra), body);
}

function page(): HTMLElement {
  const ranges: [string, number][] = [
    ["5 min", 300],
    ["15 min", 900],
    ["1 h", 3_600],
  ];
  const windows: [string, "minute" | "hour"][] = [
    ["minute", "minute"],
    ["hour", "hour"],
  ];
  const range = choice("Span of the charts", ranges, 300, (seconds) => {
    shown.seconds = seconds;
    draw();
  });
  const window_ = choice("Window of the top keys", windows, "minute", (window) => {
    shown.window = window;
    keys();
  });
  return h(
    "div",
    { id: "page", hidden: true },
    trouble,
    who,
    numbers,
    h(
      "div",
      { class: "grid" },
      panel("Decisions per second", answers, range),
      panel("Duration of checks", durations),
      panel("Denied most", top, window_),
      panel("Would be denied", shadowed),
      panel("Unusual growth", growth, undefined, "wide"),
      panel("Rules", list, undefined, "wide"),
    ),
    healthFold,
    fold("explain", h("h2", {}, "What would happen to this request?"), false, question),
  );
}

/** Opens by itself when a part is no longer well, and then only after all were again. */
let wasFaulty = false;
const healthFold = fold(
  "health",
  healthRow,
  false,
  h(
    "div",
    { class: "grid" },
    panel("This node", state),
    ...optional.map(([title, body]) => panel(title, body)),
    panel("Not configured", missingList, undefined, "missing"),
  ),
);
healthFold.id = "health";

function sayHealth(of: State): void {
  fill(healthRow, healthLine(of));
  const faulty = isFaulty(of);
  if (faulty && !wasFaulty) healthFold.open = true;
  wasFaulty = faulty;
}

function draw(): void {
  const seconds = history.last(shown.seconds);
  for (const chart of charts) chart.show(seconds);
}

/** The tenants that were denied most in the window; those of a minute are sums of keys, as nothing else is counted so closely. */
async function denied(window: "minute" | "hour", signal: AbortSignal): Promise<{ listed: Listed; of: Fleet }> {
  if (window === "hour") {
    const denials = await get<Denials>(`/admin/v1/denials?kind=denied&order=count&limit=${ASKED}`, signal);
    return { listed: ofGroups(denials), of: denials.told_by };
  }
  const top = await get<Top>(`/admin/v1/top?window=minute&limit=${ASKED}`, signal);
  return { listed: ofKeys(top), of: top };
}

const keys = oneAtATime(async (signal) => {
  const window = shown.window;
  try {
    const { listed, of } = await denied(window, signal);
    fleet = of;
    if (shown.window === window) holds.draw(top, () => deniedMost(top, listed, window, open, shown.latest));
    if (shown.latest !== null) nodes(nodeList, shown.latest, fleet);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    fill(top, h("p", { class: "empty" }, text));
    // Who was heard when is not known any more.
    fleet = null;
    fill(nodeList, h("p", { class: "empty" }, text));
  }
  // Another one was chosen meanwhile.
  if (shown.window !== window) setTimeout(keys);
});

/** Asks who would have been denied in the last hour. */
const lastHour = oneAtATime(async (signal) => {
  let shadow: Denials;
  try {
    shadow = await get<Denials>(`/admin/v1/denials?kind=would_be_denied&order=count&limit=${ASKED}`, signal);
  } catch {
    // The list of keys says what is wrong; it is asked for more often.
    return;
  }
  holds.draw(shadowed, () => {
    const isAny = wouldBeDenied(shadowed, shadow, shown.latest, open);
    shadowed.closest("section")?.toggleAttribute("hidden", !isAny);
  });
});

/** What was said of the last switch, until the rule is in another mode, or for this time. */
const NOTICE_MS = 30_000;
let noticed: { rule: string; mode: string; until: number } | null = null;

function notify({ rule, mode, text }: Switched): void {
  say(notice, text);
  noticed = { rule, mode, until: Date.now() + NOTICE_MS };
}

function forgetNotice(state: State): void {
  if (noticed === null) return;
  const { rule, mode, until } = noticed;
  const now = state.rules.find((it) => it.id === rule)?.mode ?? mode;
  // The state may be of before the switch.
  const isOther = now !== mode && Date.now() > until - NOTICE_MS + 3_000;
  if (!isOther && Date.now() < until) return;
  say(notice, "");
  noticed = null;
}

function take(next: State): void {
  const before = shown.latest;
  shown.latest = next;
  keepTo(next.second.at);
  history.push(next.second);
  // Of a new process, all counts are new.
  const isSame = before !== null && before.node.started_at === next.node.started_at;
  const ms = isSame ? history.msSince(before.second) : 0;
  rates.take(next, ms);
  calls.take(next, ms);
  say(name, `${next.node.name || "this node"} · ${next.node.version}`);
  const isPaused = holds.isLong();
  const live = isPaused ? "live, lists paused while text is selected" : "live";
  connection(next.node.state === "serving" ? (isPaused ? "warn" : "good") : "bad", next.node.state === "serving" ? live : next.node.state);
  forgetNotice(next);
  troubles(trouble, next);
  tiles(numbers, next);
  health(state, next);
  sayHealth(next);
  missing(missingList, next);
  for (const [, body, isThere] of optional) body.closest("section")?.toggleAttribute("hidden", !isThere(next));
  shards(shardList, next, calls);
  debts(debtList, next);
  plans.take(next, isSame || before === null);
  plans.show(planList, next);
  quotaDatabase(databaseState, next);
  regions(regionList, next);
  nodes(nodeList, next, fleet);
  holds.draw(growth, () => {
    growth.closest("section")?.toggleAttribute("hidden", !unusualGrowth(growth, next, open));
    limited(who, next, (key) => open(nameOf(key), key.domain));
    rules(list, next, rates, (rule) => switchRule(rule, notify));
  });
  // The lists of other nodes are two seconds apart.
  if (before === null || next.second.at % (shown.window === "hour" ? 10 : 2) === 0) keys();
  if (before === null || next.second.at % 3 === 0) lastHour();
  if (before === null) {
    const named = addressed();
    if (named !== null) open(named);
  }
  const first = next.rules[0];
  if (first !== undefined) suggestDomain(question, first.domain);
  draw();
}

function connection(mood: "good" | "bad" | "warn", text: string): void {
  badge.className = `badge ${mood}`;
  say(badge, text);
  document.body.classList.remove("stale");
}

/** The page shows what was, not what is. */
function silent(why: string): void {
  connection("bad", why);
  if (shown.latest === null) return;
  document.body.classList.add("stale");
  silence(trouble, shown.latest);
}

/** The state without a connection: how old is what the page shows? */
function lost(): string {
  const since = shown.latest === null ? "" : ` since ${moment(shown.latest.second.at)}`;
  return `disconnected${since}, trying again`;
}

/** Charts take their colors when they are made. */
function makeCharts(): void {
  for (const chart of charts) chart.destroy();
  charts = [Chart.answers(answers), Chart.durations(durations)];
  draw();
}

function event(kind: string, data: string): void {
  if (kind === "history") {
    history.replace(parsed<{ seconds: Second[] }>(data).seconds);
    fill(gate);
    main.hidden = false;
    makeCharts();
  } else if (kind === "state") {
    take(parsed<State>(data));
  } else if (kind === "breakers" && shown.latest !== null) {
    shown.latest = { ...shown.latest, breakers: JSON.parse(data) as Breaker[] };
    troubles(trouble, shown.latest);
    sayHealth(shown.latest);
    shards(shardList, shown.latest, calls);
  } else if (kind === "end") {
    silent("the node is shutting down");
  }
}

async function watch(): Promise<void> {
  let wait = 1_000;
  for (;;) {
    const silence = new AbortController();
    // An attempt that is never answered ends too.
    shown.heardAt = Date.now();
    const timer = setInterval(() => {
      if (Date.now() - shown.heardAt > SILENCE_MS) silence.abort();
    }, 1_000);
    try {
      const each = (kind: string, data: string): void => {
        wait = 1_000;
        event(kind, data);
      };
      await events("/admin/v1/live", silence.signal, each, () => (shown.heardAt = Date.now()));
      silent(lost());
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        clearInterval(timer);
        main.hidden = true;
        connection("warn", "token wanted");
        await new Promise<void>((go) => askToken(gate, error, go));
        connection("warn", "connecting");
        continue;
      }
      const why = error instanceof Refused ? error.message : lost();
      silent(why);
      if (shown.latest === null) {
        fill(gate, h("p", { class: "empty" }, `This node cannot be watched now: ${why}.`));
      }
    } finally {
      clearInterval(timer);
    }
    await new Promise((go) => setTimeout(go, wait));
    wait = Math.min(RETRY_MS_MAX, wait * 2);
  }
}

const main = page();
const app = document.getElementById("app");
if (app !== null) {
  fill(gate, h("p", { class: "loading" }, "Waiting for the first second…"));
  fill(app, h("header", { class: "top" }, h("h1", {}, "Ratekeeper"), name, search(planNames), h("span", { class: "node" }, "times in UTC"), badge), notice, h("main", {}, gate, main));
  explainer(question);
  holds.watch(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (charts.length > 0) makeCharts();
  });
  void watch();
}
