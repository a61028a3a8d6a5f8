// The paced fetch against the gateway: every algorithm, limits of seconds and minutes, and what goes wrong with them.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createFetch, Gate, type Fetch, type FetchEvent } from "ratekeeper";
import { serve, startGateway, type Running, type Serving } from "./binary.ts";

/**
 * The part of a limit that a client uses on a machine which is busy with other tests, or of what its workers could ask there
 * without a limit if that is less. The simulation asks for nine tenths.
 */
const USED = 0.4;

const RUN_MS = 6000;

/**
 * Runs of which one must keep to a bound. A client infers from answers what another one does, so a machine that halts one of
 * them makes it infer wrongly. In the simulation, which nothing halts, every run keeps to it.
 */
const RUNS_MAX = 3;

/** A limit: what passes at once, and how much more each second, in all at most. */
interface Limit {
  readonly limits: string;
  readonly burst: number;
  readonly perSecond: number;
  readonly most?: number;
}

const windowed = (algorithm: string): Limit => ({ limits: `{ window: 1s, limit: 50, algorithm: ${algorithm} }`, burst: 0, perSecond: 50 });
const bucket = (algorithm: string, limit: string, burst: number, perSecond: number): Limit =>
  ({ limits: `{ ${limit}, burst: ${burst}, algorithm: ${algorithm} }`, burst, perSecond });

/** A key of its own for each limit. */
const LIMITS: Record<string, Limit> = {
  fixed_window: windowed("fixed_window"),
  sliding_window: windowed("sliding_window"),
  sliding_log: windowed("sliding_log"),
  token_bucket: bucket("token_bucket", "window: 1s, limit: 50", 50, 50),
  token_bucket_small: bucket("token_bucket", "window: 1s, limit: 50", 10, 50),
  token_bucket_minute: bucket("token_bucket", "window: 1m, limit: 600", 20, 10),
  token_bucket_large: bucket("token_bucket", "window: 1m, limit: 120", 300, 2),
  gcra: bucket("gcra", "window: 1s, limit: 50", 50, 50),
  gcra_small: bucket("gcra", "window: 1s, limit: 50", 10, 50),
  gcra_minute: bucket("gcra", "window: 1m, limit: 600", 20, 10),
  leaky_bucket: bucket("leaky_bucket", "window: 1s, limit: 50", 10, 50),
  two: {
    limits: "[ { name: second, window: 1s, limit: 50, algorithm: sliding_log }, { name: minute, window: 1m, limit: 120, algorithm: sliding_log } ]",
    burst: 0, perSecond: 50, most: 120,
  },
};

/** What a limit allows. Headers tell whole seconds, so the last one may not be used. */
function allowed({ burst, perSecond, most = Infinity }: Limit, ms: number): number {
  return Math.min(most, burst + perSecond * (ms / 1000 - 1));
}

function rules(of: Record<string, string>): string {
  const one = ([value, limits]: [string, string]): string => `  - { key: api_key, value: ${value}, rate_limit: ${limits} }\n`;
  return `domain: api\ndescriptors:\n${Object.entries(of).map(one).join("")}`;
}

let upstream: Serving;
let gateway: Running;

before(async () => {
  upstream = await serve((_request, answer) => {
    // The gateway's own clock is to tell the date.
    answer.sendDate = false;
    answer.end("ok");
  });
  const shared = ["window: 1s, limit: 50, algorithm: token_bucket", "window: 1s, limit: 50, algorithm: fixed_window"];
  const keys = Object.entries(LIMITS).map(([key, { limits }]): [string, string] => [key, limits]);
  gateway = await startGateway(rules(Object.fromEntries([...keys, ...shared.map((limit, at) => [`shared${at}`, `{ ${limit} }`])])), upstream.url);
});

after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** What the clients of a test were answered. */
class Counts {
  passed = 0;
  denied = 0;
  /** What all requests took together, without the waits of the client: other tests make them slow. */
  tookMs = 0;
  readonly quotas = new Set<number | undefined>();
  #waiting: { count: number; resolve: () => void } | undefined;

