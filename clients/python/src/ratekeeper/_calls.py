"""What both clients of a service do without waiting: the steps of its calls."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from dataclasses import dataclass
from typing import Callable, Generator, Optional, Sequence, TypeVar, Union

import httpx

from ._answers import Decision, Json, LimitResult, Question, ServiceError, can_go_together, count, mapping, sequence, text
from ._endpoints import MISSES_MAX, Away, Body, Endpoint, Post, checked, is_undecided
from ._fallback import Fallback
from ._unanswered import Lost, Unanswered

# Calls that give back, or hold, what earlier ones were granted: they go before all that wait for a place.
_FIRST = ("release", "renew", "commit", "cancel")
# The seconds for which a call waits for its place, if that is longer than its own time.
_PATIENCE = 1.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Reserved:
    """A decision, and the reservation: None if denied, or decided by the fallback."""

    decision: Decision
    reservation: Optional[str]


@dataclass(frozen=True)
class Place:
    """A place among the calls under way, for which a call waits."""

    patience: float
    goes_first: bool


@dataclass(frozen=True)
class Join:
    """A check that may go together with others, instead of waiting for a place of its own."""

    path: str
    body: Json
    patience: float


# What a call does, apart from waiting: it yields a place; a post, and is sent the answer; or seconds that are to pass.
Steps = Generator[Union[Place, Join, Post, float], Json, _T]


class Calls:
    """What both clients do without waiting."""

    def __init__(
        self, endpoints: Union[str, Sequence[str]], timeout: float, fallback: Fallback, concurrency: int
    ) -> None:
        urls = [endpoints] if isinstance(endpoints, str) else endpoints
        if not urls:
            raise ValueError("endpoints: there is no service to ask")
        if concurrency < 1:
            raise ValueError("concurrency: has to be at least 1")
        self._endpoints = [Endpoint(checked(url).rstrip("/")) for url in urls]
        self._timeout = timeout
        self._fallback = fallback
        self._concurrency = concurrency
        # Places bound the calls under way. One that waited for a connection would be taken for sent.
        self._limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency * len(self._endpoints))
        self._unanswered = Unanswered()

    def _call(self, path: str, body: Json, is_harmless: bool) -> Steps[Json]:
        return (yield from self._placed(path, lambda deadline: self._call_in_turn(path, body, is_harmless, deadline)))

    def _placed(self, path: str, call: Callable[[float], Steps[_T]]) -> Steps[_T]:
        """Waits for a place among the calls under way, and calls within the time that a call may take from then on."""
        yield Place(self._patience(), path in _FIRST)
        try:
            return (yield from call(time.monotonic() + self._timeout))
        finally:
            self._leave()

    def _patience(self) -> float:
        """The seconds for which a call waits for its place: no longer than for a service while none answers."""
        is_away = all(endpoint.misses >= MISSES_MAX for endpoint in self._endpoints)
        return self._timeout if is_away else max(self._timeout, _PATIENCE)

    def _leave(self) -> None:
        """Gives the place of a call back."""
        raise NotImplementedError

    def _is_busy(self) -> bool:
        """True if a call would wait for a place, and others that do can go with it."""
        return False

    def _check_or_join(self, path: str, body: Json) -> Steps[Json]:
        """A check of its own, or as one of many if there is no place."""
        if self._is_busy() and can_go_together(body):
            answer = yield Join(path, body, self._patience())
            if answer:
                return answer
        return (yield from self._call(path, body, False))

    def _call_in_turn(self, path: str, body: Body, is_harmless: bool, deadline: float) -> Steps[Json]:
        """Calls one service after another until one answers."""
        now = time.monotonic()
        in_turn = sorted(self._endpoints, key=lambda endpoint: endpoint.down_until > now)
        page: Optional[Away] = None
        for endpoint in in_turn:
            try:
                return (yield Post(endpoint, path, body, deadline))
            except Away as away:
                page = away if page is None and away.is_page else page
                may_go_on = away.may_go_on(is_harmless) and time.monotonic() < deadline
                if not may_go_on or endpoint is in_turn[-1]:
                    # The page tells its caller more, and this one may have done it.
                    told = page or away
                    told.was_not_done = told.was_not_done and away.was_not_done
                    raise told
        raise AssertionError("there is an endpoint")

    def _limit(self, identifier: str, rule: Optional[str], domain: Optional[str], more: Json) -> Steps[LimitResult]:
        body = {"identifier": identifier, "rule": rule, "domain": domain, **more}
        try:
            given = {name: part for name, part in body.items() if part is not None}
            return LimitResult.read((yield from self._check_or_join("limit", given)))
        except Away as away:
            question = Question.of(rule or domain or "default", more.get("cost"), identifier=identifier)
            return LimitResult.decided(self._instead(away, question))

    def _instead(self, away: Away, question: Question) -> Decision:
        """What the fallback decides. Callers can provoke a page with what is in a question, and would pass unlimited."""
        if away.is_page:
            raise away
        return self._fallback(question)

    def _check(self, question: Question, key: Optional[str]) -> Steps[Decision]:
        if key:
            # The fallback counts nothing that a repetition would find: the caller asks again with the same key.
            return Decision.read((yield from self._call("check", {**question.json(), "idempotency_key": key}, True)))
        try:
            answer = yield from self._check_or_join("check", {**question.json(), "standing": True})
        except Away as away:
            return self._instead(away, question)
        return self._fallback(question) if is_undecided(answer) else Decision.read(answer)

    def _check_batch(self, questions: Sequence[Question]) -> Steps[list[Decision]]:
        if not questions:
            return []
        try:
            checks = [question.json() for question in questions]
            answer = yield from self._call("checks", {"checks": checks}, False)
            results = [mapping(one) for one in sequence(answer.get("results"))]
            return [
                self._fallback(question) if is_undecided(one) else Decision.read(one)
                for one, question in zip(results, questions)
            ]
        except Away as away:
            return [self._instead(away, question) for question in questions]

    def _peek(self, question: Question) -> Steps[Decision]:
        return Decision.read((yield from self._call("peek", question.json(), True)))

    def _once(self, path: str, body: Json) -> Steps[Json]:
        """Calls with a key of its own: what is granted in an answer that does not come is found by it, and given back."""
        lost = Lost(path, {**body, "idempotency_key": str(uuid.uuid4())})

        def call(deadline: float) -> Steps[Json]:
            try:
                return (yield from self._call_with_key(lost, deadline))
            except (Away, asyncio.CancelledError) as error:
                if not (isinstance(error, Away) and error.was_not_done):
                    self._look_for(lost)
                raise

        return (yield from self._placed(path, call))

    def _call_with_key(self, call: Lost, deadline: float) -> Steps[Json]:
        try:
            return (yield from self._call_in_turn(call.path, call.body, False, deadline))
        except Away as away:
            if away.reason != "RESOURCE_EXHAUSTED":
                raise
            # What it grants matters more than a key.
            keyless = {name: part for name, part in call.body.items() if name != "idempotency_key"}
            return (yield from self._call_in_turn(call.path, keyless, False, deadline))

    def _look_for(self, lost: Lost) -> None:
        """Begins to find out what a call without an answer was granted, and to give it back."""
        raise NotImplementedError

    def _release(self, permit: str) -> Steps[bool]:
        return (yield from self._call("release", {"permit": permit}, True)).get("was_held") is True

    def _renew(self, permit: str) -> Steps[float]:
        return expiry((yield from self._call("renew", {"permit": permit}, True)))

    def _reserve(self, question: Question, hits: int, ttl_ms: Optional[int], key: Optional[str]) -> Steps[Reserved]:
        more = {"hits": hits, "ttl_ms": ttl_ms}
        body = {**question.json(), **{name: part for name, part in more.items() if part is not None}}
        if key:
            # The caller asks again with the same key: the fallback knows no reservation that was made all the same.
            answer = yield from self._call("reserve", {**body, "idempotency_key": key}, True)
        else:
            try:
                answer = yield from self._once("reserve", body)
            except Away as away:
                return Reserved(self._instead(away, question.costing(hits)), None)
        return Reserved(Decision.read(answer), text(answer.get("reservation")))

    def _settle(self, path: str, body: Json) -> Steps[int]:
        return count((yield from self._call(path, body, True)).get("given_back")) or 0

    def _refund(self, question: Question, key: Optional[str]) -> Steps[None]:
        body = {name: part for name, part in question.json().items() if name != "wait_ms_max"}
        yield from self._call("refund", {**body, "idempotency_key": key} if key else body, bool(key))

    def _give_back(self) -> Steps[None]:
        """Finds out what was granted in answers that did not come, and gives it back, and repeats releases without one."""
        try:
            while (first := self._unanswered.first()) is not None:
                pause, lost = first
                yield pause
                yield from self._give_back_one(lost, lambda path, body: self._call(path, body, True))
        except BaseException:
            # Cancelled, or stopped with the client.
            self._unanswered.stopped()
            raise

    def _give_back_now(self, deadline: float) -> Steps[None]:
        """The same without a pause or a place, once before the client is closed, until a call has no answer."""
        has_answer = True
        while has_answer and time.monotonic() < deadline and (first := self._unanswered.first()) is not None:
            _, lost = first
            has_answer = yield from self._give_back_one(lost, lambda path, body: self._call_in_turn(path, body, True, deadline))

    def _give_back_one(self, lost: Lost, call: Callable[[str, Json], Steps[Json]]) -> Steps[bool]:
        """False without an answer."""
        try:
            answer = yield from call(lost.path, lost.body)
            if lost.path == "acquire" and (permit := text(answer.get("permit"))):
                yield from call("release", {"permit": permit})
            if lost.path == "reserve" and (reservation := text(answer.get("reservation"))):
                yield from call("cancel", {"reservation": reservation})
        except Away:
            self._unanswered.missed()
            return False
        except ServiceError:
            # Refused: there is nothing to give back.
            pass
        self._unanswered.done(lost)
        return True

    def _keep(self, permit: Held, expires_after: float) -> Steps[None]:
        """Renews a permit every third of its time. Without an answer it tries again sooner, so that several may be lost."""
        pause = expires_after / 3
        while expires_after > 0:
            yield pause
            try:
                expires_after = yield from self._renew(permit.token)
                permit.held_for(expires_after)
                pause = expires_after / 3
            except Away:
                # It may still be held.
                pause = expires_after / 12
            except ServiceError:
                permit.held_for(-math.inf)
                return


class Held:
    """A held place of a concurrency limit."""

    def __init__(self, token: str, expires_after: float) -> None:
        self.token = token
        """Identifies it to the service."""
        self._ends = time.monotonic() + expires_after if expires_after > 0 else math.inf

    @property
    def is_lost(self) -> bool:
        """True if it could not be renewed in time: another request may have its place."""
        return time.monotonic() >= self._ends

    def held_for(self, seconds: float) -> None:
        """Notes for how long it is held; infinite: it is released, and negative: it is lost, for good."""
        if math.isfinite(self._ends):
            self._ends = time.monotonic() + seconds

    def let_go(self) -> None:
        self.held_for(-math.inf if self.is_lost else math.inf)


def expiry(answer: Json) -> float:
    return (count(answer.get("expires_after_ms")) or 0) / 1000
