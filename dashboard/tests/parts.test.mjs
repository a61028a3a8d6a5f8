// Parts of the page that need no browser: numbers, times and counts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "vite";

/** What a source file exports. */
async function load(name) {
  const entry = fileURLToPath(new URL(`../src/${name}.ts`, import.meta.url));
  const lib = { entry, formats: ["es"], fileName: name };
  const [{ output }] = await build({ configFile: false, logLevel: "error", build: { lib, write: false, minify: false } });
  return await import(`data:text/javascript;base64,${Buffer.from(output[0].code).toString("base64")}`);
}

const { History } = await load("charts");
const { Rates } = await load("panels");
const { Calls } = await load("stores");

const second = (at, more = {}) => ({ at, span_ms: 1_000, allowed: 0, ...more });
const rule = (allowed) => ({ id: "d.tenant", counts: { allowed, denied: allowed / 10, shadow_denied: 0 } });

test("after a gap in the stream, rates are of the whole gap", () => {
  const [history, rates] = [new History(), new Rates()];
  let before = null;
  const take = (at, allowed, span_ms = 1_000) => {
    const state = { second: second(at, { span_ms }), rules: [rule(allowed)] };
    history.push(state.second);
    rates.take(state, before === null ? 0 : history.msSince(before));
    before = state.second;
    return rates.of(rule(allowed));
  };
  history.replace([second(9)]);
  assert.deepEqual(take(10, 5_000), { allowed: 0, denied: 0, shadow: 0 });
  assert.deepEqual(take(11, 5_100), { allowed: 100, denied: 10, shadow: 0 });
  // Seconds are told as whole ones: two may have the same, and one may be left out.
  assert.equal(take(13, 5_200, 1_001).allowed.toFixed(0), "100");
  assert.equal(take(13, 5_300, 999).allowed.toFixed(0), "100");
  // The stream breaks; the node tells what was meanwhile when it is back.
  const since = Array.from({ length: 58 }, (_, number) => second(14 + number));
  history.replace([second(11), second(13, { span_ms: 1_001 }), second(13, { span_ms: 999 }), ...since]);
  assert.deepEqual(take(72, 5_300 + 5_900), { allowed: 100, denied: 10, shadow: 0 });
  // A page that slept, whose stream did not break.
  const slept = take(172, 11_200 + 10_000).allowed;
  assert.ok(slept > 90 && slept < 110, slept);
  // Longer than the node remembers: nothing is known of the time between.
  history.replace([second(9_000)]);
  assert.deepEqual(take(9_001, 99_999), { allowed: 0, denied: 0, shadow: 0 });
  assert.deepEqual(take(9_002, 99_999 + 10), { allowed: 10, denied: 1, shadow: 0 });
});

test("calls of a server are of the whole gap, and stay when a breaker turns", () => {
  const calls = new Calls();
  const shard = (calls) => ({ shard: "a", calls, call_seconds: calls / 1_000 });
  calls.take({ breakers: [shard(100)] }, 0);
  assert.deepEqual(calls.of(shard(0)), { rate: 0, mean_us: null });
  calls.take({ breakers: [shard(700)] }, 60_000);
  assert.equal(calls.of(shard(0)).rate, 10);
  assert.equal(calls.of(shard(0)).mean_us?.toFixed(0), "1000");
  assert.deepEqual(calls.of({ shard: "b" }), { rate: 0, mean_us: null });
});

const words = await load("words");
const { Sparks } = await load("denied");
const { events, oneAtATime } = await load("api");

test("durations are short numbers, next to a whole unit too", () => {
  const shown = [0, 0.5, 9.96, 12, 999.4, 999.6, 1_234, 999_600, 1_234_567, 1_234_000_000].map(words.micros);
  assert.deepEqual(shown, ["0", "0.5 µs", "10 µs", "12 µs", "999 µs", "1.00 ms", "1.23 ms", "1.00 s", "1.23 s", "1234 s"]);
  assert.equal(words.span(0.9996), "1 s");
});

test("times ago are by the node's clock", () => {
  const hour = 3_600;
  for (const skew of [hour, -hour, 0]) {
    const now = Date.now() / 1_000 + skew;
    words.keepTo(now);
    assert.equal(words.ago(now - 125), "2 min ago");
  }
});

test("a wait that never ends is no duration", () => {
  assert.equal(words.retry(1_500), "retry in 1 s");
  assert.equal(words.retry(undefined), "no wait helps");
});

test("a stream of events is closed when one of them cannot be shown", async () => {
  let [cancelled, parts] = [0, 0];
  const chunks = ["event: state\nda", "ta: 1\n", "\nevent: state\ndata: 2\n\n"].map((text) => new TextEncoder().encode(text));
  const body = new ReadableStream({ pull: (to) => { const next = chunks.shift(); if (next) to.enqueue(next); }, cancel: () => { cancelled += 1; } });
  globalThis.fetch = async () => new Response(body);
  const seen = [];
  const each = (name, data) => {
    seen.push(`${name} ${data}`);
    if (data === "2") throw new TypeError("no such field");
  };
  await assert.rejects(events("/admin/v1/live", new AbortController().signal, each, () => { parts += 1; }), /no such field/);
  assert.deepEqual([seen, cancelled, parts], [["state 1", "state 2"], 1, 3]);
});

test("what is asked for again and again is asked for once at a time", async () => {
  const asked = [];
  const ask = oneAtATime(() => new Promise((done) => asked.push(done)));
  for (let states = 0; states < 20; states++) ask();
  assert.equal(asked.length, 1);
  asked[0]();
  await new Promise((resolve) => setImmediate(resolve));
  ask();
  assert.equal(asked.length, 2);
});

test("a line of counts is of one window", () => {
  const sparks = new Sparks();
  for (const count of [3, 4]) sparks.take([{ key: "a", count }], "minute");
  assert.deepEqual(sparks.counts("a"), [3, 4]);
  sparks.take([{ key: "a", count: 400 }], "hour");
  assert.deepEqual(sparks.counts("a"), [400]);
  sparks.take([{ key: "a", count: 5 }], "minute");
  assert.deepEqual(sparks.counts("a"), [5]);
  for (let count = 0; count < 100; count++) sparks.take([{ key: "a", count }], "minute");
  assert.equal(sparks.counts("a").length, 60);
});
