"""The connections of the clients of a service."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import unittest
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Optional
from unittest import mock

from ratekeeper.service import AsyncRatekeeper, Question, Ratekeeper
from served import served

QUESTION = Question.of("shop", tenant="abc")


def grant(path: str, body: Any) -> Any:
    if path == "/v1/checks":
        return {"results": [{"decision": "allow"} for _ in body["checks"]]}
    return {"decision": "allow", "permit": "p", "expires_after_ms": 60_000, "was_held": True}


SCRIPT = """
from ratekeeper import Gate
from ratekeeper.service import AsyncRatekeeper, LocalLimits, Ratekeeper
client, open_client = Ratekeeper("http://127.0.0.1:1"), AsyncRatekeeper("http://127.0.0.1:1")
gate, limits = Gate(), LocalLimits([])
client.close()
"""


class Programs(unittest.TestCase):
    def test_a_program_that_holds_clients_in_globals_ends_without_a_word(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, timeout=60)
        self.assertEqual((ended.stderr.decode(), ended.returncode), ("", 0))


class Loops(unittest.TestCase):
    """One event loop after another, and two at once."""

    def lost_in_its_loop(self, asking: str) -> list[str]:
        """The calls of a second loop, after the first one ended while a call had no answer."""
        asked: list[str] = []
        # ``is_over``: the loop of the first call is closed.
        came, is_over = threading.Event(), threading.Event()

        def serve(path: str, body: Any) -> Any:
            asked.append(path)
            if len(asked) == 1:
                came.set()
                is_over.wait(60)
            return grant(path, body)

        async def ask() -> None:
            # It ends with its loop.
            call = service.acquire(QUESTION) if asking == "acquire" else service.release("p")
            task = asyncio.ensure_future(call)
            await asyncio.get_running_loop().run_in_executor(None, came.wait, 60)
            self.assertFalse(task.done())

        async def go_on() -> None:
            await service.peek(QUESTION)
            # Until nothing is left to be given back.
            await asyncio.wait_for(asyncio.gather(*service._tasks), 30)  # pyright: ignore[reportPrivateUsage]

        with served(serve) as server, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            service = AsyncRatekeeper(server.url, timeout=60)
            asyncio.run(ask())
            is_over.set()
            with self.assertNoLogs("asyncio") if sys.version_info >= (3, 10) else nullcontext():
                asyncio.run(go_on())
                gc.collect()
            calls = [path for path in asked if path != "/v1/peek"]
            asyncio.run(service.aclose())
        return calls

    def test_a_permit_whose_loop_ended_before_the_answer_is_given_back_in_the_next(self) -> None:
        self.assertEqual(self.lost_in_its_loop("acquire"), ["/v1/acquire", "/v1/acquire", "/v1/release"])

    def test_a_release_whose_loop_ended_before_the_answer_is_repeated_in_the_next(self) -> None:
        self.assertEqual(self.lost_in_its_loop("release"), ["/v1/release", "/v1/release"])

    @unittest.skipIf(sys.version_info < (3, 10), "assertNoLogs came with 3.10")
    def test_a_release_that_ends_with_the_last_loop_prints_nothing(self) -> None:
        came, is_over = threading.Event(), threading.Event()

        def serve(path: str, body: Any) -> Any:
            came.set()
            is_over.wait(60)
            return grant(path, body)

        async def release(service: AsyncRatekeeper) -> None:
            task = asyncio.ensure_future(service.release("p"))
            await asyncio.get_running_loop().run_in_executor(None, came.wait, 60)
            self.assertFalse(task.done())

        with served(serve) as server, warnings.catch_warnings(), self.assertNoLogs("asyncio"):
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run(release(AsyncRatekeeper(server.url, timeout=60)))
            gc.collect()
            is_over.set()

    def test_a_second_loop_at_once_is_refused_and_the_first_goes_on(self) -> None:
        inside, outside = threading.Event(), threading.Event()

        def wait(path: str, body: Any) -> Any:
            inside.set()
            outside.wait(60)
            return grant(path, body)

        async def checks() -> list[bool]:
            return [one.allowed for one in await asyncio.gather(*[service.check(QUESTION) for _ in range(6)])]

        with served(wait) as server, ThreadPoolExecutor(1) as other:
            service = AsyncRatekeeper(server.url, timeout=60, concurrency=2)
            first = other.submit(asyncio.run, checks())
            self.assertTrue(inside.wait(60))
            for call in (checks, lambda: service.release("p"), service.aclose):
                with self.assertRaisesRegex(RuntimeError, "an event loop that is not closed"):
                    asyncio.run(call())
            outside.set()
            self.assertEqual(first.result(60), [True] * 6)
            # That one is closed now.
            self.assertEqual(asyncio.run(checks()), [True] * 6)
            asyncio.run(service.aclose())

    def test_a_loop_that_pauses_keeps_the_client_until_it_is_closed_or_its_thread_has_ended(self) -> None:
        """Its tasks go on with it, and then they would meet those of another thread."""

        async def check() -> bool:
            return (await service.check(QUESTION)).allowed

        first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
        with served(grant) as server, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            service = AsyncRatekeeper(server.url, timeout=60)
            with ThreadPoolExecutor(1) as other:
                self.assertTrue(other.submit(first.run_until_complete, check()).result(60))
                with self.assertRaisesRegex(RuntimeError, "an event loop that is not closed"):
                    asyncio.run(check())
                first.close()
                self.assertTrue(asyncio.run(check()))
                self.assertTrue(other.submit(second.run_until_complete, check()).result(60))
            self.assertTrue(asyncio.run(check()))
            asyncio.run(service.aclose())
            second.close()
            gc.collect()

    def test_of_many_loops_at_once_none_hangs_and_no_place_stays_taken(self) -> None:
        async def checks() -> int:
            return len(await asyncio.gather(*[service.check(QUESTION) for _ in range(6)]))

        def run(_: int) -> Optional[str]:
            try:
                asyncio.run(checks())
            except RuntimeError as error:
                return str(error)
            return None

        with served(grant) as server, ThreadPoolExecutor(6) as pool, warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            service = AsyncRatekeeper(server.url, timeout=60, concurrency=2)
            told = set(pool.map(run, range(60), timeout=120))
            self.assertLessEqual(len(told - {None}), 1, told)
            self.assertIn(None, told)
            self.assertEqual(asyncio.run(checks()), 6)
            self.assertEqual(service._places._free, 2)  # pyright: ignore[reportPrivateUsage]
            asyncio.run(service.aclose())
            gc.collect()


class Connections(unittest.TestCase):
    def test_one_event_loop_after_another_asks_on_connections_of_its_own(self) -> None:
        """As Celery and scripts have them: those of a loop that was closed carry nothing more."""

        async def hold() -> bool:
            async with service.permit(QUESTION) as acquired:
                return acquired.permit is not None

        with served(grant) as server, warnings.catch_warnings():
            # Of the connections of loops that nobody closed.
            warnings.simplefilter("ignore", ResourceWarning)
            service = AsyncRatekeeper(server.url, timeout=60)
            self.assertEqual([asyncio.run(hold()) for _ in range(20)], [True] * 20)
            self.assertEqual(server.asked, ["/v1/acquire", "/v1/release"] * 20)
            asyncio.run(service.aclose())
            gc.collect()

    def test_each_call_under_way_has_a_connection_however_many_there_are(self) -> None:
        """What waits for one has been sent, as far as its client knows."""
        all_of_them = threading.Barrier(120)

        def together(path: str, body: Any) -> Any:
            all_of_them.wait(60)
            return grant(path, body)

        async def ask(url: str) -> list[bool]:
            async with AsyncRatekeeper(url, timeout=60, concurrency=120) as service:
                peeks = await asyncio.gather(*[service.peek(QUESTION) for _ in range(120)])
            return [one.allowed for one in peeks]

        with served(together) as server:
            self.assertEqual(asyncio.run(ask(server.url)), [True] * 120)
            with Ratekeeper(server.url, timeout=60, concurrency=120) as service, ThreadPoolExecutor(120) as pool:
                self.assertEqual([one.allowed for one in pool.map(service.peek, [QUESTION] * 120)], [True] * 120)

    def test_a_client_keeps_the_connections_of_all_its_calls(self) -> None:
        """One that is closed costs the next call another one, and with TLS several round trips."""
        all_of_them = threading.Barrier(32)

        def together(path: str, body: Any) -> Any:
            all_of_them.wait(60)
            return grant(path, body)

        # However long it takes, none of them is too old.
        with served(together) as server, mock.patch("time.monotonic", lambda: 0.0):
            with Ratekeeper(server.url, timeout=60) as service, ThreadPoolExecutor(32) as pool:
                for _ in range(5):
                    self.assertTrue(all(one.allowed for one in pool.map(service.peek, [QUESTION] * 32)))
        self.assertEqual(server.connections, 32)


if __name__ == "__main__":
    unittest.main()
