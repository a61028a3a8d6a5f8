import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";
import { Worker } from "node:worker_threads";
import { allowAll, denyAll, localLimits, Ratekeeper, ServiceError, type Fallback, type Fetch, type Permit, type Question } from "../src/index.ts";
import { rateLimit, rateLimitHeaders } from "../src/express.ts";
import { Places, Together } from "../src/places.ts";

const QUESTION: Question = { domain: "shop", descriptors: [{ entries: { tenant: "abc" } }] };
const ALLOW = { decision: "allow", rule: "shop.tenant", limit: 3, remaining: 2, reset_after_ms: 500 };

function json(body: object, status = 200): Response {
  return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
}

function refused(): never {
  throw new TypeError("fetch failed", { cause: Object.assign(new Error("connect"), { code: "ECONNREFUSED" }) });
}

/** Services by their hosts; `asked` lists whom was asked what. */
function services(hosts: Record<string, () => Response | Promise<Response>>): { fetch: Fetch; asked: string[]; bodies: unknown[] } {
  const [asked, bodies]: [string[], unknown[]] = [[], []];
  const fetch: Fetch = async (input, init) => {
    const url = new URL(String(input));
    asked.push(`${url.host}${url.pathname}`);
    bodies.push(JSON.parse(String(init?.body)));
    const serve = hosts[url.host];
    if (!serve) throw new Error(`there is no ${url.host}`);
    init?.signal?.throwIfAborted();
    const aborted = new Promise<never>((_, fail) => init?.signal?.addEventListener("abort", () => fail(init.signal?.reason as Error)));
    return await Promise.race([serve(), aborted]);
  };
  return { fetch, asked, bodies };
}

const silent = (): Promise<Response> => new Promise(() => {});

