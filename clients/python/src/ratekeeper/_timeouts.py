"""Timeouts that end together."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, Mapping, Optional


class Timeouts(Mapping[str, Optional[float]]):
    """The timeouts of a request of httpx. It reads one as each phase begins, which is what is left then.

    As numbers they would add up: connecting, writing, and each wait while reading could take all of the time.
    """

    def __init__(self, left: Callable[[], float], given: Mapping[str, Optional[float]]) -> None:
        """``left``: the seconds that are left, which may be infinite. ``given``: further bounds of phases."""
        self._left = left
        self._given = given

    def __getitem__(self, phase: str) -> Optional[float]:
        # TCP and TLS have this each, and an answer takes another round trip at least.
        left = self._left() / 2 if phase == "connect" else self._left()
        given = self._given.get(phase)
        bound = left if given is None else min(given, left)
        return None if math.isinf(bound) else bound

    def __iter__(self) -> Iterator[str]:
        return iter(("connect", "read", "write", "pool"))

    def __len__(self) -> int:
        return 4


def extensions(left: Callable[[], float], given: Mapping[str, Any]) -> dict[str, Any]:
    """The extensions of a request, with timeouts that end when no time is left."""
    return {**given, "timeout": Timeouts(left, given.get("timeout") or {})}
