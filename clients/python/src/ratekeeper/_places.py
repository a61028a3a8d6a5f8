"""The places of a client's calls under way, for threads and for asyncio. What waits for one is bounded, in time and in number."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Awaitable, Callable, Coroutine, Deque, Iterable, Optional, Sequence, Union

from ._answers import Json, ServiceError, encoded

# The most calls that wait for a place, and the most checks.
WAITING_MAX = 10_000
# The most checks in one request, and the most bytes: a service takes 1,000, and 1 MiB.
TOGETHER_MAX = 100
TOGETHER_BYTES_MAX = 500_000
# The refusals of a batch, after which what is left of it is asked check by check: those who wait for it wait for each.
_REFUSALS_MAX = 16
_AT_FAULT = re.compile(r"(?:checks|limits)\[([0-9]{1,3})\]")
# In place of the answer to a check that has to be asked by itself.
_ALONE: Json = {}


class Places:
    """First come, first served, except for what gives back: each of that follows a call that had a place."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._first: Deque[asyncio.Future[bool]] = deque()
        self._waiting: Deque[asyncio.Future[bool]] = deque()

    @property
    def are_taken(self) -> bool:
        return self._free == 0

    async def enter(self, patience: Optional[float], goes_first: bool = False) -> bool:
        """Takes a place; false if there is none within so many seconds. None waits for as long as it takes, whoever waits.
        What goes first has a line of its own."""
        if self._free > 0:
            self._free -= 1
            return True
        line = self._first if goes_first else self._waiting
        if patience is not None and len(line) >= WAITING_MAX:
            return False
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        timer = None if patience is None else loop.call_later(patience, _settle, turn, False)
        line.append(turn)
        try:
            return await turn
        except BaseException:
            # Its caller goes, and may have been given the place already.
            if turn.done() and not turn.cancelled() and turn.result():
                self.leave()
            else:
                with suppress(ValueError):
                    line.remove(turn)
            raise
        finally:
            if timer:
                timer.cancel()

    def leave(self) -> None:
        """Gives a place back, to the first who waits."""
        while line := self._first or self._waiting:
            turn = line.popleft()
            if not _is_over(turn):
                return turn.set_result(True)
        self._free += 1


class ThreadPlaces:
    """The same for threads: ``threading.Semaphore`` lets those that come overtake those that wait."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._first: Deque[threading.Lock] = deque()
        self._waiting: Deque[threading.Lock] = deque()

    def enter(self, patience: float, goes_first: bool = False) -> bool:
        """Takes a place; false if there is none within so many seconds."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            line = self._first if goes_first else self._waiting
            if len(line) >= WAITING_MAX:
                return False
            turn = threading.Lock()
            turn.acquire()
            line.append(turn)
        has_place = False
        try:
            has_place = turn.acquire(timeout=min(max(patience, 0), threading.TIMEOUT_MAX))
        except BaseException:
            # An interrupt: its caller goes, and may have been given the place already.
            if not self._give_up(line, turn):
                self.leave()
            raise
        return has_place or not self._give_up(line, turn)

    def leave(self) -> None:
        """Gives a place back, to the first who waits."""
        with self._lock:
            if line := self._first or self._waiting:
                line.popleft().release()
            else:
                self._free += 1

    def _give_up(self, line: Deque[threading.Lock], turn: threading.Lock) -> bool:
        """False if it was given a place meanwhile."""
        with self._lock:
            try:
                line.remove(turn)
            except ValueError:
                return False
            return True


class _Asked:
    """A check that waits for its answer."""

    __slots__ = ("text", "answer", "timer")

    def __init__(self, body: Json, patience: float) -> None:
        # What cannot be encoded fails here, for its own caller alone.
        self.text = encoded(body)
        loop = asyncio.get_running_loop()
        # As of ``join``.
        self.answer: asyncio.Future[Optional[Json]] = loop.create_future()
        self.timer = loop.call_later(patience, _settle, self.answer, None)


