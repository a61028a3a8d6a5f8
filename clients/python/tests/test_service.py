"""The calls of a service, against services of the test's own."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import signal
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, AsyncIterator, Callable, Iterator, Mapping, Sequence, Union, cast
from unittest import mock

import anyio
import httpx

from ratekeeper import _fork
from ratekeeper._calls import Held
from ratekeeper._endpoints import Away, read
from ratekeeper._places import Places, ThreadPlaces, Together
from ratekeeper._unanswered import Lost, Unanswered
from ratekeeper.asgi import RateLimitMiddleware
from ratekeeper.service import (
    AsyncRatekeeper,
    Decision,
    Descriptor,
    LimitResult,
    LocalLimit,
    LocalLimits,
    Question,
    Ratekeeper,
    ServiceError,
    allow_all,
    deny_all,
)

QUESTION = Question.of("shop", tenant="abc")
ALLOW = {"decision": "allow", "rule": "shop.tenant", "limit": 3, "remaining": 2, "reset_after_ms": 500}
Serve = Callable[[], httpx.Response]
Call = Callable[[Any], Any]


def ok(**more: Any) -> Serve:
    return lambda: httpx.Response(200, json={**ALLOW, **more})


def refused() -> httpx.Response:
    raise httpx.ConnectError("refused")


def broken() -> httpx.Response:
    raise httpx.ReadError("reset")


def threads_begun() -> Callable[[], int]:
    """Counts the threads that have begun since and run."""
    before = set(threading.enumerate())
    return lambda: len(set(threading.enumerate()) - before)


class Services:
    """Services by their hosts, and a client of each kind that asks them."""

    def __init__(self, hosts: Mapping[str, Serve], **options: Any) -> None:
        self.hosts = hosts
        # However busy the machine is: most tests ask for words and order alone.
        self.options = {"timeout": 60, **options}
        self.asked: list[str] = []
        self.bodies: list[Any] = []

    def serve(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.url.host}{request.url.path}")
        self.bodies.append(json.loads(request.content))
        return self.hosts[request.url.host]()

    async def serve_async(self, request: httpx.Request) -> httpx.Response:
        return self.serve(request)

    def sync(self, *calls: Call) -> list[Any]:
        urls = [f"http://{host}/" for host in self.hosts]
        with Ratekeeper(urls, transport=httpx.MockTransport(self.serve), **self.options) as service:
            return [call(service) for call in calls]

    def asyncio(self, *calls: Call) -> list[Any]:
        async def run() -> list[Any]:
            urls = [f"http://{host}/" for host in self.hosts]
            transport = httpx.MockTransport(self.serve_async)
            async with AsyncRatekeeper(urls, transport=transport, **self.options) as service:
                return [await call(service) for call in calls]

        return asyncio.run(run())


Ask = Union[Callable[..., list[Any]]]


class Calls(unittest.TestCase):
    def both(self) -> Iterator[Ask]:
        for kind in (Services.sync, Services.asyncio):
            with self.subTest(kind.__name__):
                yield kind

    def test_a_check_is_asked_for_in_the_words_of_the_api(self) -> None:
        for ask in self.both():
            services = Services({"one.test": ok()})
            entries = [("tenant", "abc"), ("endpoint", "GET /")]
            (decision,) = ask(services, lambda one: one.check(Question("shop", [Descriptor(entries, 2)], wait_ms_max=0)))
            self.assertEqual((decision.allowed, decision.reset_after_ms), (True, 500))
            named = [{"key": "tenant", "value": "abc"}, {"key": "endpoint", "value": "GET /"}]
            asked = {"domain": "shop", "descriptors": [{"entries": named, "hits": 2}], "wait_ms_max": 0, "standing": True}
            self.assertEqual(services.bodies, [asked])

    def test_an_identifier_needs_no_more_than_a_limit(self) -> None:
        told = {"success": False, "limit": 5, "remaining": 0, "reset": 1_800_000_000_000, "retry_after_ms": 9}
        for ask in self.both():
            services = Services({"one.test": lambda: httpx.Response(200, json=told)})
            answers = ask(services, lambda one: one.limit("ada", 5, 60_000, cost=2), lambda one: one.limit("ada", rule="r"))
            self.assertEqual(answers[0], LimitResult(False, 5, 0, 1_800_000_000_000, 9))
            self.assertEqual(services.asked, ["one.test/v1/limit"] * 2)
            own = {"identifier": "ada", "limit": 5, "duration": 60_000, "cost": 2}
            self.assertEqual(services.bodies, [own, {"identifier": "ada", "rule": "r"}])

    def test_the_fallback_decides_about_identifiers_too(self) -> None:
        for ask in self.both():
            fallback = LocalLimits([LocalLimit("mails", ["identifier"], 1, 60.0)])
            services = Services({"one.test": refused}, fallback=fallback)
            call: Call = lambda one: one.limit("ada", 5, 60_000, domain="mails")
            first, second = ask(services, call, call)
            self.assertEqual((first.success, second.success, second.degraded), (True, False, True))
            self.assertGreater(second.reset, time.time() * 1000)

    def test_an_endpoint_that_is_no_url_of_http_is_refused_at_once(self) -> None:
        """The fallback would let everything pass, for ever."""
        for url in ("localhost:8080", "10.0.0.1", "", "grpc://one.test", "http://", "http:///v1", "http://one.test:port"):
            for kind in (Ratekeeper, AsyncRatekeeper):
                with self.assertRaisesRegex(ValueError, "^endpoints: .* is no URL of http or https"):
                    kind(["http://one.test", url])

    def test_a_token_has_no_white_space_around_it_and_one_that_cannot_be_sent_is_refused_without_telling_it(self) -> None:
        sent: list[Any] = []

        def serve(request: httpx.Request) -> httpx.Response:
            sent.append(request.headers.get("authorization"))
            return ok()()

        for token in ("s3cret\n", " s3cret\r\n", "", "\n"):
            with Ratekeeper("http://one.test", token=token, transport=httpx.MockTransport(serve)) as service:
                service.check(QUESTION)
        self.assertEqual(sent, ["Bearer s3cret", "Bearer s3cret", None, None])
        for token in ("s3cret\nmore", "s3cret more", "s3cret€", "s3cret\0"):
            for kind in (Ratekeeper, AsyncRatekeeper):
                with self.assertRaisesRegex(ValueError, "^token: only visible ASCII characters can be sent$"):
                    kind("http://one.test", token=token)

    def test_an_empty_key_is_none(self) -> None:
        calls: list[Call] = [
            lambda one: one.check(QUESTION, idempotency_key=""),
            lambda one: one.reserve(QUESTION, 5, idempotency_key=""),
        ]
        for ask in self.both():
            services = Services({"one.test": broken, "two.test": ok()})
            decision, reserved = ask(services, *calls)
            self.assertEqual((decision, reserved.decision), (allow_all(QUESTION), allow_all(QUESTION)))
            with self.assertRaises(ServiceError):
                ask(services, lambda one: one.refund(QUESTION, idempotency_key=""))
            # A reserve has one of the client's own, by which it is looked for in the end.
            asked = ["one.test/v1/check", *[f"{host}.test/v1/reserve" for host in ("one", "one", "two")], "one.test/v1/refund"]
            self.assertEqual(services.asked, asked)
            self.assertEqual([bool(body.get("idempotency_key")) for body in services.bodies], [False, True, True, True, False])
            self.assertFalse(any(body.get("idempotency_key") == "" for body in services.bodies))

    def test_a_service_that_refuses_connections_is_passed_over_and_asked_last(self) -> None:
        for ask in self.both():
            services = Services({"one.test": refused, "two.test": ok()})
            with mock.patch("ratekeeper._endpoints._DOWN", 3600.0):
                decisions = ask(services, lambda one: one.check(QUESTION), lambda one: one.check(QUESTION))
            self.assertEqual([decision.degraded for decision in decisions], [False, False])
            self.assertEqual(services.asked, ["one.test/v1/check", "two.test/v1/check", "two.test/v1/check"])

    def test_a_check_that_may_have_been_charged_is_not_repeated_but_a_release_is(self) -> None:
        for ask in self.both():
            services = Services({"one.test": broken, "two.test": ok(was_held=True)})
            answers = ask(services, lambda one: one.check(QUESTION), lambda one: one.release("p"))
            self.assertEqual(answers, [allow_all(QUESTION), True])
            self.assertEqual(services.asked, ["one.test/v1/check", "one.test/v1/release", "two.test/v1/release"])

    def test_a_503_of_a_proxy_may_come_after_the_charge_and_one_of_the_service_does_not(self) -> None:
        proxies: list[Any] = ["upstream reset", {"code": "HTTP_503"}, {}]
        codes = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
        own: list[Any] = [body for code in codes for body in ({"code": code}, {"error": {"code": code}})]
        for ask in self.both():
            for bodies, others in ((proxies, 0), (own, 1)):
                for body in bodies:
                    services = Services({"one.test": lambda body=body: httpx.Response(503, json=body), "two.test": ok()})  # type: ignore[misc]
                    (decision,) = ask(services, lambda one: one.check(QUESTION))
                    self.assertEqual((decision.degraded, len(services.asked)), (others == 0, 1 + others), body)

    def test_a_charge_with_a_key_is_repeated_at_the_next_service_and_never_left_to_the_fallback(self) -> None:
        for ask in self.both():
            services = Services({"one.test": broken, "two.test": ok(decision="deny", remaining=0, debt=60)})
            (decision,) = ask(services, lambda one: one.check(QUESTION, idempotency_key="stream-1"))
            self.assertEqual((decision.allowed, decision.degraded, decision.debt), (False, False, 60))
            self.assertEqual(services.asked, ["one.test/v1/check", "two.test/v1/check"])
            # The service refuses one that asks for its standing.
            self.assertEqual(services.bodies, [{**QUESTION.json(), "idempotency_key": "stream-1"}] * 2)
            services = Services({"one.test": refused})
            with self.assertRaises(ServiceError) as away:
                ask(services, lambda one: one.check(QUESTION, idempotency_key="stream-1"))
            self.assertEqual(away.exception.code, "AWAY")

    def test_the_fallback_decides_when_the_service_is_away(self) -> None:
        for ask in self.both():
            for serve in (refused, broken, lambda: httpx.Response(500), lambda: httpx.Response(503, text="no rules")):
                services = Services({"one.test": serve}, fallback=deny_all)
                batch, reserved = ask(services, lambda one: one.check_batch([QUESTION] * 2), lambda one: one.reserve(QUESTION, 5))
                self.assertEqual(batch, [Decision(False, True)] * 2)
                self.assertFalse(reserved.decision.allowed)
                with self.assertRaises(ServiceError) as away:
                    ask(services, lambda one: one.peek(QUESTION))
                self.assertEqual(away.exception.code, "AWAY")

    def test_an_answer_that_was_cut_off_is_no_denial(self) -> None:
        def cut() -> httpx.Response:
            return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Stream())

        class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                yield b"no gzip"

            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield b"no gzip"

        for ask in self.both():
            services = Services({"one.test": cut, "two.test": ok()})
            calls: list[Call] = [lambda one: one.check(QUESTION), lambda one: one.check_batch([QUESTION] * 2)]
            decision, batch = ask(services, *calls)
            self.assertEqual((decision, batch), (allow_all(QUESTION), [allow_all(QUESTION)] * 2))
            # Whether it was carried out is unknown: only what is harmless goes on.
            self.assertEqual(services.asked, ["one.test/v1/check", "one.test/v1/checks"])
            self.assertFalse(ask(services, lambda one: one.peek(QUESTION))[0].degraded)

    def test_what_none_of_the_services_said_is_no_denial_and_is_not_left_to_the_fallback(self) -> None:
        """Callers can provoke it with what is in a request, such as a value that a firewall takes for an attack."""
        pages = ("<h1>Blocked</h1>", "{}", "[]", '{"title": "Not Found", "status": 404}')
        foreign = [(status, page) for status in (302, 400, 401, 403, 404, 407, 413, 414, 429, 431) for page in pages]
        foreign += [(200, page) for page in (*pages, '{"results": [{}], "decision": "maybe", "code": "OK"}')] + [(204, "")]
        calls: list[Call] = [
            lambda one: one.check(QUESTION),
            lambda one: one.check_batch([QUESTION] * 2),
            lambda one: one.limit("ada", 5, 60_000),
            lambda one: one.reserve(QUESTION, 5),
            lambda one: one.acquire(QUESTION),
        ]
        for ask in self.both():
            for status, page in foreign:
                blocked: Serve = lambda: httpx.Response(status, text=page)  # noqa: B023, E731
                for others in ({}, {"two.test": blocked}, {"two.test": refused}):
                    for call in calls:
                        with self.assertRaises(ServiceError) as thrown:
                            ask(Services({"one.test": blocked, **others}, timeout=60), call)
                        self.assertEqual((thrown.exception.code, thrown.exception.status), (f"HTTP_{status}", status))
                for ask_first in ({"one.test": blocked, "two.test": ok()}, {"one.test": refused, "two.test": blocked, "six.test": ok()}):
                    services = Services(ask_first, timeout=60)
                    self.assertFalse(ask(services, lambda one: one.peek(QUESTION))[0].degraded)

    def test_a_refusal_that_is_none_of_the_service_s_goes_on_to_the_next_one(self) -> None:
        for ask in self.both():
            for status in (302, 403, 404):
                hosts: dict[str, Serve] = {"one.test": lambda: httpx.Response(status, text="<h1>Blocked</h1>"), "two.test": ok()}  # noqa: B023
                services = Services(hosts)
                with mock.patch("ratekeeper._endpoints._DOWN", 3600.0):
                    decisions = ask(services, *[lambda one: one.check(QUESTION)] * 4)
                self.assertEqual([decision.degraded for decision in decisions], [False] * 4)
                # After three it is asked last, as any service that misses calls.
                asked = [f"{host}.test/v1/check" for host in ("one", "two", "one", "two", "one", "two", "two")]
                self.assertEqual(services.asked, asked)

    def test_a_permit_stays_held_when_something_between_refuses_its_renewal(self) -> None:
        steps = Ratekeeper("http://one.test")._keep(permit := Held("p", 60.0), 60.0)  # pyright: ignore[reportPrivateUsage]
        next(steps)
        next(steps)
        with self.assertRaises(Away) as page:
            read(cast(Any, steps.send({})), 404, b"<h1>Not Found</h1>")
        self.assertEqual(steps.throw(page.exception), 5.0)
        self.assertFalse(permit.is_lost)

    def test_errors_are_raised_in_both_forms_of_their_bodies(self) -> None:
        older = {"error": {"code": "INVALID_ARGUMENT", "message": "no domain", "field": "domain"}}
        problem = {"title": "Bad Request", "status": 400, "detail": "no domain", "code": "INVALID_ARGUMENT", "field": "domain"}
        for ask in self.both():
            for body in (older, problem):
                services = Services({"one.test": lambda body=body: httpx.Response(400, json=body)})  # type: ignore[misc]
                with self.assertRaises(ServiceError) as thrown:
                    ask(services, lambda one: one.check(QUESTION))
                error = thrown.exception
                said = (error.code, str(error), error.field, error.status)
                self.assertEqual(said, ("INVALID_ARGUMENT", "no domain", "domain", 400))

    def test_a_silent_service_ends_with_the_time_of_a_call(self) -> None:
        async def silent(request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

        async def run() -> Decision:
            async with AsyncRatekeeper("http://one.test", timeout=0.02, transport=httpx.MockTransport(silent)) as service:
                return await service.check(QUESTION)

        self.assertEqual(asyncio.run(run()), allow_all(QUESTION))

    def test_an_answer_that_came_while_the_loop_was_held_up_is_read(self) -> None:
        """By other work of the application: that the time is up is seen before the answer is."""
        body = json.dumps(ALLOW).encode()
        asked, may_answer, answered = threading.Event(), threading.Event(), threading.Event()

        class Service(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                asked.set()
                may_answer.wait(30)
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                answered.set()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        async def run(url: str) -> Decision:
            async with AsyncRatekeeper(url, timeout=60) as service:
                check = asyncio.create_task(service.check(QUESTION))
                while not (asked.is_set() or check.done()):
                    await asyncio.sleep(0)
                may_answer.set()
                self.assertTrue(check.done() or answered.wait(30))
                passed[0] += 61
                return await check

        passed, clock = [0.0], time.monotonic
        server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            with mock.patch("time.monotonic", lambda: clock() + passed[0]):
                decision = asyncio.run(run(f"http://127.0.0.1:{server.server_port}"))
        finally:
            server.shutdown()
            server.server_close()
        self.assertFalse(decision.degraded)

    def test_all_phases_of_a_call_share_its_time(self) -> None:
        """The answer's head and its parts each come in time for themselves, and not together."""
        # It takes half a minute, at least.
        body = json.dumps(ALLOW).encode().ljust(600)
        apart = threading.Event()

        class Slow(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                apart.wait(self.server.pause)  # type: ignore[attr-defined]
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with suppress(ConnectionError):
                    for at in range(len(body)):
                        apart.wait(self.server.pause)  # type: ignore[attr-defined]
                        self.wfile.write(body[at : at + 1])
                        self.server.written = at + 1  # type: ignore[attr-defined]

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            for pause in (0.15, 0.05):
                server.pause, server.written = pause, 0  # type: ignore[attr-defined]
                with Ratekeeper(f"http://127.0.0.1:{server.server_port}", timeout=0.2) as service:
                    self.assertEqual(service.check(QUESTION), allow_all(QUESTION))
                    self.assertLess(server.written, len(body))  # type: ignore[attr-defined]
        finally:
            apart.set()
            server.shutdown()
            server.server_close()

    def test_a_connection_that_does_not_come_about_leaves_half_of_the_time_to_the_next_service(self) -> None:
        def serve(request: httpx.Request) -> httpx.Response:
            timeouts = request.extensions["timeout"]
            connect, read = timeouts.get("connect"), timeouts.get("read")
            self.assertEqual((connect, read), (left[0] / 2, left[0]))
            left[0] -= 1
            now[0] += 1
            if request.url.host == "one.test":
                raise httpx.ConnectTimeout("no answer")
            return ok()()

        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        async def run(urls: list[str]) -> Decision:
            async with AsyncRatekeeper(urls, timeout=10, transport=httpx.MockTransport(serve_async)) as service:
                return await service.check(QUESTION)

        urls = ["http://one.test", "http://two.test"]
        now = [0.0]
        with mock.patch("time.monotonic", lambda: now[0]):
            left = [10.0]
            with Ratekeeper(urls, timeout=10, transport=httpx.MockTransport(serve)) as service:
                self.assertFalse(service.check(QUESTION).degraded)
            # The loop that was held up reads on for a moment.
            left = [10.0 + 0.05]
            self.assertFalse(asyncio.run(run(urls)).degraded)

    def test_a_call_may_have_all_the_time_it_takes(self) -> None:
        for ask in self.both():
            (decision,) = ask(Services({"one.test": ok()}, timeout=math.inf), lambda one: one.check(QUESTION))
            self.assertFalse(decision.degraded)

    def test_a_service_that_refuses_a_call_has_answered_and_missed_none(self) -> None:
        def check(one: Any) -> Any:
            try:
                return one.check(QUESTION)
            except ServiceError:
                return None

        async def check_async(one: Any) -> Any:
            with suppress(ServiceError):
                return await one.check(QUESTION)

        for ask, call in zip(self.both(), (check, check_async)):
            statuses = itertools.cycle((500, 500, 400))
            refusal = {"code": "INVALID_ARGUMENT"}
            services = Services({"one.test": lambda: httpx.Response(next(statuses), json=refusal), "two.test": ok()})  # noqa: B023
            ask(services, *[call] * 6)
            self.assertEqual(services.asked, ["one.test/v1/check"] * 6)

    def test_a_domain_whose_rules_were_refused_is_left_to_the_fallback_and_the_service_is_well(self) -> None:
        for ask in self.both():
            services = Services({"one.test": lambda: httpx.Response(404, json={"code": "NO_RULES"}), "two.test": ok()}, fallback=deny_all)
            answers = ask(services, *[lambda one: one.check(QUESTION)] * 4)
            self.assertEqual([(answer.allowed, answer.degraded) for answer in answers], [(False, True)] * 4)
            self.assertEqual(services.asked, ["one.test/v1/check"] * 4)
            undecided = {"decision": "allow", "degraded": True, "unreadable": "the rules were refused"}
            services = Services({"one.test": lambda: httpx.Response(200, json={"results": [undecided, ALLOW]})}, fallback=deny_all)  # noqa: B023
            (answers,) = ask(services, lambda one: one.check_batch([QUESTION, QUESTION]))
            self.assertEqual([answer.allowed for answer in answers], [False, True])

    def test_a_permit_is_lost_once_its_time_is_over_while_the_service_is_away_and_not_by_its_release(self) -> None:
        def serve(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/renew":
                return broken()
            return ok(permit="p", expires_after_ms=next(expires), was_held=True)()

        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        async def run() -> None:
            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve_async)) as service:
                lost = (await service.acquire(QUESTION)).permit
                assert lost
                end = time.monotonic() + 10
                while not lost.is_lost and time.monotonic() < end:
                    await asyncio.sleep(0.001)
                held = (await service.acquire(QUESTION)).permit
                assert held
                for permit, is_lost in ((lost, True), (held, False)):
                    self.assertEqual(permit.is_lost, is_lost)
                    await permit.release()
                    self.assertEqual(permit.is_lost, is_lost)

        expires = itertools.chain([60], itertools.repeat(60_000))
        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            lost = service.acquire(QUESTION).permit
            assert lost
            end = time.monotonic() + 10
            while not lost.is_lost and time.monotonic() < end:
                time.sleep(0.001)
            held = service.acquire(QUESTION).permit
            assert held
            for permit, is_lost in ((lost, True), (held, False)):
                self.assertEqual(permit.is_lost, is_lost)
                permit.release()
                self.assertEqual(permit.is_lost, is_lost)
        expires = itertools.chain([60], itertools.repeat(60_000))
        asyncio.run(asyncio.wait_for(run(), 30))

    def test_a_permit_that_was_certainly_not_granted_is_not_looked_for(self) -> None:
        begun = threads_begun()
        services = Services({"one.test": refused})
        self.assertEqual(services.sync(lambda one: (one.acquire(QUESTION).permit, begun())), [(None, 0)])

        async def acquire(one: AsyncRatekeeper) -> Any:
            return (await one.acquire(QUESTION)).permit, len(asyncio.all_tasks())

        self.assertEqual(services.asyncio(acquire), [(None, 1)])

    def test_a_permit_of_a_cancelled_acquire_is_given_back(self) -> None:
        keys: list[str] = []

        async def run() -> None:
            begun, released = asyncio.Event(), asyncio.Event()

            async def serve(request: httpx.Request) -> httpx.Response:
                if request.url.path == "/v1/release":
                    released.set()
                    return httpx.Response(200, json={"was_held": True})
                keys.append(json.loads(request.content)["idempotency_key"])
                begun.set()
                if len(keys) == 1:
                    await asyncio.Event().wait()
                return ok(permit="p", expires_after_ms=60_000)()

            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                task = asyncio.create_task(service.acquire(QUESTION))
                await begun.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.wait_for(released.wait(), 30)

        asyncio.run(run())
        self.assertEqual(keys, keys[:1] * 2)

    def test_a_permit_is_released_although_its_caller_is_cancelled(self) -> None:
        """As a caller of FastAPI that hangs up: anyio cancels each wait of its scope."""

        async def run(block: Any) -> None:
            released = asyncio.Event()

            async def serve(request: httpx.Request) -> httpx.Response:
                await asyncio.sleep(0)
                if request.url.path == "/v1/release":
                    released.set()
                return ok(permit="p", expires_after_ms=60_000, was_held=True)()

            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                await block(service)
                await asyncio.wait_for(released.wait(), 30)

        async def scope(service: AsyncRatekeeper) -> None:
            with anyio.CancelScope() as scope:
                async with service.permit(QUESTION):
                    scope.cancel()
                    await anyio.sleep_forever()

        async def twice(service: AsyncRatekeeper) -> None:
            permit = (await service.acquire(QUESTION)).permit
            assert permit
            task = asyncio.create_task(permit.release())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        for block in (scope, twice):
            asyncio.run(run(block))

    def test_a_client_that_is_closed_has_sent_its_releases(self) -> None:
        sent: list[str] = []

        async def run() -> None:
            async def serve(request: httpx.Request) -> httpx.Response:
                await asyncio.sleep(0)
                sent.append(request.url.path)
                return ok(permit="p", expires_after_ms=60_000, was_held=True)()

            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                with anyio.CancelScope() as scope:
                    async with service.permit(QUESTION):
                        scope.cancel()

        with mock.patch("ratekeeper.service._RELEASED_IN", 60.0):
            asyncio.run(run())
        self.assertEqual(sent, ["/v1/acquire", "/v1/release"])

    def test_a_release_without_an_answer_is_repeated(self) -> None:
        attempts: list[str] = []

        def serve(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/release":
                attempts.append(json.loads(request.content)["permit"])
                if len(attempts) == 1:
                    return broken()
            return ok(permit="p", expires_after_ms=60_000, was_held=True)()

        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        async def run(release: Call) -> None:
            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve_async)) as service:
                permit = (await service.acquire(QUESTION)).permit
                assert permit
                with suppress(ServiceError):
                    await release(permit)
                end = time.monotonic() + 30
                while len(attempts) < 2 and time.monotonic() < end:
                    await asyncio.sleep(0.001)

        for end in ("__exit__", "release"):
            attempts.clear()
            with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                permit = service.acquire(QUESTION).permit
                assert permit
                with suppress(ServiceError):
                    getattr(permit, end)()
                until = time.monotonic() + 30
                while len(attempts) < 2 and time.monotonic() < until:
                    time.sleep(0.001)
            self.assertEqual(attempts, ["p", "p"], end)
        for release in (lambda permit: permit.__aexit__(), lambda permit: permit.release()):
            attempts.clear()
            asyncio.run(run(release))
            self.assertEqual(attempts, ["p", "p"])

    def test_a_renewal_without_an_answer_is_repeated_sooner(self) -> None:
        for answers in ((True, True, True), (False, False, True)):
            service = Ratekeeper("http://one.test")
            permit = Held("p", 60.0)
            steps = service._keep(permit, 60.0)  # pyright: ignore[reportPrivateUsage]
            pauses = [next(steps)]
            for is_answered in answers:
                next(steps)
                self.assertEqual(getattr(steps.send({}), "path", None), "renew")
                if is_answered:
                    pauses.append(steps.send({"expires_after_ms": 60_000}))
                else:
                    pauses.append(steps.throw(Away(service._endpoints[0], "lost")))  # pyright: ignore[reportPrivateUsage]
            self.assertEqual(pauses, [20.0, *(20.0 if is_answered else 5.0 for is_answered in answers)])

    def test_many_permits_are_renewed_by_a_few_threads_at_once(self) -> None:
        """Slow answers hold up no others: here each waits until eight are asked for."""
        renewed: set[str] = set()
        numbers = itertools.count()
        eight = threading.Barrier(8)
        most = [0]

        def serve(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/renew":
                with suppress(threading.BrokenBarrierError):
                    eight.wait(30)
                    renewed.add(json.loads(request.content)["permit"])
                most[0] = max(most[0], begun())
                return httpx.Response(200, json={"expires_after_ms": 300})
            return ok(permit=str(next(numbers)), expires_after_ms=300, was_held=True)()

        begun = threads_begun()
        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            permits = [permit for permit in (service.acquire(QUESTION).permit for _ in range(50)) if permit]
            end = time.monotonic() + 30
            while len(renewed) < 50 and time.monotonic() < end:
                time.sleep(0.001)
            eight.abort()
            for permit in permits:
                permit.release()
            self.assertEqual(service._keeper._due, {})  # pyright: ignore[reportPrivateUsage]
        self.assertEqual(renewed, {permit.token for permit in permits})
        self.assertEqual(most[0], 8)
        while begun() and time.monotonic() < end:
            time.sleep(0.001)
        self.assertEqual(begun(), 0)

    def test_one_permit_is_renewed_by_one_thread(self) -> None:
        renewals = itertools.count()
        third = threading.Event()

        def serve(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/renew" and next(renewals) == 2:
                third.set()
            return ok(permit="p", expires_after_ms=30, was_held=True)()

        begun = threads_begun()
        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            with service.permit(QUESTION):
                self.assertTrue(third.wait(30))
                self.assertEqual(begun(), 1)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_permits_of_a_forked_process_are_renewed(self) -> None:
        """Its parent has the threads, and one may have a lock when it forks."""
        renewed: set[str] = set()

        def serve(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/renew":
                renewed.add(json.loads(request.content)["permit"])
            return ok(permit=str(os.getpid()), expires_after_ms=30, was_held=True)()

        def is_renewed() -> bool:
            end = time.monotonic() + 30
            while str(os.getpid()) not in renewed and time.monotonic() < end:
                time.sleep(0.001)
            return str(os.getpid()) in renewed

        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            self.assertTrue(service.acquire(QUESTION).permit and is_renewed())
            held, forked = threading.Event(), threading.Event()

            def hold() -> None:
                with service._keeper._changed, service._unanswered._lock:  # pyright: ignore[reportPrivateUsage]
                    held.set()
                    forked.wait(30)

            holder = threading.Thread(target=hold)
            holder.start()
            held.wait(30)
            child = os.fork()
            if child == 0:
                signal.alarm(40)
                permit = service.acquire(QUESTION).permit
                service._unanswered.add(Lost("release", {"permit": "p"}))  # pyright: ignore[reportPrivateUsage]
                os._exit(0 if permit and is_renewed() else 1)
            forked.set()
            holder.join()
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_forked_process_has_connections_of_its_own(self) -> None:
        """Answers on those of its parent may be for the other one."""
        with Ratekeeper("http://one.test") as service:
            before = service._client  # pyright: ignore[reportPrivateUsage]
            child = os.fork()
            if child == 0:
                os._exit(0 if service._client is not before else 1)  # pyright: ignore[reportPrivateUsage]
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertIs(service._client, before)  # pyright: ignore[reportPrivateUsage]

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_forked_process_can_close_the_client_of_its_parent(self) -> None:
        with Ratekeeper("http://one.test") as service:
            # As the thread that gives back has it, for a moment.
            with service._closing._cond:  # type: ignore[attr-defined]
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    service.close()
                    os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_client_that_was_closed_is_so_in_a_forked_process(self) -> None:
        async def run() -> str:
            with self.assertRaises(ServiceError) as closed:
                await another.check(QUESTION)
            return closed.exception.code

        service, another = Ratekeeper("http://one.test"), AsyncRatekeeper("http://one.test")
        service.close()
        asyncio.run(another.aclose())
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            codes: list[str] = []
            try:
                with self.assertRaises(ServiceError) as closed:
                    service.check(QUESTION)
                codes = [closed.exception.code, ThreadPoolExecutor(1).submit(asyncio.run, run()).result()]
            finally:
                os._exit(0 if codes == ["CLOSED", "CLOSED"] else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_what_cannot_begin_in_a_forked_process_keeps_nothing_else_from_it(self) -> None:
        class One:
            def begin(self) -> None:
                begun.append(self)
                raise ValueError(f"{len(begun)}")

        begun: list[One] = []
        ones = [One(), One()]
        with mock.patch("ratekeeper._fork._begins", {}):
            for one in ones:
                _fork.in_child(one, One.begin)
            with self.assertRaisesRegex(ValueError, "1"):
                _fork._begin_all()  # pyright: ignore[reportPrivateUsage]
        self.assertEqual(len(begun), 2)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_calls_of_a_parent_hold_no_places_of_a_forked_process(self) -> None:
        async def serve(request: httpx.Request) -> httpx.Response:
            return ok()()

        async def check() -> bool:
            return (await service.check(QUESTION)).degraded

        async def run() -> int:
            await service._places.enter(0)  # pyright: ignore[reportPrivateUsage]
            waiting = asyncio.create_task(service.check(QUESTION))
            await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                thread = ThreadPoolExecutor(1)
                os._exit(thread.submit(asyncio.run, check()).result())
            waiting.cancel()
            service._leave()  # pyright: ignore[reportPrivateUsage]
            return os.waitpid(child, 0)[1]

        service = AsyncRatekeeper("http://one.test", timeout=60, concurrency=1, transport=httpx.MockTransport(serve))
        self.assertEqual(asyncio.run(run()), 0)

    def test_a_permit_that_nothing_can_renew_is_given_back(self) -> None:
        asked: list[str] = []

        def serve(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.path)
            return ok(permit="p", expires_after_ms=60_000, was_held=True)()

        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
                with self.assertRaises(RuntimeError):
                    service.acquire(QUESTION)
        self.assertEqual(asked, ["/v1/acquire", "/v1/release"])

    def test_a_permit_may_outlive_its_client(self) -> None:
        def serve(request: httpx.Request) -> httpx.Response:
            return ok(permit="p", expires_after_ms=60_000)()

        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        async def run() -> None:
            service = AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve_async))
            async with service.permit(QUESTION):
                await service.aclose()
            with self.assertRaises(ServiceError) as closed:
                await service.check(QUESTION)
            self.assertEqual(closed.exception.code, "CLOSED")

        asyncio.run(run())
        service = Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve))
        with service.permit(QUESTION):
            service.close()

    def test_an_acquire_that_is_repeated_without_its_key_has_no_more_time(self) -> None:
        left: list[float] = []

        def serve(request: httpx.Request) -> httpx.Response:
            left.append(request.extensions["timeout"].get("read"))
            if "idempotency_key" not in json.loads(request.content):
                return ok(permit="p")()
            time.sleep(0.01)
            return httpx.Response(503, json={"code": "RESOURCE_EXHAUSTED"})

        with Ratekeeper("http://one.test", timeout=10, transport=httpx.MockTransport(serve)) as service:
            self.assertIsNotNone(service.acquire(QUESTION).permit)
        first, second = left
        self.assertLessEqual(second, first - 0.01)

    def test_a_permit_that_was_granted_in_an_answer_that_came_late_is_given_back(self) -> None:
        released = threading.Event()
        acquires: list[str] = []

        def serve(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content)
            if request.url.path == "/v1/release":
                self.assertEqual(body, {"permit": "late"})
                released.set()
                return httpx.Response(200, json={"was_held": True})
            acquires.append(body["idempotency_key"])
            return broken() if len(acquires) == 1 else ok(permit="late", expires_after_ms=60_000)()

        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            acquired = service.acquire(QUESTION)
            self.assertEqual((acquired.decision, acquired.permit), (allow_all(QUESTION), None))
            self.assertTrue(released.wait(30))
        self.assertEqual(len(set(acquires)), 1)

    def test_a_reservation_whose_answer_did_not_come_is_cancelled(self) -> None:
        """Nobody could settle it, and all of it would stay charged."""
        reserves: list[Any] = []
        cancelled: list[Any] = []

        def serve(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content)
            if request.url.path == "/v1/cancel":
                cancelled.append(body["reservation"])
                return httpx.Response(200, json={"given_back": 500})
            reserves.append(body)
            return broken() if len(reserves) == 1 else ok(reservation="r")()

        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        def is_over(until: float) -> bool:
            return cancelled == ["r"] or time.monotonic() > until

        async def run() -> Any:
            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve_async)) as service:
                reserved = await service.reserve(QUESTION, 500, ttl_ms=9000)
                until = time.monotonic() + 30
                while not is_over(until):
                    await asyncio.sleep(0.001)
                return reserved

        for kind in ("sync", "asyncio"):
            reserves.clear()
            cancelled.clear()
            if kind == "asyncio":
                reserved = asyncio.run(run())
            else:
                with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                    reserved = service.reserve(QUESTION, 500, ttl_ms=9000)
                    until = time.monotonic() + 30
                    while not is_over(until):
                        time.sleep(0.001)
            self.assertEqual((reserved.decision, reserved.reservation), (allow_all(QUESTION), None))
            self.assertEqual((reserves, cancelled), ([reserves[0]] * 2, ["r"]))

    def test_what_the_next_service_granted_too_late_is_given_back_although_the_first_answered_a_page(self) -> None:
        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        def serve(request: httpx.Request) -> httpx.Response:
            path = request.url.path
            if request.url.host == "one.test":
                return httpx.Response(404, text="<h1>Not Found</h1>")
            asked.append((path, json.loads(request.content)))
            return broken() if len(asked) == 1 else ok(permit="p", reservation="r", was_held=True)()

        async def run(call: Call) -> None:
            async with AsyncRatekeeper(urls, timeout=60, transport=httpx.MockTransport(serve_async)) as service:
                with self.assertRaises(ServiceError) as page:
                    await call(service)
                self.assertEqual(page.exception.code, "HTTP_404")
                while service._unanswered._calls:  # pyright: ignore[reportPrivateUsage]
                    await asyncio.sleep(0.001)

        urls = ["http://one.test", "http://two.test"]
        kinds: list[tuple[Call, Any]] = [
            (lambda one: one.acquire(QUESTION), ("/v1/release", {"permit": "p"})),
            (lambda one: one.reserve(QUESTION, 5), ("/v1/cancel", {"reservation": "r"})),
        ]
        for call, end in kinds:
            asked = list[Any]()
            asyncio.run(run(call))
            self.assertEqual(asked, [asked[0], asked[0], end])
            asked = list[Any]()
            with Ratekeeper(urls, timeout=60, transport=httpx.MockTransport(serve)) as service:
                with self.assertRaises(ServiceError) as page:
                    call(service)
                self.assertEqual(page.exception.code, "HTTP_404")
                while service._unanswered._calls:  # pyright: ignore[reportPrivateUsage]
                    time.sleep(0.001)
            self.assertEqual(asked, [asked[0], asked[0], end])

    def test_a_reservation_of_a_cancelled_caller_is_cancelled(self) -> None:
        asked: list[tuple[str, Any]] = []

        async def run() -> None:
            begun, cancelled = asyncio.Event(), asyncio.Event()

            async def serve(request: httpx.Request) -> httpx.Response:
                asked.append((request.url.path, json.loads(request.content)))
                if request.url.path == "/v1/cancel":
                    cancelled.set()
                    return httpx.Response(200, json={"given_back": 500})
                begun.set()
                if len(asked) == 1:
                    await asyncio.Event().wait()
                return ok(reservation="r")()

            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                task = asyncio.create_task(service.reserve(QUESTION, 500))
                await begun.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.wait_for(cancelled.wait(), 30)

        asyncio.run(run())
        self.assertEqual(asked, [asked[0], asked[0], ("/v1/cancel", {"reservation": "r"})])

    def test_a_reserve_with_a_key_is_never_left_to_the_fallback(self) -> None:
        """The caller repeats it: the same key tells the reservation that was made all the same."""
        for ask in self.both():
            services = Services({"one.test": broken})
            call: Call = lambda one: one.reserve(QUESTION, 5, idempotency_key="order-7")
            with self.assertRaises(ServiceError) as away:
                ask(services, call)
            self.assertEqual((away.exception.code, services.asked), ("AWAY", ["one.test/v1/reserve"]))
            self.assertEqual(services.bodies[0]["idempotency_key"], "order-7")

    def test_a_call_that_is_cancelled_before_it_is_sent_is_not_looked_for(self) -> None:
        async def run() -> None:
            asked: list[str] = []

            async def serve(request: httpx.Request) -> httpx.Response:
                asked.append(request.url.path)
                return ok()()

            async with AsyncRatekeeper("http://one.test", timeout=60, concurrency=1, transport=httpx.MockTransport(serve)) as service:
                await service._places.enter(0)  # pyright: ignore[reportPrivateUsage]
                tasks = [asyncio.create_task(call) for call in (service.reserve(QUESTION, 5), service.acquire(QUESTION))]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                self.assertEqual((asked, service._tasks), ([], set()))  # pyright: ignore[reportPrivateUsage]

        asyncio.run(run())

    def test_permits_of_many_answers_that_did_not_come_are_looked_for_one_after_another(self) -> None:
        is_away = threading.Event()
        asked: list[str] = []
        released: set[str] = set()

        def serve(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content)
            if request.url.path == "/v1/release":
                released.add(body["permit"])
                return httpx.Response(200, json={"was_held": True})
            if is_away.is_set():
                asked.append(body["idempotency_key"])
                return broken()
            return ok(permit=body["idempotency_key"], expires_after_ms=60_000)()

        async def serve_async(request: httpx.Request) -> httpx.Response:
            return serve(request)

        async def run() -> None:
            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve_async)) as service:
                for _ in range(50):
                    await service.acquire(QUESTION)
                # This one, the one that asks, and its call.
                self.assertLessEqual(len(asyncio.all_tasks()), 3)
                is_away.clear()
                end = time.monotonic() + 30
                while len(released) < 50 and time.monotonic() < end:
                    await asyncio.sleep(0.001)

        for name, value in (("_PAUSES", (0.001,)), ("_REMEMBERED_FOR", math.inf)):
            patch = mock.patch(f"ratekeeper._unanswered.{name}", value)
            patch.start()
            self.addCleanup(patch.stop)
        is_away.set()
        begun = threads_begun()
        with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
            for _ in range(50):
                service.acquire(QUESTION)
            self.assertLessEqual(begun(), 1)
            is_away.clear()
            end = time.monotonic() + 30
            while len(released) < 50 and time.monotonic() < end:
                time.sleep(0.001)
        self.assertEqual(released, set(asked))
        released.clear()
        asked.clear()
        is_away.set()
        asyncio.run(run())
        self.assertEqual(released, set(asked))


