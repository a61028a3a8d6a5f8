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

const { ofGroups, ofKeys } = await load("denied");

const top = (keys, more = {}) => ({ keys, unlisted_max: 0, nodes: [{ name: "a", age_ms: 0 }], ...more });
const key = (key, count, more = {}) => ({ domain: "api", rule: "api.limit", key, count, error: 0, since: 1, ...more });

test("a value with colons is a row of its own, under its whole name", () => {
  const keys = ["remote_address:2001:db8::14", "remote_address:2001:db8::15"];
  const { rows } = ofKeys(top(keys.map((name) => key(name, 11))));
  assert.deepEqual(rows.map((row) => [row.key, row.count]), keys.map((name) => [name, 11]));
  // The node says which entry names the tenant.
  const asked = [key("customer:urn:acme:endpoint:/a", 3), key("customer:urn:acme:endpoint:/b", 4)];
  const summed = ofKeys(top(asked.map((it) => ({ ...it, subject: "customer:urn:acme" })))).rows;
  assert.deepEqual(summed.map((row) => [row.key, row.tenant, row.count]), [["customer:urn:acme", "urn:acme", 7]]);
  // As another domain may have the same one.
  const both = ofKeys(top([key("customer:acme", 1), key("customer:acme", 2, { domain: "mail" })])).rows;
  assert.deepEqual(both.map((row) => [row.domain, row.count]), [["mail", 2], ["api", 1]]);
});

test("who is denied most is in the list, however many keys its denials have", () => {
  const small = Array.from({ length: 20 }, (_, number) => key(`customer:small${number}`, 7));
  const groups = [key("customer:big", 61), ...small].map((it) => ({ ...it, kind: "denied" }));
  const told_by = { nodes: [{ name: "a", age_ms: 0 }], nodes_left_out: 0, groups_left_out: 0 };
  const hour = ofGroups({ groups, told_by });
  assert.deepEqual([hour.rows[0].key, hour.rows[0].count, hour.rows.length], ["customer:big", 61, 8]);
  assert.match(hour.notes.join(" "), /13 more tenants have up to 7\./);
  // Of a minute there are keys alone: what is not among them is told.
  const many = Array.from({ length: 100 }, (_, number) => key(`customer:small${number}`, 7));
  const minute = ofKeys(top(many)).notes.join(" ");
  assert.match(minute, /Of the 100 keys with the most denials: a tenant may have more in others\./);
  assert.match(minute, /A key that is not among them may have up to 7\./);
  assert.match(minute, /92 more tenants have up to 7\./);
  const few = ofKeys(top([key("a:b", 1)]));
  assert.deepEqual([few.origin, few.notes], ["Over 1 node.", []]);
});

const { Holds } = await load("holds");

test("what was not drawn while a button was pressed is drawn when it is let go", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  let selected = false;
  const holds = new Holds(() => selected);
  const drawn = [];
  holds.draw("list", () => drawn.push("first"));
  holds.press();
  holds.draw("list", () => drawn.push("old"));
  holds.draw("list", () => drawn.push("new"));
  holds.draw("other", () => drawn.push("other"));
  assert.deepEqual(drawn, ["first"]);
  holds.release();
  assert.deepEqual(drawn, ["first", "new", "other"]);
  selected = true;
  holds.draw("list", () => drawn.push("later"));
  holds.settle();
  assert.equal(drawn.length, 3);
  assert.equal(holds.isLong(), false);
  t.mock.timers.tick(3_001);
  assert.equal(holds.isLong(), true);
  selected = false;
  assert.equal(holds.isLong(), false);
  holds.settle();
  assert.equal(drawn.at(-1), "later");
});

const { switchedRules } = await load("panels");
const { switchedInWords } = await load("dialogs");

test("switches are told, with the mode that came of them and what the node warns of", () => {
  assert.equal(switchedRules({ switched: {} }), null);
  assert.equal(switchedRules({ switched: { "api.customer": "disabled" } }), "1 rule is switched: api.customer (disabled).");
  const many = Object.fromEntries(Array.from({ length: 7 }, (_, number) => [`api.r${number}`, "shadow"]));
  assert.match(switchedRules({ switched: many }), /^7 rules are switched: api.r0 \(shadow\), .*, and 2 more\.$/);
  const answer = { mode: "shadow", scope: "node", warning: "a restart undoes this" };
  const said = switchedInWords("api.customer", "On", answer);
  assert.equal(said, "api.customer: On. It is now shadow on this node alone. Mind: a restart undoes this.");
  assert.equal(switchedInWords("a", "Off", { mode: "disabled", scope: "fleet" }), "a: Off. It is now disabled.");
});

const { explain } = await load("explain");

test("what is typed stands in no address", async () => {
  const asked = [];
  globalThis.fetch = async (path, init) => {
    asked.push([path, init.method, JSON.parse(init.body)]);
    return new Response("{}");
  };
  await explain("api", ["api_key:sk-live-1", "", " endpoint:GET /a:b "]);
  const entries = [{ key: "api_key", value: "sk-live-1" }, { key: "endpoint", value: "GET /a:b" }];
  assert.deepEqual(asked, [["/admin/v1/explain", "POST", { domain: "api", descriptors: [{ entries }] }]]);
  await assert.rejects(explain("api", ["acme"]), /acme is not an entry; write KEY:VALUE/);
});

test("times are in UTC, with the year if it is not this one", () => {
  process.env.TZ = "Asia/Tokyo";
  const now = Math.floor(Date.now() / 1_000);
  words.keepTo(now);
  assert.equal(words.clock("2026-11-29T00:39:43Z"), "00:39:43");
  assert.equal(words.moment(now), new Date(now * 1_000).toISOString().slice(11, 19));
  assert.equal(words.moment(Date.parse("2019-11-05T12:00:00Z") / 1_000), "5 Nov 2019 12:00:00");
  delete process.env.TZ;
});

const { afterOf, noForm } = await load("tenant");

test("a tenant's plan has a form only where it is clear whose it is", () => {
  assert.equal(noForm({ domain: "api", hash: "hash:5f", key: "api_key:~1f0c83aa5b92d07e…x4f2" }), null);
  assert.equal(noForm({ domain: "api", key: "customer:acme" }), null);
  assert.match(noForm({ domain: "api", key: "api_key:~1f0c83aa5b92d07e…x4f2" }), /neither its value nor its hash is known/);
  assert.match(noForm({ domains: ["api", "mail"] }), /choose one above/);
  assert.match(noForm({ key: "ip:10.0.0.1" }), /no plan to change here/);
});

test("a change that was only noted is not told as made", () => {
  assert.equal(afterOf({ action: "reset", after: null }), "usage forgotten");
  assert.equal(afterOf({ action: "put", after: { plan: "pro" } }), "plan pro");
  const noted = { plan: "pro", steps: 2, requests_per_unit: 1500 };
  assert.equal(afterOf({ action: "adjust.shadow", after: noted }), "would be raised by 2 steps, to 1500");
});