class Together:
    """Checks that wait for a place go together, in one request. Their callers may be cancelled: none of them sends it."""

    def __init__(
        self,
        places: Places,
        ask: Callable[[Sequence[str]], Awaitable[Union[Sequence[Json], ServiceError]]],
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """``ask``: sends a request for all of them, which are JSON, and returns the answers in their order, or an error if
        they may have been charged all the same. Raises if none of them was. ``start``: begins a task."""
        self._places = places
        self._ask = ask
        self._start = start
        self._waiting: Deque[_Asked] = deque()
        # The tasks that have a place, and the checks that each sends.
        self._under_way: dict[asyncio.Task[None], Sequence[_Asked]] = {}
        # Where a task leads those that wait.
        self._led_in: Optional[asyncio.AbstractEventLoop] = None

    async def join(self, body: Json, patience: float) -> Optional[Json]:
        """The answer to a check; empty if it has to be asked by itself, and None if there is no place within so many seconds.
        Raises ``ServiceError`` if no service answers, as a call of its own would, or if the client is closed."""
        self._drop_over()
        if len(self._waiting) >= WAITING_MAX:
            return None
        asked = _Asked(body, patience)
        self._waiting.append(asked)
        if self._led_in is not (loop := asyncio.get_running_loop()):
            self._led_in = loop
            self._start(self._lead()).add_done_callback(self._stop)
        return await asked.answer

    async def _lead(self) -> None:
        """Waits for a place after another, while there are checks. It keeps its turn when the time of one is up: others wait."""
        try:
            while self._drop_over():
                await self._places.enter(None)
                batch = self._take()
                task = self._start(self._send(batch))
                self._under_way[task] = batch
                # A task that is cancelled before it begins ends nothing itself.
                task.add_done_callback(self._end)
        finally:
            self._led_in = None

    def _drop_over(self) -> bool:
        """Drops the first whose time is up, or whose callers are gone; true if there are others."""
        while self._waiting and _is_over(self._waiting[0].answer):
            self._waiting.popleft().timer.cancel()
        return bool(self._waiting)

    def _take(self) -> list[_Asked]:
        """The first that wait, as many as may go together."""
        batch: list[_Asked] = []
        size = 0
        while self._drop_over() and len(batch) < TOGETHER_MAX:
            size += len(self._waiting[0].text)
            if batch and size > TOGETHER_BYTES_MAX:
                break
            asked = self._waiting.popleft()
            asked.timer.cancel()
            batch.append(asked)
        return batch

    async def _send(self, batch: list[_Asked]) -> None:
        """Asks for all of them, in the place that they have: what is refused is parted, and the rest sent again."""
        parts, refusals = [batch], 0
        while parts and refusals < _REFUSALS_MAX:
            part = [asked for asked in parts.pop() if not _is_over(asked.answer)]
            if not part:
                continue
            try:
                answers = await self._ask([asked.text for asked in part])
            except Exception as error:
                refusals += 1
                parts += _parted(part, error)
                continue
            if not isinstance(answers, ServiceError):
                for asked, answer in zip(part, answers):
                    _settle(asked.answer, answer)
                continue
            _fail(part, answers)
            if answers.code == "AWAY":
                # The rest would wait for as long, one part after another.
                while parts:
                    _fail(parts.pop(), answers)
        while parts:
            _leave_alone(parts.pop())

    def drop_closed(self) -> None:
        """Gives back the places of tasks whose loop was closed: they never end."""
        for task in [task for task in self._under_way if task.get_loop().is_closed()]:
            self._end(task)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._places.leave()
        _close(self._under_way.pop(task))

    def _stop(self, lead: asyncio.Task[None]) -> None:
        if lead.cancelled():
            self._led_in = None
            _close(self._waiting)
            self._waiting.clear()


def _parted(part: list[_Asked], error: Exception) -> list[list[_Asked]]:
    """What is to be sent again of checks that were refused, without the one at fault; halves if that is not known."""
    number = _at_fault(error)
    if number is not None and number < len(part):
        _leave_alone([part.pop(number)])
        return [part]
    if len(part) > 1 and isinstance(error, ServiceError):
        return [part[len(part) // 2 :], part[: len(part) // 2]]
    _leave_alone(part)
    return []


def _at_fault(error: Exception) -> Optional[int]:
    """The number of the check that was refused, if the service tells."""
    told = _AT_FAULT.match(error.field or "") if isinstance(error, ServiceError) else None
    return int(told[1]) if told else None


def _is_over(future: asyncio.Future[Any]) -> bool:
    """True if nobody waits for it any more, or its loop was closed."""
    return future.done() or future.get_loop().is_closed()


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if not _is_over(future):
        future.set_result(result)


def _leave_alone(rest: Iterable[_Asked]) -> None:
    """They have to be asked by themselves."""
    for asked in rest:
        _settle(asked.answer, _ALONE)


def _close(rest: Iterable[_Asked]) -> None:
    """The client was closed before they had an answer."""
    _fail(rest, ServiceError("CLOSED", "this client is closed"))


def _fail(rest: Iterable[_Asked], error: ServiceError) -> None:
    for asked in rest:
        if not _is_over(asked.answer):
            asked.answer.set_exception(error)
            # Its caller may be cancelled before it hears of it.
            asked.answer.exception()
