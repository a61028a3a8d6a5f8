/** The parts of the page that show the state of the node. */

import { fill, h } from "./dom";
import type { Rule, Second, State, Top, TopKey } from "./types";
import { ago, bytes, count, micros, rate, span } from "./words";

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

export function tiles(at: HTMLElement, state: State): void {
  const { second, owed, leases, store } = state;
  const per = (value: number): string => rate(perSecond(value, second));
  const checks = second.p50_us === null ? "no checks in this second" : `p50 ${micros(second.p50_us)}`;
  const room = store.capacity > 0 ? `${((100 * store.counters) / store.capacity).toFixed(1)} % of the room` : "";
  fill(
    at,
    tile("allowed /s", per(second.allowed), "answers of rules"),
    tile("denied /s", per(second.denied), "over a limit", second.denied > 0 ? "warn" : ""),
    tile("shadow-denied /s", per(second.shadow_denied), "not enforced"),
    tile("degraded /s", per(second.degraded), "by failure mode", second.degraded > 0 ? "bad" : ""),
    tile("shed /s", per(second.shed), "overload, 503", second.shed > 0 ? "bad" : ""),
    tile("p99", micros(second.p99_us), checks),
    tile("counters", count(store.counters), [room, bytes(store.bytes)].filter(Boolean).join(", ")),
    tile(
      "owed hits",
      count(owed.owed),
      owed.dropped > 0 ? `${count(owed.dropped)} dropped` : `${count(owed.posted)} posted`,
      owed.dropped > 0 ? "bad" : owed.owed > 0 ? "warn" : "",
    ),
    tile(
      "over-admission bound",
      count(leases.over_admission_bound),
      leases.leases > 0 ? `${count(leases.leases)} leases` : "nothing leased or synced",
    ),
  );
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
  const open = state.breakers.filter((breaker) => breaker.state !== "closed");
  for (const breaker of open) {
    const text = `The circuit breaker of ${breaker.shard || "the store"} is ${breaker.state}: failure modes answer.`;
    found.push(h("div", { class: "trouble bad" }, h("strong", {}, text)));
  }
  for (const fault of state.faults) {
    found.push(h("div", { class: "trouble warn" }, fault));
  }
  if (found.length === 0) {
    const well = h("div", { class: "trouble good" }, "The limiter is well: no faults, rules in force as written.");
    found.push(well);
  }
  fill(at, ...found);
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
    row("up for", span(Date.now() / 1_000 - node.started_at)),
  );
}

/** Where the counts of the keys come from; null if they are this node's alone. */
function origin(fleet: Top | null): HTMLElement | null {
  if (fleet === null) return null;
  const { nodes, unlisted_max, only_this_node } = fleet;
  const text =
    only_this_node !== undefined
      ? `This node alone: ${only_this_node}.`
      : `Over ${count(nodes.length)} ${nodes.length === 1 ? "node" : "nodes"}.`;
  const rest = unlisted_max > 0 ? ` A key that is not listed may have up to ${count(unlisted_max)}.` : "";
  return h("p", { class: "note" }, text + rest);
}

export function topKeys(
  at: HTMLElement,
  keys: TopKey[],
  window: string,
  open: (key: TopKey) => void,
  fleet: Top | null = null,
): void {
  if (keys.length === 0) {
    fill(at, h("p", { class: "empty" }, `Nobody was denied in the last ${window}.`), origin(fleet));
    return;
  }
  const most = Math.max(...keys.map((key) => key.count));
  const rows = keys.map((key) => {
    const bar = h("meter", { min: "0", max: String(most), value: String(key.count), "aria-hidden": "true" });
    return h(
      "tr",
      {},
      h(
        "td",
        { class: "key" },
        h(
          "button",
          { class: "link", "data-key": `${key.rule} ${key.key}`, click: () => open(key) },
          key.key,
        ),
      ),
      h("td", { class: "rule", "data-label": "rule" }, key.rule),
      h("td", { class: "number", "data-label": "denied" }, count(key.count), key.error > 0 && ` (±${count(key.error)})`),
      h("td", { class: "bar" }, bar),
    );
  });
  const head = ["key", "rule", "denied", "share"].map((name) => h("th", { scope: "col" }, name));
  fill(at, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)), origin(fleet));
}

/** Rates of rules, from the counts of two states. */
export class Rates {
  private before = new Map<string, Rule["counts"]>();
  private rates = new Map<string, { allowed: number; denied: number; shadow: number }>();

  take(state: State): void {
    const now = new Map<string, Rule["counts"]>();
    const since = (value: number, before: number): number => perSecond(Math.max(0, value - before), state.second);
    for (const { id, counts } of state.rules) {
      const before = this.before.get(id) ?? counts;
      this.rates.set(id, {
        allowed: since(counts.allowed, before.allowed),
        denied: since(counts.denied, before.denied),
        shadow: since(counts.shadow_denied, before.shadow_denied),
      });
      now.set(id, counts);
    }
    this.before = now;
  }

  of(rule: Rule): { allowed: number; denied: number; shadow: number } {
    return this.rates.get(rule.id) ?? { allowed: 0, denied: 0, shadow: 0 };
  }
}

export function rules(at: HTMLElement, state: State, rates: Rates, change: (rule: Rule) => void): void {
  if (state.rules.length === 0) {
    fill(at, h("p", { class: "empty" }, "No rules are in force: every request is allowed, or refused until rules load."));
    return;
  }
  const rows = state.rules.map((rule) => {
    const { allowed, denied, shadow } = rates.of(rule);
    // The first part is the limit; the others say how it counts.
    const [limit, ...how] = rule.limit.split(", ");
    return h(
      "tr",
      { class: rule.mode },
      h("td", { class: "key" }, rule.id, h("span", { class: "source" }, rule.source)),
      h("td", { class: "limit", "data-label": "limit" }, limit, h("span", { class: "source" }, how.join(", "))),
      h("td", { class: "number", "data-label": "allowed /s" }, rate(allowed)),
      h("td", { class: "number", "data-label": "denied /s" }, rate(denied)),
      h("td", { class: "number", "data-label": "shadow /s" }, rate(shadow)),
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
  const names = ["rule", "limit", "allowed /s", "denied /s", "shadow /s", "denied", "mode"];
  const head = names.map((name) => h("th", { scope: "col" }, name));
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
  const left = state.rules_total - state.rules.length;
  const more =
    left > 0 && h("p", { class: "note" }, `The ${count(left)} rules with the fewest answers are not shown here.`);
  fill(at, table, more);
}
