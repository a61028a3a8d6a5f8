import assert from "node:assert/strict";
import { test } from "node:test";
import { createFetch, defaultLane, Gate, RateLimitError, type FetchEvent, type FetchOptions, type Lane } from "../src/index.ts";

const URL_1 = "http://api.test/users/1";

/** A server that gives these answers in turn, the last one for ever. */
function server(...answers: (() => Response | Promise<Response>)[]): { fetch: NonNullable<FetchOptions["fetch"]>; calls: [string | URL | Request, RequestInit][] } {
  const calls: [string | URL | Request, RequestInit][] = [];
  const fetch: NonNullable<FetchOptions["fetch"]> = async (input, init = {}) => {
    calls.push([input, init]);
    const answer = answers[Math.min(calls.length, answers.length) - 1];
    init.signal?.throwIfAborted();
    if (!answer) throw new Error("there is no answer");
    return await answer();
  };
  return { fetch, calls };
}

const ok = (): Response => new Response("ok");
const status = (code: number, headers: Record<string, string> = {}) => (): Response => new Response(null, { status: code, headers });
const soon = { backoff: { baseMs: 4 } };

test("an answer is handed on as it is", async () => {
  const { fetch, calls } = server(ok);
  const answer = await createFetch({ fetch })(URL_1);
  assert.equal(await answer.text(), "ok");
  assert.equal(calls.length, 1);
});

test("a fault that passes is tried again, until the retries are used up", async () => {
  const passing = server(status(503), status(502), ok);
  assert.equal((await createFetch({ fetch: passing.fetch, ...soon })(URL_1)).status, 200);
  const lasting = server(status(503));
  assert.equal((await createFetch({ fetch: lasting.fetch, retries: 2, ...soon })(URL_1)).status, 503);
  assert.equal(lasting.calls.length, 3);
});

test("a failed connection is tried again, and its error handed on in the end", async () => {
  const broken = (): never => { throw new TypeError("fetch failed"); };
  assert.equal((await createFetch({ fetch: server(broken, ok).fetch, ...soon })(URL_1)).status, 200);
  const never = server(broken);
  await assert.rejects(createFetch({ fetch: never.fetch, retries: 1, ...soon })(URL_1), /fetch failed/);
  assert.equal(never.calls.length, 2);
});

test("a request that no connection can carry is tried once", async () => {
  const { fetch, calls } = server(() => { throw new TypeError("fetch failed", { cause: new Error("unknown scheme") }); });
  await assert.rejects(createFetch({ fetch, ...soon })("api.test:8080/users/1"), /fetch failed/);
  assert.equal(calls.length, 1);
});

test("methods that are not idempotent are tried once, unless told", async () => {
  const post = { method: "POST", body: "{}" };
  const once = server(status(503), ok);
  assert.equal((await createFetch({ fetch: once.fetch, ...soon })(URL_1, post)).status, 503);
  const told = server(status(503), ok);
  assert.equal((await createFetch({ fetch: told.fetch, retryMethods: ["POST"], ...soon })(URL_1, post)).status, 200);
});

test("a body is sent again with each retry; a stream is sent once", async () => {
  const seen: string[] = [];
  const reading: NonNullable<FetchOptions["fetch"]> = async (input, init) => {
    seen.push(await new Request(input, init).text());
    return seen.length < 3 ? status(503)() : ok();
  };
  const put = new Request(URL_1, { method: "PUT", body: "all of it" });
  assert.equal((await createFetch({ fetch: reading, ...soon })(put)).status, 200);
  assert.deepEqual(seen, ["all of it", "all of it", "all of it"]);
  const streaming = server(status(503), ok);
  const stream = new Blob(["x"]).stream();
  await createFetch({ fetch: streaming.fetch, ...soon })(URL_1, { method: "PUT", body: stream });
  assert.equal(streaming.calls.length, 1);
});

test("Retry-After is kept to, with and without a gate", async () => {
  for (const gate of [new Gate(), false] as const) {
    const { fetch } = server(status(429, { "retry-after": "1" }), ok);
    const begun = performance.now();
    assert.equal((await createFetch({ fetch, gate, ...soon })(URL_1)).status, 200);
    assert.ok(performance.now() - begun >= 1000);
  }
});

test("Retry-After of a fault that passes is kept to", async () => {
  for (const code of [408, 502, 503, 504]) {
    const events: FetchEvent[] = [];
    const { fetch, calls } = server(status(code, { "retry-after": "600" }), ok);
    const answer = await createFetch({ fetch, ...soon, onEvent: (event) => events.push(event) })(URL_1);
    assert.deepEqual([answer.status, calls.length, events.at(-1)?.type], [code, 1, "gave-up"]);
  }
});