test("a check is asked for in the API's words", async () => {
  const { fetch, bodies } = services({ "one.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: "http://one.test/", fetch });
  const entries = [["tenant", "abc"], ["endpoint", "GET /"]] as const;
  const decision = await service.check({ domain: "shop", descriptors: [{ entries, hits: 2 }], waitMsMax: 0 });
  assert.equal(decision.allowed, true);
  assert.equal(decision.resetAfterMs, 500);
  const named = [{ key: "tenant", value: "abc" }, { key: "endpoint", value: "GET /" }];
  assert.deepEqual(bodies, [{ domain: "shop", descriptors: [{ entries: named, hits: 2 }], wait_ms_max: 0, standing: true }]);
});

test("an identifier needs no more than a limit", async () => {
  const told = { success: false, limit: 5, remaining: 0, reset: 1_800_000_000_000, reset_after_ms: 9, retry_after_ms: 9, degraded: false };
  const { fetch, asked, bodies } = services({ "one.test": () => json(told) });
  const service = new Ratekeeper({ endpoints: "http://one.test/", fetch });
  const answer = await service.limit("ada", { limit: 5, durationMs: 60_000, cost: 2 });
  assert.deepEqual(answer, { success: false, limit: 5, remaining: 0, reset: 1_800_000_000_000, retryAfterMs: 9, degraded: false });
  await service.limit("ada", { rule: "shop.user" });
  assert.deepEqual(asked, ["one.test/v1/limit", "one.test/v1/limit"]);
  assert.deepEqual(bodies, [{ identifier: "ada", limit: 5, duration: 60_000, cost: 2 }, { identifier: "ada", rule: "shop.user" }]);
});

test("the fallback decides about identifiers too", async () => {
  const { fetch } = services({ "one.test": refused });
  const fallback = localLimits([{ domain: "mails", keys: ["identifier"], limit: 1, windowMs: 60_000.5 }]);
  const service = new Ratekeeper({ endpoints: "http://one.test/", fetch, fallback });
  const ask = () => service.limit("ada", { limit: 5, durationMs: 60_000, domain: "mails" });
  assert.deepEqual([(await ask()).success, (await ask()).success], [true, false]);
  const late = await ask();
  assert.equal(late.degraded, true);
  assert.ok(late.reset > Date.now() && Number.isInteger(late.reset));
});

test("an endpoint that is no URL of HTTP is refused at once: the fallback would let everything pass, for ever", () => {
  for (const url of ["localhost:8080", "10.0.0.1", "", "grpc://one.test", "http://", "http://one.test:port"]) {
    assert.throws(() => new Ratekeeper({ endpoints: ["http://one.test", url] }), { name: "TypeError", message: /^endpoints: .* is no URL of http or https/ });
  }
});

test("an endpoint with a login, which fetch does not send, is refused without telling it", () => {
  const message = "endpoints: a URL can have no login here";
  for (const url of ["http://ada:s3cret@one.test", "http://s3cret@one.test"]) assert.throws(() => new Ratekeeper({ endpoints: url }), { name: "TypeError", message });
});

test("a token has no white space around it, and one that cannot be sent is refused without telling it", async () => {
  const sent: unknown[] = [];
  const fetch: Fetch = async (input, init) => {
    sent.push(new Request(input, init).headers.get("authorization"));
    return json(ALLOW);
  };
  for (const token of ["s3cret\n", " s3cret\r\n", "", "\n"]) await new Ratekeeper({ endpoints: "http://one.test", fetch, token }).check(QUESTION);
  assert.deepEqual(sent, ["Bearer s3cret", "Bearer s3cret", null, null]);
  for (const token of ["s3cret\nmore", "s3cret more", "s3cret€", "s3cret\0"]) {
    assert.throws(() => new Ratekeeper({ endpoints: "http://one.test", token }), { name: "TypeError", message: "token: only visible ASCII characters can be sent" });
  }
});

test("a token that is null, as JavaScript may pass it, is none", async () => {
  const { fetch } = services({ "one.test": () => json(ALLOW) });
  const untyped = null as unknown as string;
  assert.equal((await new Ratekeeper({ endpoints: "http://one.test", token: untyped, fetch }).check(QUESTION)).degraded, false);
});

test("an empty key is none", async () => {
  const broken = (): never => { throw new TypeError("fetch failed"); };
  const { fetch, asked, bodies } = services({ "one.test": broken, "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch });
  assert.deepEqual(await service.check(QUESTION, ""), allowAll(QUESTION));
  assert.deepEqual((await service.reserve(QUESTION, 5, { idempotencyKey: "" })).decision, allowAll(QUESTION));
  await assert.rejects(service.refund(QUESTION, ""), { code: "AWAY" });
  assert.deepEqual(asked, ["one.test/v1/check", "one.test/v1/reserve", "one.test/v1/refund"]);
  // A reserve has one of the client's own.
  assert.deepEqual(bodies.map((body) => Boolean((body as { idempotency_key?: string }).idempotency_key)), [false, true, false]);
  assert.ok(bodies.every((body) => (body as { idempotency_key?: string }).idempotency_key !== ""));
});

test("a service that refuses connections is passed over, and asked last for a second", async (t) => {
  t.mock.method(performance, "now", () => 0);
  const { fetch, asked } = services({ "one.test": refused, "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch });
  for (let calls = 0; calls < 2; calls++) assert.equal((await service.check(QUESTION)).degraded, false);
  assert.deepEqual(asked, ["one.test/v1/check", "two.test/v1/check", "two.test/v1/check"]);
});

test("a check whose answer does not come is not repeated, since it may have been charged; a release is", async () => {
  const broken = (): never => { throw new TypeError("fetch failed"); };
  const { fetch, asked } = services({ "one.test": broken, "two.test": () => json({ ...ALLOW, was_held: true }) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch });
  assert.deepEqual(await service.check(QUESTION), allowAll(QUESTION));
  assert.deepEqual(asked, ["one.test/v1/check"]);
  assert.equal(await service.release("p"), true);
  assert.deepEqual(asked.slice(1), ["one.test/v1/release", "two.test/v1/release"]);
});

test("a 503 of a proxy may come after the charge; one of the service does not", async () => {
  const proxies = [() => new Response("upstream reset", { status: 503 }), () => json({ code: "HTTP_503" }, 503), () => json({}, 503)];
  const own = ["UNAVAILABLE", "RESOURCE_EXHAUSTED"].flatMap((code) => [() => json({ code }, 503), () => json({ error: { code } }, 503)]);
  for (const [serves, others] of [[proxies, 0], [own, 1]] as const) {
    for (const serve of serves) {
      const { fetch, asked } = services({ "one.test": serve, "two.test": () => json(ALLOW) });
      const decision = await new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch }).check(QUESTION);
      assert.deepEqual([decision.degraded, asked.length], [others === 0, 1 + others]);
    }
  }
});

test("a charge with a key is repeated at the next service, and never left to the fallback", async () => {
  const broken = (): never => { throw new TypeError("fetch failed"); };
  const { fetch, asked, bodies } = services({ "one.test": broken, "two.test": () => json({ decision: "deny", remaining: 0, debt: 60 }) });
  const decision = await new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch }).check(QUESTION, "stream-1");
  assert.deepEqual([decision.allowed, decision.degraded, decision.debt], [false, false, 60]);
  assert.deepEqual(asked, ["one.test/v1/check", "two.test/v1/check"]);
  // The service refuses one that asks for its standing.
  const asks = { domain: "shop", descriptors: [{ entries: [{ key: "tenant", value: "abc" }] }], idempotency_key: "stream-1" };
  assert.deepEqual(bodies, [asks, asks]);
  const away = new Ratekeeper({ endpoints: "http://one.test", fetch: services({ "one.test": refused }).fetch });
  await assert.rejects(away.check(QUESTION, "stream-1"), { code: "AWAY" });
});

test("the fallback decides when the time is up or the service is broken", async () => {
  for (const serve of [silent, refused, () => json({ title: "Internal" }, 500), () => new Response("no rules", { status: 503 })]) {
    const { fetch } = services({ "one.test": serve });
    const options = { endpoints: "http://one.test", fetch, timeoutMs: 20 };
    assert.deepEqual(await new Ratekeeper(options).check(QUESTION), allowAll(QUESTION));
    const denying = new Ratekeeper({ ...options, fallback: denyAll });
    assert.deepEqual(await denying.checkBatch([QUESTION, QUESTION]), [denyAll(QUESTION), denyAll(QUESTION)]);
    assert.equal((await denying.reserve(QUESTION, 5)).decision.allowed, false);
    await assert.rejects(denying.peek(QUESTION), { code: "AWAY" });
  }
});

test("an answer that was cut off is no denial", async () => {
  const cut = (): Response => new Response(new ReadableStream({ start: (body) => body.error(new TypeError("terminated")) }));
  const { fetch, asked } = services({ "one.test": cut, "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch });
  assert.deepEqual(await service.check(QUESTION), allowAll(QUESTION));
  assert.deepEqual(await service.checkBatch([QUESTION, QUESTION]), [allowAll(QUESTION), allowAll(QUESTION)]);
  // Whether it was carried out is unknown: only what is harmless goes on.
  assert.equal(asked.length, 2);
  assert.equal((await service.peek(QUESTION)).degraded, false);
});

/** Callers can provoke it with what is in a request, such as a value that a firewall takes for an attack. */
test("what none of the services said is no denial, and is not left to the fallback", async () => {
  const pages = ["<h1>Blocked</h1>", "{}", "[]", '{"title": "Not Found", "status": 404}'];
  const foreign: (readonly [number, string | null])[] = [302, 400, 401, 403, 404, 407, 413, 414, 429, 431].flatMap((status) => pages.map((page) => [status, page] as const));
  foreign.push(...[...pages, '{"results": [{}], "decision": "maybe", "code": "OK"}'].map((page) => [200, page] as const), [204, null]);
  const calls: ((service: Ratekeeper) => Promise<unknown>)[] = [
    (service) => service.check(QUESTION),
    (service) => service.checkBatch([QUESTION, QUESTION]),
    (service) => service.limit("ada", { limit: 5, durationMs: 60_000 }),
    (service) => service.reserve(QUESTION, 5),
    (service) => service.acquire(QUESTION),
  ];
  for (const [status, page] of foreign) {
    const blocked = (): Response => new Response(page, { status });
    const made = (hosts: Record<string, () => Response>): Ratekeeper =>
      new Ratekeeper({ endpoints: Object.keys(hosts).map((host) => `http://${host}`), fetch: services(hosts).fetch, timeoutMs: 60_000 });
    for (const others of [{}, { "two.test": blocked }, { "two.test": refused }]) {
      for (const call of calls) await assert.rejects(call(made({ "one.test": blocked, ...others })), { code: `HTTP_${status}`, status });
    }
    assert.equal((await made({ "one.test": blocked, "two.test": () => json(ALLOW) }).peek(QUESTION)).degraded, false);
  }
});

test("a refusal that is none of the service's goes on to the next one", async (t) => {
  t.mock.method(performance, "now", () => 0);
  for (const status of [302, 403, 404]) {
    const { fetch, asked } = services({ "one.test": () => new Response("<h1>Blocked</h1>", { status }), "two.test": () => json(ALLOW) });
    const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch, timeoutMs: 60_000 });
    for (let checks = 0; checks < 4; checks++) assert.equal((await service.check(QUESTION)).degraded, false);
    // After three it is asked last, as any service that misses calls.
    assert.deepEqual(asked, ["one", "two", "one", "two", "one", "two", "two"].map((host) => `${host}.test/v1/check`));
  }
});

/** A service in a thread of its own. It tells in `shared` that it was asked, waits until it may answer, and tells that it has. */
const SERVICE = `
const { createServer } = require("node:http");
const { parentPort, workerData: shared } = require("node:worker_threads");
const server = createServer((request, response) => {
  request.resume().on("end", () => {
    Atomics.store(shared, 0, 1);
    Atomics.wait(shared, 1, 0);
    response.on("finish", () => { Atomics.store(shared, 2, 1); Atomics.notify(shared, 2); });
    response.end(${JSON.stringify(JSON.stringify(ALLOW))});
  });
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

/** By other work of the application: Node runs timers before it reads. */
test("an answer that came while the loop was held up is read", async (t) => {
  const shared = new Int32Array(new SharedArrayBuffer(12));
  const worker = new Worker(SERVICE, { eval: true, workerData: shared });
  t.after(() => worker.terminate());
  const [port] = (await once(worker, "message")) as [number];
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const check = new Ratekeeper({ endpoints: `http://127.0.0.1:${port}` }).check(QUESTION);
  while (Atomics.load(shared, 0) === 0) await new Promise((resolve) => setImmediate(resolve));
  Atomics.store(shared, 1, 1);
  Atomics.notify(shared, 1);
  Atomics.wait(shared, 2, 0);
  t.mock.timers.tick(100);
  assert.equal((await check).degraded, false);
});

