/** The panels about what a node depends on: its store, the quota database, the other nodes. */

import { fill, h } from "./dom";
import type { Breaker, Fleet, PlanUse, State } from "./types";
import { count, micros, rate, span } from "./words";

/** Seconds over which the use of plans is averaged. */
const PLANS_OVER = 60;

function pair(name: string, value: Node | string): HTMLElement {
  return h("div", { class: "pair" }, h("dt", {}, name), h("dd", {}, value));
}

function list(at: HTMLElement, ...pairs: HTMLElement[]): void {
  fill(at, h("dl", {}, ...pairs));
}

function table(names: string[], rows: HTMLElement[]): HTMLElement {
  const head = names.map((name) => h("th", { scope: "col" }, name));
  return h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}

function badge(mood: "good" | "bad" | "warn", text: string, attributes: Record<string, string> = {}): HTMLElement {
  return h("span", { class: `badge ${mood}`, ...attributes }, text);
}

/** The parts that this node does without, each with the way to get it. */
export function missing(at: HTMLElement, state: State): void {
  const parts: [string, string, string][] = [];
  if (!state.store.is_shared) {
    const without = "counters are in this node's memory, so there are no servers, debts, leases or other nodes to show.";
    parts.push(["Redis", without, "--store redis://HOST:6379"]);
  }
  if (state.plans.length === 0) {
    parts.push(["Plans", "the rules in force have no plans.", "plans: [free, pro]"]);
  }
  if (state.quota_database === null) {
    const without = "plans and overrides come from files alone, and this page cannot change them.";
    parts.push(["Quota database", without, "--data-dir DIR, or --quotas postgres://HOST/DATABASE"]);
  }
  const items = parts.map(([name, without, how]) => h("li", {}, h("strong", {}, name), `: ${without} `, h("code", {}, how)));
  fill(at, h("ul", {}, ...items));
  at.closest("section")?.toggleAttribute("hidden", parts.length === 0);
}

/** What the servers of the store were asked, from the counts of two states. */
export class Calls {
  private before: Breaker[] = [];
  private found = new Map<string, { rate: number; mean_us: number | null }>();

  /** Takes a state that comes `ms` milliseconds after the one before; 0 if that is unknown. */
  take(state: State, ms: number): void {
    this.found = new Map(
      state.breakers.map((shard) => {
        const then = this.before.find((other) => other.shard === shard.shard) ?? shard;
        const calls = Math.max(0, shard.calls - then.calls);
        const mean_us = calls > 0 ? ((shard.call_seconds - then.call_seconds) * 1e6) / calls : null;
        return [shard.shard, { rate: ms > 0 ? (calls * 1_000) / ms : 0, mean_us }];
      }),
    );
    this.before = state.breakers;
  }

  of({ shard }: Breaker): { rate: number; mean_us: number | null } {
    return this.found.get(shard) ?? { rate: 0, mean_us: null };
  }
}

/** The servers of the store, with their circuit breakers. */
export function shards(at: HTMLElement, state: State, calls: Calls): void {
  if (state.breakers.length === 0) {
    fill(at, h("p", { class: "loading" }, "No server is known yet."));
    return;
  }
  const rows = state.breakers.map((shard) => {
    const { rate: perSecond, mean_us } = calls.of(shard);
    const causes = Object.entries(shard.causes).map(([cause, errors]) => `${cause} ${count(errors)}`);
    const mood = shard.state === "closed" ? "good" : "bad";
    return h(
      "tr",
      {},
      h("td", { class: "key" }, shard.shard || "store", h("span", { class: "source" }, causes.join(", "))),
      h("td", { "data-label": "breaker" }, badge(mood, shard.state, { "data-breaker": shard.shard })),
      h("td", { class: "number", "data-label": "calls /s" }, rate(perSecond)),
      h("td", { class: "number", "data-label": "mean time" }, micros(mean_us)),
      h("td", { class: "number", "data-label": "errors" }, count(shard.errors)),
    );
  });
  fill(at, table(["server", "breaker", "calls /s", "mean time", "errors"], rows));
}

/** Hits that are owed to the store, held in advance, or not told yet. */
export function debts(at: HTMLElement, state: State): void {
  const { owed, leases } = state;
  list(
    at,
    pair("let pass while the store was away, to be charged", count(owed.owed)),
    pair("charged since", count(owed.posted)),
    pair("never charged", owed.dropped > 0 ? badge("bad", count(owed.dropped)) : "none"),
    pair("sent, the answer was lost", owed.unknown > 0 ? count(owed.unknown) : "none"),
    pair("taken in advance (leases)", leases.leases > 0 ? `${count(leases.leases)}, with ${count(leases.held)} hits` : "none"),
    pair("not told to other nodes yet", count(leases.unsynced)),
    pair("most by which limits may be exceeded", count(leases.over_admission_bound)),
  );
}

/** The database with tenants' quotas. */
export function quotaDatabase(at: HTMLElement, state: State): void {
  const database = state.quota_database;
  if (database === null) {
    fill(at);
    return;
  }
  const away = database.state !== "up";
  const told = away
    ? badge("bad", `away for ${span(database.away_seconds)}`, { id: "quota-state" })
    : badge("good", "answers", { id: "quota-state" });
  const known = database.is_known
    ? `${count(database.tenants)} known here`
    : badge("bad", "not known: neither the database nor a saved copy was there");
  list(
    at,
    pair("database", told),
    pair("tenants", known),
    pair("number of the last change in force", count(database.version)),
    pair("reads that failed", count(database.errors)),
    pair("entries that no rule knows", database.ignored > 0 ? badge("warn", count(database.ignored)) : "none"),
  );
}

