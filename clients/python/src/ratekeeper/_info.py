"""Reads what an answer tells of rate limits. The rules are those of ``clients/vectors/README.md``."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from typing import Iterable, Mapping, Optional, Sequence

from ._fields import Bare, Member, date, number, parse_list, span

# The longest wait that an answer can cause. Whoever waited as long asks again.
WAIT_MAX_MS = 3_600_000
# The wait after a denial that tells no time.
WAIT_UNTOLD_MS = 1000


@dataclass(frozen=True)
class LimitInfo:
    """What an answer tells of one limit. None is what it does not tell."""

    name: str
    """The policy's name; empty if it has none."""
    partition: Optional[str] = None
    """The partition that the policy's quota is counted for, as it stands in the header."""
    unit: str = "requests"
    """What is counted: ``requests``, ``tokens``, ``content-bytes``, ``concurrent-requests`` or other words."""
    quota: Optional[int] = None
    """How much a window holds."""
    window_ms: Optional[int] = None
    """The window's length in milliseconds."""
    remaining: Optional[int] = None
    """How much is left."""
    reset_ms: Optional[int] = None
    """Milliseconds until there is more."""

    @property
    def is_paced(self) -> bool:
        """True if a request costs one of what the limit counts."""
        return self.unit == "requests"


@dataclass(frozen=True)
class RateLimitInfo:
    """What an answer tells of rate limits."""

    denied: bool
    """True if the answer refuses the request because of a limit or of overload."""
    limits: Sequence[LimitInfo]
    """All limits that it tells of."""
    retry_after_ms: Optional[int]
    """Milliseconds that ``Retry-After`` asks to wait."""
    wait_ms: int
    """Milliseconds to wait before the next such request; 0 if it may be sent now, and never more than an hour."""


@dataclass
class _Limit:
    """A limit that is being read."""

    name: str = ""
    partition: Optional[str] = None
    unit: str = "requests"
    quota: Optional[int] = None
    window_ms: Optional[int] = None
    remaining: Optional[int] = None
    reset_ms: Optional[int] = None

    def tell(self, remaining: Optional[float], reset_ms: Optional[int]) -> None:
        """Adds to what is known; of two tellings the more careful one stays."""
        left = None if remaining is None else max(0, math.floor(remaining))
        self.remaining = _smaller(self.remaining, left)
        self.reset_ms = _larger(self.reset_ms, reset_ms)


def read_rate_limit_info(
    status: int, headers: Iterable[tuple[str, str]], now_ms: Optional[float] = None
) -> RateLimitInfo:
    """Reads an answer's status and headers; ``now_ms`` is the client's clock in milliseconds since 1970."""
    fields: dict[str, str] = {}
    for name, value in headers:
        key, value = name.lower(), value.strip()
        fields[key] = f"{fields[key]}, {value}" if key in fields else value
    clock = date(fields.get("date", ""))
    if clock is None:
        clock = math.floor(time.time() * 1000 if now_ms is None else now_ms)
    is_cached = (number(fields.get("age", "")) or 0) > 0
    limits = [] if is_cached else _merged(_draft(fields), _legacy(fields, clock))
    retry_after_ms = _retry_after(fields.get("retry-after"), clock)
    is_empty = any(limit.remaining == 0 for limit in limits)
    denied = (
        status == 429
        or (status == 403 and (retry_after_ms is not None or is_empty))
        or (status == 503 and retry_after_ms is not None)
    )
    return RateLimitInfo(denied, limits, retry_after_ms, _wait(denied, limits, retry_after_ms))


def _wait(denied: bool, limits: Sequence[LimitInfo], retry_after_ms: Optional[int]) -> int:
    empty = [limit for limit in limits if limit.remaining == 0 and limit.is_paced]
    resets = [WAIT_UNTOLD_MS if limit.reset_ms is None else limit.reset_ms for limit in empty]
    wait = max(0, *resets) if resets else 0
    if denied:
        wait = (wait or WAIT_UNTOLD_MS) if retry_after_ms is None else retry_after_ms
    return min(wait, WAIT_MAX_MS)


def _retry_after(text: Optional[str], clock: int) -> Optional[int]:
    """The largest of the waits it asks for: it may be told twice."""
    if text is None:
        return None
    whole = date(text)
    if whole is not None:
        return max(0, whole - clock)
    waits = [number(part.strip()) for part in text.split(",")]
    told = [math.ceil(wait * 1000) for wait in waits if wait is not None and wait >= 0]
    return max(told, default=None)


def _draft(fields: Mapping[str, str]) -> list[_Limit]:
    """``RateLimit-Policy`` and ``RateLimit`` of the IETF draft, its older forms included."""
    limits: list[_Limit] = []

    def find(name: str, partition: Optional[str]) -> _Limit:
        for limit in limits:
            if (limit.name, limit.partition) == (name, partition):
                return limit
        limits.append(_Limit(name, partition))
        return limits[-1]

    for member in _members(fields.get("ratelimit-policy")):
        params, value = member.params, member.value
        # Older drafts write the quota where the name stands now.
        quota = _natural(params.get("q", None if isinstance(value, str) else value))
        if quota is None:
            continue
        limit = find(_name(member), _partition(params))
        limit.quota = _smaller(limit.quota, quota)
        window = _natural(params.get("w"))
        if window:
            limit.window_ms = _larger(limit.window_ms, window * 1000)
        unit = params.get("qu")
        if isinstance(unit, str):
            limit.unit = "requests" if unit == "request" else unit
    told = _members(fields.get("ratelimit"))
    parts = {member.key: member.value for member in reversed(told) if member.key is not None}
    if parts:
        limit = limits[0] if len(limits) == 1 else find("", None)
        limit.tell(_counted(parts.get("remaining")), _seconds(parts.get("reset")))
        limit.quota = _smaller(limit.quota, _natural(parts.get("limit")))
        return limits
    for member in told:
        remaining = _counted(member.params.get("r"))
        if remaining is not None and isinstance(member.value, str):
            find(_name(member), _partition(member.params)).tell(remaining, _seconds(member.params.get("t")))
    return limits


