/** The parts of the page that show the state of the node. */

import { breakable, fill, fillIfNew, fold, h } from "./dom";
import type { Rule, Second, State, TopKey } from "./types";
import { ago, bytes, count, micros, moment, rate, since, span } from "./words";

/** The most keys in a state. */
const KEYS_MAX = 10;

const perSecond = (value: number, second: Second): number => (value * 1_000) / Math.max(1, second.span_ms);

function tile(name: string, value: string, note: string, mood: "" | "bad" | "warn" = ""): HTMLElement {
  return h(
    "div",
    { class: `tile ${mood}` },
    h("span", { class: "name" }, name),
    h("span", { class: "value" }, value),
    h("span", { class: "note" }, note),
  );
}

/** Requests and descriptors without a rule: some are usual, all of them or an unknown domain are not. */
function unmatched(second: Second): HTMLElement {
  const { allowed, denied, shadow_denied } = second;
  const none = allowed + denied + shadow_denied === 0;
  const all = second.unmatched + second.unknown_domain;
  const note = second.unknown_domain > 0 ? "unknown domain: they pass" : "no rule: they pass";
  const isOdd = second.unknown_domain > 0 || (all > 0 && none);
  return tile("without a limit /s", rate(perSecond(all, second)), note, isOdd ? "warn" : "");
}

export function tiles(at: HTMLElement, state: State): void {
  const { second, store } = state;
  const per = (value: number): string => rate(perSecond(value, second));
  const checks = second.p50_us === null ? "no checks in this second" : `p50 ${micros(second.p50_us)}`;
  const room = store.capacity > 0 ? `${((100 * store.counters) / store.capacity).toFixed(1)} % full` : "";
  // Counters of a shared store are not in this node, and not counted here.
  const counters = tile("counters", count(store.counters), [room, bytes(store.bytes)].filter(Boolean).join(", "));
  fill(
    at,
    tile("allowed /s", per(second.allowed), "answers of rules"),
    tile("denied /s", per(second.denied), "over a limit", second.denied > 0 ? "warn" : ""),
    tile("would be denied /s", per(second.shadow_denied), "rules not enforced"),
    tile("by failure mode /s", per(second.degraded), "the store was away", second.degraded > 0 ? "bad" : ""),
    tile("refused by overload /s", per(second.shed), "answered with 503", second.shed > 0 ? "bad" : ""),
    unmatched(second),
    tile("p99", micros(second.p99_us), checks),
    ...(store.is_shared ? [] : [counters]),
  );
}

/** The limit of a rule without the ways in which it counts; empty for a rule that is not listed. */
export function limitOf(state: State, id: string): string {
  return state.rules.find((rule) => rule.id === id)?.limit.split(", ")[0] ?? "";
}

/** The number of keys that are denied besides the first; those that are listed are not all if there are ten. */
function besides(number: number): string {
  if (number === 0) return "";
  if (number === 1) return " Another key is limited.";
  return ` ${number < KEYS_MAX - 1 ? number : `At least ${number}`} more keys are limited.`;
}

/** The key that is denied most, in a sentence: who, by which rule, since when. */
export function limited(at: HTMLElement, state: State, open: (key: TopKey) => void): void {
  const [first, ...others] = state.top;
  if (first === undefined) {
    fill(at);
    return;
  }
  const limit = limitOf(state, first.rule);
  const where = state.store.is_shared ? " on this node" : "";
  const key = h("button", { class: "link", "data-key": "limited", click: () => open(first) }, breakable(first.key));
  const rule = h("code", {}, breakable(first.rule));
  const from = `, since ${moment(first.since)} (${ago(first.since)})`;
  const denied = `: ${count(first.count)} denied${where} in the last minute.`;
  const title = h("strong", {}, "Limited most: ");
  fill(at, h("p", {}, title, key, " by ", rule, limit && ` (${limit})`, from, denied, besides(others.length)));
}

/** Says that what the page shows is old, instead of what was wrong then. */
export function silence(at: HTMLElement, state: State): void {
  const text = `Nothing was heard from this node since ${moment(state.second.at)}: what follows is as it was then.`;
  fillIfNew(at, h("div", { class: "trouble bad" }, h("strong", {}, text)));
}

