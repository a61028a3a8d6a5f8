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