def _members(text: Optional[str]) -> list[Member]:
    return (parse_list(text) if text else None) or []


def _name(member: Member) -> str:
    return member.value if isinstance(member.value, str) else ""


def _partition(params: Mapping[str, Bare]) -> Optional[str]:
    partition = params.get("pk")
    return partition if isinstance(partition, str) else None


_LEGACY = re.compile(r"(?:x-)?rate-?limit-(limit|remaining|reset|used|resource)(?:-(.+))?")
_WINDOWS = {
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "month": 2_592_000_000,
    "year": 31_536_000_000,
}


def _legacy(fields: Mapping[str, str], clock: int) -> list[_Limit]:
    """The families of ``X-RateLimit-Limit``, ``-Remaining`` and ``-Reset``."""
    limits: dict[str, _Limit] = {}
    others: list[_Limit] = []
    for name, text in fields.items():
        found = _LEGACY.fullmatch(name)
        if not found or found[1] == "used":
            continue
        kind, suffix = found[1], found[2] or ""
        limit = limits.setdefault(suffix, _suffixed(suffix))
        parts = [number(part.split(";")[0].strip()) for part in text.split(",")]
        if kind == "resource":
            limit.name = text
        elif kind == "remaining":
            limit.tell(min((part for part in parts if part is not None), default=None), None)
        elif kind == "reset":
            resets = [_reset(part.strip(), clock) for part in text.split(",")]
            limit.tell(None, max((reset for reset in resets if reset is not None), default=None))
        else:
            quota = next((part for part in parts if part is not None and part >= 0), None)
            limit.quota = _smaller(limit.quota, None if quota is None else math.floor(quota))
            _describe(limit, _members(text) if ";" in text else [], others)
    found_limits = [*limits.values(), *others]
    return [one for one in found_limits if (one.quota, one.remaining, one.reset_ms) != (None, None, None)]


def _suffixed(suffix: str) -> _Limit:
    if suffix in _WINDOWS:
        return _Limit(window_ms=_WINDOWS[suffix])
    if suffix == "tokens":
        return _Limit(unit="tokens")
    return _Limit("" if suffix == "requests" else suffix)


def _describe(limit: _Limit, entries: Sequence[Member], others: list[_Limit]) -> None:
    """Gives ``limit`` the window that ``entries`` tell for its quota, and ``others`` a limit for each further one."""
    is_described = False
    for entry in entries:
        quota, window = _natural(entry.value), _natural(entry.params.get("w"))
        if quota is None or not window:
            continue
        one = limit
        if quota != limit.quota or is_described:
            one = _Limit(quota=quota)
            others.append(one)
        else:
            is_described = True
        name = entry.params.get("name")
        if isinstance(name, str):
            one.name = name
        one.window_ms = window * 1000


def _reset(text: str, clock: int) -> Optional[int]:
    """A wait in seconds, a duration, or a point in time: in seconds or milliseconds since 1970, or a date."""
    value = number(text)
    at: Optional[float] = date(text)
    if value is not None:
        if value < 1e9:
            return None if value < 0 else math.ceil(value * 1000)
        at = value if value >= 1e12 else value * 1000
    if at is None:
        wait = span(text)
        return None if wait is None else math.ceil(wait)
    # A time that is over tells nothing: two clocks disagree, or the answer is old.
    return None if at < clock else math.ceil(at - clock)


def _merged(limits: list[_Limit], older: Sequence[_Limit]) -> list[LimitInfo]:
    """The limits of the draft, and those of older families that are not the same ones in other words."""
    for one in older:
        same = next((limit for limit in limits if _is_same(limit, one)), None)
        if same is None:
            limits.append(one)
            continue
        same.quota = _smaller(same.quota, one.quota)
        same.window_ms = one.window_ms if same.window_ms is None else same.window_ms
        same.name = same.name or one.name
        same.tell(one.remaining, one.reset_ms)
    return [LimitInfo(**vars(limit)) for limit in limits]


def _is_same(limit: _Limit, one: _Limit) -> bool:
    if limit.unit != one.unit or (limit.name and one.name and limit.name != one.name):
        return False
    if None not in (limit.window_ms, one.window_ms) and limit.window_ms != one.window_ms:
        return False
    # Without what is left there is nothing to contradict.
    if limit.remaining is None and one.remaining is not None:
        return False
    return limit.quota is None or one.quota is None or limit.quota == one.quota


def _counted(value: Optional[Bare]) -> Optional[int]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        return None
    return int(value)


def _natural(value: Optional[Bare]) -> Optional[int]:
    count = _counted(value)
    return None if count is None or count < 0 else count


def _seconds(value: Optional[Bare]) -> Optional[int]:
    """A number of seconds, in milliseconds."""
    count = _natural(value)
    return None if count is None else count * 1000


def _smaller(a: Optional[int], b: Optional[int]) -> Optional[int]:
    return b if a is None else a if b is None else min(a, b)


def _larger(a: Optional[int], b: Optional[int]) -> Optional[int]:
    return b if a is None else a if b is None else max(a, b)