test("a call may have all the time it takes", async () => {
  const fetch: Fetch = async (_input, init) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    init?.signal?.throwIfAborted();
    return json(ALLOW);
  };
  for (const timeoutMs of [Infinity, 2 ** 31]) {
    assert.equal((await new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs }).check(QUESTION)).degraded, false);
  }
});

test("a service that refuses a call has answered: it has missed none", async () => {
  const answers = [() => new Response(null, { status: 500 }), () => new Response(null, { status: 500 }), () => json({ code: "INVALID_ARGUMENT" }, 400)];
  let calls = 0;
  const { fetch, asked } = services({ "one.test": () => answers[calls++ % 3]?.() ?? json({}), "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch });
  for (let checks = 0; checks < 6; checks++) await service.check(QUESTION).catch(() => {});
  assert.deepEqual(asked, Array(6).fill("one.test/v1/check"));
});

test("a domain whose rules were refused is left to the fallback, and the service is well", async () => {
  const undecided = { decision: "allow", degraded: true, unreadable: "the rules were refused" };
  const answers = [() => json({ code: "NO_RULES" }, 404), () => json({ results: [undecided, ALLOW] })];
  let serve = answers[0];
  const { fetch, asked } = services({ "one.test": () => serve?.() ?? json({}), "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch, fallback: denyAll });
  for (let checks = 0; checks < 4; checks++) assert.equal((await service.check(QUESTION)).allowed, false);
  assert.deepEqual(asked, Array(4).fill("one.test/v1/check"));
  serve = answers[1];
  assert.deepEqual((await service.checkBatch([QUESTION, QUESTION])).map((one) => one.allowed), [false, true]);
});

test("a connection that cannot be made carries out nothing, whatever the reason", async () => {
  const failed = (code: string, syscall: string): Error => Object.assign(new Error(code), { code, syscall });
  const [noRoute, refusal, noName, reset] = [failed("ENETUNREACH", "connect"), failed("ECONNREFUSED", "connect"), failed("EAI_AGAIN", "getaddrinfo"), failed("EPIPE", "write")];
  const both = (errors: Error[]): Error => Object.assign(new AggregateError(errors), { code: "ENETUNREACH" });
  const causes: [Error, number][] = [[noRoute, 2], [noName, 2], [both([noRoute, refusal]), 2], [both([noRoute, reset]), 1], [reset, 1]];
  for (const [cause, asks] of causes) {
    const { fetch, asked } = services({ "one.test": () => { throw new TypeError("fetch failed", { cause }); }, "two.test": () => json(ALLOW) });
    const decision = await new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch }).check(QUESTION);
    assert.deepEqual([decision.degraded, asked.length], [asks === 1, asks], cause.message);
  }
});

test("local limits count hits, and a denied request takes nothing", () => {
  let now = 0;
  const decide = localLimits([
    { domain: "shop", keys: ["tenant"], limit: 3, windowMs: 3000 },
    { domain: "shop", keys: ["tenant", "path"], limit: 1, windowMs: 3000 },
  ], () => now);
  const both: Question = { domain: "shop", descriptors: [{ entries: { tenant: "a" } }, { entries: { tenant: "a", path: "/" } }] };
  assert.deepEqual([decide(both), decide(both)].map(({ allowed, remaining }) => [allowed, remaining]), [[true, 0], [false, 0]]);
  const one: Question = { domain: "shop", descriptors: [{ entries: { tenant: "a" } }] };
  assert.deepEqual([1, 2, 3].map(() => decide(one).allowed), [true, true, false]);
  const denied = decide(one);
  assert.equal(denied.retryAfterMs, 1000);
  now = 999;
  assert.equal(decide(one).allowed, false);
  now = 1000;
  assert.equal(decide(one).allowed, true);
  assert.equal(decide({ domain: "shop", descriptors: [{ entries: { tenant: "a" }, hits: 4 }] }).retryAfterMs, undefined);
  assert.equal(decide({ domain: "other", descriptors: one.descriptors }).allowed, true);
});

test("a local limit needs a window", () => {
  for (const windowMs of [0, -1, NaN]) {
    assert.throws(() => localLimits([{ domain: "shop", keys: ["tenant"], limit: 1, windowMs }]), RangeError);
  }
});

test("local limits on the same descriptor have counters of their own", () => {
  let now = 0;
  const [domain, keys] = ["shop", ["tenant"]];
  const decide = localLimits([{ domain, keys, limit: 10, windowMs: 1000 }, { domain, keys, limit: 100, windowMs: 60_000 }], () => now);
  const passed = (calls: number): number => Array.from({ length: calls }, () => decide(QUESTION)).filter(({ allowed }) => allowed).length;
  const each: number[] = [];
  for (; now <= 11_000; now += 1000) each.push(passed(12));
  // In eleven seconds the minute has given back 18 of its hundred.
  assert.deepEqual(each, [...Array<number>(11).fill(10), 8]);
});

test("a denial by several local limits tells the time after which all of them would let it pass", () => {
  const [domain, keys] = ["shop", ["tenant"]];
  const decide = localLimits([{ domain, keys, limit: 1, windowMs: 1000 }, { domain, keys, limit: 1, windowMs: 60_000 }], () => 0);
  assert.deepEqual([decide(QUESTION).allowed, decide(QUESTION).retryAfterMs], [true, 60_000]);
  const costly = localLimits([{ domain, keys, limit: 5, windowMs: 1000 }, { domain, keys, limit: 1, windowMs: 1 }], () => 0);
  const five: Question = { domain, descriptors: [{ entries: { tenant: "abc" }, hits: 5 }] };
  costly(QUESTION);
  assert.equal(costly(five).retryAfterMs, undefined);
});

test("a local limit of 0 denies everything, and tells no time", () => {
  const decide = localLimits([{ domain: "shop", keys: ["tenant"], limit: 0, windowMs: 1000 }]);
  for (const hits of [0, 1, 2]) {
    const { allowed, limit, remaining, resetAfterMs, retryAfterMs } = decide({ domain: "shop", descriptors: [{ entries: { tenant: "a" }, hits }] });
    assert.deepEqual({ allowed, limit, remaining, resetAfterMs, retryAfterMs }, { allowed: false, limit: 0, remaining: 0, resetAfterMs: undefined, retryAfterMs: undefined });
  }
});

test("errors of the service are thrown, in both forms of their bodies", async () => {
  const older = { error: { code: "INVALID_ARGUMENT", message: "no domain", field: "domain" } };
  const problem = { type: "about:blank", title: "Bad Request", status: 400, detail: "no domain", code: "INVALID_ARGUMENT", field: "domain" };
  for (const body of [older, problem]) {
    const { fetch } = services({ "one.test": () => json(body, 400) });
    const error = await new Ratekeeper({ endpoints: "http://one.test", fetch }).check(QUESTION).then(() => undefined, (thrown: unknown) => thrown);
    assert.ok(error instanceof ServiceError);
    const { code, message, field, status } = error;
    assert.deepEqual({ code, message, field, status }, { code: "INVALID_ARGUMENT", message: "no domain", field: "domain", status: 400 });
  }
});

test("a permit is renewed every third of its time, and lost when it is not held any more", async () => {
  let renewals = 0;
  const renewed = Promise.withResolvers<void>();
  const { fetch } = services({
    "one.test": () => json({ ...ALLOW, permit: "p", expires_after_ms: 15, was_held: false }),
    "renew.test": () => json({}),
  });
  const renewing: Fetch = (input, init) => {
    if (!String(input).endsWith("/renew")) return fetch(input, init);
    if (++renewals < 3) return Promise.resolve(json({ expires_after_ms: 15 }));
    setImmediate(() => setImmediate(renewed.resolve));
    return Promise.resolve(json({ code: "NOT_HELD", detail: "gone" }, 409));
  };
  const { permit } = await new Ratekeeper({ endpoints: "http://one.test", fetch: renewing }).acquire(QUESTION);
  const alive = setInterval(() => {}, 1000);
  await renewed.promise;
  clearInterval(alive);
  assert.equal(permit?.isLost, true);
  assert.equal(renewals, 3);
});

test("a permit is lost once its time is over while the service is away, and not by its release", async () => {
  const renewing = Promise.withResolvers<void>();
  let isAway = true;
  const fetch: Fetch = async (input) => {
    if (!String(input).endsWith("/renew")) return json({ ...ALLOW, permit: "p", expires_after_ms: isAway ? 60 : 60_000, was_held: true });
    renewing.resolve();
    throw new TypeError("fetch failed");
  };
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch });
  const alive = setInterval(() => {}, 1000);
  const lost = (await service.acquire(QUESTION)).permit;
  await renewing.promise;
  const end = performance.now() + 10_000;
  while (!lost?.isLost && performance.now() < end) await new Promise((resolve) => setImmediate(resolve));
  await lost?.release();
  assert.equal(lost?.isLost, true);
  isAway = false;
  const held = (await service.acquire(QUESTION)).permit;
  assert.equal(held?.isLost, false);
  await held?.release();
  assert.equal(held?.isLost, false);
  clearInterval(alive);
});

