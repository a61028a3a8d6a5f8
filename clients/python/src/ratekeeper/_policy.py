"""One policy of a server, as a client sees it: what is left for certain, and when there is more.

Three things are known of it, and each is a lower bound on what is left:

1. An answer tells ``remaining``. Whatever may have been decided after that answer is subtracted: requests that
   overlapped with it, and those sent since.
2. An own log: a quota and a window hold at most ``quota`` requests in any span as long as the window. The log counts a
   request until a window after its answer, when the server has certainly decided it. It is believed while it explains
   what the answers tell; it does not where others use the same quota, or where bursts differ from the limit.
3. Time: after ``reset`` there is at least one more. That one goes alone, and its answer tells the rest.

Nothing in here reads a clock: times are milliseconds that are passed in.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Callable, Deque, Iterable, Optional

from ._info import WAIT_MAX_MS, WAIT_UNTOLD_MS, LimitInfo

# The most requests that the own log remembers. Of larger quotas only answers tell.
LOG_MAX = 10_000
# The most answers that bounds are kept of.
BOUNDS_MAX = 64
# Sliding windows that group hits let them leave a little late.
LATE = 1.005
# Others' hits per own request, from which on the policy counts as shared.
SHARED_MIN = 0.05
# The most of them that are reckoned with.
OTHERS_MAX = 20.0
# The longest wait after denials that tell no time.
BACKOFF_MAX_MS = 60_000
# The most by which a wait grows because others were quicker, in times of itself.
AGAIN_MAX = 7
# Times in headers are whole seconds: a bucket that is full sooner than that is paced by its rate.
ROUNDING_MS = 1000


@dataclass(frozen=True)
class Place:
    """A request's place among the requests of a policy."""

    index: int
    """Its number among all requests sent."""
    overlapping: int
    """The requests that were under way when it was sent."""
    sent_at: float
    by_rate: bool
    """True if it was sent at a small bucket's rate."""


# The place of a request that was sent before the policy was known.
EARLIER = Place(0, 0, -math.inf, False)


@dataclass
class Bound:
    """What an answer says of the requests after it."""

    remaining: int
    after: int
    """Requests up to this number that were answered before cannot take from what remains; all others can."""
    answered_at: float


@dataclass(frozen=True)
class Told:
    """An answer's word on a policy."""

    denied: bool
    remaining: Optional[int]
    is_own: bool
    """True if the answer told ``remaining`` of this very policy."""
    more_ms: Optional[float]
    """The wait until there is more."""


@dataclass(frozen=True)
class Anchor:
    """What was left, and how many had passed, when no request was under way."""

    remaining: int
    passed: int


