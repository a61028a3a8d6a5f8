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
from typing import Any
from unittest import mock

from ratekeeper.service import AsyncRatekeeper, Question, Ratekeeper
from served import served

QUESTION = Question.of("shop", tenant="abc")


def grant(path: str, body: Any) -> Any:
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


class Connections(unittest.TestCase):
    def test_one_event_loop_after_another_asks_on_connections_of_its_own(self) -> None:
        """As Celery, scripts and Django's async_to_sync have them: those of a loop that was closed carry nothing more."""

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
