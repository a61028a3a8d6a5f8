"""The Python client against a running service and a running gateway."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import httpx
import requests

from binary import gateway, model, service, upstream
from ratekeeper import Event, Options
from ratekeeper.httpx import AsyncRateLimitTransport, RateLimitTransport
from ratekeeper.requests import mount
from ratekeeper.service import AsyncRatekeeper, Question, Ratekeeper, ServiceError

SERVICE_RULES = """
domain: shop
descriptors:
  - { key: tenant, rate_limit: { name: per-day, window: 10000d, limit: 3, algorithm: fixed_window } }
  - { key: spent, rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window, post_paid: true } }
  - { key: customer, rate_limit: { name: per-day, window: 10000d, limit: 3, algorithm: fixed_window } }
  - { key: tokens, rate_limit: { window: 10000d, limit: 1000, algorithm: fixed_window } }
  - { key: job, concurrency: { limit: 1, timeout: 60s } }
"""
BUDGET_RULES = """
domain: llm
descriptors:
  - { key: user, rate_limit: { name: tokens-a-day, window: 10000d, limit: 1000, algorithm: fixed_window, post_paid: true } }
"""

# The part of a limit that a client uses on a machine which is busy with other tests, or of what its workers could ask there
# without a limit if that is less. The simulation asks for nine tenths.
USED = 0.4
RUN_SECONDS = 6.0
WORKERS = 4
# A key of its own for each test: its limit, what passes at once, and how much more each second.
LIMITS = {
    "fixed": ("{ window: 1s, limit: 50, algorithm: fixed_window }", 0, 50),
    "sliding": ("{ window: 1s, limit: 50 }", 0, 50),
    "bucket": ("{ window: 1s, limit: 50, burst: 10, algorithm: token_bucket }", 10, 50),
    "minute": ("{ window: 1m, limit: 600, burst: 20, algorithm: gcra }", 20, 10),
}
GATEWAY_RULES = "domain: api\ndescriptors:\n" + "".join(
    f"  - {{ key: api_key, value: {key}, rate_limit: {limit} }}\n" for key, (limit, _, _) in LIMITS.items()
)


def loaded(name: str, **environment: str) -> Any:
    """An example, as it starts in this environment."""
    os.environ.update(environment)
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # However busy the machine is.
    example.service._timeout = 60.0
    return example


class Service(unittest.TestCase):
    def test_the_calls_of_a_running_service(self) -> None:
        with service(SERVICE_RULES) as urls, Ratekeeper(urls["http"], timeout=60) as client:
            self.check(client)
            self.reserve(client)
            self.permits(client)
            asyncio.run(self.asynchronously(urls["http"]))
            asyncio.run(self.at_once(urls["http"]))
            self.the_example_of_fastapi_limits_its_callers(urls["http"])

    def check(self, client: Ratekeeper) -> None:
        abc = Question.of("shop", tenant="abc")
        first = client.check(abc)
        self.assertEqual((first.allowed, first.remaining, first.policy, first.degraded), (True, 2, "per-day", False))
        self.assertEqual([one.allowed for one in client.check_batch([abc] * 3)], [True, True, False])
        self.assertFalse(client.peek(abc).allowed)
        for _ in range(2):
            client.refund(Question.of("shop", 2, tenant="abc"), idempotency_key="once")
        self.assertEqual([one.allowed for one in client.check_batch([abc] * 3)], [True, True, False])
        # Of budgets as of any other limit, a repetition is the same check.
        for question in (Question.of("shop", spent="once"), Question.of("shop", tenant="once")):
            once = [client.check(question, idempotency_key=str(question)) for _ in range(2)]
            self.assertEqual([(one.allowed, one.remaining, one.degraded) for one in once], [(True, 2, False)] * 2)
        with self.assertRaises(ServiceError) as refused:
            client.check(Question("", []))
        self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")

    def reserve(self, client: Ratekeeper) -> None:
        tokens = Question.of("shop", tokens="abc")
        reserved = client.reserve(tokens, 600, idempotency_key="order-7").reservation or ""
        self.assertFalse(client.reserve(tokens, 600).decision.allowed)
        self.assertEqual(client.commit(reserved, 100), 500)
        other = client.reserve(tokens, 900).reservation or ""
        self.assertEqual(client.cancel(other), 900)
        with self.assertRaises(ServiceError) as refused:
            client.commit(reserved, 200)
        self.assertEqual(refused.exception.code, "CONFLICT")

    def permits(self, client: Ratekeeper) -> None:
        job = Question.of("shop", job="export")
        with client.permit(job) as acquired:
            assert acquired.permit
            self.assertFalse(client.acquire(job).decision.allowed)
            self.assertGreater(client.renew(acquired.permit.token), 50)
        with self.assertRaises(ServiceError) as gone:
            client.renew(acquired.permit.token)
        self.assertEqual(gone.exception.code, "NOT_HELD")

    async def asynchronously(self, url: str) -> None:
        async with AsyncRatekeeper(url, timeout=60) as client:
            self.assertTrue((await client.check(Question.of("shop", tenant="async"), idempotency_key="async-1")).allowed)
            async with client.permit(Question.of("shop", job="export")) as acquired:
                assert acquired.permit
                self.assertFalse((await client.acquire(Question.of("shop", job="export"))).decision.allowed)
            self.assertIsNotNone((await client.acquire(Question.of("shop", job="export"))).permit)

    async def at_once(self, url: str) -> None:
        async with AsyncRatekeeper(url, timeout=60, concurrency=2) as client:
            checks = [client.check(Question.of("shop", tenant="burst")) for _ in range(30)]
            limits = [client.limit("burst", 3, 60_000) for _ in range(30)]
            # A request without a domain would have all that go with it refused.
            decided, limited, refused = await asyncio.gather(
                asyncio.gather(*checks),
                asyncio.gather(*limits),
                asyncio.gather(client.check(Question("", [])), return_exceptions=True),
            )
        self.assertEqual(sorted(one.remaining for one in decided), [0] * 28 + [1, 2])
        told = {(one.allowed, one.degraded, one.policy) for one in decided}
        self.assertEqual(told, {(True, False, "per-day"), (False, False, "per-day")})
        self.assertEqual(sum(one.success and not one.degraded for one in limited), 3)
        self.assertEqual(getattr(refused[0], "code", None), "INVALID_ARGUMENT")

    def test_the_example_of_a_budget_commits_what_an_answer_cost(self) -> None:
        with service(BUDGET_RULES) as urls, model() as model_url, Ratekeeper(urls["http"], timeout=60) as client:
            example = loaded("token_budget", RATEKEEPER_URL=urls["http"], MODEL_URL=model_url)

            def left(user: str) -> Any:
                return client.check(Question.of("llm", 0, user=user)).remaining

            # The answer of the model has 697 words and costs 700 tokens, more than was reserved for it.
            answer = example.stream("ada", "prompt", 500)
            self.assertEqual((next(answer), left("ada")), ("word ", 500))
            self.assertEqual((len(list(answer)), left("ada")), (696, 300))
            self.assertEqual((len(list(example.stream("ada", "prompt", 100))), left("ada")), (697, 0))
            with self.assertRaisesRegex(example.OverBudget, "there is more in"):
                next(example.stream("ada", "prompt", 100))
            # Whoever stops reading pays for the words that were sent, and a token for a prompt of four bytes.
            answer = example.stream("bob", "four", 500)
            for _ in range(3):
                next(answer)
            answer.close()
            self.assertEqual(left("bob"), 1000 - 1 - 3)

    def the_example_of_fastapi_limits_its_callers(self, url: str) -> None:
        example = loaded("fastapi_app", RATEKEEPER_URL=url)

        async def ask() -> list[httpx.Response]:
            transport = httpx.ASGITransport(app=example.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://app.test") as client:
                return [await client.get("/orders", headers={"x-customer": "acme"}) for _ in range(4)]

        answers = asyncio.run(ask())
        self.assertEqual([answer.status_code for answer in answers], [200, 200, 200, 429])
        self.assertEqual(answers[0].headers["ratelimit-policy"], '"per-day";q=3;w=864000000')
        self.assertRegex(answers[0].headers["ratelimit"], '^"per-day";r=2;t=[0-9]+$')
        self.assertEqual(answers[3].headers["content-type"], "application/problem+json")
        self.assertEqual(answers[3].json()["code"], "RATE_LIMITED")
        self.assertGreater(int(answers[3].headers["retry-after"]), 0)


class Pacing(unittest.TestCase):
    def test_one_client_is_never_denied_and_uses_the_limit(self) -> None:
        with upstream() as behind, gateway(GATEWAY_RULES, behind) as urls:
            runs = {
                "fixed": lambda events: asyncio.run(self.asynchronously(urls["gateway"], "fixed", events)),
                "sliding": lambda events: self.in_threads(urls["gateway"], "sliding", events),
                "bucket": lambda events: asyncio.run(self.asynchronously(urls["gateway"], "bucket", events)),
                "minute": lambda events: self.with_requests(urls["gateway"], "minute", events),
            }
            events: dict[str, list[Event]] = {key: [] for key in runs}
            threads = [threading.Thread(target=run, args=(events[key],)) for key, run in runs.items()]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for key, (_, burst, per_second) in LIMITS.items():
            answered = [event for event in events[key] if event.type == "answered"]
            denied = [event for event in answered if event.status != 200]
            self.assertEqual(denied, [], key)
            # Headers tell whole seconds, so the last one may not be used.
            most = burst + per_second * (RUN_SECONDS - 1)
            waited = sum(event.waited for event in events[key] if event.type == "paced")
            # Without the waits of the client: other tests make its requests slow.
            possible = len(answered) * WORKERS * RUN_SECONDS / max(0.001, WORKERS * RUN_SECONDS - waited)
            self.assertTrue(answered, key)
            self.assertGreaterEqual(len(answered), USED * min(most, possible), (key, most, possible))

    async def asynchronously(self, url: str, key: str, events: list[Event]) -> None:
        end = time.monotonic() + RUN_SECONDS
        transport = AsyncRateLimitTransport(options=Options(on_event=events.append))
        async with httpx.AsyncClient(transport=transport, headers={"x-api-key": key}) as client:

            async def work() -> None:
                while time.monotonic() < end:
                    await client.get(f"{url}/orders", timeout=60)

            await asyncio.gather(*(work() for _ in range(WORKERS)))

    def in_threads(self, url: str, key: str, events: list[Event]) -> None:
        end = time.monotonic() + RUN_SECONDS
        transport = RateLimitTransport(options=Options(on_event=events.append))
        with httpx.Client(transport=transport, headers={"x-api-key": key}) as client:
            self.work(lambda: client.get(f"{url}/orders", timeout=60), end)

    def with_requests(self, url: str, key: str, events: list[Event]) -> None:
        end = time.monotonic() + RUN_SECONDS
        with mount(requests.Session(), Options(on_event=events.append)) as session:
            self.work(lambda: session.get(f"{url}/orders", headers={"x-api-key": key}, timeout=60), end)

    def work(self, ask: Any, end: float) -> None:
        def run() -> None:
            while time.monotonic() < end:
                ask()

        threads = [threading.Thread(target=run) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    unittest.main()