test("a permit that is released while it is renewed is renewed no more", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const renewed = Promise.withResolvers<Response>();
  const asked: string[] = [];
  const fetch: Fetch = async (input) => {
    asked.push(new URL(String(input)).pathname);
    if (String(input).endsWith("/renew")) return await renewed.promise;
    return json({ ...ALLOW, permit: "p", expires_after_ms: 30, was_held: true });
  };
  const { permit } = await new Ratekeeper({ endpoints: "http://one.test", fetch }).acquire(QUESTION);
  t.mock.timers.tick(10);
  await permit?.release();
  renewed.resolve(json({ expires_after_ms: 30 }));
  await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(10);
  assert.deepEqual(asked, ["/v1/acquire", "/v1/renew", "/v1/release"]);
});

test("a permit that was certainly not granted is not looked for", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { fetch, asked } = services({ "one.test": refused });
  assert.equal((await new Ratekeeper({ endpoints: "http://one.test", fetch }).acquire(QUESTION)).decision.degraded, true);
  t.mock.timers.tick(100);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(asked, ["one.test/v1/acquire"]);
});

test("an acquire that is repeated without its key has no more time", async () => {
  const signals: unknown[] = [];
  const fetch: Fetch = async (_input, init) => {
    signals.push(init?.signal);
    return signals.length === 1 ? json({ code: "RESOURCE_EXHAUSTED" }, 503) : json({ ...ALLOW, permit: "p" });
  };
  assert.ok((await new Ratekeeper({ endpoints: "http://one.test", fetch }).acquire(QUESTION)).permit);
  assert.ok(signals[0] && signals[0] === signals[1]);
});

test("a permit that was granted in an answer that came late is given back", async () => {
  const released = Promise.withResolvers<unknown>();
  let acquires = 0;
  const fetch: Fetch = async (input, init) => {
    if (String(input).endsWith("/release")) {
      released.resolve(JSON.parse(String(init?.body)));
      return json({ was_held: true });
    }
    acquires += 1;
    if (acquires === 1) throw new TypeError("connection lost");
    return json({ ...ALLOW, permit: "late", expires_after_ms: 60_000 });
  };
  const acquired = await new Ratekeeper({ endpoints: "http://one.test", fetch }).acquire(QUESTION);
  assert.deepEqual(acquired, { decision: allowAll(QUESTION), permit: undefined });
  assert.deepEqual(await released.promise, { permit: "late" });
});

