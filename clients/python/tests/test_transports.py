"""The transports of httpx and the adapter of requests, against servers of the test's own."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import unittest
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil, inf
from typing import Any, AsyncIterator, Callable, Iterator, Mapping, Optional, Union, cast
from unittest import mock

import httpx
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Timeout

from ratekeeper import Event, Gate, Lane, Options, RateLimitError, default_lane
from ratekeeper._fork import _begins  # pyright: ignore[reportPrivateUsage]
from ratekeeper.httpx import AsyncRateLimitTransport, RateLimitTransport
from ratekeeper.requests import RateLimitAdapter, mount
from ratekeeper.service import LocalLimit, LocalLimits, Question

URL = "http://api.test/users/1"
Answer = tuple[int, Mapping[str, str]]
OK: Answer = (200, {})
USED: Answer = (200, {"ratelimit-policy": '"hourly";q=1;w=3600', "ratelimit": '"hourly";r=0;t=3600'})


class Server:
    """Gives these answers in turn, the last one for ever."""

    def __init__(self, *answers: Union[Answer, Exception]) -> None:
        self.answers = answers
        self.bodies: list[bytes] = []
        self.timeouts: list[Mapping[str, Optional[float]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.read())
        self.timeouts.append(request.extensions["timeout"])
        return self.next()

    def next(self) -> httpx.Response:
        answer = self.answers[min(len(self.bodies), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer[0], headers=dict(answer[1]))

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(await request.aread())
        self.timeouts.append(request.extensions["timeout"])
        return self.next()


Ask = Callable[..., int]


def ask_sync(server: Server, options: Options, method: str = "GET", **kwargs: Any) -> int:
    with httpx.Client(transport=RateLimitTransport(httpx.MockTransport(server), options)) as client:
        return client.request(method, URL, **kwargs).status_code


def ask_async(server: Server, options: Options, method: str = "GET", **kwargs: Any) -> int:
    async def ask() -> int:
        transport = AsyncRateLimitTransport(httpx.MockTransport(server.handle), options)
        async with httpx.AsyncClient(transport=transport) as client:
            return (await client.request(method, URL, **kwargs)).status_code

    return asyncio.run(ask())


def soon(**kwargs: Any) -> Options:
    return Options(**{"backoff": 0.004, **kwargs})


class Httpx(unittest.TestCase):
    def both(self) -> Iterator[Ask]:
        for ask in (ask_sync, ask_async):
            with self.subTest(ask.__name__):
                yield ask

    def test_a_fault_that_passes_is_tried_again_until_the_retries_are_used_up(self) -> None:
        for ask in self.both():
            self.assertEqual(ask(Server((503, {}), (502, {}), OK), soon()), 200)
            lasting = Server((503, {}))
            self.assertEqual(ask(lasting, soon(retries=2)), 503)
            self.assertEqual(len(lasting.bodies), 3)

    def test_a_failed_connection_is_tried_again_and_its_error_raised_in_the_end(self) -> None:
        for ask in self.both():
            broken = httpx.ConnectError("refused")
            self.assertEqual(ask(Server(broken, OK), soon()), 200)
            never = Server(broken)
            with self.assertRaises(httpx.ConnectError):
                ask(never, soon(retries=1))
            self.assertEqual(len(never.bodies), 2)

    def test_a_request_that_no_connection_can_carry_is_tried_once(self) -> None:
        for ask in self.both():
            for error in (httpx.LocalProtocolError("an illegal header"), httpx.UnsupportedProtocol("no scheme")):
                server = Server(error)
                with self.assertRaises(httpx.TransportError):
                    ask(server, soon())
                self.assertEqual(len(server.bodies), 1)

    def test_methods_that_are_not_idempotent_are_tried_once_unless_told(self) -> None:
        for ask in self.both():
            self.assertEqual(ask(Server((503, {}), OK), soon(), "POST", content=b"{}"), 503)
            told = soon(retry_methods={"POST"})
            self.assertEqual(ask(Server((503, {}), OK), told, "POST", content=b"{}"), 200)

    def test_a_body_is_sent_again_with_each_retry(self) -> None:
        for ask in self.both():
            server = Server((503, {}), (503, {}), OK)
            self.assertEqual(ask(server, soon(), "PUT", content=b"all of it"), 200)
            self.assertEqual(server.bodies, [b"all of it"] * 3)

    def test_a_stream_is_sent_once(self) -> None:
        server = Server((503, {}), OK)
        self.assertEqual(ask_sync(server, soon(), "PUT", content=iter([b"x"])), 503)

    def test_retry_after_is_kept_to_with_and_without_a_gate(self) -> None:
        for ask in self.both():
            for gate in (True, False):
                begun = time.monotonic()
                self.assertEqual(ask(Server((429, {"retry-after": "1"}), OK), soon(gate=gate)), 200)
                self.assertGreaterEqual(time.monotonic() - begun, 1)

    def test_retry_after_of_a_fault_that_passes_is_kept_to(self) -> None:
        for ask in self.both():
            for status in (408, 502, 503, 504):
                events: list[Event] = []
                server = Server((status, {"retry-after": "600"}), OK)
                self.assertEqual(ask(server, soon(on_event=events.append)), status)
                self.assertEqual((len(server.bodies), events[-1].type), (1, "gave-up"))

    def test_a_wait_beyond_the_budget_of_time_is_not_begun(self) -> None:
        for ask in self.both():
            for gate in (True, False):
                events: list[Event] = []
                server = Server((429, {"retry-after": "600"}))
                self.assertEqual(ask(server, soon(gate=gate, on_event=events.append)), 429)
                self.assertEqual([event.type for event in events], ["answered", "gave-up"])

    def test_a_request_that_could_not_pass_within_its_budget_is_not_sent(self) -> None:
        for ask in self.both():
            options, server = Options(gate=Gate()), Server(USED)
            ask(server, options)
            with self.assertRaises(RateLimitError) as refused:
                ask(server, options)
            self.assertEqual(refused.exception.policy, "hourly")
            self.assertGreater(refused.exception.wait_ms, 3_500_000)
            self.assertEqual(len(server.bodies), 1)

    def test_threads_and_event_loops_share_a_gate(self) -> None:
        gate = Gate()
        ask_sync(Server(USED), Options(gate=gate))
        with self.assertRaises(RateLimitError):
            ask_async(Server(OK), Options(gate=gate, budget=0.05))
        stranger = {"authorization": "Bearer other"}
        self.assertEqual(ask_async(Server(OK), Options(gate=gate), headers=stranger), 200)

    def test_a_cancelled_task_leaves_the_queue_and_lets_the_next_one_through(self) -> None:
        async def run() -> None:
            answer = asyncio.Event()
            begun = asyncio.Event()

            async def slow(request: httpx.Request) -> httpx.Response:
                begun.set()
                await answer.wait()
                return httpx.Response(200)

            transport = AsyncRateLimitTransport(httpx.MockTransport(slow))
            async with httpx.AsyncClient(transport=transport) as client:
                first = asyncio.create_task(client.get(URL))
                await begun.wait()
                second = asyncio.create_task(client.get(URL))
                third = asyncio.create_task(client.get(URL))
                await asyncio.sleep(0)
                second.cancel()
                answer.set()
                self.assertEqual((await first).status_code, 200)
                self.assertEqual((await third).status_code, 200)
                with self.assertRaises(asyncio.CancelledError):
                    await second

        asyncio.run(run())

    def test_all_phases_of_a_request_share_its_budget(self) -> None:
        for ask in self.both():
            seen: list[Any] = []

            class Timed(Server):
                def next(self) -> httpx.Response:
                    time.sleep(0.01)
                    read: list[Any] = [timeouts.get("read") for timeouts in self.timeouts]
                    seen.append((read, self.timeouts[-1].get("connect")))
                    return super().next()

            server = Timed((503, {}), OK)
            ask(server, soon(budget=300.0), timeout=httpx.Timeout(None, connect=200))
            (first, _), (both, connect) = seen
            self.assertLess(first[0], 299.99)
            self.assertLess(max(both), first[0])
            self.assertLess(connect, 150)
            # What is read once the answer has begun is the caller's.
            self.assertEqual((server.timeouts[-1].get("read"), server.timeouts[-1].get("connect")), (None, 200))

    def test_a_request_that_fails_before_it_is_sent_keeps_no_place(self) -> None:
        def paced(event: Event) -> None:
            if event.type == "paced":
                raise KeyError("no such metric")

        for ask in self.both():
            # A busy machine takes a moment between the two.
            options, server = Options(gate=Gate(concurrency=1)), Server((200, {"ratelimit": '"s";r=0;t=3'}), OK)
            ask(server, options)
            with self.assertRaises(KeyError):
                ask(server, replace(options, on_event=paced))
            self.assertEqual(ask(server, options), 200)

    def test_an_answer_whose_event_is_not_taken_is_closed(self) -> None:
        closed: list[bool] = []

        class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                yield b"x"

            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield b"x"

            def close(self) -> None:
                closed.append(True)

            async def aclose(self) -> None:
                closed.append(True)

        class Open(Server):
            def next(self) -> httpx.Response:
                return httpx.Response(super().next().status_code, stream=Body())

        for ask in self.both():
            for kind, options in (("answered", {}), ("retry", {}), ("gave-up", {"budget": 1.0, "backoff": 20.0, "random": lambda: 1.0})):

                def fail(event: Event, kind: str = kind) -> None:
                    if event.type == kind:
                        raise KeyError("no such metric")

                closed.clear()
                server = Open((503, {}))
                with self.assertRaises(KeyError):
                    ask(server, soon(on_event=fail, **options))
                self.assertEqual((len(server.bodies), closed), (1, [True]), kind)

    def test_events_tell_what_was_waited_for_and_what_was_understood(self) -> None:
        for ask in self.both():
            events: list[Event] = []
            used = (200, {"ratelimit-policy": '"s";q=1;w=3', "ratelimit": '"s";r=0;t=3'})
            options = Options(gate=Gate(), on_event=events.append)
            ask(Server(used), options)
            ask(Server(used), options)
            # A busy machine may hold up any of them for a moment.
            told = [event for event in events if event.type != "paced" or event.waited > 0.9]
            self.assertEqual([event.type for event in told], ["answered", "paced", "answered"])
            info = told[0].info
            self.assertEqual(info.limits[0].remaining if info else None, 0)


@unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
class Forks(unittest.TestCase):
    """The parent has the threads, and the requests under way; one may have a lock when it forks."""

    def in_child(self, lock: threading.Lock, passes: Callable[[], bool]) -> bool:
        """Forks while another thread has the lock; true if that passes there."""
        held, forked = threading.Event(), threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                forked.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(30)
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                os._exit(0 if passes() else 1)
            finally:
                os._exit(2)
        forked.set()
        holder.join()
        return os.waitpid(child, 0)[1] == 0

    def test_a_gate_lets_requests_of_a_forked_process_through(self) -> None:
        gate, lane = Gate(concurrency=2, learn=0.0), Lane("origin", "GET /")
        tickets = [gate.enter(lane) for _ in range(2)]

        def passes() -> bool:
            with suppress(RateLimitError):
                gate.enter(lane, time.monotonic() + 10)
                asyncio.run(gate.enter_async(lane, time.monotonic() + 10))
                return True
            return False

        self.assertTrue(self.in_child(gate._lock, passes))  # pyright: ignore[reportPrivateUsage]
        # The parent goes on as before.
        with self.assertRaises(RateLimitError):
            gate.enter(lane, time.monotonic())
        for ticket in tickets:
            gate.lost(ticket)

    def test_local_limits_decide_in_a_forked_process_and_know_what_passed_before(self) -> None:
        question = Question.of("shop", tenant="abc")
        limits = LocalLimits([LocalLimit("shop", ["tenant"], 2, 3600.0)])
        self.assertTrue(limits(question).allowed)
        passes = lambda: [limits(question).allowed for _ in range(2)] == [True, False]  # noqa: E731
        self.assertTrue(self.in_child(limits._lock, passes))  # pyright: ignore[reportPrivateUsage]

    def test_what_is_forgotten_is_not_called_in_a_forked_process(self) -> None:
        gc.collect()
        before = len(_begins)
        gates = [Gate() for _ in range(3)]
        self.assertEqual(len(_begins), before + 3)
        gates.clear()
        gc.collect()
        self.assertLessEqual(len(_begins), before)


class Lanes(unittest.TestCase):
    def test_callers_are_told_apart_by_their_credentials_which_no_event_tells(self) -> None:
        def lane(**headers: str) -> Lane:
            return default_lane(URL, "GET", {name.replace("_", "-"): value for name, value in headers.items()})

        one, other = "Bearer sk-secret-1", "Bearer sk-secret-2"
        lanes = [lane(), lane(Authorization=one), lane(authorization=other), lane(x_api_key=one), lane(api_key=one)]
        self.assertEqual(len(set(lanes)), len(lanes))
        self.assertEqual(lane(authorization=one), lane(Authorization=one))
        self.assertNotIn("secret", repr(lanes))
        self.assertEqual(default_lane(URL.replace("api", "ann:secret@api"), "GET", {}), lane())
        self.assertIn("api.test", lanes[1].budget)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: list[Answer] = []
    lock = threading.Lock()

    def do_GET(self) -> None:
        with self.lock:
            status, headers = self.answers.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Requests(unittest.TestCase):
    def setUp(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def tearDown(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def ask(self, answers: list[Answer], options: Optional[Options] = None, method: str = "GET") -> int:
        Handler.answers = answers
        with mount(requests.Session(), options) as session:
            return session.request(method, self.url).status_code

    def test_faults_and_denials_are_tried_again(self) -> None:
        self.assertEqual(self.ask([(503, {}), OK], soon()), 200)
        begun = time.monotonic()
        self.assertEqual(self.ask([(429, {"retry-after": "1"}), OK], soon()), 200)
        self.assertGreaterEqual(time.monotonic() - begun, 1)
        self.assertEqual(self.ask([(503, {})], soon(), "POST"), 503)
        self.assertEqual(self.ask([(503, {})] * 3, soon(retries=2)), 503)

    def test_a_timeout_has_each_form_that_requests_takes(self) -> None:
        bounds: list[tuple[Any, Any]] = []

        def send(*args: Any, **_: Any) -> requests.Response:
            timeout = args[3]
            bounds.append((timeout.connect_timeout, timeout.total))
            return cast(requests.Response, send_really(*args))

        send_really: Any = HTTPAdapter.send
        timeouts: list[Any] = [None, 5, (5, None), (5, 6), (None, 6), Timeout(connect=5), Timeout(5, 6), Timeout(total=5)]
        with mock.patch.object(HTTPAdapter, "send", send), mount(requests.Session(), Options(budget=10)) as session:
            for timeout in timeouts:
                Handler.answers = [OK]
                self.assertEqual(session.get(self.url, timeout=timeout).status_code, 200, timeout)
        # What is left of the budget bounds all of it.
        self.assertEqual([ceil(connect) for connect, _ in bounds], [10, 5, 5, 5, 10, 5, 5, 5])
        self.assertEqual([ceil(total) for _, total in bounds], [10] * 6 + [5] * 2)

    def test_a_budget_without_an_end_bounds_nothing(self) -> None:
        self.assertEqual(self.ask([OK], Options(budget=inf)), 200)
        Handler.answers = [OK] * 2
        with httpx.Client(transport=RateLimitTransport(options=Options(budget=inf)), timeout=None) as client:
            self.assertEqual(client.get(self.url).status_code, 200)

        async def ask() -> int:
            transport = AsyncRateLimitTransport(options=Options(budget=inf))
            async with httpx.AsyncClient(transport=transport, timeout=None) as client:
                return (await client.get(self.url)).status_code

        self.assertEqual(asyncio.run(ask()), 200)

    def test_a_connection_whose_answer_s_event_is_not_taken_is_free_again(self) -> None:
        def fail(event: Event) -> None:
            raise KeyError("no such metric")

        adapter = RateLimitAdapter(Options(on_event=fail), pool_maxsize=1)
        with requests.Session() as session:
            session.mount("http://", adapter)
            Handler.answers = [OK]
            with self.assertRaises(KeyError):
                session.get(self.url, stream=True)
            pools: Any = adapter.poolmanager.pools
            (pool,) = (pools[key] for key in pools.keys())
            self.assertEqual(pool.pool.qsize(), 1)

    def test_the_head_of_an_answer_comes_within_the_budget_however_many_parts_it_has(self) -> None:
        apart = threading.Event()
        written = [0]
        # It takes half a minute, at least.
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n".ljust(300, b"x") + b": y\r\n\r\n"

        class Trickling(Handler):
            def do_GET(self) -> None:
                with suppress(ConnectionError):
                    for number, byte in enumerate(head):
                        apart.wait(0.1)
                        self.wfile.write(bytes([byte]))
                        written[0] = number + 1

        self.server.RequestHandlerClass = Trickling
        for options, timeout in ((Options(budget=0.5), None), (Options(budget=0.5), 30), (Options(budget=0.5, gate=False), (30, None))):
            written[0] = 0
            with mount(requests.Session(), options) as session, self.assertRaises(requests.Timeout):
                session.get(self.url, timeout=timeout)
            self.assertLess(written[0], len(head))
        apart.set()

    def test_a_body_has_the_time_that_its_caller_gives_it(self) -> None:
        goes_on = threading.Event()
        passed, clock = [0.0], time.monotonic

        def begun(event: Event) -> None:
            """The budget is over once the head has come."""
            passed[0] += 61
            goes_on.set()

        class Late(Handler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "4")
                self.end_headers()
                goes_on.wait(60)
                with suppress(ConnectionError):
                    self.wfile.write(b"late")

        self.server.RequestHandlerClass = Late
        timeouts: list[Any] = [None, 30, Timeout(connect=5), Timeout(total=30)]
        with mock.patch("time.monotonic", lambda: clock() + passed[0]):
            for timeout in timeouts:
                goes_on.clear()
                with mount(requests.Session(), Options(budget=60, on_event=begun)) as session:
                    self.assertEqual(session.get(self.url, timeout=timeout).text, "late")
        goes_on.clear()
        with mount(requests.Session(), Options(budget=60)) as session, self.assertRaises(requests.ConnectionError):
            session.get(self.url, timeout=1)
        goes_on.set()

    def test_a_refused_connection_is_raised_in_the_end(self) -> None:
        self.server.server_close()
        with self.assertRaises(requests.ConnectionError):
            self.ask([], soon(retries=1))

    def test_threads_share_what_is_left(self) -> None:
        limit = '"s";q=3;w=3600'
        Handler.answers = [(200, {"ratelimit-policy": limit, "ratelimit": f'"s";r={left};t=3600'}) for left in (2, 1, 0)]
        session = mount(requests.Session())
        answers: list[int] = []

        def ask() -> None:
            try:
                answers.append(session.get(self.url).status_code)
            except RateLimitError:
                answers.append(429)

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answers), [200, 200, 200, 429, 429])
        session.close()


if __name__ == "__main__":
    unittest.main()
