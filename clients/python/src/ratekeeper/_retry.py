"""Decides which requests are tried again, and when. The same for all libraries that send them."""

from __future__ import annotations

import math
import os
import random
import re
import time
from dataclasses import dataclass
from hashlib import blake2b
from typing import Callable, Collection, Mapping, Optional, Union
from urllib.parse import urlsplit

from ._gate import Gate
from ._info import WAIT_MAX_MS, RateLimitInfo
from ._pacer import Lane, Ticket

# Methods whose repetition changes nothing (RFC 9110, section 9.2.2).
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
# Answers of a server that may be better the next time.
_PASSING_FAULTS = frozenset({408, 502, 503, 504})
# Credentials by which servers tell who calls.
_CREDENTIALS = ("authorization", "x-api-key", "api-key")
# Marks of credentials are of this process alone.
_SALT = os.urandom(16)


@dataclass(frozen=True)
class Event:
    """What happened to a request; for metrics and logs."""

    type: str
    """``paced``: it waited for its turn. ``answered``. ``retry``: it is tried again after a wait. ``gave-up``: its
    denial or failure is handed to the caller though it could be tried again."""
    lane: Lane
    attempt: int = 0
    waited: float = 0.0
    """Seconds that it waited, or is going to."""
    status: Optional[int] = None
    """Of the answer, if there is one."""
    info: Optional[RateLimitInfo] = None


def default_lane(url: str, method: str, headers: Mapping[str, str]) -> Lane:
    """One budget for each origin and credential, and one route for each method and path, IDs left out.

    Events tell of lanes: a mark stands for each credential.
    """
    parts = urlsplit(url)
    lower = {name.lower(): value for name, value in headers.items()}
    marks = [_mark(lower.get(name, "")) for name in _CREDENTIALS]
    # A user and a password before the host are in a header too.
    host = parts.netloc.rpartition("@")[2].lower()
    path = "/".join(_template(segment) for segment in parts.path.split("/"))
    return Lane(repr([parts.scheme, host, *marks]), f"{method} {path}")


def _mark(credential: str) -> str:
    text = str(credential).encode(errors="replace")
    return blake2b(text, key=_SALT, digest_size=12).hexdigest() if text else ""


def _template(segment: str) -> str:
    """A path's segment, or ``*`` for a number, a UUID or a long string with digits."""
    is_id = re.fullmatch(r"[0-9]+|[0-9a-fA-F-]{16,}", segment) or (len(segment) >= 16 and re.search(r"[0-9]", segment))
    return "*" if is_id else segment


@dataclass(frozen=True)
class Options:
    """How requests are paced and tried again. All times are seconds."""

    gate: Union[Gate, bool] = True
    """What the threads and tasks of a process share; one of its own by default. False does not pace."""
    budget: float = 60.0
    """The time that a request may take until its answer begins, waits and retries included."""
    retries: int = 5
    """The most retries of a request."""
    retry_methods: Collection[str] = IDEMPOTENT
    """Methods that are retried: those that are idempotent, by default."""
    backoff: float = 0.2
    """The wait before the nth retry is a random part of this times 2^n,"""
    backoff_max: float = 20.0
    """and of at most this."""
    lane: Callable[[str, str, Mapping[str, str]], Lane] = default_lane
    """Names whose limits a request counts towards, from its URL, method and headers."""
    on_event: Optional[Callable[[Event], object]] = None
    """Is told what happens. What it raises ends the request, and reaches the caller."""
    random: Callable[[], float] = random.random
    """Numbers from 0 to 1."""

    def make_gate(self) -> Optional[Gate]:
        if isinstance(self.gate, Gate):
            return self.gate
        return Gate() if self.gate else None


class Attempts:
    """One request's attempts and waits."""

    def __init__(self, options: Options, gate: Optional[Gate], url: str, method: str, headers: Mapping[str, str]) -> None:
        self.lane = options.lane(url, method.upper(), headers)
        self.deadline = time.monotonic() + options.budget
        self._options = options
        self._gate = gate
        self._is_method_retried = method.upper() in options.retry_methods
        self._attempt = 0

    def left(self) -> float:
        """Seconds that are left of the budget; a moment at least, so that they can be a timeout."""
        return max(0.001, self.deadline - time.monotonic())

    def end(self) -> None:
        """The answer has begun: the budget does not bound the rest of it."""
        self.deadline = math.inf

    def paced(self, begun: float, ticket: Optional[Ticket]) -> None:
        """The request had its turn; it needs no ticket without a gate."""
        waited = ticket.sent_at / 1000 - begun if ticket else 0.0
        if waited >= 0.001:
            self._tell(Event("paced", self.lane, self._attempt, waited))

    def answered(self, ticket: Optional[Ticket], info: RateLimitInfo, status: int) -> None:
        if ticket and self._gate:
            self._gate.answered(ticket, info)
        self._tell(Event("answered", self.lane, self._attempt, status=status, info=info))

    def lost(self, ticket: Optional[Ticket]) -> None:
        if ticket and self._gate:
            self._gate.lost(ticket)

    def again(self, is_repeatable: bool, status: Optional[int], info: Optional[RateLimitInfo]) -> Optional[float]:
        """The seconds to wait before the next attempt; None if there is none. Without a status there was no answer."""
        denied = info is not None and info.denied
        if status is not None and not denied and status not in _PASSING_FAULTS:
            return None
        options = self._options
        if not is_repeatable or not self._is_method_retried or self._attempt >= options.retries:
            return None
        told = _told_ms(info) / 1000 if info else 0.0
        jitter = options.random() * min(options.backoff_max, options.backoff * 2.0**self._attempt)
        # Never earlier than told. The gate itself spreads those that it holds back.
        wait = told if denied and self._gate else told + jitter
        if time.monotonic() + wait >= self.deadline:
            self._tell(Event("gave-up", self.lane, self._attempt, status=status, info=info))
            return None
        self._attempt += 1
        self._tell(Event("retry", self.lane, self._attempt, wait, status, info))
        return 0.0 if denied and self._gate else wait

    def _tell(self, event: Event) -> None:
        if self._options.on_event:
            self._options.on_event(event)


def _told_ms(info: RateLimitInfo) -> int:
    """The wait that an answer asks for: of a fault that is no denial, too."""
    return info.wait_ms if info.denied else max(info.wait_ms, min(info.retry_after_ms or 0, WAIT_MAX_MS))