test("a reservation whose answer did not come is cancelled: nobody could settle it", async () => {
  const cancelled = Promise.withResolvers<unknown>();
  const reserves: unknown[] = [];
  const fetch: Fetch = async (input, init) => {
    const body = JSON.parse(String(init?.body)) as object;
    if (String(input).endsWith("/cancel")) {
      cancelled.resolve(body);
      return json({ given_back: 500 });
    }
    reserves.push(body);
    if (reserves.length === 1) throw new TypeError("connection lost");
    return json({ ...ALLOW, reservation: "late" });
  };
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: Infinity });
  const reserved = await service.reserve(QUESTION, 500, { ttlMs: 9000 });
  assert.deepEqual(reserved, { decision: allowAll(QUESTION), reservation: undefined });
  assert.deepEqual(await cancelled.promise, { reservation: "late" });
  assert.deepEqual(reserves, [reserves[0], reserves[0]]);
});

test("what the next service granted too late is given back, although the first one answered a page", async () => {
  const kinds: [(service: Ratekeeper) => Promise<unknown>, string, unknown][] = [
    [(service) => service.acquire(QUESTION), "/v1/release", { permit: "p" }],
    [(service) => service.reserve(QUESTION, 5), "/v1/cancel", { reservation: "r" }],
  ];
  for (const [call, path, end] of kinds) {
    const givenBack = Promise.withResolvers<unknown>();
    const asked: unknown[] = [];
    const fetch: Fetch = async (input, init) => {
      const [url, body] = [new URL(String(input)), JSON.parse(String(init?.body)) as unknown];
      if (url.host === "one.test") return new Response("<h1>Not Found</h1>", { status: 404 });
      if (url.pathname === path) givenBack.resolve(body);
      else if (asked.push(body) === 1) throw new TypeError("connection lost");
      return json({ ...ALLOW, permit: "p", reservation: "r", was_held: true });
    };
    const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch, timeoutMs: Infinity });
    await assert.rejects(call(service), { code: "HTTP_404" });
    assert.deepEqual([await givenBack.promise, asked], [end, [asked[0], asked[0]]]);
  }
});

test("checks that the next service may have charged are not repeated after the page of the first one", async () => {
  const asked: string[] = [];
  const fetch: Fetch = async (input) => {
    const { host, pathname } = new URL(String(input));
    await new Promise((resolve) => setImmediate(resolve));
    if (host === "one.test") return new Response("<h1>Not Found</h1>", { status: 404 });
    asked.push(pathname);
    if (pathname === "/v1/checks") throw new TypeError("connection lost");
    return json(ALLOW);
  };
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch, timeoutMs: Infinity, concurrency: 1 });
  const [, ...others] = await Promise.allSettled(numbers(5).map(() => service.check(QUESTION)));
  assert.deepEqual(others.map((one) => one.status === "rejected" && (one.reason as ServiceError).code), Array(4).fill("HTTP_404"));
  assert.deepEqual(asked, ["/v1/check", "/v1/checks"]);
});

test("a body that JSON cannot hold is its caller's error, and no miss of the service", async () => {
  const { fetch, asked } = services({ "one.test": () => json(ALLOW), "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch, timeoutMs: 60_000 });
  const hits = 1n as unknown as number;
  for (let calls = 0; calls < 3; calls++) await assert.rejects(service.check({ domain: "shop", descriptors: [{ entries: { tenant: "abc" }, hits }] }), TypeError);
  assert.equal((await service.check(QUESTION)).degraded, false);
  assert.deepEqual(asked, ["one.test/v1/check"]);
});

/** A program whose service is away when it releases a permit. It says how often it asked, once nothing keeps it alive. */
const RELEASING = `
import { Ratekeeper } from "../src/index.ts";
let asked = 0;
const fetch = async () => { asked += 1; throw new TypeError("fetch failed"); };
process.on("exit", () => console.log("asked", asked));
await new Ratekeeper({ endpoints: "http://one.test", fetch }).release("p").catch(({ code }) => console.log(code));
`;

test("a release without an answer is repeated once before its program ends, and keeps that no longer", async () => {
  const child = spawn(process.execPath, ["--input-type=module-typescript", "--eval", RELEASING], { cwd: import.meta.dirname, stdio: ["ignore", "pipe", "inherit"] });
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) lines.push(line);
  assert.deepEqual(lines, ["AWAY", "asked 2"]);
});

test("a reserve with a key is never left to the fallback: the same key tells the reservation that was made all the same", async () => {
  const { fetch, asked, bodies } = services({ "one.test": () => { throw new TypeError("fetch failed"); } });
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch });
  await assert.rejects(service.reserve(QUESTION, 5, { idempotencyKey: "order-7" }), { code: "AWAY" });
  assert.deepEqual([asked, (bodies[0] as { idempotency_key: string }).idempotency_key], [["one.test/v1/reserve"], "order-7"]);
});

test("a release without an answer is repeated", async () => {
  const ways: ((service: Ratekeeper, permit: Permit) => Promise<unknown>)[] = [
    (_, permit) => permit.release().catch((error: unknown) => assert.equal((error as ServiceError).code, "AWAY")),
    (_, permit) => permit[Symbol.asyncDispose](),
    (service) => service.withPermit(QUESTION, async () => {}),
  ];
  for (const end of ways) {
    const again = Promise.withResolvers<void>();
    let releases = 0;
    const fetch: Fetch = async (input, init) => {
      if (!String(input).endsWith("/release")) return json({ ...ALLOW, permit: "p", expires_after_ms: 60_000 });
      assert.deepEqual(JSON.parse(String(init?.body)), { permit: "p" });
      releases += 1;
      if (releases === 1) throw new TypeError("connection lost");
      again.resolve();
      return json({ was_held: true });
    };
    const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: Infinity });
    const { permit } = await service.acquire(QUESTION);
    assert.ok(permit);
    await end(service, permit);
    await again.promise;
    assert.equal(releases, 2);
  }
});

test("a renewal without an answer is repeated sooner", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let renewals = 0;
  const fetch: Fetch = async (input) => {
    if (!String(input).endsWith("/renew")) return json({ ...ALLOW, permit: "p", expires_after_ms: 60_000, was_held: true });
    renewals += 1;
    if (renewals <= 2) throw new TypeError("connection lost");
    return json({ expires_after_ms: 60_000 });
  };
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: Infinity });
  const { permit } = await service.acquire(QUESTION);
  // After a third, then each twelfth, and a third after the first answer.
  for (const [wait, asked] of [[19_999, 0], [1, 1], [4999, 1], [1, 2], [4999, 2], [1, 3], [19_999, 3], [1, 4]] as const) {
    t.mock.timers.tick(wait);
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(renewals, asked);
  }
  await permit?.release();
});