class Policy:
    def __init__(self, under_way: Iterable[object], random: Callable[[], float]) -> None:
        self.quota: Optional[int] = None
        self.window_ms: Optional[int] = None
        self._random = random
        # Requests that were sent before the policy was known may all count towards it.
        self._under_way: dict[object, Place] = {ticket: EARLIER for ticket in under_way}
        self._sent = len(self._under_way)
        self._bounds: list[Bound] = []
        # When there is more than the bounds say.
        self._more_at = 0.0
        # The request that goes alone to see whether there is more.
        self._probe: Optional[object] = None
        # When requests were answered that the server let pass, oldest first.
        self._log: Deque[float] = deque(maxlen=LOG_MAX)
        # True if the own log explains what the answers tell; None before any told.
        self._is_explained: Optional[bool] = None
        # The most that was ever left, before the request that was told it.
        self._capacity = 0
        self._anchor: Optional[Anchor] = None
        self._passed = 0
        # Hits that were used up between anchors, and own requests among them; older ones count less.
        self._used = 0.0
        self._own = 0.0
        # Requests that passed at a small bucket's rate; None once one was denied.
        self._rate_passed: Optional[int] = 0
        # When the last denial came.
        self._denied_at = -math.inf
        # Denials in a row, of requests that were sent when there should have been more.
        self._misses = 0

    def describe(self, limit: LimitInfo) -> None:
        """What the limit's policy says. A quota that changed makes a new bucket."""
        if limit.quota is not None and limit.quota != self.quota:
            self.quota = limit.quota
            self._capacity = 0
            self._anchor = None
            self._rate_passed = 0
        if limit.window_ms is not None:
            self.window_ms = limit.window_ms

    def wait(self, now: float) -> float:
        """Milliseconds until a request may be sent: 0 for now, infinite if only an answer can tell."""
        if not self._bounds and self._more_at == 0:
            return self._log_wait(now)
        is_old = self._is_shared() and now >= self._more_at
        if not is_old and self._is_covered():
            return 0.0
        waits = [self._probe_wait(now), self._rate_wait(now)]
        if self._is_explained:
            waits.append(self._log_wait(now))
        return min(waits)

    def take(self, ticket: object, now: float) -> None:
        """Counts a request as sent."""
        is_covered = self._is_covered()
        is_probe = not is_covered and self._probe is None and 0 < self._more_at <= now
        if is_probe:
            self._probe = ticket
        by_rate = not is_covered and not is_probe and self._rate_wait(now) <= 0
        overlapping = len(self._under_way)
        self._sent += 1
        self._under_way[ticket] = Place(self._sent, overlapping, now, by_rate)

    def answered(self, ticket: object, told: Told, now: float) -> None:
        """Counts a request as answered, and learns what its answer tells."""
        if not told.denied:
            self._misses = 0
        elif self._probe is ticket:
            self._misses += 1
        place = self._settle(ticket) or EARLIER
        if not told.denied:
            self._charge(now)
        remaining = 0 if told.denied else told.remaining
        if remaining is None:
            if place is not EARLIER:
                self._lower()
            return
        if place.by_rate and self._rate_passed is not None:
            self._rate_passed = None if told.denied else self._rate_passed + 1
        # It may have been decided before the denial, which overtook it, and by a limit that was higher then.
        if not told.denied and place.sent_at < self._denied_at:
            return
        if told.is_own:
            self._compare(remaining)
        if told.denied:
            self._is_explained, self._denied_at = False, now
        elif told.is_own:
            self._explain(remaining, now)
        # A denial ends what others promised. What was sent after an answer arrived was decided after it.
        kept = [bound for bound in self._bounds if not told.denied and bound.answered_at > place.sent_at]
        self._bounds = kept[1 - BOUNDS_MAX :]
        if not self._bounds:
            self._more_at = 0.0
        self._bounds.append(Bound(remaining, place.index - place.overlapping, now))
        self._more_at = max(self._more_at, now + self._more_ms(told))

    def passed(self, ticket: object, now: float) -> None:
        """Counts a request as passed whose answer does not tell of this policy."""
        if self._settle(ticket):
            self._charge(now)
            self._lower()

    def lost(self, ticket: object, now: float) -> None:
        """Counts a request that has no answer: it may have been let pass."""
        was_probe = self._probe is ticket
        if not self._settle(ticket):
            return
        self._charge(now)
        self._lower()
        if was_probe:
            self._more_at = now + WAIT_UNTOLD_MS

    def _lower(self) -> None:
        """Takes one from what is left: a request passed whose answer does not tell."""
        for bound in self._bounds:
            bound.remaining -= 1

    def _settle(self, ticket: object) -> Optional[Place]:
        if self._probe is ticket:
            self._probe = None
        return self._under_way.pop(ticket, None)

    def _left(self, others: float = 0.0) -> float:
        """What is left for certain, if each own request comes with so many of others."""
        lefts = [bound.remaining / (1 + others) + bound.after - self._sent for bound in self._bounds]
        left = max(lefts, default=-math.inf)
        if self._under_way or not self._bounds:
            return left
        # All are answered, so the least that any was told is what the last of them left.
        return max(left, min(bound.remaining for bound in self._bounds) / (1 + others))

    def _is_covered(self) -> bool:
        """True if what is left covers one more request, others' share set aside."""
        # Others may be quicker with the last one.
        return self._left(self._others()) >= 2 if self._is_shared() else self._left() >= 1

    def _others(self) -> float:
        """Hits of others for each own request."""
        if self._own == 0:
            return OTHERS_MAX if self._used > 0 else 0.0
        return min(max(0.0, self._used / self._own - 1), OTHERS_MAX)

    def _is_shared(self) -> bool:
        return self._others() > SHARED_MIN

    def _probe_wait(self, now: float) -> float:
        return max(0.0, self._more_at - now) if self._probe is None else math.inf

    def _log_wait(self, now: float) -> float:
        """The wait by the own log."""
        if self.quota is None or self.window_ms is None or self.quota > LOG_MAX:
            return math.inf if self._bounds else 0.0
        span = self._prune(self.window_ms, now)
        over = len(self._log) + len(self._under_way) - max(self.quota, 1)
        if over < 0:
            return 0.0
        return max(0.0, self._log[over] + span - now) if over < len(self._log) else math.inf

    def _prune(self, window_ms: int, now: float) -> float:
        """Takes from the log what has left the window, and returns how long that takes."""
        span = window_ms * LATE
        while self._log and self._log[0] + span <= now:
            self._log.popleft()
        return span

    def _rate_wait(self, now: float) -> float:
        """The wait at the rate of a bucket that fills within the second to which times are rounded."""
        if not self._bounds or not self.quota or not self.window_ms:
            return math.inf
        if self._rate_passed is None or self._is_shared() or self._is_explained is not False:
            return math.inf
        per_hit = self.window_ms / self.quota
        # After a denial by a quota that is new, nothing is known of its bucket.
        if self._capacity == 0 or self._capacity >= 0.9 * self.quota or self._capacity * per_hit >= ROUNDING_MS:
            return math.inf
        last = self._bounds[-1]
        # Such a bucket has more within a second, as it tells.
        if self._more_at > last.answered_at + ROUNDING_MS:
            return math.inf
        # The first goes alone; each that passes allows one more beside it.
        if len(self._under_way) > min(self._rate_passed, self._capacity):
            return math.inf
        # Some are left over, for requests that overtake each other.
        missing = 1 + self._capacity // 5 - self._left()
        return max(0.0, last.answered_at + missing * per_hit * 1.02 - now)

    def _charge(self, now: float) -> None:
        self._passed += 1
        if self.quota is None or self.quota <= LOG_MAX:
            self._log.append(now)

    def _compare(self, remaining: int) -> None:
        """Compares what is used up with what passed for this client: the rest went to others."""
        # Only then is it certain what of it was this client's.
        if self._under_way:
            return
        before, self._anchor = self._anchor, Anchor(remaining, self._passed)
        # More than before: a window ended, or a bucket was filled.
        if before is None or before.remaining < remaining:
            return
        self._used = 0.7 * self._used + before.remaining - remaining
        self._own = 0.7 * self._own + self._passed - before.passed

    def _explain(self, remaining: int, now: float) -> None:
        """Notes whether own requests explain all that is used up."""
        self._capacity = max(self._capacity, remaining + 1)
        unsure = len(self._under_way)
        if self.quota is None or self.window_ms is None or unsure > max(1, self.quota / 10):
            return
        self._prune(self.window_ms, now)
        least = len(self._log) + remaining
        is_enough = least + unsure >= self.quota and self._capacity >= 0.9 * self.quota
        self._is_explained = is_enough and least <= self.quota * 1.1 + 1

    def _more_ms(self, told: Told) -> float:
        again = max(0, self._misses - 1)
        if told.more_ms is None:
            if not told.denied:
                return self.window_ms or WAIT_UNTOLD_MS
            return float(min(WAIT_UNTOLD_MS * 2 ** min(again, 10), BACKOFF_MAX_MS))
        # Others were told the same time: not all of them should come at once, and whoever came too late waits for longer.
        spread = 0.5 if again else 0.1 if self._is_shared() else 0.0
        jitter = spread * self._random() if spread else 0.0
        return min((told.more_ms or WAIT_UNTOLD_MS) * (1 + min(again, AGAIN_MAX) + jitter), WAIT_MAX_MS)
