"""Keeps permits held: renews those of a client in one thread."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Generator, Optional

# What renews one: it yields the seconds until it is to go on, and ends with the permit.
Steps = Generator[Any, Any, None]
# The seconds without a permit after which the thread ends.
_IDLE = 10.0


class Keeper:
    """The thread begins with the first permit."""

    def __init__(self, advance: Callable[[Steps], float]) -> None:
        """``advance`` goes on with what renews a permit, and returns when it is to go on again, in seconds."""
        self._advance = advance
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Steps]] = {}
        self._is_running = False
        self._is_closed = False

    def add(self, permit: object, steps: Steps) -> None:
        """Begins to renew a permit. Raises ``RuntimeError`` if there can be no thread."""
        pause = next(steps, None)
        if pause is None:
            return
        with self._changed:
            if not self._is_running:
                threading.Thread(target=self._run, daemon=True).start()
                self._is_running = True
            self._due[permit] = (time.monotonic() + pause, steps)
            self._changed.notify()

    def remove(self, permit: object) -> None:
        with self._changed:
            self._due.pop(permit, None)

    def close(self) -> None:
        """Ends the thread. Permits end by themselves then."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (first := self._wait()) is not None:
            permit, steps = first
            try:
                pause = self._advance(steps)
            except Exception:
                # It has ended, or its transport fails in a way of its own: the others are renewed.
                self.remove(permit)
                continue
            with self._changed:
                if permit in self._due:
                    self._due[permit] = (time.monotonic() + pause, steps)

    def _wait(self) -> Optional[tuple[object, Steps]]:
        """The next permit, once it is due; None if the thread is to end."""
        with self._changed:
            while not self._is_closed:
                if self._due:
                    permit, (due, steps) = min(self._due.items(), key=lambda entry: entry[1][0])
                    if due <= time.monotonic():
                        return permit, steps
                    self._changed.wait(min(due - time.monotonic(), threading.TIMEOUT_MAX))
                elif not self._changed.wait(_IDLE) and not self._due:
                    break
            self._is_running = False
            return None
