"""What a Ratekeeper service is asked and answers, in JSON and in this language."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Sequence, Union, cast

Json = Mapping[str, Any]
# Lone surrogates become escapes, which a service takes: no text of a caller fails here. Infinite numbers do.
encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_U64 = range(2**64)


@dataclass(frozen=True)
class Descriptor:
    """Who asks for what."""

    entries: Union[Mapping[str, str], Sequence[tuple[str, str]]]
    """Keys and values in their order."""
    hits: Optional[int] = None
    """The cost: 1 if None, 0 only looks."""
    domain: Optional[str] = None
    """Another namespace of rules for this descriptor."""

    def pairs(self) -> list[tuple[str, str]]:
        entries = self.entries.items() if isinstance(self.entries, Mapping) else self.entries
        return list(entries)


@dataclass(frozen=True)
class Question:
    """A request to decide."""

    domain: str
    """The namespace of rules."""
    descriptors: Sequence[Descriptor]
    wait_ms_max: Optional[int] = None
    """The longest that the request can be held back, in milliseconds: any by default."""

    @classmethod
    def of(cls, domain: str, hits: Optional[int] = None, **entries: str) -> Question:
        """A question with one descriptor: ``Question.of("shop", tenant="abc")``."""
        return cls(domain, [Descriptor(entries, hits)])

    def costing(self, hits: int) -> Question:
        """The question, with this cost for each descriptor that has none."""
        costly = [replace(one, hits=hits if one.hits is None else one.hits) for one in self.descriptors]
        return replace(self, descriptors=costly)

    def json(self) -> dict[str, Any]:
        descriptors = [
            _given(
                entries=[{"key": key, "value": value} for key, value in one.pairs()], hits=one.hits, domain=one.domain
            )
            for one in self.descriptors
        ]
        return _given(domain=self.domain, descriptors=descriptors, wait_ms_max=self.wait_ms_max)


@dataclass(frozen=True)
class DecidedPolicy:
    """A policy that applies to a request."""

    name: str
    limit: int
    window_ms: Optional[float]


@dataclass(frozen=True)
class Decision:
    """A decision. What it says of a limit is of the most restrictive one, and None if none matches."""

    allowed: bool
    degraded: bool = False
    """True if a failure mode or the fallback answered."""
    rule: Optional[str] = None
    """The ID of the rule."""
    policy: Optional[str] = None
    """The name of its policy in headers."""
    limit: Optional[int] = None
    remaining: Optional[int] = None
    reset_after_ms: Optional[float] = None
    """Milliseconds until there is more."""
    retry_after_ms: Optional[float] = None
    """On a denial: milliseconds until the same hits would pass; None if they never will."""
    delay_ms: float = 0
    """Milliseconds to hold the request back."""
    policies: Sequence[DecidedPolicy] = ()
    """All policies that apply."""
    debt: int = 0
    """Hits by which a post-paid bucket is below zero."""

    @classmethod
    def read(cls, json: Json) -> Decision:
        standing = mapping(json.get("standing"))
        binding = mapping(mapping(standing.get("binding")).get("policy"))
        policies = [mapping(policy) for policy in sequence(standing.get("policies"))]
        return cls(
            allowed=json.get("decision") == "allow",
            degraded=json.get("degraded") is True,
            rule=text(json.get("rule")),
            policy=text(binding.get("name")),
            limit=count(json.get("limit")),
            remaining=count(json.get("remaining")),
            debt=count(json.get("debt")) or 0,
            reset_after_ms=count(json.get("reset_after_ms")),
            retry_after_ms=count(json.get("retry_after_ms")),
            delay_ms=count(json.get("delay_ms")) or 0,
            policies=[_policy(policy) for policy in policies],
        )

    def headers(self) -> list[tuple[str, str]]:
        """``RateLimit-Policy``, ``RateLimit`` and ``Retry-After``."""
        headers: list[tuple[str, str]] = []
        if self.policies:
            headers.append(("RateLimit-Policy", ", ".join(_told(policy) for policy in self.policies)))
        if self.policy is not None and self.remaining is not None:
            has_wait = not self.allowed and self.retry_after_ms is not None
            wait = (self.retry_after_ms if has_wait else self.reset_after_ms) or 0
            headers.append(("RateLimit", f"{_quoted(self.policy)};r={self.remaining};t={math.ceil(wait / 1000)}"))
        if not self.allowed and self.retry_after_ms is not None:
            headers.append(("Retry-After", str(max(1, math.ceil(self.retry_after_ms / 1000)))))
        return headers

    @property
    def is_by_limit(self) -> bool:
        """False for a denial without a limit: the service is away, and the fallback denies."""
        return not self.degraded or self.limit is not None

    def problem(self) -> dict[str, Any]:
        """The body of a denial: problem details (RFC 9457)."""
        wait = self.retry_after_ms
        when = "" if wait is None else f" Retry after {max(1, math.ceil(wait / 1000))} seconds."
        violated = {} if self.policy is None else {"violated-policies": [self.policy]}
        return {
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": f"Rate limit exceeded.{when}",
            "code": "RATE_LIMITED",
            **violated,
        }


@dataclass(frozen=True)
class LimitResult:
    """The answer to an identifier."""

    success: bool
    """True if the request may pass."""
    limit: int
    remaining: int
    reset: int
    """When there is more: milliseconds since 1970."""
    retry_after_ms: Optional[float] = None
    """On a denial: milliseconds until the same hits would pass; None if they never will."""
    degraded: bool = False
    """True if a failure mode or the fallback answered."""

    @classmethod
    def read(cls, json: Json) -> LimitResult:
        return cls(
            success=json.get("success") is True,
            limit=count(json.get("limit")) or 0,
            remaining=count(json.get("remaining")) or 0,
            reset=count(json.get("reset")) or 0,
            retry_after_ms=count(json.get("retry_after_ms")),
            degraded=json.get("degraded") is True,
        )

    @classmethod
    def decided(cls, decision: Decision) -> LimitResult:
        """What the fallback decided."""
        return cls(
            success=decision.allowed,
            limit=decision.limit or 0,
            remaining=decision.remaining or 0,
            reset=math.ceil(time.time() * 1000 + (decision.reset_after_ms or 0)),
            retry_after_ms=decision.retry_after_ms,
            degraded=decision.degraded,
        )


class ServiceError(Exception):
    """A call failed."""

    def __init__(self, code: str, message: str, status: Optional[int] = None, field: Optional[str] = None) -> None:
        super().__init__(message)
        self.code = code
        """The service's word, such as ``INVALID_ARGUMENT`` or ``NOT_HELD``; ``AWAY`` if no service answered, and one
        such as ``HTTP_403`` if something between did."""
        self.status = status
        self.field = field
        """The part of the request that is at fault."""

    @property
    def has_word(self) -> bool:
        """False if the service cannot have said it: a page of something between has no code."""
        return not self.code.startswith("HTTP_")

    @property
    def is_of_content(self) -> bool:
        """True if the request cannot be decided because of what is in it, or its size."""
        return self.code in ("INVALID_ARGUMENT", "TOO_LARGE")

    @classmethod
    def read(cls, status: int, body: object) -> ServiceError:
        """An error's body: problem details with a ``code``, or ``{"error": {…}}``."""
        problem = mapping(body)
        older = mapping(problem.get("error"))
        code = text(problem.get("code")) or text(older.get("code")) or f"HTTP_{status}"
        said = text(problem.get("detail")) or text(older.get("message")) or text(problem.get("title"))
        field = text(problem.get("field")) or text(older.get("field"))
        return cls(code, said or f"the service answered {status}", status, field)