class Costly:
    """A service, each of whose calls costs the client some time and takes some turns of its loop."""

    def __init__(self, answer: Callable[[str, Any], httpx.Response], cost: Callable[[], None] = lambda: None) -> None:
        self.answer = answer
        self.cost = cost
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.under_way = self.most = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content)
        self.asked.append(path)
        self.bodies.append(body)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.cost()
        for _ in range(3):
            await asyncio.sleep(0)
        self.under_way -= 1
        return self.answer(path, body)


def allowed(path: str, body: Any) -> httpx.Response:
    """Allows everything."""
    return ok(results=[ALLOW] * len(body.get("checks", ())))()


def numbered(number: int) -> Question:
    return Question.of("shop", number=str(number))


def counted(path: str, body: Any) -> httpx.Response:
    """Denies everything, and tells which it was."""

    def one(check: Any) -> Any:
        if "identifier" in check:
            return {"success": False, "limit": 3, "remaining": int(check["identifier"]), "reset": 1}
        return {"decision": "deny", "remaining": int(check["descriptors"][0]["entries"][0]["value"])}

    many = body.get("checks", body.get("limits"))
    return httpx.Response(200, json=one(body) if many is None else {"results": [one(check) for check in many]})


class Bursts(unittest.TestCase):
    """Calls at once, more than a client has places for."""

    def run_all(self, serve: Any, calls: Sequence[Call], **options: Any) -> list[Any]:
        async def run() -> list[Any]:
            async with AsyncRatekeeper("http://one.test", transport=httpx.MockTransport(serve), **options) as service:
                outcomes = await asyncio.gather(*[call(service) for call in calls], return_exceptions=True)
                self.assertEqual(service._places._free, options.get("concurrency", 8))  # pyright: ignore[reportPrivateUsage]
                return outcomes

        return asyncio.run(run())

    def test_checks_that_wait_for_a_place_go_together_and_the_service_decides_each_of_them(self) -> None:
        kinds: list[tuple[str, Callable[[int], Call]]] = [
            ("check", lambda number: lambda one: one.check(numbered(number))),
            ("limit", lambda number: lambda one: one.limit(str(number), 3, 60_000)),
        ]
        for path, call in kinds:
            now = [0.0]

            def cost() -> None:
                now[0] += 0.3

            service = Costly(counted, cost)
            # All of them take longer than a call may.
            with mock.patch("time.monotonic", lambda: now[0]):  # noqa: B023
                answers = self.run_all(service, [call(number) for number in range(300)], timeout=60)
            self.assertEqual([(one.remaining, one.degraded) for one in answers], [(number, False) for number in range(300)])
            self.assertEqual(service.asked, [f"/v1/{path}"] * 8 + [f"/v1/{path}s"] * 3)
            self.assertEqual([len(body[f"{path}s"]) for body in service.bodies[8:]], [100, 100, 92])
            self.assertTrue(path == "limit" or all(check["standing"] for check in service.bodies[8]["checks"]))

    def test_checks_that_go_together_are_no_more_than_fit_into_a_request(self) -> None:
        service = Costly(allowed)
        large = Question.of("shop", path="/" * 200_000)
        answers = self.run_all(service, [lambda one: one.check(large)] * 6, timeout=60, concurrency=1)
        self.assertEqual([one.degraded for one in answers], [False] * 6)
        self.assertEqual([len(body.get("checks", "1")) for body in service.bodies], [1, 2, 2, 1])

    def test_other_calls_wait_for_their_place(self) -> None:
        service = Costly(lambda path, body: ok()())
        answers = self.run_all(service, [lambda one: one.acquire(QUESTION)] * 40, timeout=60)
        self.assertEqual(([one.decision.degraded for one in answers], service.most), ([False] * 40, 8))

    def test_threads_wait_for_their_place(self) -> None:
        lock, under_way, most = threading.Lock(), [0], [0]
        two = threading.Barrier(2)

        def serve(request: httpx.Request) -> httpx.Response:
            with lock:
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
            two.wait(30)
            with lock:
                under_way[0] -= 1
            return ok()()

        with Ratekeeper("http://one.test", timeout=60, concurrency=2, transport=httpx.MockTransport(serve)) as service:
            with ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(service.check, [QUESTION] * 10))
        self.assertEqual(([one.degraded for one in answers], most[0]), ([False] * 10, 2))

    def test_a_place_is_the_thread_s_that_waits_for_it_and_not_one_s_that_comes(self) -> None:
        with Ratekeeper("http://one.test", concurrency=1, transport=httpx.MockTransport(lambda _: ok()())) as service:
            places = service._places  # pyright: ignore[reportPrivateUsage]
            self.assertTrue(places.enter(0))
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(places.enter, 60)
                while not places._waiting:  # pyright: ignore[reportPrivateUsage]
                    time.sleep(0)
                places.leave()
                self.assertFalse(places.enter(0))
                self.assertTrue(waiting.result())
            places.leave()
            self.assertTrue(places.enter(0))

    def test_threads_that_wait_for_a_place_are_bounded_and_an_interrupted_one_takes_none_along(self) -> None:
        places = ThreadPlaces(1)
        self.assertTrue(places.enter(0))
        with mock.patch("ratekeeper._places.WAITING_MAX", 0):
            self.assertFalse(places.enter(60))
        self.assertFalse(places.enter(-1))
        self.assertFalse(places.enter(0.001))

        class Interrupted:
            """A turn that an interrupt ends, once it has been given the place or before."""

            def acquire(self, timeout: float = -1) -> bool:
                if timeout >= 0:
                    if is_given:
                        places.leave()
                    raise KeyboardInterrupt
                return True

            def release(self) -> None:
                pass

        for is_given in (False, True):
            with mock.patch("threading.Lock", Interrupted), self.assertRaises(KeyboardInterrupt):
                places.enter(60)
            self.assertEqual((places._free, len(places._waiting)), (int(is_given), 0))  # pyright: ignore[reportPrivateUsage]

    def test_what_one_of_them_is_refused_for_is_no_harm_to_the_others(self) -> None:
        """Its caller chooses what is in it."""
        refusals = [httpx.Response(400, json={"code": "INVALID_ARGUMENT"}), httpx.Response(413, json={"code": "TOO_LARGE"})]
        refusals.append(httpx.Response(403, text="<h1>Blocked</h1>"))

        def serve(path: str, body: Any) -> httpx.Response:
            return refusal if '"7"' in json.dumps(body) else counted(path, body)

        for refusal in refusals:
            calls: list[Call] = [lambda one, number=number: one.check(numbered(number)) for number in range(20)]  # type: ignore[misc]
            service = Costly(serve)
            answers = self.run_all(service, calls, timeout=60, concurrency=2)
            # It is found by halves.
            self.assertLess(len(service.asked), 2 + 2 * 5 + 2)
            bad = answers.pop(7)
            self.assertIsInstance(bad, ServiceError)
            self.assertEqual([one.remaining for one in answers], [number for number in range(20) if number != 7])

    def test_a_check_that_is_refused_is_taken_out_of_those_that_go_together(self) -> None:
        def serve(path: str, body: Any) -> httpx.Response:
            many = body.get("checks", body.get("limits", [body]))
            bad = [number for number, one in enumerate(many) if is_bad(json.dumps(one))]
            field = f"{path[4:]}[{bad[0]}].descriptors[0].hits" if bad and len(many) > 1 else "hits"
            return httpx.Response(400, json={"code": "INVALID_ARGUMENT", "field": field}) if bad else counted(path, body)

        def is_bad(text: str) -> bool:
            return '"30"' in text or '"50"' in text

        kinds: list[Callable[[int], Call]] = [
            lambda number: lambda one: one.check(numbered(number)),
            lambda number: lambda one: one.limit(str(number), 3, 60_000),
        ]
        for call in kinds:
            service = Costly(serve)
            answers = self.run_all(service, [call(number) for number in range(80)], timeout=60, concurrency=2)
            self.assertEqual([number for number, one in enumerate(answers) if isinstance(one, ServiceError)], [30, 50])
            # Two alone as they came, the batch three times, and two alone.
            self.assertEqual(len(service.asked), 2 + 3 + 2)

    def test_checks_that_may_have_been_charged_are_not_repeated_by_themselves(self) -> None:
        """The service, or something between, answered 200, and not to each of them."""
        odds: list[list[Any]] = [[], [{}], [{"decision": "maybe"}], [{"success": 1}]]
        for odd in odds:

            def serve(path: str, body: Any) -> httpx.Response:
                many = body.get("checks", body.get("limits"))
                return counted(path, body) if many is None else httpx.Response(200, json={"results": [ALLOW] * (len(many) - 1) + odd})  # noqa: B023

            for call in (lambda one: one.check(numbered(1)), lambda one: one.limit("1", 3, 60_000)):
                service = Costly(serve)
                calls: list[Call] = [call]
                first, *others = self.run_all(service, calls * 101, timeout=60, concurrency=1)
                self.assertEqual((first.remaining, len(service.asked)), (1, 2))
                self.assertEqual([(one.code, one.status) for one in others], [("HTTP_200", 200)] * 100)

    def test_checks_that_the_next_service_may_have_charged_are_not_repeated_after_the_page_of_the_first(self) -> None:
        async def serve(request: httpx.Request) -> httpx.Response:
            if request.url.host == "one.test":
                return httpx.Response(404, text="<h1>Not Found</h1>")
            asked.append(request.url.path)
            return broken() if request.url.path == "/v1/checks" else ok()()

        async def run() -> list[Any]:
            urls = ["http://one.test", "http://two.test"]
            async with AsyncRatekeeper(urls, timeout=60, concurrency=1, transport=httpx.MockTransport(serve)) as service:
                return await asyncio.gather(*[service.check(QUESTION) for _ in range(5)], return_exceptions=True)

        asked: list[str] = []
        _, *others = asyncio.run(run())
        self.assertEqual([one.code for one in others], ["HTTP_404"] * 4)
        self.assertEqual(asked, ["/v1/check", "/v1/checks"])

    def test_callers_of_a_program_with_many_bad_checks_wait_for_few_of_them(self) -> None:
        def serve(path: str, body: Any) -> httpx.Response:
            many = body.get("checks", [body])
            bad = [number for number, one in enumerate(many) if "good" not in json.dumps(one)]
            field = f"checks[{bad[0]}].descriptors[0].hits" if bad and len(many) > 1 else "hits"
            refusal = {"code": "INVALID_ARGUMENT", "field": field}
            return httpx.Response(400, json=refusal) if bad else ok(results=[ALLOW] * len(many))()

        good, bad = Question.of("shop", good="1"), Question.of("shop", bad="1")
        service = Costly(serve)
        calls: list[Call] = [lambda one, question=question: one.check(question) for question in (good, *[bad] * 99, good)]  # type: ignore[misc]
        answers = self.run_all(service, calls, timeout=60, concurrency=1)
        self.assertEqual([one.allowed for one in (answers[0], answers[-1])], [True, True])
        self.assertEqual({one.code for one in answers[1:-1]}, {"INVALID_ARGUMENT"})
        self.assertEqual(service.asked.count("/v1/checks"), 16)

    def test_a_part_that_no_service_answers_is_the_last_that_is_asked_for(self) -> None:
        def serve(path: str, body: Any) -> httpx.Response:
            many = len(body.get("checks", ()))
            if path == "/v1/checks" and many < 40:
                return broken()
            return httpx.Response(400, json={"code": "INVALID_ARGUMENT"}) if many else ok()()

        service = Costly(serve)
        answers = self.run_all(service, [lambda one: one.check(QUESTION)] * 41, timeout=60, concurrency=1, fallback=deny_all)
        self.assertEqual([one.allowed for one in answers], [True, *[False] * 40])
        self.assertEqual([len(body.get("checks", ())) for body in service.bodies], [0, 40, 20])

    def test_a_refusal_of_everything_ends_the_search_for_the_one_at_fault(self) -> None:
        service = Costly(lambda path, body: httpx.Response(403, json={"code": "PERMISSION_DENIED"}))
        answers = self.run_all(service, [lambda one: one.check(QUESTION)] * 101, timeout=60, concurrency=1)
        self.assertEqual({one.code for one in answers}, {"PERMISSION_DENIED"})
        self.assertEqual(service.asked.count("/v1/checks"), 16)

    def test_checks_that_are_certainly_refused_join_no_others(self) -> None:
        def serve(path: str, body: Any) -> httpx.Response:
            return httpx.Response(400, json={"code": "INVALID_ARGUMENT"}) if path == "/v1/check" else counted(path, body)

        not_text: Any = 5
        bad = [
            Question.of("shop", -1, number="1"),
            Question.of("shop", 2**64, number="1"),
            Question.of("", number="1"),
            Question("shop", []),
            Question("shop", [Descriptor({"": "1"})]),
            Question("shop", [Descriptor({"number": not_text})]),
        ]
        service = Costly(serve)
        questions = [numbered(0), *bad, numbered(1)]
        calls: list[Call] = [lambda one, question=question: one.check(question) for question in questions]  # type: ignore[misc]
        answers = self.run_all(service, calls, timeout=60, concurrency=1)
        self.assertEqual(answers[-1].remaining, 1)
        self.assertEqual(service.asked.count("/v1/checks"), 1)

    def test_a_text_of_a_caller_that_is_no_unicode_is_no_harm_to_the_others(self) -> None:
        odd = Question.of("shop", tenant="\ud800")
        service = Costly(allowed)
        answers = self.run_all(service, [lambda one: one.check(odd)] * 4, timeout=60, concurrency=1)
        self.assertEqual([one.degraded for one in answers], [False] * 4)
        self.assertEqual(service.asked, ["/v1/check", "/v1/checks"])
        self.assertEqual(service.bodies[0]["descriptors"][0]["entries"][0]["value"], "\ud800")

    def test_without_an_answer_to_all_of_them_the_fallback_decides_each_and_none_is_repeated(self) -> None:
        def serve(path: str, body: Any) -> httpx.Response:
            return broken() if path == "/v1/checks" else ok()()

        service, fallback = Costly(serve), LocalLimits([LocalLimit("shop", ["tenant"], 1, 60.0)])
        answers = self.run_all(service, [lambda one: one.check(QUESTION)] * 5, timeout=60, concurrency=1, fallback=fallback)
        self.assertEqual([one.degraded for one in answers], [False, True, True, True, True])
        self.assertEqual(sum(one.allowed for one in answers), 2)
        self.assertEqual(service.asked, ["/v1/check", "/v1/checks"])

    def test_of_those_that_go_together_one_whose_rules_were_refused_is_left_to_the_fallback(self) -> None:
        undecided = {"decision": "allow", "degraded": True, "unreadable": "the rules were refused"}
        service = Costly(lambda path, body: ok(results=[undecided, ALLOW])())
        answers = self.run_all(service, [lambda one: one.check(QUESTION)] * 3, timeout=60, concurrency=1, fallback=deny_all)
        self.assertEqual([one.allowed for one in answers], [True, False, True])

    def test_callers_that_are_cancelled_take_no_place_and_no_answer_with_them(self) -> None:
        async def run() -> None:
            asked: list[str] = []
            answered = asyncio.Event()

            async def serve(request: httpx.Request) -> httpx.Response:
                asked.append(request.url.path)
                await answered.wait()
                return counted(request.url.path, json.loads(request.content))

            async with AsyncRatekeeper("http://one.test", timeout=60, concurrency=1, transport=httpx.MockTransport(serve)) as service:
                checks = [asyncio.create_task(service.check(numbered(number))) for number in range(4)]
                peek = asyncio.create_task(service.peek(QUESTION))
                while asked != ["/v1/check"]:
                    await asyncio.sleep(0)
                # One under way, one that would be sent, and one in the queue.
                for task in (checks[0], checks[1], peek):
                    task.cancel()
                while asked != ["/v1/check", "/v1/checks"]:
                    await asyncio.sleep(0)
                checks[2].cancel()
                answered.set()
                self.assertEqual((await checks[3]).remaining, 3)
                self.assertFalse((await service.check(numbered(5))).degraded)

        asyncio.run(asyncio.wait_for(run(), 30))

    def test_checks_that_wait_when_the_client_is_closed_are_told(self) -> None:
        async def run() -> None:
            asked: list[str] = []

            async def serve(request: httpx.Request) -> httpx.Response:
                asked.append(request.url.path)
                await asyncio.Event().wait()
                raise AssertionError

            service = AsyncRatekeeper("http://one.test", timeout=60, concurrency=2, transport=httpx.MockTransport(serve))
            checks = [asyncio.create_task(service.check(QUESTION)) for _ in range(3)]
            while len(asked) < 2:
                await asyncio.sleep(0)
            # It goes, and others wait.
            checks[0].cancel()
            while len(asked) < 3:
                await asyncio.sleep(0)
            checks += [asyncio.create_task(service.check(QUESTION)) for _ in range(3)]
            await asyncio.sleep(0)
            await service.aclose()
            for check in checks[2:]:
                with self.assertRaises(ServiceError) as closed:
                    await check
                self.assertEqual(closed.exception.code, "CLOSED")
            checks[1].cancel()

        asyncio.run(asyncio.wait_for(run(), 30))

    def test_what_was_never_sent_is_no_miss_of_the_service(self) -> None:
        calls: list[Call] = [
            lambda one: one.check(QUESTION),
            lambda one: one.limit("ada", 5, 60_000),
            lambda one: one.acquire(QUESTION),
        ]

        async def run(asked: list[Any]) -> None:
            async def serve(request: httpx.Request) -> httpx.Response:
                asked.append(request)
                return allowed(request.url.path, json.loads(request.content))

            async with AsyncRatekeeper("http://one.test", timeout=0.001, concurrency=1, transport=httpx.MockTransport(serve)) as service:
                await service._places.enter(0)  # pyright: ignore[reportPrivateUsage]
                for call in calls:
                    await call(service)
                self.assertEqual((service._endpoints[0].misses, asked), (0, []))  # pyright: ignore[reportPrivateUsage]
                self.assertEqual(len(service._unanswered._calls), 0)  # pyright: ignore[reportPrivateUsage]
                service._leave()  # pyright: ignore[reportPrivateUsage]
                service._timeout = 60  # pyright: ignore[reportPrivateUsage]
                self.assertFalse((await service.check(QUESTION)).degraded)

        with mock.patch("ratekeeper._calls._PATIENCE", 0.001):
            asyncio.run(run([]))
            services = Services({"one.test": ok()}, timeout=0.001, concurrency=1)

            def taken(one: Ratekeeper) -> Any:
                one._places.enter(0)  # pyright: ignore[reportPrivateUsage]
                return [call(one) for call in calls], one._endpoints[0].misses  # pyright: ignore[reportPrivateUsage]

            ((answers, misses),) = services.sync(taken)
            self.assertEqual((len(answers), misses, services.asked), (3, 0, []))

    def test_nothing_waits_longer_than_a_call_while_no_service_answers(self) -> None:
        with Ratekeeper(["http://one.test", "http://two.test"]) as service:
            patience: list[float] = []
            for endpoint in (*service._endpoints, None):  # pyright: ignore[reportPrivateUsage]
                patience.append(service._patience())  # pyright: ignore[reportPrivateUsage]
                if endpoint:
                    endpoint.misses = 3
        self.assertEqual(patience, [1.0, 1.0, 0.1])

    def test_places_go_to_those_who_wait_in_their_order_and_no_more_than_so_many_wait(self) -> None:
        async def run() -> None:
            places = Places(1)
            self.assertTrue(await places.enter(0))
            self.assertFalse(await places.enter(0.001))
            order: list[int] = []

            async def wait(number: int) -> bool:
                has_place = await places.enter(60)
                order.append(number)
                return has_place

            waiting = [asyncio.create_task(wait(number)) for number in range(3)]
            await asyncio.sleep(0)
            with mock.patch("ratekeeper._places.WAITING_MAX", 3):
                self.assertFalse(await places.enter(60))
            places.leave()
            # It was given the place already.
            waiting[0].cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting[0]
            self.assertTrue(await waiting[1])
            places.leave()
            self.assertTrue(await waiting[2])
            self.assertEqual(order, [1, 2])
            places.leave()
            self.assertFalse(places.are_taken)

        asyncio.run(asyncio.wait_for(run(), 30))

    def test_checks_keep_their_turn_when_the_time_of_the_first_is_up(self) -> None:
        async def run() -> list[str]:
            places, order = Places(1), list[str]()

            async def ask(texts: Sequence[str]) -> Sequence[Mapping[str, Any]]:
                order.append(f"{len(texts)} checks")
                return [ALLOW] * len(texts)

            async def wait() -> None:
                self.assertTrue(await places.enter(60))
                order.append("another call")
                places.leave()

            await places.enter(0)
            together = Together(places, ask, asyncio.create_task)
            first = asyncio.create_task(together.join({}, 0.001))
            await asyncio.sleep(0)
            second = asyncio.create_task(together.join({}, 60))
            await asyncio.sleep(0)
            other = asyncio.create_task(wait())
            self.assertIsNone(await first)
            await asyncio.sleep(0)
            places.leave()
            await asyncio.gather(second, other)
            return order

        self.assertEqual(asyncio.run(asyncio.wait_for(run(), 30)), ["1 checks", "another call"])

    def test_what_gives_back_goes_before_what_waits(self) -> None:
        calls: list[Call] = [
            lambda one: one.peek(QUESTION),
            lambda one: one.peek(QUESTION),
            lambda one: one.release("p"),
            lambda one: one.renew("p"),
            lambda one: one.commit("r", 1),
            lambda one: one.cancel("r"),
        ]
        service = Costly(lambda path, body: ok()())
        outcomes = self.run_all(service, calls, timeout=60, concurrency=1)
        self.assertEqual([one for one in outcomes if isinstance(one, Exception)], [])
        self.assertEqual(service.asked, [f"/v1/{path}" for path in ("peek", "renew", "commit", "cancel", "release", "peek")])

    def test_what_gives_back_goes_before_threads_that_wait(self) -> None:
        services = Services({"one.test": ok()})
        with Ratekeeper("http://one.test", timeout=60, concurrency=1, transport=httpx.MockTransport(services.serve)) as service:
            places = service._places  # pyright: ignore[reportPrivateUsage]
            self.assertTrue(places.enter(0))
            with ThreadPoolExecutor(2) as pool, mock.patch("ratekeeper._places.WAITING_MAX", 1):
                peek = pool.submit(service.peek, QUESTION)
                while not places._waiting:  # pyright: ignore[reportPrivateUsage]
                    time.sleep(0)
                release = pool.submit(service.release, "p")
                while not places._first and not release.done():  # pyright: ignore[reportPrivateUsage]
                    time.sleep(0)
                places.leave()
            self.assertTrue(peek.result().allowed)
        self.assertEqual(services.asked, ["one.test/v1/release", "one.test/v1/peek"])

    def test_a_loop_that_ends_takes_no_place_with_it(self) -> None:
        """Without the end of its tasks, as those that some tests close."""
        transport = httpx.MockTransport(Costly(allowed))
        service = AsyncRatekeeper("http://one.test", timeout=60, concurrency=1, transport=transport)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(service._places.enter(0))  # pyright: ignore[reportPrivateUsage]
        calls = [loop.create_task(service.check(QUESTION)), loop.create_task(service.peek(QUESTION))]
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        for task in (*calls, *service._tasks):  # pyright: ignore[reportPrivateUsage]
            # Nothing is told of them when they are collected.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        service._leave()  # pyright: ignore[reportPrivateUsage]

        async def again() -> list[bool]:
            checks = await asyncio.gather(*[service.check(QUESTION) for _ in range(3)])
            return [one.degraded for one in checks]

        self.assertEqual(asyncio.run(asyncio.wait_for(again(), 30)), [False] * 3)

    def test_a_loop_that_ends_takes_the_place_of_no_batch_with_it(self) -> None:
        async def serve(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.path)
            if len(asked) == 1:
                await asyncio.Event().wait()
            return ok()()

        asked: list[str] = []
        service = AsyncRatekeeper("http://one.test", timeout=60, concurrency=1, transport=httpx.MockTransport(serve))
        loop = asyncio.new_event_loop()
        loop.run_until_complete(service._places.enter(0))  # pyright: ignore[reportPrivateUsage]
        checks = [loop.create_task(service.check(QUESTION)) for _ in range(5)]
        loop.run_until_complete(asyncio.sleep(0))
        service._leave()  # pyright: ignore[reportPrivateUsage]
        while not asked:
            loop.run_until_complete(asyncio.sleep(0))
        self.assertEqual([check.done() for check in checks], [False] * 5)
        for task in asyncio.all_tasks(loop):
            # Nothing is told of them when they are collected.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

        async def again() -> bool:
            return (await service.acquire(QUESTION)).decision.degraded

        self.assertFalse(asyncio.run(asyncio.wait_for(again(), 30)))
        self.assertEqual(asked, ["/v1/checks", "/v1/acquire"])
        self.assertEqual(service._places._free, 1)  # pyright: ignore[reportPrivateUsage]
        self.assertEqual(len(service._tasks), 0)  # pyright: ignore[reportPrivateUsage]

    def test_a_client_needs_a_place(self) -> None:
        for kind in (Ratekeeper, AsyncRatekeeper):
            with self.assertRaisesRegex(ValueError, "^concurrency: "):
                kind("http://one.test", concurrency=0)


