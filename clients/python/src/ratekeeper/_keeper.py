"""Keeps permits held: renews those of a client in a few threads."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Generator, Optional

# What renews one: it yields the seconds until it is to go on, and ends with the permit.
Steps = Generator[Any, Any, None]
# The most threads: so many answers are waited for at once.
_THREADS_MAX = 8
# The seconds without a permit after which a thread ends.
_IDLE = 10.0


class Keeper:
    """The first thread begins with the first permit. A thread that renews one leaves the next to another thread, so that
    slow answers hold up no others."""

    def __init__(self, advance: Callable[[Steps], float]) -> None:
        """``advance`` goes on with what renews a permit, and returns when it is to go on again, in seconds."""
        self._advance = advance
        self._is_closed = False
        self.begin()

    def begin(self) -> None:
        """Begins without permits and threads. A forked process has none: its parent renews those that it had."""
        self._changed = threading.Condition()
        # When each permit is to be renewed: never while a thread does that.
        self._due: dict[object, tuple[float, Steps]] = {}
        self._threads = 0
        # How many of them renew none.
        self._free = 0

    def add(self, permit: object, steps: Steps) -> None:
        """Begins to renew a permit. Raises ``RuntimeError`` if there can be no thread."""
        pause = next(steps, None)
        if pause is None:
            return
        with self._changed:
            self._due[permit] = (time.monotonic() + pause, steps)
            try:
                self._wake()
            except RuntimeError:
                if self._threads == 0:
                    del self._due[permit]
                    raise

    def remove(self, permit: object) -> None:
        with self._changed:
            self._due.pop(permit, None)

    def close(self) -> None:
        """Ends the threads. Permits end by themselves then."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Has a thread that is free look which permit is the next."""
        if self._free > 0:
            self._changed.notify()
        elif self._threads < min(_THREADS_MAX, len(self._due)):
            threading.Thread(target=self._run, daemon=True).start()
            self._threads += 1
            self._free += 1

    def _run(self) -> None:
        while (first := self._take()) is not None:
            permit, steps = first
            try:
                due = time.monotonic() + self._advance(steps)
            except Exception:
                # It has ended, or its transport fails in a way of its own: the others are renewed.
                self.remove(permit)
                due = math.inf
            with self._changed:
                self._free += 1
                if permit in self._due:
                    self._due[permit] = (due, steps)

    def _take(self) -> Optional[tuple[object, Steps]]:
        """The next permit, once it is due; None if the thread is to end."""
        with self._changed:
            first = self._wait()
            self._free -= 1
            if first is None:
                self._threads -= 1
                return None
            permit, steps = first
            self._due[permit] = (math.inf, steps)
            with suppress(RuntimeError):
                self._wake()
            return first

    def _wait(self) -> Optional[tuple[object, Steps]]:
        while not self._is_closed:
            if self._due:
                permit, (due, steps) = min(self._due.items(), key=lambda entry: entry[1][0])
                if due <= time.monotonic():
                    return permit, steps
                self._changed.wait(min(due - time.monotonic(), threading.TIMEOUT_MAX))
            elif not self._changed.wait(_IDLE) and not self._due:
                break
        return None
