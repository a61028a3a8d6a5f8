/** The dashboard of one node. */

import "uplot/dist/uPlot.min.css";
import "./style.css";
import { events, get, oneAtATime, parsed, Refused } from "./api";
import { Chart, History } from "./charts";
import { addressed, openTenant, search } from "./tenant";
import { deniedMost, nameOf, wouldBeDenied } from "./denied";
import { askToken, switchRule } from "./dialogs";
import { fill, fold, h, say } from "./dom";
import { explainer, suggestDomain } from "./explain";
import { unusualGrowth } from "./growth";
import { health, healthLine, isFaulty, limited, Rates, rules, silence, tiles, troubles } from "./panels";
import { Calls, debts, missing, nodes, Plans, quotaDatabase, regions, shards } from "./stores";
import type { Breaker, Denials, Second, State, Top } from "./types";
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
/** The keys of all nodes, and who these are; null before they were asked for. */
let fleet: Top | null = null;
/** Who was denied in the last hour, or would have been; null before it was asked for. */
let denials: Denials | null = null;
let shown: { latest: State | null; heardAt: number; seconds: number; window: "minute" | "hour" } = {
  latest: null,
  heardAt: 0,
  seconds: 300,
  window: "minute",
};
let charts: Chart[] = [];

/** The plans that a tenant may be put on. */
function planNames(): string[] {
  const { latest } = shown;
  const ofRules = latest?.rules.map((rule) => rule.plan) ?? [];
  const used = latest?.plans.map((plan) => plan.plan) ?? [];
  return [...new Set([...used, ...ofRules])].filter((name) => name !== undefined && name !== "custom").sort() as string[];
}

function open(tenant: string): void {
  openTenant(tenant, planNames);
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

/** True while a button is being pressed or text is selected: what is under the pointer then must stay. */
let held = false;
document.addEventListener("pointerdown", () => (held = true), true);
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => setTimeout(() => (held = false), 100), true);
}

function isHeld(): boolean {
  return held || getSelection()?.isCollapsed === false;
}

/** The keys of the window; those of this node's last minute come with each state. */
const keys = oneAtATime(async (signal) => {
  const window = shown.window;
  if (window === "minute" && shown.latest?.store.is_shared === false) {
    deniedMost(top, shown.latest.top, denials, window, open, shown.latest);
    return;
  }
  try {
    fleet = await get<Top>(`/admin/v1/top?window=${window}&limit=10`, signal);
    if (shown.window === window && !isHeld()) deniedMost(top, fleet.keys, denials, window, open, shown.latest, fleet);
    if (shown.latest !== null) nodes(nodeList, shown.latest, fleet);
  } catch (error) {
    fill(top, h("p", { class: "empty" }, error instanceof Error ? error.message : String(error)));
  }
  // Another one was chosen meanwhile.
  if (shown.window !== window) setTimeout(keys);
});

/** Asks who was denied in the last hour, and who would have been. */
const lastHour = oneAtATime(async (signal) => {
  let shadow: Denials;
  try {
    denials = await get<Denials>("/admin/v1/denials?kind=all&limit=20", signal);
    // Apart: a flood of denials would leave no room for these.
    shadow = await get<Denials>("/admin/v1/denials?kind=would_be_denied&limit=100", signal);
  } catch {
    // The list of keys says what is wrong; it is asked for more often.
    return;
  }
  if (isHeld()) return;
  const isAny = wouldBeDenied(shadowed, shadow, shown.latest, open);
  shadowed.closest("section")?.toggleAttribute("hidden", !isAny);
});

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
  connection(next.node.state === "serving" ? "good" : "bad", next.node.state === "serving" ? "live" : next.node.state);
  troubles(trouble, next);
  tiles(numbers, next);
  health(state, next);
  sayHealth(next);
  missing(missingList, next);
  for (const [, body, isThere] of optional) body.closest("section")?.toggleAttribute("hidden", !isThere(next));
  shards(shardList, next, calls);
  debts(debtList, next);
  plans.take(next);
  plans.show(planList, next);
  quotaDatabase(databaseState, next);
  regions(regionList, next);
  nodes(nodeList, next, fleet);
  if (!isHeld()) {
    growth.closest("section")?.toggleAttribute("hidden", !unusualGrowth(growth, next, open));
    limited(who, next, (key) => open(nameOf(key.key, denials)));
    rules(list, next, rates, (rule) =>
      switchRule(rule, (text) => {
        say(notice, text);
      }),
    );
  }
  // The lists of other nodes are two seconds apart.
  const every = shown.window === "hour" ? 10 : next.store.is_shared ? 2 : 1;
  if (!isHeld() && next.second.at % every === 0) keys();
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
  fill(app, h("header", { class: "top" }, h("h1", {}, "Ratekeeper"), name, search(planNames), badge), notice, h("main", {}, gate, main));
  explainer(question);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (charts.length > 0) makeCharts();
  });
  void watch();
}