test("permits of many answers that did not come are looked for one after another", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const settled = async (): Promise<void> => { for (let turns = 0; turns < 100; turns++) await new Promise((resolve) => setImmediate(resolve)); };
  const [keys, released]: [string[], unknown[]] = [[], []];
  let isAway = true;
  const fetch: Fetch = async (input, init) => {
    const body = JSON.parse(String(init?.body)) as { idempotency_key: string; permit: string };
    if (String(input).endsWith("/release")) {
      released.push(body.permit);
      return json({ was_held: true });
    }
    keys.push(body.idempotency_key);
    if (isAway) throw new TypeError("fetch failed");
    return json({ ...ALLOW, permit: body.idempotency_key, expires_after_ms: 60_000 });
  };
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch });
  for (let acquires = 0; acquires < 50; acquires++) await service.acquire(QUESTION);
  const wanted = keys.slice();
  assert.equal(wanted.length, 50);
  // While the service is away it is asked ever more seldom, and not for all of them.
  for (const [pause, asked] of [[200, 1], [1000, 2], [5000, 3]] as const) {
    t.mock.timers.tick(pause);
    await settled();
    assert.equal(keys.length, 50 + asked);
  }
  isAway = false;
  t.mock.timers.tick(5000);
  for (let ticks = 0; ticks < 1000 && released.length < 50; ticks++) {
    await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.tick(10);
  }
  assert.deepEqual(released, wanted);
});

/** A service, each of whose calls costs the client `cost` and takes some turns of its loop. */
function costly(answer: (path: string, body: Body) => Response, cost = () => {}): { fetch: Fetch; asked: string[]; bodies: Body[]; most: () => number } {
  const [asked, bodies]: [string[], Body[]] = [[], []];
  let [underWay, most] = [0, 0];
  const fetch: Fetch = async (input, init) => {
    const [{ pathname }, body] = [new URL(String(input)), JSON.parse(String(init?.body)) as Body];
    asked.push(pathname);
    bodies.push(body);
    most = Math.max(most, ++underWay);
    cost();
    for (let turns = 0; turns < 3; turns++) await new Promise((resolve) => setImmediate(resolve));
    underWay -= 1;
    init?.signal?.throwIfAborted();
    return answer(pathname, body);
  };
  return { fetch, asked, bodies, most: () => most };
}

interface Body {
  readonly identifier?: string;
  readonly standing?: boolean;
  readonly descriptors?: readonly { entries: readonly { value: string }[] }[];
  readonly checks?: readonly Body[];
  readonly limits?: readonly Body[];
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, number) => number);
const numbered = (number: number): Question => ({ domain: "shop", descriptors: [{ entries: { number: `${number}` } }] });

/** Denies everything, and tells which it was. */
function counted(_: string, body: Body): Response {
  const one = ({ identifier, descriptors }: Body): object =>
    identifier ? { success: false, limit: 3, remaining: Number(identifier), reset: 1 } : { decision: "deny", remaining: Number(descriptors?.[0]?.entries[0]?.value) };
  const many = body.checks ?? body.limits;
  return json(many ? { results: many.map(one) } : one(body));
}

test("checks that wait for a place go together, and the service decides each of them", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const kinds: [string, (service: Ratekeeper, number: number) => Promise<{ remaining: number | undefined; degraded: boolean }>][] = [
    ["check", (service, number) => service.check(numbered(number))],
    ["limit", (service, number) => service.limit(`${number}`, { limit: 3, durationMs: 60_000 })],
  ];
  for (const [path, call] of kinds) {
    // All of them take longer than a call may.
    const { fetch, asked, bodies } = costly(counted, () => t.mock.timers.tick(300));
    const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000 });
    const answers = await Promise.all(numbers(300).map((number) => call(service, number)));
    assert.deepEqual(answers.map(({ remaining, degraded }) => [remaining, degraded]), numbers(300).map((number) => [number, false]));
    assert.deepEqual(asked, [...Array<string>(8).fill(`/v1/${path}`), ...Array<string>(3).fill(`/v1/${path}s`)]);
    assert.deepEqual(bodies.slice(8).map(({ checks, limits }) => (checks ?? limits)?.length), [100, 100, 92]);
    assert.ok(bodies.every(({ checks }) => checks?.every(({ standing }) => standing) ?? true));
  }
});

test("checks that go together are no more than fit into a request", async () => {
  const { fetch, bodies } = costly((_, { checks }) => json({ ...ALLOW, results: checks?.map(() => ALLOW) }));
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1 });
  const large: Question = { domain: "shop", descriptors: [{ entries: { path: "/".repeat(140_000) } }] };
  const answers = await Promise.all(numbers(6).map(() => service.check(large)));
  assert.deepEqual(answers.map(({ degraded }) => degraded), Array(6).fill(false));
  assert.deepEqual(bodies.map(({ checks }) => checks?.length ?? 1), [1, 2, 2, 1]);
});

test("other calls wait for their place", async () => {
  const { fetch, most } = costly(() => json(ALLOW));
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 4 });
  const answers = await Promise.all(numbers(40).map(() => service.acquire(QUESTION)));
  assert.deepEqual([answers.map(({ decision }) => decision.degraded), most()], [Array(40).fill(false), 4]);
});

/** Its caller chooses what is in it. */
test("what one of them is refused for is no harm to the others", async () => {
  const refusals = [() => json({ code: "INVALID_ARGUMENT" }, 400), () => json({ code: "TOO_LARGE" }, 413)];
  refusals.push(() => new Response("<h1>Blocked</h1>", { status: 403 }));
  for (const refusal of refusals) {
    const { fetch, asked } = costly((path, body) => (JSON.stringify(body).includes('"7"') ? refusal() : counted(path, body)));
    const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 2 });
    const answers = await Promise.all(numbers(20).map((number) => service.check(numbered(number)).then(({ remaining }) => remaining, (error: unknown) => error)));
    assert.ok(answers[7] instanceof ServiceError);
    // It is found by halves.
    assert.ok(asked.length < 2 + 2 * 5 + 2, `${asked.length}`);
    assert.deepEqual(answers.filter((_, number) => number !== 7), numbers(20).filter((number) => number !== 7));
  }
});

