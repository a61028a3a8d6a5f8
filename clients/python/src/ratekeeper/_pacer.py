"""Decides when a request may be sent, from what the answers to earlier ones told.

Pure: it reads no clock and waits for nothing; times are milliseconds that are passed in.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Callable, NamedTuple, Optional, Sequence, TypeVar, Union

from ._info import LimitInfo, RateLimitInfo
from ._policy import Policy, Told

# The most budgets, and routes and policies of each, that are remembered; the least recently used ones are forgotten.
REMEMBERED_MAX = 1000
# Passed requests at once after which a server that tells nothing but denials counts as unlimited again.
UNTOLD_MAX = 64


class Lane(NamedTuple):
    """Whose limits a request counts towards, and which of them."""

    budget: str
    """Who is limited, and where: requests of one budget share the state of their policies."""
    route: str
    """Requests that the same policies apply to, such as those of one route."""


class Ticket:
    """A request that may be sent. It must be answered or lost."""

    __slots__ = ("lane", "sent_at")

    def __init__(self, lane: Lane, sent_at: float) -> None:
        self.lane = lane
        self.sent_at = sent_at


class Wait(NamedTuple):
    """A request that must wait."""

    wait_ms: float
    """How long; if that is infinite, until any request of the budget is settled."""
    policy: Optional[str]
    """The name of the policy that it waits for, if it is one."""


# What identifies a policy.
Key = tuple[object, ...]
# What is done after a denial that names no limit: an answer that passes doubles what may be sent.
_UNNAMED = LimitInfo("denials")
_V = TypeVar("_V")
_K = TypeVar("_K")


@dataclass
class _Budget:
    under_way: set[Ticket] = field(default_factory=lambda: set[Ticket]())
    # Keys of the policies that a route's last answer told of.
    routes: OrderedDict[str, Sequence[Key]] = field(default_factory=lambda: OrderedDict[str, Sequence[Key]]())
    policies: OrderedDict[Key, Policy] = field(default_factory=lambda: OrderedDict[Key, Policy]())
    # Keys of the policies that the last answer of all told of. None before the first.
    latest: Optional[Sequence[Key]] = None
    # The request that goes alone because nothing is known.
    first: Optional[Ticket] = None
    # After a denial that named no limit: how many may be sent until the next answer.
    grown: Optional[int] = None


class Pacer:
    def __init__(
        self, concurrency: int = 100, learn_ms: float = 1000.0, random: Callable[[], float] = random.random
    ) -> None:
        """``concurrency``: the most requests under way at once for one budget. ``learn_ms``: the longest time that the
        first request of a budget goes alone. ``random``: numbers from 0 to 1."""
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()
        self._concurrency = concurrency
        self._learn_ms = learn_ms
        self._random = random

    def take(self, lane: Lane, now: float) -> Union[Ticket, Wait]:
        """Takes a request's place if it may be sent now."""
        budget = self._budget(lane.budget)
        if len(budget.under_way) >= self._concurrency:
            return Wait(math.inf, None)
        first = budget.first
        if first and now < first.sent_at + self._learn_ms:
            return Wait(first.sent_at + self._learn_ms - now, None)
        keys = budget.routes.get(lane.route, budget.latest) or ()
        policies = [(key, budget.policies[key]) for key in keys if key in budget.policies]
        waits = [(policy.wait(now), key) for key, policy in policies]
        wait, key = max(waits, key=lambda one: one[0], default=(0.0, ("",)))
        if wait > 0:
            return Wait(wait, str(key[0]))
        ticket = Ticket(lane, now)
        for _, policy in policies:
            policy.take(ticket, now)
        budget.under_way.add(ticket)
        if budget.latest is None and first is None:
            budget.first = ticket
        return ticket

    def answered(self, ticket: Ticket, info: RateLimitInfo, now: float) -> None:
        """Learns from an answer."""
        budget = self._settled(ticket)
        limits = [limit for limit in info.limits if limit.is_paced]
        if not limits and not info.denied and budget.grown is None:
            # An answer of a route that told of limits before, such as an error from behind the limiter, ends nothing.
            if budget.latest is None:
                budget.latest = ()
            for policy in budget.policies.values():
                policy.passed(ticket, now)
            return
        if not limits:
            limits = _unnamed(budget, info.denied)
        keys = _learn(budget, ticket, limits, info, now, self._random)
        for key, policy in budget.policies.items():
            if key not in keys:
                policy.passed(ticket, now)
        _remember(budget.routes, ticket.lane.route, keys)
        budget.latest = keys

    def lost(self, ticket: Ticket, now: float) -> None:
        """Counts a request as sent whose answer will not come."""
        for policy in self._settled(ticket).policies.values():
            policy.lost(ticket, now)

    def _budget(self, key: str) -> _Budget:
        budget = self._budgets.get(key) or _Budget()
        _remember(self._budgets, key, budget)
        return budget

    def _settled(self, ticket: Ticket) -> _Budget:
        budget = self._budget(ticket.lane.budget)
        budget.under_way.discard(ticket)
        if budget.first is ticket:
            budget.first = None
        return budget


def _learn(
    budget: _Budget,
    ticket: Ticket,
    limits: Sequence[LimitInfo],
    info: RateLimitInfo,
    now: float,
    random: Callable[[], float],
) -> list[Key]:
    told = [limit for limit in limits if limit.remaining is not None]
    least = min(told, key=lambda limit: limit.remaining or 0, default=None)
    # True if the answer tells when to come back.
    is_timed = info.retry_after_ms is not None or any(limit.reset_ms is not None for limit in info.limits)
    keys = [_key(limit) for limit in limits]
    for key, limit in zip(keys, limits):
        policy = budget.policies.get(key) or Policy(budget.under_way, random)
        _remember(budget.policies, key, policy)
        policy.describe(limit)
        is_own = limit.remaining is not None and limit.name != _UNNAMED.name
        # Servers tell the policy with the least left; the others have as much at least.
        source = limit if is_own or least is None else least
        more_ms = source.reset_ms
        denied = info.denied and (least is None or least.remaining != 0 or source.remaining == 0)
        if denied and is_timed:
            more_ms = max(info.wait_ms, more_ms or 0)
        policy.answered(ticket, Told(denied, source.remaining, is_own, more_ms), now)
    return keys


def _unnamed(budget: _Budget, denied: bool) -> list[LimitInfo]:
    """A limit for denials that name none; none once it is over."""
    budget.grown = 0 if denied else max(1, 2 * (budget.grown or 0))
    if budget.grown > UNTOLD_MAX:
        budget.grown = None
        budget.policies.pop(_key(_UNNAMED), None)
        return []
    return [replace(_UNNAMED, remaining=None if denied else budget.grown)]


def _key(limit: LimitInfo) -> Key:
    """What identifies a policy. One without a name is another one when its quota changes."""
    named = (limit.name, limit.partition, limit.unit)
    return named if limit.name else (*named, limit.quota, limit.window_ms)


def _remember(known: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    """Sets what is most recent, and forgets what is least so."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > REMEMBERED_MAX:
        known.popitem(last=False)