/** Who owns what of the limits that regions lend each other, who lent to whom, and which link is down. */
export function regions(at: HTMLElement, state: State): void {
  const loans = state.regions;
  if (loans === null) {
    fill(at);
    return;
  }
  const facts = h(
    "p",
    {},
    h("strong", {}, loans.region),
    ` owns ${count(loans.owned)} hits of a window, and looks after ${count(loans.counters)} counters here (weights version ${loans.weights_version})`,
  );
  const rows = loans.peers.map((peer) => {
    const since = `${peer.link} for ${span(peer.since_seconds)}`;
    const mood = peer.link === "up" ? (peer.fault === null ? "good" : "warn") : "bad";
    return h(
      "tr",
      {},
      h("td", { class: "key" }, peer.region, h("span", { class: "source" }, peer.fault ?? "")),
      h("td", { "data-label": "link" }, badge(mood, peer.link === "none" ? "not set" : since, { "data-region": peer.region })),
      h("td", { class: "number", "data-label": "round trip" }, peer.round_trip_us === null ? "–" : micros(peer.round_trip_us)),
      h("td", { class: "number", "data-label": "lent to it" }, count(peer.lent)),
      h("td", { class: "number", "data-label": "borrowed" }, count(peer.borrowed)),
      h("td", { class: "number", "data-label": "asked it" }, count(peer.asks)),
      h("td", { class: "number", "data-label": "was asked" }, count(peer.answered + peer.refused)),
      h("td", { class: "number", "data-label": "refused" }, peer.refused > 0 ? badge("warn", count(peer.refused)) : "0"),
    );
  });
  fill(at, facts, table(["region", "link", "round trip", "lent to it", "borrowed", "asked it", "was asked", "refused"], rows));
}

/** The nodes that told of themselves lately. */
export function nodes(at: HTMLElement, state: State, top: Fleet | null): void {
  if (top === null) {
    fill(at, h("p", { class: "loading" }, "Asking who is there…"));
    return;
  }
  const live = top.nodes.map((node, number) => {
    const age = number === 0 ? "this node" : `heard ${span(node.age_ms / 1_000)} ago`;
    return h("li", {}, h("strong", {}, node.name || "without a name"), ` ${age}`);
  });
  const leased = state.node.nodes > 0 ? `${count(state.node.nodes)} of them lease counters. ` : "";
  const more = top.nodes_left_out > 0 ? `${count(top.nodes_left_out)} more are not listed. ` : "";
  const why = top.only_this_node;
  fill(
    at,
    why !== undefined && h("p", { class: "trouble warn" }, `Others may be there: ${why}.`),
    h("p", { class: "note", id: "nodes-live" }, `${count(top.nodes.length + top.nodes_left_out)} live. ${leased}${more}`),
    h("ul", { class: "nodes" }, ...live),
  );
}

/** What became of a plan's counts, by the time at which they were read. */
interface Reading {
  at: number;
  plans: Map<string, PlanUse>;
}

/** The use of limits by plan over the last minute. */
export class Plans {
  private readings: Reading[] = [];

  /** Takes a state; `isSame` is false for the first one of a new process, whose counts begin at zero. */
  take(state: State, isSame: boolean): void {
    if (!isSame) this.readings = [];
    const plans = new Map(state.plans.map((plan) => [`${plan.domain} ${plan.plan}`, plan]));
    this.readings.push({ at: state.second.at, plans });
    while (this.readings.length > 2 && (this.readings[1]?.at ?? 0) <= state.second.at - PLANS_OVER) {
      this.readings.shift();
    }
  }

  show(at: HTMLElement, state: State): void {
    const first = this.readings[0]?.plans;
    const several = new Set(state.plans.map((plan) => plan.domain)).size > 1;
    const rows = state.plans.map((plan) => {
      const then = first?.get(`${plan.domain} ${plan.plan}`);
      const since = (now: number, before: number | undefined): number => Math.max(0, now - (before ?? 0));
      const answers = since(plan.answers, then?.answers);
      const counted = since(plan.counted, then?.counted);
      const of = (value: number, all: number): string => (all > 0 ? `${((100 * value) / all).toFixed(1)} %` : "–");
      const used = counted > 0 ? since(plan.used_sum, then?.used_sum) / counted : 0;
      const bar = h("meter", {
        min: "0",
        max: "1",
        high: "0.9",
        value: used.toFixed(3),
        "aria-label": `${plan.plan}: mean use of limits`,
      });
      return h(
        "tr",
        {},
        h("td", { class: "key" }, plan.plan, several && h("span", { class: "source" }, plan.domain)),
        h("td", { class: "number", "data-label": "mean use" }, counted > 0 ? of(used, 1) : "–"),
        h("td", { class: "bar" }, bar),
        h("td", { class: "number", "data-label": "over 90 %" }, of(since(plan.close, then?.close), counted)),
        h("td", { class: "number", "data-label": "denied" }, of(since(plan.denied, then?.denied), answers)),
        h("td", { class: "number", "data-label": "answers" }, count(answers)),
      );
    });
    fill(at, table(["plan", "mean use", "of the limit", "over 90 %", "denied", "answers"], rows));
  }
}
