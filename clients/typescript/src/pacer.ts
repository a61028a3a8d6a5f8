// Decides when a request may be sent, from what the answers to earlier ones told. Pure: it reads no clock and waits for
// nothing; times are milliseconds that are passed in.

import { isPaced, type LimitInfo, type RateLimitInfo } from "./info.ts";
import { Policy } from "./policy.ts";

/** Whose limits a request counts towards, and which of them. */
export interface Lane {
  /** Who is limited, and where: requests of one budget share the state of their policies. */
  readonly budget: string;
  /** Requests that the same policies apply to, such as those of one route. */
  readonly route: string;
}

export interface PacerOptions {
  /** The most requests that are under way at once for one budget: 100 by default. */
  readonly concurrency?: number;
  /** The longest time that the first request of a budget goes alone, in milliseconds: 1000 by default. */
  readonly learnMs?: number;
  /** Numbers from 0 to 1; `Math.random` by default. */
  readonly random?: () => number;
}

/** A request that may be sent. It must be answered or lost. */
export interface Ticket {
  readonly lane: Lane;
  readonly sentAt: number;
}

/** A request that must wait: `waitMs`, or if that is infinite, until any request of the budget is settled. */
export interface Wait {
  readonly waitMs: number;
  /** The name of the policy that it waits for, if it is one. */
  readonly policy: string | undefined;
}

/** The most budgets, and routes and policies of each, that are remembered; the least recently used ones are forgotten. */
const REMEMBERED_MAX = 1000;

/** Passed requests at once after which a server that tells nothing but denials counts as unlimited again. */
const UNTOLD_MAX = 64;

interface Route {
  /** Keys of the policies that its last answer told of. Undefined before that. */
  policies: readonly string[] | undefined;
}

interface Budget {
  readonly underWay: Set<Ticket>;
  readonly routes: Map<string, Route>;
  readonly policies: Map<string, Policy>;
  /** Keys of the policies that the last answer of all told of. Undefined before the first. */
  latest: readonly string[] | undefined;
  /** The request that goes alone because nothing is known. */
  first: Ticket | undefined;
}

/** What is done after a denial that names no limit: an answer that passes doubles what may be sent. */
const UNNAMED = "denials";

export class Pacer {
  readonly #budgets = new Map<string, Budget>();
  readonly #concurrency: number;
  readonly #learnMs: number;
  readonly #random: () => number;
  /** For each budget that denied without naming a limit: how many may be sent until the next answer. */
  readonly #grown = new Map<string, number>();

  constructor(options: PacerOptions = {}) {
    this.#concurrency = options.concurrency ?? 100;
    this.#learnMs = options.learnMs ?? 1000;
    this.#random = options.random ?? Math.random;
  }