class Late(unittest.TestCase):
    def test_who_asks_for_permits_is_one_and_another_one_takes_over_when_that_ends(self) -> None:
        unanswered = Unanswered()
        one, two = Lost("acquire", {"idempotency_key": "1"}), Lost("acquire", {"idempotency_key": "2"})
        self.assertEqual([unanswered.add(one), unanswered.add(two)], [True, False])
        for body in (one, two):
            first = unanswered.first()
            self.assertEqual(first and first[1], body)
            unanswered.done(body)
        self.assertIsNone(unanswered.first())
        self.assertTrue(unanswered.add(one))
        unanswered.stopped()
        self.assertTrue(unanswered.add(two))

    def test_permits_are_asked_for_ever_later_while_the_service_is_away_and_the_oldest_are_forgotten(self) -> None:
        now = [0.0]
        with mock.patch("time.monotonic", lambda: now[0]):
            unanswered = Unanswered()
            old, *_ = bodies = [Lost("acquire", {"idempotency_key": str(number)}) for number in range(1001)]
            for body in bodies:
                unanswered.add(body)
            first = unanswered.first()
            self.assertEqual(first, (0.1, bodies[1]))
            pauses: list[float] = []
            for _ in range(4):
                unanswered.missed()
                first = unanswered.first()
                pauses.append(first[0] if first else -1)
            self.assertEqual(pauses, [1, 5, 5, 5])
            now[0] = 9.9
            unanswered.add(old)
            now[0] = 10.0
            first = unanswered.first()
            self.assertEqual(first, (5, old))
            unanswered.done(old)
            self.assertIsNone(unanswered.first())


