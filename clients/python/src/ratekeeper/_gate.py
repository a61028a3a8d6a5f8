"""Lets requests through one after another, when their pacer says so."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections import deque
from functools import partial
from typing import Callable, Deque, Optional, Union

from ._fork import in_child
from ._info import RateLimitInfo
from ._pacer import Lane, Pacer, Ticket


class RateLimitError(Exception):
    """The request was not sent: the limit would not let it pass within its budget of time."""

    def __init__(self, wait_ms: float, policy: Optional[str]) -> None:
        when = f"for another {math.ceil(wait_ms)} ms" if math.isfinite(wait_ms) else "for answers to other requests"
        name = f' "{policy}"' if policy else ""
        super().__init__(f"not sent: the limit{name} makes it wait {when}, longer than its budget of time")
        self.wait_ms = wait_ms
        """Milliseconds until it could have been sent; infinite if unknown."""
        self.policy = policy
        """The policy that it waited for, if known."""


class _Waiter:
    """A place in the queue."""

    __slots__ = ("deadline", "wake", "policy")

    def __init__(self, deadline: float, wake: Callable[[], object]) -> None:
        self.deadline = deadline
        self.wake = wake
        self.policy: Optional[str] = None


class Gate:
    """What the threads and tasks of a process share, so that together they keep to a server's limits.

    Give one to several clients of one server. Threads and event loops may share it. In a forked process it begins anew.
    """

    def __init__(
        self, *, concurrency: int = 100, learn: float = 1.0, random: Callable[[], float] = random.random
    ) -> None:
        """``concurrency``: the most requests under way at once for one origin and credential. ``learn``: the longest
        time that the first of them goes alone, in seconds. ``random``: numbers from 0 to 1."""
        self._new_pacer = partial(Pacer, concurrency, learn * 1000, random)
        self._begin()
        in_child(self, Gate._begin)

    def _begin(self) -> None:
        """Begins without requests: in a forked process, those of its parent are answered there."""
        self._lock = threading.Lock()
        self._pacer = self._new_pacer()
        self._queues: dict[str, dict[str, Deque[_Waiter]]] = {}

    def enter(self, lane: Lane, deadline: float = math.inf) -> Ticket:
        """Waits until a request may be sent; the ticket must be answered or lost.

        Raises RateLimitError if that is not before ``deadline`` (of ``time.monotonic()``).
        """
        event = threading.Event()
        waiter = _Waiter(deadline, event.set)
        try:
            while True:
                turn = self._attempt(lane, waiter)
                if isinstance(turn, Ticket):
                    return turn
                event.wait(None if math.isinf(turn) else min(turn, threading.TIMEOUT_MAX))
                event.clear()
        finally:
            self._leave(lane, waiter)

    async def enter_async(self, lane: Lane, deadline: float = math.inf) -> Ticket:
        """Like ``enter``, for asyncio."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        waiter = _Waiter(deadline, lambda: loop.call_soon_threadsafe(event.set))
        try:
            while True:
                turn = self._attempt(lane, waiter)
                if isinstance(turn, Ticket):
                    return turn
                try:
                    await asyncio.wait_for(event.wait(), None if math.isinf(turn) else turn)
                except asyncio.TimeoutError:
                    pass
                event.clear()
        finally:
            self._leave(lane, waiter)

    def answered(self, ticket: Ticket, info: RateLimitInfo) -> None:
        """Learns from an answer, and lets others through."""
        with self._lock:
            self._pacer.answered(ticket, info, _now_ms())
            self._wake(ticket.lane.budget)

    def lost(self, ticket: Ticket) -> None:
        """Counts a request as sent whose answer will not come."""
        with self._lock:
            self._pacer.lost(ticket, _now_ms())
            self._wake(ticket.lane.budget)

    def _attempt(self, lane: Lane, waiter: _Waiter) -> Union[Ticket, float]:
        """Takes a ticket if it is this waiter's turn; otherwise the seconds after which to try again."""
        with self._lock:
            queue = self._queues.setdefault(lane.budget, {}).setdefault(lane.route, deque())
            if waiter not in queue:
                queue.append(waiter)
            now = _now_ms()
            left = waiter.deadline * 1000 - now
            if queue[0] is not waiter:
                if left <= 0:
                    raise RateLimitError(math.inf, queue[0].policy)
                return left / 1000
            taken = self._pacer.take(lane, now)
            if isinstance(taken, Ticket):
                return taken
            waiter.policy = taken.policy
            if left <= 0 or left < taken.wait_ms < math.inf:
                raise RateLimitError(taken.wait_ms, taken.policy)
            return min(taken.wait_ms, left) / 1000

    def _leave(self, lane: Lane, waiter: _Waiter) -> None:
        with self._lock:
            queues = self._queues.get(lane.budget, {})
            queue = queues.get(lane.route)
            if queue is None or waiter not in queue:
                return
            was_first = queue[0] is waiter
            queue.remove(waiter)
            if was_first and queue:
                queue[0].wake()
            if not queue:
                del queues[lane.route]
            if not queues:
                self._queues.pop(lane.budget, None)

    def _wake(self, budget: str) -> None:
        for queue in self._queues.get(budget, {}).values():
            queue[0].wake()


def _now_ms() -> float:
    return time.monotonic() * 1000