test("the body of an answer that is tried again is let go at once, and its end does not matter", async () => {
  const abort = new AbortController();
  const cancel = (): never => { abort.abort(new Error("let go")); throw new TypeError("terminated"); };
  const { fetch } = server(() => new Response(new ReadableStream({ cancel }), { status: 503 }), ok);
  const paced = createFetch({ fetch, backoff: { baseMs: 20_000 }, random: () => 1 });
  const begun = performance.now();
  await assert.rejects(paced(URL_1, { signal: abort.signal }), /let go/);
  assert.ok(performance.now() - begun < 10_000);
  // A connection that ends while the next attempt waits.
  let end: ((error: Error) => void) | undefined;
  const ending = server(() => new Response(new ReadableStream({ start: (body) => { end = (error) => body.error(error); } }), { status: 503 }), ok);
  const onEvent = ({ type }: FetchEvent): void => { if (type === "retry") end?.(new TypeError("terminated")); };
  assert.equal((await createFetch({ fetch: ending.fetch, ...soon, onEvent })(URL_1)).status, 200);
});

test("an answer whose event is not taken is let go", async () => {
  for (const [type, more] of [["answered", {}], ["retry", soon], ["gave-up", { budgetMs: 1000, backoff: { baseMs: 20_000 }, random: () => 1 }]] as const) {
    let cancelled = 0;
    const { fetch, calls } = server(() => new Response(new ReadableStream({ cancel: () => { cancelled += 1; } }), { status: 503 }));
    const onEvent = (event: FetchEvent): void => { if (event.type === type) throw new Error("no such metric"); };
    await assert.rejects(createFetch({ fetch, onEvent, ...more })(URL_1), /no such metric/);
    assert.deepEqual([cancelled, calls.length], [1, 1], type);
  }
});

test("a wait beyond the budget of time is not begun", async () => {
  for (const gate of [new Gate(), false] as const) {
    const events: FetchEvent[] = [];
    const { fetch, calls } = server(status(429, { "retry-after": "600" }));
    const answer = await createFetch({ fetch, gate, onEvent: (event) => events.push(event) })(URL_1);
    assert.equal(answer.status, 429);
    assert.equal(calls.length, 1);
    assert.deepEqual(events.map((event) => event.type), ["answered", "gave-up"]);
  }
});

test("a request that could not pass within its budget is not sent", async () => {
  const used = status(200, { "ratelimit-policy": '"hourly";q=1;w=3600', ratelimit: '"hourly";r=0;t=3600' });
  const { fetch, calls } = server(used);
  const paced = createFetch({ fetch });
  await paced(URL_1);
  const refused = await paced(URL_1).then(() => undefined, (error: unknown) => error);
  assert.ok(refused instanceof RateLimitError);
  assert.equal(refused.policy, "hourly");
  assert.ok(refused.waitMs > 3_500_000, refused.message);
  assert.equal(calls.length, 1);
});

test("a server that does not answer ends with the budget of time", async () => {
  const silent: NonNullable<FetchOptions["fetch"]> = (_input, init) =>
    new Promise((_, fail) => init?.signal?.addEventListener("abort", () => fail(init.signal?.reason as Error)));
  await assert.rejects(createFetch({ fetch: silent, budgetMs: 30 })(URL_1), { name: "TimeoutError" });
});

test("an aborted request leaves the queue, and lets the next one through", async () => {
  let answer: ((response: Response) => void) | undefined;
  const { fetch, calls } = server(() => new Promise((resolve) => { answer = resolve; }), ok);
  const paced = createFetch({ fetch });
  const first = paced(URL_1);
  const abort = new AbortController();
  const second = paced(URL_1, { signal: abort.signal });
  const third = paced(URL_1);
  abort.abort(new Error("not needed"));
  await assert.rejects(second, /not needed/);
  assert.equal(calls.length, 1);
  answer?.(ok());
  assert.equal((await first).status, 200);
  assert.equal((await third).status, 200);
  await assert.rejects(paced(URL_1, { signal: abort.signal }), /not needed/);
});

test("the workers of a process share what a gate knows", async () => {
  const used = status(200, { ratelimit: '"m";r=0;t=60' });
  const gate = new Gate();
  await createFetch({ fetch: server(used).fetch, gate })(URL_1);
  const other = server(ok);
  await assert.rejects(createFetch({ fetch: other.fetch, gate, budgetMs: 50 })(URL_1), RateLimitError);
  assert.equal(other.calls.length, 0);
  const stranger = { headers: { authorization: "Bearer other" } };
  assert.equal((await createFetch({ fetch: other.fetch, gate })(URL_1, stranger)).status, 200);
});