class Closing(unittest.TestCase):
    def test_a_client_that_is_closed_lets_the_releases_of_other_threads_end(self) -> None:
        closing = threading.Event()
        released: list[str] = []

        def serve(request: httpx.Request) -> httpx.Response:
            closing.wait(30)
            released.append(json.loads(request.content)["permit"])
            return ok(was_held=True)()

        service = Ratekeeper("http://one.test", timeout=60, concurrency=2, transport=httpx.MockTransport(serve))
        permits = [f"{number}" for number in range(10)]
        with ThreadPoolExecutor(10) as pool, mock.patch("ratekeeper.service._RELEASED_IN", 30.0):
            releases = [pool.submit(service.release, permit) for permit in permits]
            while len(service._places._first) < 8:  # pyright: ignore[reportPrivateUsage]
                time.sleep(0.001)
            # The first that closing does.
            with mock.patch.object(service._keeper, "close", closing.set):  # pyright: ignore[reportPrivateUsage]
                service.close()
            self.assertEqual(sorted(released), permits)
            self.assertEqual([release.result() for release in releases], [True] * 10)

    def test_what_has_no_answer_yet_is_asked_for_once_more_when_the_client_is_closed(self) -> None:
        calls: list[tuple[Call, list[str]]] = [
            (lambda one: one.acquire(QUESTION), ["acquire", "acquire", "release"]),
            (lambda one: one.reserve(QUESTION, 5), ["reserve", "reserve", "cancel"]),
            (lambda one: one.release("p"), ["release", "release"]),
        ]
        for ask in (Services.sync, Services.asyncio):
            for call, asked in calls:
                answers = itertools.chain([broken], itertools.repeat(ok(permit="p", reservation="r", was_held=True)))
                services = Services({"one.test": lambda: next(answers)()}, timeout=60)  # noqa: B023
                # Nobody asks before.
                with mock.patch("ratekeeper._unanswered._PAUSES", (3600.0,)), mock.patch("ratekeeper.service._RELEASED_IN", 60.0):
                    with suppress(ServiceError):
                        ask(services, call)
                self.assertEqual(services.asked, [f"one.test/v1/{path}" for path in asked])

    def test_what_is_asked_for_when_the_client_is_closed_is_not_asked_for_twice(self) -> None:
        begun, closing = threading.Event(), threading.Event()
        asked: list[str] = []

        def serve(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.path)
            if len(asked) == 1:
                return broken()
            begun.set()
            closing.wait(30)
            return ok(permit="p", was_held=True)()

        service = Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve))
        service.acquire(QUESTION)
        begun.wait(30)
        join = threading.Thread.join

        def joined(thread: threading.Thread, timeout: float) -> None:
            closing.set()
            join(thread, timeout)

        with mock.patch("ratekeeper.service._RELEASED_IN", 60.0), mock.patch("threading.Thread.join", joined):
            service.close()
        self.assertEqual(asked, ["/v1/acquire", "/v1/acquire", "/v1/release"])

    def test_a_service_that_is_away_is_asked_once_by_a_client_that_is_closed(self) -> None:
        def lose(one: Ratekeeper) -> None:
            for permit in ("p", "q", "r"):
                with suppress(ServiceError):
                    one.release(permit)

        async def lose_async(one: AsyncRatekeeper) -> None:
            for permit in ("p", "q", "r"):
                with suppress(ServiceError):
                    await one.release(permit)

        for ask, call in ((Services.sync, lose), (Services.asyncio, lose_async)):
            services = Services({"one.test": broken}, timeout=60)
            with mock.patch("ratekeeper._unanswered._PAUSES", (3600.0,)), mock.patch("ratekeeper.service._RELEASED_IN", 60.0):
                ask(services, cast(Any, call))
            self.assertEqual([body["permit"] for body in services.bodies], ["p", "q", "r", "p"])

    def test_a_silent_service_holds_up_no_client_that_is_closed(self) -> None:
        """Longer than for the time that closing has, whatever that of a call is."""
        lefts: list[float] = []

        def serve(request: httpx.Request) -> httpx.Response:
            lefts.append(request.extensions["timeout"].get("read"))
            return broken()

        with mock.patch("ratekeeper._unanswered._PAUSES", (3600.0,)), mock.patch("time.monotonic", lambda: 0.0):
            with Ratekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(serve)) as service:
                with suppress(ServiceError):
                    service.release("p")
        self.assertEqual(lefts, [60.0, 1.0])


