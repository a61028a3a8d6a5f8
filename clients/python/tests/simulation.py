"""A server and its clients in virtual time: no clock, no network, and the same result each time."""

from __future__ import annotations

import heapq
import math
import random
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Optional, Protocol, Sequence

from ratekeeper._info import read_rate_limit_info
from ratekeeper._pacer import Lane, Pacer, Ticket


class Limiter(Protocol):
    """Decides one hit, and tells what is left and the milliseconds until there is more."""

    @property
    def policy(self) -> str: ...
    def look(self, now: float) -> tuple[int, float]: ...
    def charge(self, now: float) -> None: ...


class FixedWindow:
    def __init__(self, name: str, limit: Callable[[], int], window_ms: int) -> None:
        self.name, self.limit, self.window_ms = name, limit, window_ms
        self.window, self.count = -1, 0

    @property
    def policy(self) -> str:
        return f'"{self.name}";q={self.limit()};w={self.window_ms // 1000}'

    def look(self, now: float) -> tuple[int, float]:
        window = math.floor(now / self.window_ms)
        if window != self.window:
            self.window, self.count = window, 0
        more = (window + 1) * self.window_ms - now if self.count else 0.0
        return max(0, self.limit() - self.count), more

    def charge(self, now: float) -> None:
        self.look(now)
        self.count += 1


class SlidingLog:
    def __init__(self, name: str, limit: int, window_ms: int) -> None:
        self.limit, self.window_ms = limit, window_ms
        self.policy = f'"{name}";q={limit};w={window_ms // 1000}'
        self.hits: deque[float] = deque()

    def look(self, now: float) -> tuple[int, float]:
        while self.hits and self.hits[0] + self.window_ms <= now:
            self.hits.popleft()
        return self.limit - len(self.hits), self.hits[0] + self.window_ms - now if self.hits else 0.0

    def charge(self, now: float) -> None:
        self.hits.append(now)


class TokenBucket:
    """Also a GCRA, which admits the same."""

    def __init__(self, name: str, limit: int, window_ms: int, burst: Optional[int] = None) -> None:
        self.burst = burst or limit
        self.policy = f'"{name}";q={max(limit, self.burst)};w={window_ms // 1000}'
        self.per_hit = window_ms / limit
        self.tokens, self.at = float(self.burst), 0.0

    def look(self, now: float) -> tuple[int, float]:
        self.tokens, self.at = min(self.burst, self.tokens + (now - self.at) / self.per_hit), now
        whole = math.floor(self.tokens + 1e-9)
        return whole, 0.0 if self.tokens >= self.burst else (whole + 1 - self.tokens) * self.per_hit

    def charge(self, now: float) -> None:
        self.look(now)
        self.tokens -= 1


@dataclass
class Result:
    passed: int = 0
    denied: int = 0
    ended_at: float = 0.0


@dataclass
class Client:
    pacer: Pacer
    idle: int
    timer: int = 0


@dataclass
class Simulation:
    limiters: Sequence[Limiter]
    latency_ms: float
    clients: Sequence[int]
    for_ms: float = 20_000.0
    start_ms: float = 400.0
    requests: float = math.inf
    seed: int = 1
    at: Sequence[tuple[float, Callable[[], None]]] = ()
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    result: Result = field(default_factory=Result)

    def run(self) -> Result:
        """Runs clients that send as fast as their pacers let them."""
        self.random = random.Random(self.seed)
        self.now, self.order, self.begun = self.start_ms, 0, 0
        for time, run in self.at:
            self.later(time, run)
        for workers in self.clients:
            client = Client(Pacer(1000, 1000, self.random.random), workers)
            self.later(self.random.random(), lambda client=client: self.step(client))  # type: ignore[misc]
        while self.events:
            at, _, run = heapq.heappop(self.events)
            if at > self.start_ms + self.for_ms:
                break
            self.now = at
            run()
        return self.result

    def later(self, ms: float, run: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (self.now + ms, self.order, run))

    def one_way(self) -> float:
        return self.latency_ms * (0.75 + 0.5 * self.random.random())

    def step(self, client: Client) -> None:
        while client.idle > 0 and self.begun < self.requests:
            taken = client.pacer.take(Lane("b", "r"), self.now)
            if not isinstance(taken, Ticket):
                client.timer += 1
                if taken.wait_ms < math.inf:
                    self.later(max(taken.wait_ms, 0.001), lambda mine=client.timer: self.tick(client, mine))  # type: ignore[misc]
                return
            client.idle -= 1
            self.begun += 1
            self.later(self.one_way(), lambda ticket=taken: self.serve(client, ticket))  # type: ignore[misc]

    def tick(self, client: Client, timer: int) -> None:
        if timer == client.timer:
            self.step(client)

    def serve(self, client: Client, ticket: Ticket) -> None:
        allowed = all(limiter.look(self.now)[0] > 0 for limiter in self.limiters)
        if allowed:
            for limiter in self.limiters:
                limiter.charge(self.now)
        looks = [(*limiter.look(self.now), limiter) for limiter in self.limiters]
        remaining, more_ms, binding = min(looks, key=lambda look: (look[0], -look[1]))
        seconds = math.ceil(more_ms / 1000)
        name = re.match(r'"[^"]*"', binding.policy)
        headers = [
            ("ratelimit-policy", ", ".join(limiter.policy for limiter in self.limiters)),
            ("ratelimit", f"{name[0] if name else ''};r={remaining};t={seconds}"),
        ]
        if not allowed:
            headers.append(("retry-after", str(max(1, seconds))))
        self.later(self.one_way(), lambda: self.answer(client, ticket, allowed, headers))

    def answer(self, client: Client, ticket: Ticket, allowed: bool, headers: list[tuple[str, str]]) -> None:
        if allowed:
            self.result.passed += 1
        else:
            self.result.denied += 1
            self.begun -= 1
        self.result.ended_at = self.now
        client.pacer.answered(ticket, read_rate_limit_info(200 if allowed else 429, headers, self.now), self.now)
        client.idle += 1
        self.step(client)