/** What is wrong, in words: the first thing to read. */
export function troubles(at: HTMLElement, state: State): void {
  const found: Node[] = [];
  if (state.config.error !== null) {
    found.push(
      h(
        "div",
        { class: "trouble bad", id: "config-error" },
        h("strong", {}, "The rules' files are refused; the last good rules stay in force."),
        h("pre", {}, state.config.error),
      ),
    );
  }
  if (state.node.state !== "serving") {
    found.push(h("div", { class: "trouble bad" }, `This node does not serve: ${state.node.state}.`));
  }
  found.push(...incident(state));
  const switched = switchedRules(state);
  if (found.length === 0) {
    const rules = switched === null ? "rules in force as written" : "but not all rules are in force as written";
    found.push(h("div", { class: "trouble good" }, `The limiter is well: no faults, ${rules}.`));
  }
  if (switched !== null) found.push(h("div", { class: "trouble warn", id: "switched" }, switched));
  fillIfNew(at, ...found);
}

/** Switched rules that are named. */
const SWITCHED_SHOWN = 5;

/** The rules that somebody has switched, in a sentence; null if there are none. */
export function switchedRules({ switched }: Pick<State, "switched">): string | null {
  const all = Object.entries(switched);
  if (all.length === 0) return null;
  const named = all.slice(0, SWITCHED_SHOWN).map(([rule, to]) => `${rule} (${to})`);
  const more = all.length > SWITCHED_SHOWN ? `, and ${count(all.length - SWITCHED_SHOWN)} more` : "";
  return `${all.length === 1 ? "1 rule is" : `${count(all.length)} rules are`} switched: ${named.join(", ")}${more}.`;
}

/** One card for one incident: a store that is away is the cause of what else is told then, which is folded. */
function incident(state: State): HTMLElement[] {
  const away = state.breakers.filter((breaker) => breaker.state !== "closed");
  if (away.length === 0) return state.faults.map((fault) => h("div", { class: "trouble warn" }, fault));
  const [first] = away;
  const where = away.length === 1 && first?.shard ? `The store at ${first.shard}` : "The store";
  const some = away.length < state.breakers.length ? ` (${away.length} of ${state.breakers.length} servers)` : "";
  const title = h("strong", {}, `${where} does not answer${some}: each rule's failure modes answer in its place.`);
  const details = [
    ...away.map((breaker) => `circuit breaker of ${breaker.shard || "the store"}: ${breaker.state}`),
    ...state.faults,
  ];
  const more = fold("incident", "Details", false, h("ul", {}, ...details.map((text) => h("li", {}, text))));
  return [h("div", { class: "trouble bad" }, title, more)];
}

/** The health of the node in one row: a word for each part. */
export function healthLine(state: State): HTMLElement {
  const part = (name: string, isWell: boolean, word: string): HTMLElement =>
    h("span", { class: `badge ${isWell ? "good" : "bad"}` }, `${name}: ${word}`);
  const { config, breakers, store, quota_database: database } = state;
  const up = breakers.filter((breaker) => breaker.state === "closed").length;
  const servers = up === breakers.length ? "answers" : `${up} of ${breakers.length} servers answer`;
  return h(
    "span",
    {},
    h("strong", {}, "Health "),
    part("rules", config.error === null, config.error === null ? `${count(state.rules_total)} in force` : "files refused"),
    store.is_shared ? part("store", up === breakers.length, servers) : part("store", true, "this node's memory"),
    database !== null && part("quota database", database.state === "up", database.state === "up" ? "answers" : "away"),
    part("node", state.node.state === "serving", `up for ${span(since(state.node.started_at))}`),
  );
}

/** True if a part in that row is not well. */
export function isFaulty(state: State): boolean {
  const isOpen = state.breakers.some((breaker) => breaker.state !== "closed");
  const isAway = state.quota_database !== null && state.quota_database.state !== "up";
  return isOpen || isAway || state.config.error !== null || state.node.state !== "serving";
}