test("a check that is refused is taken out of those that go together", async () => {
  const { fetch, asked } = costly((path, body) => {
    const number = (body.checks ?? [body]).findIndex((one) => /"(30|50)"/.test(JSON.stringify(one)));
    return number < 0 ? counted(path, body) : json({ code: "INVALID_ARGUMENT", field: body.checks ? `checks[${number}].descriptors[0].hits` : "hits" }, 400);
  });
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 2 });
  const answers = await Promise.all(numbers(80).map((number) => service.check(numbered(number)).then(({ remaining }) => remaining, () => "refused")));
  assert.deepEqual(answers, numbers(80).map((number) => (number === 30 || number === 50 ? "refused" : number)));
  // Two alone as they came, the batch three times, and two alone.
  assert.equal(asked.length, 2 + 3 + 2);
});

test("a refusal of everything ends the search for the one at fault", async () => {
  const { fetch, asked } = costly(() => json({ code: "PERMISSION_DENIED" }, 403));
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1 });
  await Promise.all(numbers(101).map(() => assert.rejects(service.check(QUESTION), { code: "PERMISSION_DENIED" })));
  assert.equal(asked.filter((path) => path === "/v1/checks").length, 16);
});

/** The service, or something between, answered 200, and not to each of them. */
test("checks that may have been charged are not repeated by themselves", async () => {
  const calls: ((service: Ratekeeper) => Promise<{ remaining: number | undefined }>)[] = [
    (service) => service.check(numbered(1)),
    (service) => service.limit("1", { limit: 3, durationMs: 60_000 }),
  ];
  for (const odd of [[], [{}], [{ decision: "maybe" }], [{ success: 1 }]]) {
    for (const call of calls) {
      const { fetch, asked } = costly((path, body) => {
        const many = body.checks ?? body.limits;
        return many ? json({ results: [...many.slice(1).map(() => ALLOW), ...odd] }) : counted(path, body);
      });
      const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1 });
      const answers = await Promise.allSettled(numbers(101).map(() => call(service)));
      assert.equal(asked.length, 2);
      const thrown = answers.map((one) => (one.status === "rejected" ? (one.reason as ServiceError).code : one.value.remaining));
      assert.deepEqual(thrown, [1, ...Array<string>(100).fill("HTTP_200")]);
    }
  }
});

test("callers of a program with many bad checks wait for few of them", async () => {
  const { fetch, asked } = costly((_, body) => {
    const many = body.checks ?? [body];
    const number = many.findIndex((one) => !JSON.stringify(one).includes("good"));
    if (number < 0) return json({ ...ALLOW, results: many.map(() => ALLOW) });
    return json({ code: "INVALID_ARGUMENT", field: body.checks ? `checks[${number}].descriptors[0].hits` : "hits" }, 400);
  });
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1 });
  const [good, bad] = ["good", "bad"].map((key): Question => ({ domain: "shop", descriptors: [{ entries: { [key]: "1" } }] }));
  assert.ok(good && bad);
  const calls = [good, ...Array<Question>(99).fill(bad), good].map((question) => service.check(question));
  const answers = (await Promise.allSettled(calls)).map((one) => (one.status === "rejected" ? (one.reason as ServiceError).code : one.value.allowed));
  assert.deepEqual(answers, [true, ...Array<string>(99).fill("INVALID_ARGUMENT"), true]);
  assert.equal(asked.filter((path) => path === "/v1/checks").length, 16);
});

test("a part that no service answers is the last that is asked for", async () => {
  const { fetch, bodies } = costly((_, { checks }) => {
    if (checks && checks.length < 40) throw new TypeError("connection lost");
    return checks ? json({ code: "INVALID_ARGUMENT" }, 400) : json(ALLOW);
  });
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1, fallback: denyAll });
  const answers = await Promise.all(numbers(41).map(() => service.check(QUESTION)));
  assert.deepEqual(answers.map(({ allowed }) => allowed), [true, ...Array<boolean>(40).fill(false)]);
  assert.deepEqual(bodies.map(({ checks }) => checks?.length ?? 0), [0, 40, 20]);
});

test("checks that are certainly refused join no others", async () => {
  const { fetch, asked } = costly((path, body) => (path === "/v1/check" ? json({ code: "INVALID_ARGUMENT" }, 400) : counted(path, body)));
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1 });
  const entries = { number: "1" };
  const bad: Question[] = [
    { domain: "", descriptors: [{ entries }] },
    { domain: "shop", descriptors: [] },
    { domain: "shop", descriptors: [{ entries: { "": "1" } }] },
    { domain: "shop", descriptors: [{ entries: { number: 5 as unknown as string } }] },
    ...[-1, 0.5, NaN, 2 ** 64].map((hits) => ({ domain: "shop", descriptors: [{ entries, hits }] })),
  ];
  const answers = await Promise.all([numbered(0), ...bad, numbered(1)].map((question) => service.check(question).catch(() => undefined)));
  assert.equal(answers.at(-1)?.remaining, 1);
  assert.equal(asked.filter((path) => path === "/v1/checks").length, 1);
});

test("without an answer to all of them the fallback decides each, and none is repeated", async () => {
  const { fetch, asked } = costly((path) => {
    if (path === "/v1/checks") throw new TypeError("connection lost");
    return json(ALLOW);
  });
  const fallback = localLimits([{ domain: "shop", keys: ["tenant"], limit: 1, windowMs: 60_000 }]);
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1, fallback });
  const answers = await Promise.all(numbers(5).map(() => service.check(QUESTION)));
  assert.deepEqual(answers.map(({ degraded, allowed }) => [degraded, allowed]), [[false, true], [true, true], [true, false], [true, false], [true, false]]);
  assert.deepEqual(asked, ["/v1/check", "/v1/checks"]);
});

test("of those that go together, one whose rules were refused is left to the fallback", async () => {
  const undecided = { decision: "allow", degraded: true, unreadable: "the rules were refused" };
  const { fetch } = costly(() => json({ ...ALLOW, results: [undecided, ALLOW] }));
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1, fallback: denyAll });
  assert.deepEqual((await Promise.all(numbers(3).map(() => service.check(QUESTION)))).map(({ allowed }) => allowed), [true, false, true]);
});

/** Lets time pass, and what waits for it run. */
async function passes(t: TestContext, ms: number): Promise<void> {
  for (let passed = 0; passed <= ms; passed += 10) {
    t.mock.timers.tick(passed > 0 ? 10 : 0);
    for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
  }
}