  /** Takes a request's place if it may be sent now. */
  take(lane: Lane, now: number): Ticket | Wait {
    const budget = this.#budget(lane.budget);
    if (budget.underWay.size >= this.#concurrency) return { waitMs: Infinity, policy: undefined };
    const first = budget.first;
    if (first && now < first.sentAt + this.#learnMs) {
      return { waitMs: first.sentAt + this.#learnMs - now, policy: undefined };
    }
    const policies = this.#policies(budget, lane.route);
    let [wait, waitsFor] = [0, ""];
    for (const [key, policy] of policies) {
      const one = policy.wait(now);
      if (one > wait) [wait, waitsFor] = [one, key];
    }
    if (wait > 0) return { waitMs: wait, policy: nameOf(waitsFor) };
    const ticket: Ticket = { lane, sentAt: now };
    for (const [, policy] of policies) policy.take(ticket, now);
    budget.underWay.add(ticket);
    if (!budget.latest && !first) budget.first = ticket;
    return ticket;
  }

  /** Learns from an answer. */
  answered(ticket: Ticket, info: RateLimitInfo, now: number): void {
    const { lane } = ticket;
    const budget = this.#settled(ticket);
    const told = info.limits.filter(isPaced);
    const isUnnamed = told.length === 0;
    if (isUnnamed && !info.denied && !this.#grown.has(lane.budget)) {
      // An answer of a route that told of limits before, such as an error from behind the limiter, ends nothing.
      budget.latest ??= [];
      for (const policy of budget.policies.values()) policy.passed(ticket, now);
      return;
    }
    const limits = isUnnamed ? [this.#unnamed(lane.budget, info.denied)] : told;
    if (limits.some((limit) => limit === undefined)) {
      this.#forget(budget, ticket, now);
      return;
    }
    const keys = this.#learn(budget, ticket, limits as LimitInfo[], info, now);
    for (const [key, policy] of budget.policies) if (!keys.includes(key)) policy.passed(ticket, now);
    remember(budget.routes, lane.route, { policies: keys });
    budget.latest = keys;
  }

  /** Counts a request as sent whose answer will not come. */
  lost(ticket: Ticket, now: number): void {
    const budget = this.#settled(ticket);
    for (const policy of budget.policies.values()) policy.lost(ticket, now);
  }

  #learn(budget: Budget, ticket: Ticket, limits: readonly LimitInfo[], info: RateLimitInfo, now: number): string[] {
    const rests = limits.filter((limit) => limit.remaining !== undefined);
    const least = rests.reduce<LimitInfo | undefined>((a, b) => ((a?.remaining ?? Infinity) <= (b.remaining ?? 0) ? a : b), undefined);
    const keys = limits.map(keyOf);
    limits.forEach((limit, at) => {
      const key = keys[at] ?? "";
      const known = budget.policies.get(key);
      const policy = known ?? new Policy(budget.underWay, this.#random);
      remember(budget.policies, key, policy);
      policy.describe(limit);
      const isOwn = limit.remaining !== undefined && limit.name !== UNNAMED;
      // Servers tell the policy with the least left; the others have as much at least.
      const { remaining, resetMs } = isOwn ? limit : (least ?? limit);
      const denied = info.denied && (least?.remaining !== 0 || remaining === 0);
      const moreMs = denied && isTimed(info) ? Math.max(info.waitMs, resetMs ?? 0) : resetMs;
      policy.answered(ticket, { denied, remaining, isOwn, moreMs }, now);
    });
    return keys;
  }

  /** A limit for denials that name none; undefined once it is over. */
  #unnamed(budget: string, denied: boolean): LimitInfo | undefined {
    const grown = denied ? 0 : Math.max(1, 2 * (this.#grown.get(budget) ?? 0));
    if (grown > UNTOLD_MAX) {
      this.#grown.delete(budget);
      return undefined;
    }
    remember(this.#grown, budget, grown);
    const unknown = { partition: undefined, quota: undefined, windowMs: undefined, resetMs: undefined };
    return { ...unknown, name: UNNAMED, unit: "requests", remaining: denied ? undefined : grown };
  }

  #forget(budget: Budget, ticket: Ticket, now: number): void {
    budget.policies.delete(keyOf({ name: UNNAMED, partition: undefined, unit: "requests" }));
    for (const policy of budget.policies.values()) policy.passed(ticket, now);
    remember(budget.routes, ticket.lane.route, { policies: [] });
    budget.latest = [];
  }

  #policies(budget: Budget, route: string): [string, Policy][] {
    const keys = budget.routes.get(route)?.policies ?? budget.latest ?? [];
    return keys.flatMap((key): [string, Policy][] => {
      const policy = budget.policies.get(key);
      return policy ? [[key, policy]] : [];
    });
  }

  #budget(key: string): Budget {
    const known = this.#budgets.get(key);
    const budget = known ?? { underWay: new Set(), routes: new Map(), policies: new Map(), latest: undefined, first: undefined };
    remember(this.#budgets, key, budget);
    return budget;
  }

  #settled(ticket: Ticket): Budget {
    const budget = this.#budget(ticket.lane.budget);
    budget.underWay.delete(ticket);
    if (budget.first === ticket) budget.first = undefined;
    return budget;
  }
}

/** True if the answer tells when to come back. */
function isTimed(info: RateLimitInfo): boolean {
  return info.retryAfterMs !== undefined || info.limits.some((limit) => limit.resetMs !== undefined);
}

/** What identifies a policy. One without a name is another one when its quota changes. */
function keyOf(limit: Pick<LimitInfo, "name" | "partition" | "unit"> & Partial<LimitInfo>): string {
  const { name, partition, unit, quota, windowMs } = limit;
  return JSON.stringify(name === "" ? [name, partition, unit, quota, windowMs] : [name, partition, unit]);
}

function nameOf(key: string): string | undefined {
  return key === "" ? undefined : String((JSON.parse(key) as unknown[])[0]);
}

/** Sets what is most recent, and forgets what is least so. */
function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > REMEMBERED_MAX) map.delete(map.keys().next().value ?? "");
}
