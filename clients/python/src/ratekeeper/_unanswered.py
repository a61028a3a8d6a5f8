"""Acquires whose answers did not come: the service may have granted each of them a permit."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, Optional

from ._answers import Json

# The most that are remembered, and for how many seconds: permits of others end by themselves.
_REMEMBERED_MAX = 1000
_REMEMBERED_FOR = 10.0
# The waits in seconds before the first is asked for, and after one, two and more questions in a row without an answer.
_PAUSES = (0.1, 1.0, 5.0)


@dataclass(frozen=True)
class _Acquire:
    body: Json
    at: float


class Unanswered:
    """They are asked for one after another, so that a service that is away is not asked for all of them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acquires: Deque[_Acquire] = deque(maxlen=_REMEMBERED_MAX)
        self._is_looked_for = False
        self._misses = 0

    def add(self, body: Json) -> bool:
        """Returns true if somebody has to begin to ask: nobody does."""
        with self._lock:
            self._acquires.append(_Acquire(body, time.monotonic()))
            was_looked_for, self._is_looked_for = self._is_looked_for, True
            return not was_looked_for

    def first(self) -> Optional[tuple[float, Json]]:
        """The seconds to wait, and what to ask for then. None if there is nothing left, and the asking ends."""
        with self._lock:
            now = time.monotonic()
            while self._acquires and self._acquires[0].at + _REMEMBERED_FOR <= now:
                self._acquires.popleft()
            if not self._acquires:
                self._is_looked_for = False
                self._misses = 0
                return None
            first = self._acquires[0]
            pause = _PAUSES[min(self._misses, len(_PAUSES) - 1)]
            return max(0.0, pause if self._misses else first.at + pause - now), first.body

    def stopped(self) -> None:
        """The asking ended before all was asked for."""
        with self._lock:
            self._is_looked_for = False

    def missed(self) -> None:
        """There was no answer this time either."""
        with self._lock:
            self._misses += 1

    def done(self, body: Json) -> None:
        """It is known what became of it."""
        with self._lock:
            self._misses = 0
            # New ones may have taken its place meanwhile.
            if self._acquires and self._acquires[0].body is body:
                self._acquires.popleft()