export function health(at: HTMLElement, state: State): void {
  const { config, store, node } = state;
  const row = (name: string, value: Node | string): HTMLElement =>
    h("div", { class: "pair" }, h("dt", {}, name), h("dd", {}, value));
  const shares = Object.entries(state.degraded_ratio).filter(([, share]) => share > 0);
  fill(
    at,
    row(
      "failure modes, last 10 s",
      shares.length > 0
        ? shares.map(([name, share]) => `${name} ${(share * 100).toFixed(1)} %`).join(", ")
        : "none in use",
    ),
    row("counters", store.is_shared ? "shared by nodes" : "this node alone"),
    row("loads of the rules", `${count(config.accepted)} taken, ${count(config.refused)} refused`),
    row("last load", ago(config.last_reload_at)),
    row("up for", span(since(node.started_at))),
  );
}

/** Rates of rules, from the counts of two states. */
export class Rates {
  private before = new Map<string, Rule["counts"]>();
  private rates = new Map<string, { allowed: number; denied: number; shadow: number }>();

  /** Takes a state that comes `ms` milliseconds after the one before; 0 if that is unknown. */
  take(state: State, ms: number): void {
    const per = (value: number, before: number): number => (ms > 0 ? (Math.max(0, value - before) * 1_000) / ms : 0);
    const [now, rates] = [new Map<string, Rule["counts"]>(), new Map<string, ReturnType<Rates["of"]>>()];
    for (const { id, counts } of state.rules) {
      const before = this.before.get(id) ?? counts;
      rates.set(id, {
        allowed: per(counts.allowed, before.allowed),
        denied: per(counts.denied, before.denied),
        shadow: per(counts.shadow_denied, before.shadow_denied),
      });
      now.set(id, counts);
    }
    [this.before, this.rates] = [now, rates];
  }

  of(rule: Rule): { allowed: number; denied: number; shadow: number } {
    return this.rates.get(rule.id) ?? { allowed: 0, denied: 0, shadow: 0 };
  }
}

/** Rules that are shown before somebody asks for all. */
const RULES_FIRST = 8;
let isAll = false;

export function rules(at: HTMLElement, state: State, rates: Rates, change: (rule: Rule) => void): void {
  if (state.rules.length === 0) {
    fill(at, h("p", { class: "empty" }, "No rules are in force: every request passes, or is refused until rules load."));
    return;
  }
  const listed = isAll ? state.rules : state.rules.slice(0, RULES_FIRST);
  const rows = listed.map((rule) => {
    const { allowed, denied, shadow } = rates.of(rule);
    // The first part is the limit; the others say how it counts.
    const [limit, ...how] = rule.limit.split(", ");
    return h(
      "tr",
      { class: rule.mode },
      h("td", { class: "key" }, breakable(rule.id), h("span", { class: "source" }, rule.source)),
      h("td", { class: "limit", "data-label": "limit" }, limit, h("span", { class: "source" }, how.join(", "))),
      h("td", { class: "number", "data-label": "allowed /s" }, rate(allowed)),
      h("td", { class: "number", "data-label": "denied /s" }, rate(denied)),
      h("td", { class: "number", "data-label": "would be denied /s" }, rate(shadow)),
      h("td", { class: "number", "data-label": "denied" }, count(rule.counts.denied)),
      h(
        "td",
        {},
        h(
          "button",
          {
            class: `mode ${rule.mode}`,
            "data-key": `mode ${rule.id}`,
            "aria-label": `${rule.id} is ${rule.mode}: change`,
            click: () => change(rule),
          },
          rule.mode,
        ),
      ),
    );
  });
  const names = ["rule", "limit", "allowed /s", "denied /s", "would be denied /s", "denied", "mode"];
  const head = names.map((name) => h("th", { scope: "col" }, name));
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
  const left = state.rules_total - state.rules.length;
  const more =
    left > 0 && h("p", { class: "note" }, `The ${count(left)} rules with the fewest answers are not shown here.`);
  const others = state.rules.length - RULES_FIRST;
  const turn = (): void => {
    isAll = !isAll;
    rules(at, state, rates, change);
  };
  const text = isAll ? "Show the busiest rules only" : `Show ${count(others)} more rules`;
  fill(at, table, others > 0 && h("button", { class: "link", "data-key": "all rules", click: turn }, text), isAll && more);
}