class Middleware(unittest.TestCase):
    def answer(self, serve: Serve, question: Question = QUESTION, **options: Any) -> tuple[Any, ...]:
        """The status, headers and body that a caller of the application gets."""
        sent: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"ratelimit", b"own")]})
            await send({"type": "http.response.body", "body": b"passed"})

        async def send(message: Any) -> None:
            sent.append(message)

        async def run() -> None:
            async def answer(request: httpx.Request) -> httpx.Response:
                return serve()

            async with AsyncRatekeeper("http://one.test", timeout=60, transport=httpx.MockTransport(answer), **options) as service:
                limited = RateLimitMiddleware(app, service, lambda scope: question)
                await limited({"type": "http"}, lambda: asyncio.sleep(0, {}), send)

        asyncio.run(run())
        start, body = sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.assertEqual(len(headers), len(start["headers"]))
        return start["status"], headers, body["body"]

    def test_a_denial_is_answered_with_429(self) -> None:
        denied = ok(decision="deny", remaining=0, retry_after_ms=1200)
        status, headers, body = self.answer(denied)
        self.assertEqual((status, headers["retry-after"]), (429, "2"))
        self.assertEqual(json.loads(body)["code"], "RATE_LIMITED")
        local = LocalLimits([LocalLimit("shop", ["tenant"], 0, 60.0)])
        self.assertEqual(self.answer(refused, fallback=local)[0], 429)

    def test_the_application_s_own_headers_stay(self) -> None:
        policy = {"name": "quick", "limit": 5, "window_us": 1_000_000}
        told = ok(standing={"binding": {"policy": policy}, "policies": [policy]})
        status, headers, _ = self.answer(told)
        self.assertEqual((status, headers["ratelimit"], headers["ratelimit-policy"]), (200, "own", '"quick";q=5;w=1'))

    def test_what_no_limit_denies_is_answered_with_503(self) -> None:
        content = [{"code": "INVALID_ARGUMENT", "detail": "at most 32 entries"}, {"code": "TOO_LARGE"}]
        serves: list[Serve] = [lambda body=body: httpx.Response(400, json=body) for body in content]  # type: ignore[misc]
        # A firewall's words, say about what is in the request.
        pages: list[Serve] = [lambda status=status: httpx.Response(status, text="<h1>Blocked</h1>") for status in (200, 400, 403, 404)]  # type: ignore[misc]
        for serve, fallback in ((refused, deny_all), *((serve, allow_all) for serve in serves + pages)):
            status, headers, body = self.answer(serve, fallback=fallback)
            self.assertEqual((status, headers["retry-after"], headers["content-type"]), (503, "1", "application/problem+json"))
            problem = json.loads(body)
            self.assertEqual((problem["status"], problem["code"]), (503, "UNAVAILABLE"))
            self.assertNotIn("32", body.decode())

    def test_the_fallback_decides_when_the_service_refuses_the_application(self) -> None:
        """Its callers are not at fault."""
        def refusing() -> httpx.Response:
            return httpx.Response(401, json={"code": "UNAUTHENTICATED"})

        self.assertEqual(self.answer(refusing)[0], 200)
        self.assertEqual(self.answer(refusing, fallback=deny_all)[0], 503)


