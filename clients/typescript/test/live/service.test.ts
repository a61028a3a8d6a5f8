import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Ratekeeper, type Question } from "ratekeeper";
import { serve, startService } from "./binary.ts";

const RULES = `
domain: shop
descriptors:
  - { key: tenant, rate_limit: { name: per-day, window: 10000d, limit: 3, algorithm: fixed_window } }
  - { key: spent, rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window, post_paid: true } }
  - { key: customer, rate_limit: { name: per-day, window: 10000d, limit: 3, algorithm: fixed_window } }
  - { key: tokens, rate_limit: { window: 10000d, limit: 1000, algorithm: fixed_window } }
  - { key: job, concurrency: { limit: 1, timeout: 60s } }
`;

const of = (key: string, value: string, hits?: number): Question => ({
  domain: "shop",
  descriptors: [{ entries: { [key]: value }, ...(hits !== undefined && { hits }) }],
});

test("the calls of a running service", async (t) => {
  const running = await startService(RULES);
  t.after(() => running.stop());
  const gone = await serve(() => {});
  await gone.stop();
  const service = new Ratekeeper({ endpoints: [gone.url, running.url("HTTP")], timeoutMs: 60_000 });

  await t.test("check, batch, peek and refund", async () => {
    const first = await service.check(of("tenant", "a"));
    assert.deepEqual([first.allowed, first.remaining, first.policy, first.degraded], [true, 2, "per-day", false]);
    const batch = await service.checkBatch([of("tenant", "a"), of("tenant", "a"), of("tenant", "a")]);
    assert.deepEqual(batch.map((decision) => decision.allowed), [true, true, false]);
    assert.ok((batch[2]?.retryAfterMs ?? 0) > 0);
    assert.equal((await service.peek(of("tenant", "a"))).allowed, false);
    await service.refund(of("tenant", "a", 2), "once");
    await service.refund(of("tenant", "a", 2), "once");
    assert.deepEqual((await service.checkBatch([1, 2, 3].map(() => of("tenant", "a")))).map((one) => one.allowed), [true, true, false]);
    const more = await service.check(of("tenant", "b", 4));
    assert.deepEqual([more.allowed, more.retryAfterMs], [false, undefined]);
  });

  await t.test("a check with a key is one check, of budgets as of any other limit", async () => {
    for (const key of ["spent", "tenant"]) {
      for (let repeats = 0; repeats < 2; repeats++) {
        const { allowed, remaining, degraded } = await service.check(of(key, "once"), `${key}-1`);
        assert.deepEqual([allowed, remaining, degraded], [true, 2, false]);
      }
    }
  });

  await t.test("an identifier, with a limit or a rule", async () => {
    const ask = () => service.limit("ada", { limit: 1, durationMs: 3_600_000 });
    assert.equal((await ask()).success, true);
    const denied = await ask();
    assert.deepEqual([denied.success, denied.limit, denied.remaining], [false, 1, 0]);
    assert.ok(Math.abs(denied.reset - Date.now() - 3_600_000) < 60_000);
    assert.equal((await service.limit("z", { rule: "shop.tenant", cost: 2 })).remaining, 1);
  });

  await t.test("checks at once, which go together", async () => {
    const bounded = new Ratekeeper({ endpoints: running.url("HTTP"), timeoutMs: 60_000, concurrency: 2 });
    const checks = Array.from({ length: 30 }, () => bounded.check(of("tenant", "burst")));
    const limits = Array.from({ length: 30 }, () => bounded.limit("burst", { limit: 3, durationMs: 60_000 }));
    // A request without a domain would have all that go with it refused.
    const refused = bounded.check({ domain: "", descriptors: [] });
    await assert.rejects(refused, { code: "INVALID_ARGUMENT" });
    const decided = await Promise.all(checks);
    assert.deepEqual(decided.map(({ allowed, remaining }) => allowed && remaining).filter((one) => one !== false).sort(), [0, 1, 2]);
    assert.ok(decided.every(({ degraded, policy }) => !degraded && policy === "per-day"));
    assert.equal((await Promise.all(limits)).filter(({ success, degraded }) => success && !degraded).length, 3);
  });

  await t.test("reserve, commit and cancel", async () => {
    const { reservation = "" } = await service.reserve(of("tokens", "a"), 600, { idempotencyKey: "order-7", ttlMs: 60_000 });
    assert.equal((await service.reserve(of("tokens", "a"), 600, { idempotencyKey: "order-7", ttlMs: 60_000 })).reservation, reservation);
    const { decision } = await service.reserve(of("tokens", "a"), 600);
    assert.equal(decision.allowed, false);
    assert.equal(await service.commit(reservation, 100), 500);
    const { reservation: other = "" } = await service.reserve(of("tokens", "a"), 900);
    assert.equal(await service.cancel(other), 900);
    await assert.rejects(service.commit(reservation, 200), { code: "CONFLICT" });
  });

  await t.test("permits end with their block", async () => {
    const { permit } = await service.acquire(of("job", "export"));
    assert.ok(permit);
    assert.equal((await service.acquire(of("job", "export"))).decision.allowed, false);
    assert.ok((await service.renew(permit.token)) > 50_000);
    // What `await using` does.
    await permit[Symbol.asyncDispose]();
    const worked = await service.withPermit(of("job", "export"), async ({ permit }) => permit?.token);
    assert.ok(worked);
    await assert.rejects(service.renew(worked), { code: "NOT_HELD" });
    const failing = service.withPermit(of("job", "export"), async () => { throw new Error("the work failed"); });
    await assert.rejects(failing, /the work failed/);
    assert.ok((await service.acquire(of("job", "export"))).permit);
  });

  await t.test("what the service refuses is thrown", async () => {
    await assert.rejects(service.check({ domain: "", descriptors: [] }), { code: "INVALID_ARGUMENT", status: 400 });
    await assert.rejects(service.renew("not a permit"), { code: "INVALID_ARGUMENT", field: "permit" });
  });

  await t.test("the example of Express limits its callers", async () => {
    const example = new URL("../../examples/express.ts", import.meta.url).pathname;
    const child = spawn(process.execPath, [example, running.url("HTTP"), "0", "60000"], { stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
      const url = line.split(" ").at(-1) ?? "";
      const answers: Response[] = [];
      for (let calls = 0; calls < 4; calls++) answers.push(await fetch(`${url}/orders`, { headers: { "x-customer": "acme" } }));
      assert.deepEqual(answers.map((answer) => answer.status), [200, 200, 200, 429]);
      assert.equal(answers[0]?.headers.get("ratelimit-policy"), '"per-day";q=3;w=864000000');
      assert.match(answers[0]?.headers.get("ratelimit") ?? "", /^"per-day";r=2;t=[0-9]+$/);
      assert.ok(Number(answers[3]?.headers.get("retry-after")) > 0);
      const problem = (await answers[3]?.json()) as { code: string; status: number };
      assert.deepEqual([problem.code, problem.status], ["RATE_LIMITED", 429]);
      assert.equal((await fetch(`${url}/orders`, { headers: { "x-customer": "other" } })).status, 200);
    } finally {
      child.kill();
    }
  });
});
