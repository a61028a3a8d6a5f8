"""Calls whose answers did not come: the service may have granted a permit or a reservation, which nobody holds then."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, Optional

from ._answers import Json

# The most that are remembered, and for how many seconds: permits of others end by themselves, and reservations stay charged.
_REMEMBERED_MAX = 1000
_REMEMBERED_FOR = 10.0
# The waits in seconds before the first is asked for, and after one, two and more questions in a row without an answer.
_PAUSES = (0.1, 1.0, 5.0)


@dataclass(frozen=True)
class Lost:
    """A call that can be repeated: ``acquire`` or ``reserve`` with a key, or ``release``."""

    path: str
    body: Json


@dataclass(frozen=True)
class _Remembered:
    lost: Lost
    at: float


class Unanswered:
    """They are asked for one after another, so that a service that is away is not asked for all of them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Deque[_Remembered] = deque(maxlen=_REMEMBERED_MAX)
        self._is_looked_for = False
        self._misses = 0

    def add(self, lost: Lost) -> bool:
        """Returns true if somebody has to begin to ask: nobody does."""
        with self._lock:
            self._calls.append(_Remembered(lost, time.monotonic()))
            was_looked_for, self._is_looked_for = self._is_looked_for, True
            return not was_looked_for

    def goes_on(self) -> bool:
        """After ``stopped``, returns true if somebody has to begin to ask again: there is something left."""
        with self._lock:
            begins = bool(self._calls) and not self._is_looked_for
            self._is_looked_for = self._is_looked_for or begins
            return begins

    def first(self) -> Optional[tuple[float, Lost]]:
        """The seconds to wait, and what to ask for then. None if there is nothing left, and the asking ends."""
        with self._lock:
            now = time.monotonic()
            while self._calls and self._calls[0].at + _REMEMBERED_FOR <= now:
                self._calls.popleft()
            if not self._calls:
                self._is_looked_for = False
                self._misses = 0
                return None
            first = self._calls[0]
            pause = _PAUSES[min(self._misses, len(_PAUSES) - 1)]
            return max(0.0, pause if self._misses else first.at + pause - now), first.lost

    def stopped(self) -> None:
        """The asking ended before all was asked for."""
        with self._lock:
            self._is_looked_for = False

    def missed(self) -> None:
        """There was no answer this time either."""
        with self._lock:
            self._misses += 1

    def done(self, lost: Lost) -> None:
        """It is known what became of it."""
        with self._lock:
            self._misses = 0
            # New ones may have taken its place meanwhile.
            if self._calls and self._calls[0].lost is lost:
                self._calls.popleft()