class Headers(unittest.TestCase):
    def test_headers_of_a_decision_are_those_of_the_ietf_draft(self) -> None:
        denied = Decision(False, policy="quick", remaining=0, retry_after_ms=1200, reset_after_ms=6500)
        self.assertEqual(denied.headers(), [("RateLimit", '"quick";r=0;t=2'), ("Retry-After", "2")])
        # A request that never passes: its cost is more than the limit.
        self.assertEqual(replace(denied, retry_after_ms=None).headers(), [("RateLimit", '"quick";r=0;t=7')])
        self.assertEqual(replace(denied, allowed=True).headers(), [("RateLimit", '"quick";r=0;t=7')])


class Local(unittest.TestCase):
    def test_local_limits_count_hits_and_a_denied_request_takes_nothing(self) -> None:
        now = [0.0]
        limits = [LocalLimit("shop", ["tenant"], 3, 3.0), LocalLimit("shop", ["tenant", "path"], 1, 3.0)]
        decide = LocalLimits(limits, lambda: now[0])
        both = Question("shop", [Descriptor({"tenant": "a"}), Descriptor({"tenant": "a", "path": "/"})])
        decisions = [decide(both), decide(both)]
        self.assertEqual([(one.allowed, one.remaining) for one in decisions], [(True, 0), (False, 0)])
        one = Question.of("shop", tenant="a")
        self.assertEqual([decide(one).allowed for _ in range(3)], [True, True, False])
        self.assertAlmostEqual(decide(one).retry_after_ms or 0, 1000)
        now[0] = 0.999
        self.assertFalse(decide(one).allowed)
        now[0] = 1.0
        self.assertTrue(decide(one).allowed)
        self.assertIsNone(decide(Question.of("shop", 4, tenant="a")).retry_after_ms)
        self.assertTrue(decide(Question.of("other", tenant="a")).allowed)

    def test_a_local_limit_needs_a_window(self) -> None:
        for window in (0.0, -1.0, float("nan")):
            with self.assertRaises(ValueError):
                LocalLimits([LocalLimit("shop", ["tenant"], 1, window)])

    def test_local_limits_on_the_same_descriptor_have_counters_of_their_own(self) -> None:
        now = [0.0]
        decide = LocalLimits([LocalLimit("shop", ["tenant"], 10, 1.0), LocalLimit("shop", ["tenant"], 100, 60.0)], lambda: now[0])
        passed: list[int] = []
        for now[0] in range(12):
            passed.append(sum(decide(QUESTION).allowed for _ in range(12)))
        # In eleven seconds the minute has given back 18 of its hundred.
        self.assertEqual(passed, [10] * 11 + [8])

    def test_a_denial_by_several_local_limits_tells_the_time_after_which_all_of_them_would_let_it_pass(self) -> None:
        def limits(*limits: tuple[int, float]) -> LocalLimits:
            return LocalLimits([LocalLimit("shop", ["tenant"], limit, window) for limit, window in limits], lambda: 0.0)

        decide = limits((1, 1.0), (1, 60.0))
        self.assertEqual((decide(QUESTION).allowed, decide(QUESTION).retry_after_ms), (True, 60_000))
        costly = limits((5, 1.0), (1, 0.001))
        costly(QUESTION)
        self.assertIsNone(costly(Question.of("shop", 5, tenant="abc")).retry_after_ms)

    def test_a_local_limit_of_0_denies_everything_and_tells_no_time(self) -> None:
        decide = LocalLimits([LocalLimit("shop", ["tenant"], 0, 1.0)])
        for hits in range(3):
            self.assertEqual(decide(Question.of("shop", hits, tenant="a")), Decision(False, True, limit=0, remaining=0))


if __name__ == "__main__":
    unittest.main()