  add({ info, tookMs }: FetchEvent & { type: "answered" }): void {
    this.tookMs += tookMs;
    for (const limit of info.limits) this.quotas.add(limit.quota);
    if (info.denied) this.denied += 1;
    else this.passed += 1;
    if (this.#waiting && this.passed >= this.#waiting.count) this.#waiting.resolve();
  }

  /** Fails if the workers of a run used too little of what a limit allows. */
  assertUsed(allowed: number, workers: number): void {
    // One request after another, if nothing else had them wait.
    const possible = (workers * RUN_MS * (this.passed + this.denied)) / this.tookMs;
    assert.ok(this.passed > 0 && this.passed >= USED * Math.min(allowed, possible), `${this.passed} of ${allowed}, and of ${possible} that were possible`);
  }

  /** Waits until so many have passed. */
  reached(count: number): Promise<void> {
    return new Promise((resolve) => { this.#waiting = { count, resolve }; });
  }
}

/** A client whose workers ask as fast as they may until the time is up. */
function client(url: string, key: string, workers: number, counts: Counts): (untilMs: number) => Promise<void> {
  const onEvent = (event: FetchEvent): void => {
    if (event.type === "answered") counts.add(event);
  };
  const paced: Fetch = createFetch({ gate: new Gate(), onEvent, budgetMs: 120_000 });
  return async (untilMs) => {
    const until = AbortSignal.timeout(untilMs);
    const work = async (): Promise<void> => {
      while (!until.aborted) {
        const answer = await paced(`${url}/orders`, { headers: { "x-api-key": key }, signal: until }).catch((error: unknown) => {
          if (!until.aborted) throw error;
        });
        await answer?.text().catch(() => "");
      }
    };
    await Promise.all(Array.from({ length: workers }, work));
  };
}

describe("against the gateway", { concurrency: 4, timeout: 90_000 }, () => {
  for (const [key, limit] of Object.entries(LIMITS)) {
    test(`one client under ${key} is never denied, and uses the limit`, async () => {
      const counts = new Counts();
      await client(gateway.url("gateway"), key, 4, counts)(RUN_MS);
      assert.equal(counts.denied, 0, JSON.stringify(counts));
      counts.assertUsed(allowed(limit, RUN_MS), 4);
    });
  }

  for (const key of ["shared0", "shared1"]) {
    test(`two clients that share ${key} are denied at most one in a hundred`, async () => {
      const runs: Counts[] = [];
      const keeps = ({ denied, passed }: Counts): boolean => denied <= 0.01 * passed && passed >= 200;
      while (runs.length < RUNS_MAX && !runs.some(keeps)) {
        const counts = new Counts();
        const two = [client(gateway.url("gateway"), key, 1, counts), client(gateway.url("gateway"), key, 1, counts)];
        await Promise.all(two.map((run) => run(2 * RUN_MS)));
        runs.push(counts);
      }
      assert.ok(runs.some(keeps), JSON.stringify(runs));
    });
  }

  test("a limit that is lowered half-way costs no more than what was under way", async (t) => {
    const limited = (limit: number): string => rules({ lowered: `{ window: 1s, limit: ${limit}, algorithm: fixed_window }` });
    const own = await startGateway(limited(60), upstream.url);
    t.after(() => own.stop());
    const workers = 4;
    const counts = new Counts();
    const run = client(own.url("gateway"), "lowered", workers, counts)(2 * RUN_MS);
    await counts.reached(100);
    own.writeRules(limited(20));
    await run;
    assert.ok(counts.quotas.has(20), "the rules were not reloaded");
    assert.ok(counts.denied <= workers, JSON.stringify(counts));
  });

  for (const [name, skew] of [["ahead", "+60s"], ["behind", "-60s"]] as const) {
    test(`a server's clock a minute ${name} costs nothing`, async (t) => {
      const limits = rules({ clock: "{ window: 1s, limit: 20, algorithm: fixed_window }" });
      const words = ["--headers", "x-ratelimit-epoch,retry-after-date"];
      const own = await startGateway(limits, upstream.url, words, ["faketime", "-f", skew]);
      t.after(() => own.stop());
      const counts = new Counts();
      await client(own.url("gateway"), "clock", 2, counts)(RUN_MS);
      assert.equal(counts.denied, 0, JSON.stringify(counts));
      // A date is a whole second too, and so may the wait be longer by one.
      counts.assertUsed(20 * (RUN_MS / 2000), 2);
    });
  }
});