def can_go_together(body: Json) -> bool:
    """False for a check of which it is certain that the service refuses it, and with it what goes along."""
    descriptors = [mapping(one) for one in sequence(body.get("descriptors"))]
    keys = [mapping(pair).get("key") for one in descriptors for pair in sequence(one.get("entries"))]
    values = [mapping(pair).get("value") for one in descriptors for pair in sequence(one.get("entries"))]
    names = ("wait_ms_max", "limit", "duration", "burst", "cost")
    numbers = [body.get(name) for name in names] + [one.get("hits") for one in descriptors]
    return (
        all(isinstance(key, str) and key for key in keys)
        and all(isinstance(value, str) for value in values)
        and all(number is None or (type(number) is int and number in _U64) for number in numbers)
        and body.get("domain") != ""
        and body.get("descriptors") != []
    )


def mapping(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[object]:
    return cast(Sequence[object], value) if isinstance(value, list) else []


def text(value: object) -> Optional[str]:
    return value if isinstance(value, str) and value else None


def count(value: object) -> Optional[int]:
    return value if isinstance(value, int) and value >= 0 else None


def _policy(policy: Json) -> DecidedPolicy:
    window_us = count(policy.get("window_us"))
    window_ms = None if window_us is None else window_us / 1000
    return DecidedPolicy(text(policy.get("name")) or "", count(policy.get("limit")) or 0, window_ms)


def _told(policy: DecidedPolicy) -> str:
    seconds = (policy.window_ms or 0) / 1000
    window = f";w={int(seconds)}" if seconds > 0 and seconds == int(seconds) else ""
    return f"{_quoted(policy.name)};q={policy.limit}{window}"


def _quoted(name: str) -> str:
    """A string of RFC 9651; characters that it cannot hold are percent-encoded."""
    held = "".join(
        char if " " <= char <= "~" else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "replace"))
        for char in name
    )
    return '"' + held.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _given(**parts: Any) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part is not None}
