import assert from "node:assert/strict";
import { test } from "node:test";
import { readRateLimitInfo } from "../src/index.ts";
import { Pacer, type Ticket } from "../src/pacer.ts";
import { fixedWindow, simulate, slidingLog, tokenBucket, type Limiter } from "./simulation.ts";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const RUN = 20 * SECOND;

// A limit, and how much it allows in twenty seconds.
const LIMITS: [string, () => Limiter[], number][] = [
  ["50/s in a fixed window", () => [fixedWindow("a", () => 50, SECOND)], 1000],
  ["50/s in a sliding window", () => [slidingLog("a", 50, SECOND)], 1000],
  ["50/s from a bucket", () => [tokenBucket("a", 50, SECOND)], 1050],
  ["50/s from a bucket of ten", () => [tokenBucket("a", 50, SECOND, 10)], 1010],
  ["3/s from a bucket of one", () => [tokenBucket("a", 3, SECOND, 1)], 61],
  ["600/min from a bucket of 5", () => [tokenBucket("a", 600, MINUTE, 5)], 205],
  ["600/min from a bucket of 50", () => [tokenBucket("a", 600, MINUTE, 50)], 250],
  ["600/min from a bucket", () => [tokenBucket("a", 600, MINUTE)], 800],
  ["600/min from a bucket of 1,000", () => [tokenBucket("a", 600, MINUTE, 1000)], 1200],
  ["50/s and 600/min in windows", () => [fixedWindow("a", () => 50, SECOND), slidingLog("b", 600, MINUTE)], 600],
  ["50/s and 600/min from buckets", () => [tokenBucket("a", 50, SECOND), tokenBucket("b", 600, MINUTE)], 800],
];

for (const [name, limiters, allowed] of LIMITS) {
  test(`${name}: one client is never denied and uses nine tenths`, () => {
    for (const workers of [1, 4, 20]) {
      for (const seed of [1, 2, 3]) {
        const result = simulate({ limiters: limiters(), forMs: RUN, latencyMs: 1, clients: [workers] }, seed);
        assert.equal(result.denied, 0, `${workers} workers: ${JSON.stringify(result)}`);
        assert.ok(result.passed >= 0.9 * allowed, `${workers} workers: ${JSON.stringify(result)}`);
      }
    }
  });

  test(`${name}: one client far away is never denied`, () => {
    for (const latencyMs of [30, 100]) {
      const result = simulate({ limiters: limiters(), forMs: RUN, latencyMs, clients: [20] });
      assert.equal(result.denied, 0, `${latencyMs} ms: ${JSON.stringify(result)}`);
    }
  });
}

test("two clients that share a key are denied at most one in a hundred", () => {
  for (const seed of [1, 2, 3]) {
    for (const limiter of [fixedWindow("a", () => 50, SECOND), slidingLog("a", 50, SECOND), tokenBucket("a", 50, SECOND)]) {
      const result = simulate({ limiters: [limiter], forMs: RUN, latencyMs: 1, clients: [1, 1] }, seed);
      const what = `${limiter.policy}: ${JSON.stringify(result)}`;
      assert.ok(result.denied <= 0.01 * result.passed, what);
      assert.ok(result.passed >= 0.85 * 1000, what);
    }
  }
});

test("a limit that is lowered half-way costs no more than what was under way", () => {
  let limit = 50;
  const limiter = fixedWindow("a", () => limit, SECOND);
  const lower = new Map([[10 * SECOND, () => { limit = 20; }]]);
  const result = simulate({ limiters: [limiter], forMs: RUN, latencyMs: 1, clients: [4], at: lower });
  assert.ok(result.denied <= 4, JSON.stringify(result));
  assert.ok(result.passed >= 0.9 * 700, JSON.stringify(result));
});

test("a limit that is raised half-way is used", () => {
  let limit = 20;
  const raise = new Map([[10 * SECOND, () => { limit = 50; }]]);
  const result = simulate({ limiters: [fixedWindow("a", () => limit, SECOND)], forMs: RUN, latencyMs: 1, clients: [4], at: raise });
  assert.equal(result.denied, 0);
  assert.ok(result.passed >= 0.9 * 700, JSON.stringify(result));
});

test("a batch within the limit takes no longer than its answers, but for the first", () => {
  const result = simulate({ limiters: [fixedWindow("a", () => 50, SECOND)], forMs: RUN, latencyMs: 10, clients: [50], requests: 50, startMs: 0 });
  assert.equal(result.passed, 50);
  assert.ok(result.endedAt < 60, JSON.stringify(result));
});

test("a request that ends what is done after denials without a name is settled for the other limits too", () => {
  const pacer = new Pacer();
  let now = 0;
  const take = (route: string): Ticket => {
    const taken = pacer.take({ budget: "b", route }, (now += 100_000));
    assert.ok("sentAt" in taken);
    return taken;
  };
  const answer = (ticket: Ticket, status: number, headers: Record<string, string> = {}): void =>
    pacer.answered(ticket, readRateLimitInfo(status, Object.entries(headers)), now);
  answer(take("plain"), 429);
  for (let passed = 0; passed < 7; passed++) answer(take("plain"), 200);
  const last = take("plain");
  const told = (left: number) => ({ "ratelimit-policy": '"p";q=9;w=3600', ratelimit: `"p";r=${left};t=3600` });
  answer(take("limited"), 200, told(0));
  answer(last, 200);
  now += 3_600_000;
  answer(take("limited"), 200, told(5));
  for (let left = 5; left > 0; left--) take("limited");
});

test("an answer that a denial overtook promises nothing, as when the limit was lowered", () => {
  const pacer = new Pacer();
  const take = (now: number) => pacer.take({ budget: "b", route: "r" }, now);
  const sent = (now: number): Ticket => {
    const taken = take(now);
    assert.ok("sentAt" in taken);
    return taken;
  };
  const answer = (ticket: Ticket, status: number, quota: number, left: number, now: number): void => {
    const told = { "ratelimit-policy": `"p";q=${quota};w=1`, ratelimit: `"p";r=${left};t=1` };
    pacer.answered(ticket, readRateLimitInfo(status, Object.entries(told)), now);
  };
  answer(sent(0), 200, 60, 59, 1);
  const [earlier, later] = [sent(2), sent(2)];
  answer(later, 429, 20, 0, 3);
  answer(earlier, 200, 60, 58, 4);
  for (const now of [4, 200, 1000]) assert.ok("waitMs" in take(now), `at ${now}`);
  answer(sent(1003), 200, 20, 19, 1004);
  for (let left = 19; left > 0; left--) sent(1004);
});
