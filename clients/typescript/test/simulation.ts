// A server and its clients in virtual time: no clock, no network, and the same result each time.

import { readRateLimitInfo } from "../src/info.ts";
import { Pacer, type Lane, type Ticket } from "../src/pacer.ts";

/** A limiter: decides one hit, and tells what is left and the milliseconds until there is more. */
export interface Limiter {
  readonly policy: string;
  look(now: number): { remaining: number; moreMs: number };
  charge(now: number): void;
}

export function fixedWindow(name: string, limit: () => number, windowMs: number): Limiter {
  let [window, count] = [-1, 0];
  const roll = (now: number): void => {
    const current = Math.floor(now / windowMs);
    if (current !== window) [window, count] = [current, 0];
  };
  return {
    get policy() { return `"${name}";q=${limit()};w=${windowMs / 1000}`; },
    look(now) {
      roll(now);
      return { remaining: Math.max(0, limit() - count), moreMs: count === 0 ? 0 : (window + 1) * windowMs - now };
    },
    charge(now) { roll(now); count += 1; },
  };
}

export function slidingLog(name: string, limit: number, windowMs: number): Limiter {
  const hits: number[] = [];
  const roll = (now: number): void => { while (hits[0] !== undefined && hits[0] + windowMs <= now) hits.shift(); };
  return {
    policy: `"${name}";q=${limit};w=${windowMs / 1000}`,
    look(now) {
      roll(now);
      return { remaining: limit - hits.length, moreMs: hits[0] === undefined ? 0 : hits[0] + windowMs - now };
    },
    charge(now) { hits.push(now); },
  };
}

/** Also a GCRA, which admits the same. */
export function tokenBucket(name: string, limit: number, windowMs: number, burst = limit): Limiter {
  let [tokens, at] = [burst, 0];
  const perHit = windowMs / limit;
  const fill = (now: number): void => { [tokens, at] = [Math.min(burst, tokens + (now - at) / perHit), now]; };
  return {
    policy: `"${name}";q=${Math.max(limit, burst)};w=${windowMs / 1000}`,
    look(now) {
      fill(now);
      const whole = Math.floor(tokens + 1e-9);
      return { remaining: whole, moreMs: tokens >= burst ? 0 : (whole + 1 - tokens) * perHit };
    },
    charge(now) { fill(now); tokens -= 1; },
  };
}

export interface Scenario {
  readonly limiters: readonly Limiter[];
  /** The virtual time that passes, in milliseconds. */
  readonly forMs: number;
  /** Each way, in milliseconds; jittered by half of it. */
  readonly latencyMs: number;
  /** The workers of each client. */
  readonly clients: readonly number[];
  /** Requests in all; unlimited by default. */
  readonly requests?: number;
  readonly startMs?: number;
  readonly at?: ReadonlyMap<number, () => void>;
}

export interface Result {
  passed: number;
  denied: number;
  /** Denials of requests that were sent after the first answer of all. */
  deniedLater: number;
  endedAt: number;
}

/** Runs clients that send as fast as their pacers let them. */
export function simulate(scenario: Scenario, seed = 1): Result {
  const random = generator(seed);
  const start = scenario.startMs ?? 400;
  const events: { at: number; order: number; run: () => void }[] = [];
  let [now, order] = [start, 0];
  const later = (ms: number, run: () => void): void => {
    events.push({ at: now + ms, order: order++, run });
  };
  const result: Result = { passed: 0, denied: 0, deniedLater: 0, endedAt: start };
  let firstAnswer = Infinity;
  let begun = 0;
  for (const [time, run] of scenario.at ?? []) later(time, run);
  const lane: Lane = { budget: "b", route: "r" };
  for (const workers of scenario.clients) {
    const pacer = new Pacer({ random, concurrency: 1000 });
    let idle = workers;
    let timer = 0;
    const step = (): void => {
      while (idle > 0 && begun < (scenario.requests ?? Infinity)) {
        const taken = pacer.take(lane, now);
        if ("waitMs" in taken) {
          const mine = ++timer;
          if (taken.waitMs !== Infinity) later(Math.max(taken.waitMs, 0.001), () => { if (mine === timer) step(); });
          return;
        }
        idle -= 1;
        begun += 1;
        send(taken);
      }
    };
    const oneWay = (): number => scenario.latencyMs * (0.75 + 0.5 * random());
    const send = (ticket: Ticket): void => later(oneWay(), () => {
      const looks = scenario.limiters.map((limiter) => limiter.look(now));
      const allowed = looks.every((look) => look.remaining > 0);
      if (allowed) for (const limiter of scenario.limiters) limiter.charge(now);
      const after = scenario.limiters.map((limiter) => limiter.look(now));
      const pick = after.map((look, at) => ({ ...look, at })).sort((a, b) =>
        allowed ? a.remaining - b.remaining || b.moreMs - a.moreMs : a.remaining - b.remaining || b.moreMs - a.moreMs)[0];
      if (!pick) throw new Error("there is no limiter");
      const seconds = Math.ceil(pick.moreMs / 1000);
      const name = /^"[^"]*"/.exec(scenario.limiters[pick.at]?.policy ?? "")?.[0] ?? "";
      const headers: [string, string][] = [
        ["ratelimit-policy", scenario.limiters.map((limiter) => limiter.policy).join(", ")],
        ["ratelimit", `${name};r=${pick.remaining};t=${seconds}`],
      ];
      if (!allowed) headers.push(["retry-after", String(Math.max(1, seconds))]);
      later(oneWay(), () => {
        if (allowed) result.passed += 1;
        else {
          result.denied += 1;
          if (ticket.sentAt >= firstAnswer) result.deniedLater += 1;
          begun -= 1;
        }
        firstAnswer = Math.min(firstAnswer, now);
        result.endedAt = now;
        pacer.answered(ticket, readRateLimitInfo(allowed ? 200 : 429, headers, now), now);
        idle += 1;
        step();
      });
    });
    later(random(), step);
  }
  while (events.length > 0) {
    let next = 0;
    for (let at = 1; at < events.length; at++) {
      const [a, b] = [events[at], events[next]];
      if (a && b && (a.at < b.at || (a.at === b.at && a.order < b.order))) next = at;
    }
    const [event] = events.splice(next, 1);
    if (!event || event.at > start + scenario.forMs) break;
    now = event.at;
    event.run();
  }
  return result;
}

/** Numbers from 0 to 1, always the same ones (mulberry32). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
