"""The answer to checks while no service answers."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Callable, Optional, Sequence

from ._answers import Decision, Question
from ._fork import in_child

# Decides a question in place of the service.
Fallback = Callable[[Question], Decision]
# The most counters; of more the least recently used ones are forgotten.
_COUNTERS_MAX = 10_000


@dataclass(frozen=True)
class LocalLimit:
    """A limit for all descriptors with these keys: one counter for each of their values."""

    domain: str
    keys: Sequence[str]
    """The keys of the entries, in their order."""
    limit: int
    """0 denies everything."""
    window: float
    """Seconds, more than 0."""


def allow_all(question: Question) -> Decision:
    """Everything passes."""
    return Decision(True, degraded=True)


def deny_all(question: Question) -> Decision:
    """Nothing passes."""
    return Decision(False, degraded=True)


class LocalLimits:
    """This process decides with limits of its own, as if each process had them for itself: a bucket of ``limit`` that
    refills in ``window``. What no limit matches passes."""

    def __init__(self, limits: Sequence[LocalLimit], clock: Callable[[], float] = time.monotonic) -> None:
        if any(not limit.window > 0 for limit in limits):
            raise ValueError("window: has to be longer than 0 s")
        self._limits = limits
        self._clock = clock
        # When each bucket will be full.
        self._full: OrderedDict[object, float] = OrderedDict()
        self._begin()
        in_child(self, LocalLimits._begin)

    def _begin(self) -> None:
        """A forked process goes on with the buckets as they were: another thread may have had the lock."""
        self._lock = threading.Lock()

    def __call__(self, question: Question) -> Decision:
        with self._lock:
            return self._decide(question, self._clock())

    def _decide(self, question: Question, now: float) -> Decision:
        after: dict[object, float] = {}
        worst: Optional[Decision] = None
        for limit, key, hits in self._steps(question):
            one, filled = _taken(limit, hits, max(now, after.get(key, self._full.get(key, 0.0))), now)
            if one.allowed:
                after[key] = filled
            if worst is None or _strictness(one) > _strictness(worst):
                worst = one
        if worst is not None and not worst.allowed:
            return worst
        # A denied request takes nothing: only now are all charged.
        for key, filled in after.items():
            self._full[key] = filled
            self._full.move_to_end(key)
            if len(self._full) > _COUNTERS_MAX:
                self._full.popitem(last=False)
        return worst or Decision(True, degraded=True)

    def _steps(self, question: Question) -> list[tuple[LocalLimit, object, int]]:
        steps: list[tuple[LocalLimit, object, int]] = []
        for descriptor in question.descriptors:
            pairs = descriptor.pairs()
            domain, keys = descriptor.domain or question.domain, [key for key, _ in pairs]
            hits = 1 if descriptor.hits is None else descriptor.hits
            for index, limit in enumerate(self._limits):
                if limit.domain == domain and list(limit.keys) == keys:
                    steps.append((limit, (index, tuple(pairs)), hits))
        return steps


def _strictness(decision: Decision) -> tuple[bool, float]:
    """Larger for a denial, the longer it lasts, and otherwise the less is left."""
    if decision.allowed:
        return False, -(decision.remaining or 0)
    return True, math.inf if decision.retry_after_ms is None else decision.retry_after_ms


def _taken(limit: LocalLimit, hits: int, before: float, now: float) -> tuple[Decision, float]:
    """The decision about hits on a bucket that is going to be full at ``before``, and when it will be with them."""
    if limit.limit <= 0:
        return Decision(False, True, limit=limit.limit, remaining=0), before
    per_hit = limit.window / limit.limit
    filled = before + hits * per_hit
    wait = filled - limit.window - now
    allowed = wait <= 1e-9
    used = (filled if allowed else before) - now
    remaining = max(0, math.floor((limit.window - used) / per_hit + 1e-6))
    later = None if allowed or hits > limit.limit else wait * 1000
    return Decision(allowed, True, None, None, limit.limit, remaining, per_hit * 1000, later), filled