test("a request behind another one tells the policy that both wait for", async () => {
  const abort = new AbortController();
  const gate = new Gate();
  await createFetch({ fetch: server(status(200, { ratelimit: '"m";r=0;t=60' })).fetch, gate })(URL_1);
  const first = createFetch({ fetch: server(ok).fetch, gate, budgetMs: Infinity })(URL_1, { signal: abort.signal });
  await assert.rejects(createFetch({ fetch: server(ok).fetch, gate, budgetMs: 20 })(URL_1), { name: "RateLimitError", policy: "m" });
  abort.abort(new Error("not needed"));
  await assert.rejects(first, /not needed/);
});

test("routes with limits of their own do not wait for each other", async () => {
  const paced = createFetch({
    budgetMs: 50,
    fetch: async (input) => String(input).endsWith("/search")
      ? status(200, { ratelimit: '"search";r=0;t=60' })()
      : status(200, { ratelimit: '"all";r=99;t=60' })(),
  });
  await paced("http://api.test/users/1");
  await paced("http://api.test/search");
  assert.equal((await paced("http://api.test/users/2")).status, 200);
  await assert.rejects(paced("http://api.test/search"), RateLimitError);
});

test("a denial without a word is followed by one request, then two, then four", async () => {
  let [denials, most, underWay] = [0, 0, 0];
  const fetch: NonNullable<FetchOptions["fetch"]> = async () => {
    underWay += 1;
    most = Math.max(most, underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay -= 1;
    return denials++ === 0 ? status(429)() : ok();
  };
  const paced = createFetch({ fetch, ...soon });
  await Promise.all(Array.from({ length: 7 }, () => paced(URL_1)));
  assert.equal(denials, 8);
  assert.ok(most <= 4, `${most} at once`);
});

test("callers are told apart by their credentials, which no event tells", () => {
  const lane = (headers: Record<string, string> = {}): Lane => defaultLane(new URL(URL_1), "GET", new Headers(headers));
  const [one, other] = ["Bearer sk-secret-1", "Bearer sk-secret-2"];
  const lanes = [lane(), lane({ Authorization: one }), lane({ authorization: other }), lane({ "x-api-key": one }), lane({ "api-key": one })];
  assert.equal(new Set(lanes.map(({ budget }) => budget)).size, lanes.length);
  assert.deepEqual(lane({ authorization: one }), lane({ Authorization: one }));
  assert.doesNotMatch(JSON.stringify(lanes), /secret/);
  assert.match(lanes[1]?.budget ?? "", /api\.test/);
});

test("concurrency is bounded", async () => {
  let [most, underWay] = [0, 0];
  const fetch: NonNullable<FetchOptions["fetch"]> = async () => {
    underWay += 1;
    most = Math.max(most, underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay -= 1;
    return ok();
  };
  const paced = createFetch({ fetch, gate: new Gate({ concurrency: 3 }) });
  await Promise.all(Array.from({ length: 20 }, () => paced(URL_1)));
  assert.equal(most, 3);
});

test("a request that fails before it is sent keeps no place", async () => {
  const used = new Request(URL_1, { method: "PUT", body: "x" });
  await used.text();
  // A busy machine takes a moment between the two.
  const told = status(200, { ratelimit: '"s";r=0;t=3' });
  const onEvent = ({ type }: FetchEvent): void => { if (type === "paced") throw new Error("no such metric"); };
  const { fetch } = server(told, ok);
  const gate = new Gate({ concurrency: 1 });
  await createFetch({ fetch, gate })(URL_1);
  await assert.rejects(createFetch({ fetch, gate, onEvent })(URL_1), /no such metric/);
  await assert.rejects(createFetch({ fetch, gate })(used), TypeError);
  assert.equal((await createFetch({ fetch, gate })(URL_1)).status, 200);
});

test("a listener that fails does not have an answered request sent again", async () => {
  const { fetch, calls } = server(ok);
  const onEvent = ({ type }: FetchEvent): void => { if (type === "answered") throw new Error("no such metric"); };
  await assert.rejects(createFetch({ fetch, onEvent, ...soon })(URL_1), /no such metric/);
  assert.equal(calls.length, 1);
});

test("events tell what was waited for and what was understood", async () => {
  const events: FetchEvent[] = [];
  const told = status(200, { "ratelimit-policy": '"s";q=1;w=1', ratelimit: '"s";r=0;t=1' });
  const paced = createFetch({ fetch: server(told).fetch, onEvent: (event) => events.push(event) });
  await Promise.all([paced(URL_1), paced(URL_1)]);
  assert.deepEqual(events.map((event) => event.type), ["answered", "paced", "answered"]);
  const [first, paced1] = events;
  assert.ok(first?.type === "answered" && first.info.limits[0]?.remaining === 0);
  assert.ok(paced1?.type === "paced" && paced1.waitedMs >= 1000);
});