test("checks keep their turn when the time of the first is up", async () => {
  const [places, order]: [Places, string[]] = [new Places(1), []];
  const together = new Together(places, async (bodies) => {
    order.push(`${bodies.length} checks`);
    return bodies.map(() => ALLOW);
  });
  assert.ok(await places.enter(0));
  const [first, second] = [together.join({}, 1), together.join({}, 60_000)];
  const other = places.enter(60_000).then(() => {
    order.push("another call");
    places.leave();
  });
  assert.equal(await first, undefined);
  places.leave();
  await Promise.all([second, other]);
  assert.deepEqual(order, ["1 checks", "another call"]);
});

test("what gives back goes before what waits", async () => {
  const { fetch, asked } = costly(() => json(ALLOW));
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, timeoutMs: 60_000, concurrency: 1 });
  const peeks = [service.peek(QUESTION), service.peek(QUESTION)];
  await Promise.all([...peeks, service.release("p"), service.renew("p"), service.commit("r", 1), service.cancel("r")]);
  assert.deepEqual(asked, ["peek", "release", "renew", "commit", "cancel", "peek"].map((path) => `/v1/${path}`));
});

test("what was never sent is no miss of the service", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { fetch, asked } = services({ "one.test": () => new Promise((resolve) => setTimeout(() => resolve(json(ALLOW)), 90)), "two.test": () => json(ALLOW) });
  const service = new Ratekeeper({ endpoints: ["http://one.test", "http://two.test"], fetch, concurrency: 1 });
  const acquires = numbers(20).map(() => service.acquire(QUESTION));
  const others = [service.check(QUESTION), service.limit("ada", { limit: 5, durationMs: 60_000 })];
  await passes(t, 1200);
  const degraded = [...(await Promise.all(acquires)).map(({ decision }) => decision.degraded), ...(await Promise.all(others)).map((one) => one.degraded)];
  // Of 90 ms each, eleven or twelve begin within a second.
  const sent = asked.length;
  assert.ok(sent >= 11 && sent <= 12, `${sent}`);
  assert.deepEqual(degraded, numbers(22).map((number) => number >= sent));
  const check = service.check(QUESTION);
  await passes(t, 200);
  assert.equal((await check).degraded, false);
  assert.deepEqual(asked, [...Array<string>(sent).fill("one.test/v1/acquire"), "one.test/v1/check"]);
});

test("nothing waits longer than a call while no service answers", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { fetch } = services({ "one.test": silent });
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch, concurrency: 1 });
  let ended = 0;
  const acquire = (): void => void service.acquire(QUESTION).then(() => { ended += 1; });
  for (let misses = 0; misses < 3; misses++) {
    acquire();
    await passes(t, 120);
  }
  for (let calls = 0; calls < 20; calls++) acquire();
  await passes(t, 250);
  assert.equal(ended, 23);
});

test("a client needs a place", () => {
  for (const concurrency of [0, -1, NaN]) assert.throws(() => new Ratekeeper({ endpoints: "http://one.test", concurrency }), RangeError);
});

/** What a caller of the application gets, and whether it is called. */
async function answered(serve: () => Response, fallback?: Fallback): Promise<{ status: number; headers: Map<string, string>; body: string; isCalled: boolean }> {
  const service = new Ratekeeper({ endpoints: "http://one.test", fetch: services({ "one.test": serve }).fetch, timeoutMs: 60_000, ...(fallback && { fallback }) });
  return await new Promise((resolve, reject) => {
    const headers = new Map<string, string>();
    const answer = {
      statusCode: 200,
      setHeader: (name: string, value: string) => headers.set(name.toLowerCase(), value),
      end: (body: string) => resolve({ status: answer.statusCode, headers, body, isCalled: false }),
    };
    rateLimit({ service, question: () => QUESTION })({}, answer, (error) => {
      if (error) reject(error as Error);
      else resolve({ status: answer.statusCode, headers, body: "", isCalled: true });
    });
  });
}

test("the middleware answers what a limit denies with 429", async () => {
  const denied = await answered(() => json({ decision: "deny", remaining: 0, retry_after_ms: 1200 }));
  assert.deepEqual([denied.status, denied.headers.get("retry-after"), denied.isCalled], [429, "2", false]);
  const local = localLimits([{ domain: "shop", keys: ["tenant"], limit: 0, windowMs: 1000 }]);
  assert.equal((await answered(refused, local)).status, 429);
});

test("the middleware answers what no limit denies with 503", async () => {
  const content = [{ code: "INVALID_ARGUMENT", detail: "at most 32 entries" }, { code: "TOO_LARGE" }].map((body) => () => json(body, 400));
  // A firewall's words, say about what is in the request.
  const pages = [200, 400, 403, 404].map((status) => () => new Response("<h1>Blocked</h1>", { status }));
  for (const [serve, fallback] of [[refused, denyAll], ...[...content, ...pages].map((serve) => [serve, allowAll] as const)] as const) {
    const { status, headers, body, isCalled } = await answered(serve, fallback);
    assert.deepEqual([status, headers.get("retry-after"), headers.get("content-type"), isCalled], [503, "1", "application/problem+json", false]);
    const problem = JSON.parse(body) as { status: number; code: string };
    assert.deepEqual([problem.status, problem.code, body.includes("32")], [503, "UNAVAILABLE", false]);
  }
});

test("the fallback decides if the service refuses the application: its callers are not at fault", async () => {
  const refusing = (): Response => json({ code: "UNAUTHENTICATED" }, 401);
  assert.equal((await answered(refusing)).isCalled, true);
  assert.equal((await answered(refusing, denyAll)).status, 503);
});

test("headers of a decision are those of the IETF draft", () => {
  const plain = allowAll(QUESTION);
  assert.deepEqual(rateLimitHeaders(plain), []);
  const policies = [{ name: 'per "minute", ü', limit: 3, windowMs: 60_000 }, { name: "quick", limit: 5, windowMs: 500 }];
  const denied = { ...plain, allowed: false, policy: "quick", remaining: 0, retryAfterMs: 1200, policies };
  assert.deepEqual(rateLimitHeaders(denied), [
    ["RateLimit-Policy", '"per \\"minute\\", %C3%BC";q=3;w=60, "quick";q=5'],
    ["RateLimit", '"quick";r=0;t=2'],
    ["Retry-After", "2"],
  ]);
  // A request that never passes: its cost is more than the limit.
  const never = { ...denied, retryAfterMs: undefined, resetAfterMs: 6500 };
  assert.deepEqual(rateLimitHeaders(never).slice(1), [["RateLimit", '"quick";r=0;t=7']]);
});
