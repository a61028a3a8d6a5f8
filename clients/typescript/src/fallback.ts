// The answer to checks while no service answers.

import { pairs, type Decision, type Question } from "./answers.ts";

/** Decides a question in place of the service. */
export type Fallback = (question: Question) => Decision;

/** A limit for all descriptors with these keys: one counter for each of their values. */
export interface LocalLimit {
  readonly domain: string;
  /** The keys of the entries, in their order. */
  readonly keys: readonly string[];
  /** 0 denies everything. */
  readonly limit: number;
  readonly windowMs: number;
}

/** The most counters; of more the least recently used ones are forgotten. */
const COUNTERS_MAX = 10_000;

/** Everything passes. */
export const allowAll: Fallback = () => plain(true);

/** Nothing passes. */
export const denyAll: Fallback = () => plain(false);

/**
 * This process decides with limits of its own, as if each process had them for itself: a bucket of `limit` that refills in
 * `windowMs`. What no limit matches passes.
 */
export function localLimits(limits: readonly LocalLimit[], now: () => number = () => performance.now()): Fallback {
  if (limits.some(({ windowMs }) => !(windowMs > 0))) throw new RangeError("windowMs: has to be longer than 0 ms");
  /** When each bucket will be full. */
  const full = new Map<string, number>();
  return (question) => {
    const at = now();
    const steps = question.descriptors.flatMap((descriptor) => {
      const entries = pairs(descriptor.entries);
      const domain = descriptor.domain ?? question.domain;
      const isFor = (limit: LocalLimit): boolean =>
        limit.domain === domain && limit.keys.length === entries.length && entries.every(([key], at) => limit.keys[at] === key);
      const hits = descriptor.hits ?? 1;
      return limits.flatMap((limit, index) => (isFor(limit) ? [{ limit, key: JSON.stringify([index, entries]), hits }] : []));
    });
    const after = new Map<string, number>();
    let worst: Decision | undefined;
    for (const { limit, key, hits } of steps) {
      const { one, filled } = taken(limit, hits, Math.max(at, after.get(key) ?? full.get(key) ?? 0), at);
      if (one.allowed) after.set(key, filled);
      if (!worst || isStricter(one, worst)) worst = one;
    }
    if (worst && !worst.allowed) return worst;
    // A denied request takes nothing: only now are all charged.
    for (const [key, filled] of after) {
      full.delete(key);
      full.set(key, filled);
      if (full.size > COUNTERS_MAX) full.delete(full.keys().next().value ?? "");
    }
    return worst ?? plain(true);
  };
}

/** True for a denial that lasts longer, and otherwise if less is left. */
function isStricter(one: Decision, other: Decision): boolean {
  if (one.allowed !== other.allowed) return other.allowed;
  if (one.allowed) return (one.remaining ?? 0) < (other.remaining ?? 0);
  return (one.retryAfterMs ?? Infinity) > (other.retryAfterMs ?? Infinity);
}

/** The decision about hits on a bucket that is going to be full at `before`, and when it will be with them. */
function taken({ limit, windowMs }: LocalLimit, hits: number, before: number, at: number): { one: Decision; filled: number } {
  if (limit <= 0) return { one: { ...plain(false), limit, remaining: 0 }, filled: before };
  const perHit = windowMs / limit;
  const filled = before + hits * perHit;
  const wait = filled - windowMs - at;
  const allowed = wait <= 1e-6;
  const remaining = Math.max(0, Math.floor((windowMs - ((allowed ? filled : before) - at)) / perHit + 1e-6));
  const retryAfterMs = allowed || hits > limit ? undefined : wait;
  return { one: { ...plain(allowed), limit, remaining, resetAfterMs: perHit, retryAfterMs }, filled };
}

function plain(allowed: boolean): Decision {
  const unknown = { rule: undefined, policy: undefined, limit: undefined, remaining: undefined, resetAfterMs: undefined, retryAfterMs: undefined };
  return { allowed, degraded: true, ...unknown, delayMs: 0, debt: 0, policies: [] };
}
