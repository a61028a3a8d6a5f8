"""The calls of a Ratekeeper service, over JSON: with a deadline, failover between services, and a fallback.

Needs httpx. ``Ratekeeper`` is for threads, ``AsyncRatekeeper`` for asyncio.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
import uuid
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, AsyncGenerator, Callable, Coroutine, Generator, Generic, Mapping, Optional, Sequence, TypeVar, Union, cast

import httpx

from ._answers import (
    DecidedPolicy,
    Decision,
    Descriptor,
    Json,
    LimitResult,
    Question,
    ServiceError,
    can_go_together,
    count,
    encoded,
    mapping,
    sequence,
    text,
)
from ._fallback import Fallback, LocalLimit, LocalLimits, allow_all, deny_all
from ._fork import in_child
from ._keeper import Keeper
from ._places import Places, ThreadPlaces, Together
from ._timeouts import extensions
from ._unanswered import Lost, Unanswered

__all__ = [
    "Acquired",
    "AsyncPermit",
    "AsyncRatekeeper",
    "DecidedPolicy",
    "Decision",
    "Descriptor",
    "LimitResult",
    "LocalLimit",
    "LocalLimits",
    "Permit",
    "Question",
    "Ratekeeper",
    "Reserved",
    "ServiceError",
    "allow_all",
    "deny_all",
]

# The time for which a service that did not answer is asked last, in seconds.
_DOWN = 1.0
# Calls without an answer in a row, after which it is.
_MISSES_MAX = 3
# The codes by which a service says that it did not carry out a call.
_NOT_DONE = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
# The rules of a domain were refused. The service is well, and decides other domains.
_NO_RULES = "NO_RULES"
# Calls that give back, or hold, what earlier ones were granted: they go before all that wait for a place.
_FIRST = ("release", "renew", "commit", "cancel")
_P = TypeVar("_P")
_IS_JSON = {"content-type": "application/json"}
# What a call sends; of many that go together, the JSON of each.
_Body = Union[Json, list[str]]


@dataclass(frozen=True)
class Acquired(Generic[_P]):
    """A decision, and the permit: None if denied, without a concurrency limit, or decided by the fallback."""

    decision: Decision
    permit: Optional[_P]


@dataclass(frozen=True)
class Reserved:
    """A decision, and the reservation: None if denied, or decided by the fallback."""

    decision: Decision
    reservation: Optional[str]


@dataclass
class _Endpoint:
    url: str
    misses: int = 0
    down_until: float = 0.0


@dataclass(frozen=True)
class _Post:
    """A call of one service."""

    endpoint: _Endpoint
    path: str
    body: _Body
    deadline: float

    @property
    def content(self) -> str:
        return f'{{"{self.path}":[{",".join(self.body)}]}}' if isinstance(self.body, list) else encoded(self.body)

    @property
    def url(self) -> str:
        return f"{self.endpoint.url}/v1/{self.path}"

    def left(self) -> float:
        """Seconds; a moment at least, so that they can be a timeout."""
        return max(0.001, self.deadline - time.monotonic())

    def away(self, error: httpx.RequestError) -> _Away:
        """The call failed on its way; without a connection it was not carried out."""
        return _Away(self.endpoint, repr(error), isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)))

    def late(self) -> _Away:
        return _Away(self.endpoint, "the time is up")


_T = TypeVar("_T")
# The longest that closing a client waits for the releases of permits, and for what has no answer, in seconds.
_RELEASED_IN = 1.0
# The turns in which a loop that was held up reads what has come meanwhile, once the time is up, and seconds for them.
_TURNS = 10
_READ_ON = 0.05
# The seconds for which a call waits for its place, if that is longer than its own time.
_PATIENCE = 1.0


@dataclass(frozen=True)
class _Place:
    """A place among the calls under way, for which a call waits."""

    patience: float
    goes_first: bool


@dataclass(frozen=True)
class _Join:
    """A check that may go together with others, instead of waiting for a place of its own."""

    path: str
    body: Json
    patience: float


# What a call does, apart from waiting: it yields a place; a post, and is sent the answer; or seconds that are to pass.
_Steps = Generator[Union[_Place, _Join, _Post, float], Json, _T]


class _Calls:
    """What both clients do without waiting."""

    def __init__(
        self, endpoints: Union[str, Sequence[str]], timeout: float, fallback: Fallback, concurrency: int
    ) -> None:
        urls = [endpoints] if isinstance(endpoints, str) else endpoints
        if not urls:
            raise ValueError("endpoints: there is no service to ask")
        if concurrency < 1:
            raise ValueError("concurrency: has to be at least 1")
        self._endpoints = [_Endpoint(_checked(url).rstrip("/")) for url in urls]
        self._timeout = timeout
        self._fallback = fallback
        self._concurrency = concurrency
        # Places bound the calls under way. One that waited for a connection would be taken for sent.
        self._limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency * len(self._endpoints))
        self._unanswered = Unanswered()

    def _call(self, path: str, body: Json, is_harmless: bool) -> _Steps[Json]:
        return (yield from self._placed(path, lambda deadline: self._call_in_turn(path, body, is_harmless, deadline)))

    def _placed(self, path: str, call: Callable[[float], _Steps[_T]]) -> _Steps[_T]:
        """Waits for a place among the calls under way, and calls within the time that a call may take from then on."""
        yield _Place(self._patience(), path in _FIRST)
        try:
            return (yield from call(time.monotonic() + self._timeout))
        finally:
            self._leave()

    def _patience(self) -> float:
        """The seconds for which a call waits for its place: no longer than for a service while none answers."""
        is_away = all(endpoint.misses >= _MISSES_MAX for endpoint in self._endpoints)
        return self._timeout if is_away else max(self._timeout, _PATIENCE)

    def _leave(self) -> None:
        """Gives the place of a call back."""
        raise NotImplementedError

    def _is_busy(self) -> bool:
        """True if a call would wait for a place, and others that do can go with it."""
        return False

    def _check_or_join(self, path: str, body: Json) -> _Steps[Json]:
        """A check of its own, or as one of many if there is no place."""
        if self._is_busy() and can_go_together(body):
            answer = yield _Join(path, body, self._patience())
            if answer:
                return answer
        return (yield from self._call(path, body, False))

    def _call_in_turn(self, path: str, body: _Body, is_harmless: bool, deadline: float) -> _Steps[Json]:
        """Calls one service after another until one answers."""
        now = time.monotonic()
        in_turn = sorted(self._endpoints, key=lambda endpoint: endpoint.down_until > now)
        page: Optional[_Away] = None
        for endpoint in in_turn:
            try:
                return (yield _Post(endpoint, path, body, deadline))
            except _Away as away:
                page = away if page is None and away.is_page else page
                may_go_on = away.may_go_on(is_harmless) and time.monotonic() < deadline
                if not may_go_on or endpoint is in_turn[-1]:
                    # The page tells its caller more, and this one may have done it.
                    told = page or away
                    told.was_not_done = told.was_not_done and away.was_not_done
                    raise told
        raise AssertionError("there is an endpoint")

    def _limit(self, identifier: str, rule: Optional[str], domain: Optional[str], more: Json) -> _Steps[LimitResult]:
        body = {"identifier": identifier, "rule": rule, "domain": domain, **more}
        try:
            given = {name: part for name, part in body.items() if part is not None}
            return LimitResult.read((yield from self._check_or_join("limit", given)))
        except _Away as away:
            question = Question.of(rule or domain or "default", more.get("cost"), identifier=identifier)
            return LimitResult.decided(self._instead(away, question))

    def _instead(self, away: _Away, question: Question) -> Decision:
        """What the fallback decides. Callers can provoke a page with what is in a question, and would pass unlimited."""
        if away.is_page:
            raise away
        return self._fallback(question)

    def _check(self, question: Question, key: Optional[str]) -> _Steps[Decision]:
        if key:
            # The fallback counts nothing that a repetition would find: the caller asks again with the same key.
            return Decision.read((yield from self._call("check", {**question.json(), "idempotency_key": key}, True)))
        try:
            answer = yield from self._check_or_join("check", {**question.json(), "standing": True})
        except _Away as away:
            return self._instead(away, question)
        return self._fallback(question) if _is_undecided(answer) else Decision.read(answer)

    def _check_batch(self, questions: Sequence[Question]) -> _Steps[list[Decision]]:
        if not questions:
            return []
        try:
            checks = [question.json() for question in questions]
            answer = yield from self._call("checks", {"checks": checks}, False)
            results = [mapping(one) for one in sequence(answer.get("results"))]
            return [
                self._fallback(question) if _is_undecided(one) else Decision.read(one)
                for one, question in zip(results, questions)
            ]
        except _Away as away:
            return [self._instead(away, question) for question in questions]

    def _peek(self, question: Question) -> _Steps[Decision]:
        return Decision.read((yield from self._call("peek", question.json(), True)))

    def _once(self, path: str, body: Json) -> _Steps[Json]:
        """Calls with a key of its own: what is granted in an answer that does not come is found by it, and given back."""
        lost = Lost(path, {**body, "idempotency_key": str(uuid.uuid4())})

        def call(deadline: float) -> _Steps[Json]:
            try:
                return (yield from self._call_with_key(lost, deadline))
            except (_Away, asyncio.CancelledError) as error:
                if not (isinstance(error, _Away) and error.was_not_done):
                    self._look_for(lost)
                raise

        return (yield from self._placed(path, call))

    def _call_with_key(self, call: Lost, deadline: float) -> _Steps[Json]:
        try:
            return (yield from self._call_in_turn(call.path, call.body, False, deadline))
        except _Away as away:
            if away.reason != "RESOURCE_EXHAUSTED":
                raise
            # What it grants matters more than a key.
            keyless = {name: part for name, part in call.body.items() if name != "idempotency_key"}
            return (yield from self._call_in_turn(call.path, keyless, False, deadline))

    def _look_for(self, lost: Lost) -> None:
        """Begins to find out what a call without an answer was granted, and to give it back."""
        raise NotImplementedError

    def _release(self, permit: str) -> _Steps[bool]:
        return (yield from self._call("release", {"permit": permit}, True)).get("was_held") is True

    def _renew(self, permit: str) -> _Steps[float]:
        return _expiry((yield from self._call("renew", {"permit": permit}, True)))

    def _reserve(self, question: Question, hits: int, ttl_ms: Optional[int], key: Optional[str]) -> _Steps[Reserved]:
        more = {"hits": hits, "ttl_ms": ttl_ms}
        body = {**question.json(), **{name: part for name, part in more.items() if part is not None}}
        if key:
            # The caller asks again with the same key: the fallback knows no reservation that was made all the same.
            answer = yield from self._call("reserve", {**body, "idempotency_key": key}, True)
        else:
            try:
                answer = yield from self._once("reserve", body)
            except _Away as away:
                return Reserved(self._instead(away, question.costing(hits)), None)
        return Reserved(Decision.read(answer), text(answer.get("reservation")))

    def _settle(self, path: str, body: Json) -> _Steps[int]:
        return count((yield from self._call(path, body, True)).get("given_back")) or 0

    def _refund(self, question: Question, key: Optional[str]) -> _Steps[None]:
        body = {name: part for name, part in question.json().items() if name != "wait_ms_max"}
        yield from self._call("refund", {**body, "idempotency_key": key} if key else body, bool(key))

    def _give_back(self) -> _Steps[None]:
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

    def _give_back_now(self, deadline: float) -> _Steps[None]:
        """The same without a pause or a place, once before the client is closed, until a call has no answer."""
        has_answer = True
        while has_answer and time.monotonic() < deadline and (first := self._unanswered.first()) is not None:
            _, lost = first
            has_answer = yield from self._give_back_one(lost, lambda path, body: self._call_in_turn(path, body, True, deadline))

    def _give_back_one(self, lost: Lost, call: Callable[[str, Json], _Steps[Json]]) -> _Steps[bool]:
        """False without an answer."""
        try:
            answer = yield from call(lost.path, lost.body)
            if lost.path == "acquire" and (permit := text(answer.get("permit"))):
                yield from call("release", {"permit": permit})
            if lost.path == "reserve" and (reservation := text(answer.get("reservation"))):
                yield from call("cancel", {"reservation": reservation})
        except _Away:
            self._unanswered.missed()
            return False
        except ServiceError:
            # Refused: there is nothing to give back.
            pass
        self._unanswered.done(lost)
        return True

    def _keep(self, permit: _Held, expires_after: float) -> _Steps[None]:
        """Renews a permit every third of its time. Without an answer it tries again sooner, so that several may be lost."""
        pause = expires_after / 3
        while expires_after > 0:
            yield pause
            try:
                expires_after = yield from self._renew(permit.token)
                permit.held_for(expires_after)
                pause = expires_after / 3
            except _Away:
                # It may still be held.
                pause = expires_after / 12
            except ServiceError:
                permit.held_for(-math.inf)
                return


class _Held:
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


class _Away(ServiceError):
    """A service gave no answer, or cannot, or something between gave a page instead."""

    def __init__(self, endpoint: _Endpoint, why: str, was_not_done: bool = False, status: Optional[int] = None) -> None:
        super().__init__("AWAY", f"the rate limit service at {endpoint.url} gave no answer: {why}", status)
        # The code of its refusal, if it gave one.
        self.reason = ""
        self.is_page = False
        # True if the call was not carried out: no connection, or the service or something between says so.
        self.was_not_done = was_not_done
        self._endpoint = endpoint
        endpoint.misses += 1

    def may_go_on(self, is_harmless: bool) -> bool:
        """Notes that the service is down if so; true if the next one may be asked."""
        if self.reason == _NO_RULES:
            return False
        if (self.was_not_done and not self.is_page) or self._endpoint.misses >= _MISSES_MAX:
            self._endpoint.down_until = time.monotonic() + _DOWN
        return is_harmless or self.was_not_done


class _Unsent(_Away):
    """No service was asked."""

    def __init__(self) -> None:
        ServiceError.__init__(self, "AWAY", "not sent: too many calls of this client are under way")
        self.reason = ""
        self.is_page = False
        self.was_not_done = True


def _page(endpoint: _Endpoint, status: int) -> _Away:
    """An answer that the service cannot have given."""
    page = _Away(endpoint, f"something between answered {status}", status >= 300, status)
    page.code = f"HTTP_{status}"
    page.is_page = True
    return page


def _is_undecided(answer: Json) -> bool:
    """True of a check of a batch in whose domain there are no rules, since they were refused."""
    return answer.get("degraded") is True and bool(answer.get("unreadable"))


def _is_answer(post: _Post, body: object) -> bool:
    """True if the service can have said that: what something between says is no denial."""
    answer = mapping(body)
    if post.path in ("checks", "limits"):
        results = sequence(answer.get("results"))
        is_whole = len(results) == len(post.body if isinstance(post.body, list) else post.body[post.path])
        return is_whole and all(_is_decision(post.path[:-1], mapping(one)) for one in results)
    if post.path in ("limit", "check", "peek", "acquire", "reserve"):
        return _is_decision(post.path, answer)
    return isinstance(body, dict)


def _is_decision(path: str, answer: Json) -> bool:
    return isinstance(answer.get("success"), bool) if path == "limit" else answer.get("decision") in ("allow", "deny")


def _read(post: _Post, status: int, answer: bytes) -> Json:
    endpoint = post.endpoint
    try:
        body = json.loads(answer)
    except ValueError:
        body = None
    if 200 <= status < 300:
        if not _is_answer(post, body):
            raise _page(endpoint, status)
        endpoint.misses = 0
        return mapping(cast(object, body))
    refusal = ServiceError.read(status, body)
    has_no_rules = refusal.code == _NO_RULES
    if status < 500 and not has_no_rules:
        if not refusal.has_word:
            raise _page(endpoint, status)
        endpoint.misses = 0
        raise refusal
    # A proxy's 503 may come after the charge: only the service's own words count.
    away = _Away(endpoint, str(refusal), has_no_rules or (status == 503 and refusal.code in _NOT_DONE), status)
    away.reason = refusal.code
    if has_no_rules:
        endpoint.misses = 0
    raise away from refusal


def _checked(url: str) -> str:
    try:
        parts = httpx.URL(url)
        is_one = parts.scheme in ("http", "https") and parts.host != ""
    except httpx.InvalidURL:
        is_one = False
    if not is_one:
        # The fallback would decide for ever.
        raise ValueError(f"endpoints: {url!r} is no URL of http or https, such as http://127.0.0.1:8080")
    return url


def _closed() -> ServiceError:
    return ServiceError("CLOSED", "this client is closed")


def _expiry(answer: Json) -> float:
    return (count(answer.get("expires_after_ms")) or 0) / 1000


def _headers(token: Optional[str]) -> dict[str, str]:
    """The token without the white space around it that files have."""
    token = (token or "").strip()
    if any(not "!" <= char <= "~" for char in token):
        # Without it: it is a secret. The fallback would decide for ever.
        raise ValueError("token: only visible ASCII characters can be sent")
    return {"authorization": f"Bearer {token}"} if token else {}


class Ratekeeper(_Calls):
    """A client of a Ratekeeper service. Threads may share it.

    ``AsyncRatekeeper`` bounds all of a call. Here, ``timeout`` does not bound the look-up of a host's name, and each of
    its addresses is tried for half of the time. If an answer comes in small parts, its head is read for as long as they
    come, and its body for up to twice the time.
    """

    def __init__(
        self,
        endpoints: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        timeout: float = 0.1,
        fallback: Fallback = allow_all,
        concurrency: int = 32,
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        """``endpoints``: URLs of the services; each is asked while those before it do not answer. ``token``: the bearer
        token that identifies this caller. ``timeout``: the seconds that a call may take, failover included.
        ``fallback``: decides checks, acquires and reserves while no service answers. ``concurrency``: the most calls under
        way at once, at least 1; further ones wait for up to a second, or for ``timeout`` if that is longer."""
        super().__init__(endpoints, timeout, fallback, concurrency)
        self._transport = transport
        self._places = ThreadPlaces(concurrency)
        self._client = httpx.Client(transport=transport, headers=_headers(token), limits=self._limits)
        self._is_closed = False
        self._keeper = Keeper(self._advance)
        # Ends the thread that gives back, between two calls.
        self._closing = threading.Event()
        self._giving_back: Optional[threading.Thread] = None
        self._released = threading.Condition()
        # Those under way.
        self._releases = 0
        in_child(self._begin)

    def _begin(self) -> None:
        """In a forked process: threads, locks, calls and connections are those of its parent."""
        self._keeper.begin()
        self._released = threading.Condition()
        self._releases = 0
        self._places = ThreadPlaces(self._concurrency)
        self._unanswered = Unanswered()
        self._closing = threading.Event()
        self._giving_back = None
        if self._transport is None and not self._is_closed:
            self._client = httpx.Client(headers=self._client.headers, limits=self._limits)

    def limit(
        self,
        identifier: str,
        limit: Optional[int] = None,
        duration_ms: Optional[int] = None,
        *,
        algorithm: Optional[str] = None,
        burst: Optional[int] = None,
        domain: Optional[str] = None,
        rule: Optional[str] = None,
        cost: Optional[int] = None,
    ) -> LimitResult:
        """Decides by an identifier, and a limit of the call's own or the ID of a rule."""
        more = {"limit": limit, "duration": duration_ms, "algorithm": algorithm, "burst": burst, "cost": cost}
        return self._run(self._limit(identifier, rule, domain, more))

    def check(self, question: Question, *, idempotency_key: Optional[str] = None) -> Decision:
        """Decides a request, and charges its limits; with a key once in 24 hours.

        With a key the decision names no policies, and the fallback does not decide: if no service answers, repeat the
        call with the same key.
        """
        return self._run(self._check(question, idempotency_key))

    def check_batch(self, questions: Sequence[Question]) -> list[Decision]:
        """Decides up to 1,000 requests in order, each by itself."""
        return self._run(self._check_batch(questions))

    def peek(self, question: Question) -> Decision:
        """Decides a request without charging it."""
        return self._run(self._peek(question))

    def acquire(self, question: Question) -> Acquired[Permit]:
        """Decides a request, concurrency limits included. The permit renews itself until it is released."""
        try:
            answer = self._run(self._once("acquire", question.json()))
        except _Away as away:
            return Acquired(self._instead(away, question), None)
        token = text(answer.get("permit"))
        permit = Permit(self, token, _expiry(answer)) if token else None
        if permit:
            try:
                self._keeper.add(permit, self._keep(permit, _expiry(answer)))
            except RuntimeError:
                # There can be no thread that renews it.
                permit.__exit__()
                raise
        return Acquired(Decision.read(answer), permit)

    @contextmanager
    def permit(self, question: Question) -> Generator[Acquired[Permit], None, None]:
        """Acquires a permit, and releases it at the end of the block."""
        acquired = self.acquire(question)
        with acquired.permit or nullcontext():
            yield acquired

    def release(self, permit: str) -> bool:
        """Returns a permit. True if it was held until now. Without an answer it is tried again for ten seconds, and once
        more when the client is closed."""
        with self._released:
            self._releases += 1
        try:
            return self._run(self._release(permit))
        except _Away:
            self._look_for(Lost("release", {"permit": permit}))
            raise
        finally:
            with self._released:
                self._releases -= 1
                self._released.notify_all()

    def renew(self, permit: str) -> float:
        """Holds a permit for longer; returns the seconds until it expires."""
        return self._run(self._renew(permit))

    def reserve(
        self, question: Question, hits: int, *, ttl_ms: Optional[int] = None, idempotency_key: Optional[str] = None
    ) -> Reserved:
        """Charges the most that the work can cost; ``commit`` or ``cancel`` settles it within ``ttl_ms``.

        With a key the fallback does not decide: if no service answers, repeat the call with the same key.
        """
        return self._run(self._reserve(question, hits, ttl_ms, idempotency_key))

    def commit(self, reservation: str, hits: int) -> int:
        """States what the work cost; returns the hits that were given back."""
        return self._run(self._settle("commit", {"reservation": reservation, "hits": hits}))

    def cancel(self, reservation: str) -> int:
        """Gives all of a reservation back; returns the hits."""
        return self._run(self._settle("cancel", {"reservation": reservation}))

    def refund(self, question: Question, *, idempotency_key: Optional[str] = None) -> None:
        """Gives back the hits of the descriptors, as far as they still count; with a key once in five minutes."""
        return self._run(self._refund(question, idempotency_key))

    def close(self) -> None:
        """Ends the client, and all of its calls but the releases of other threads: for those it waits up to a second. What
        has no answer yet is asked for once more, within the same time."""
        deadline = time.monotonic() + _RELEASED_IN
        self._keeper.close()
        try:
            with self._released:
                self._released.wait_for(lambda: self._releases == 0, _RELEASED_IN)
            self._closing.set()
            if giving_back := self._giving_back:
                giving_back.join(max(0.0, deadline - time.monotonic()))
            if not self._is_closed:
                self._run(self._give_back_now(deadline))
        finally:
            self._is_closed = True
            self._client.close()

    def __enter__(self) -> Ratekeeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: _Steps[_T], stop: Optional[threading.Event] = None) -> _T:
        """Runs a call; a stop while it waits ends the thread."""
        try:
            while True:
                pause = self._advance(steps)
                if stop is not None and stop.wait(pause):
                    raise SystemExit
        except StopIteration as done:
            return cast(_T, done.value)

    def _advance(self, steps: _Steps[_T]) -> float:
        """Runs a call until it is to wait for so many seconds."""
        step = next(steps)
        while isinstance(step, (_Place, _Join, _Post)):
            try:
                answer = self._do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
        return step

    def _do(self, step: Union[_Place, _Join, _Post]) -> Json:
        if isinstance(step, _Post):
            return self._post(step)
        goes_first = isinstance(step, _Place) and step.goes_first
        if not self._places.enter(step.patience, goes_first):
            raise _Unsent()
        return {}

    def _leave(self) -> None:
        self._places.leave()

    def _look_for(self, lost: Lost) -> None:
        if self._unanswered.add(lost):
            thread = threading.Thread(target=self._run, args=(self._give_back(), self._closing), daemon=True)
            try:
                thread.start()
                self._giving_back = thread
            except RuntimeError:
                # There can be no more: whoever comes next asks for this one too.
                self._unanswered.stopped()

    def _post(self, post: _Post) -> Json:
        if self._is_closed:
            raise _closed()
        answer = bytearray()
        try:
            bounded = extensions(post.left, {})
            with self._client.stream("POST", post.url, content=post.content, headers=_IS_JSON, extensions=bounded) as response:
                for part in response.iter_bytes():
                    answer += part
                    if time.monotonic() >= post.deadline:
                        raise post.late()
        except httpx.RequestError as error:
            raise post.away(error) from error
        return _read(post, response.status_code, bytes(answer))


class Permit(_Held):
    """A held place of a concurrency limit. It renews itself until it is released: ``with`` does that at its end."""

    def __init__(self, service: Ratekeeper, token: str, expires_after: float) -> None:
        super().__init__(token, expires_after)
        self._service = service

    def release(self) -> bool:
        """Releases it; true if it was held until now. Releasing twice is harmless."""
        self._service._keeper.remove(self)  # pyright: ignore[reportPrivateUsage]
        self.let_go()
        return self._service.release(self.token)

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ServiceError):
            self.release()


class AsyncRatekeeper(_Calls):
    """Like ``Ratekeeper``, for asyncio: for one event loop at a time."""

    def __init__(
        self,
        endpoints: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        timeout: float = 0.1,
        fallback: Fallback = allow_all,
        concurrency: int = 8,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        super().__init__(endpoints, timeout, fallback, concurrency)
        self._transport = transport
        # Reading the certificates of the system takes longer than most calls: once for all loops.
        self._tls = httpx.create_ssl_context() if transport is None else True
        self._client = self._connecting(_headers(token))
        self._begin()
        in_child(self._begin_in_child)

    def _begin(self) -> None:
        """Begins without calls."""
        self._places = Places(self._concurrency)
        self._together = {path: Together(self._places, partial(self._ask, path), self._start_task) for path in ("check", "limit")}
        # Held, so that they are not collected before they end.
        self._tasks: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[bool]] = set()
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def _begin_in_child(self) -> None:
        """The loop and its tasks are those of the parent, which holds the places of calls under way."""
        self._begin()
        self._unanswered = Unanswered()
        self._connect_anew()

    def _connecting(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, headers=headers, verify=self._tls, limits=self._limits)

    def _connect_anew(self) -> None:
        """Leaves the connections to another process, or to a loop that was closed. A transport of the caller's stays."""
        if self._transport is None and not self._client.is_closed:
            self._client = self._connecting(self._client.headers)

    async def limit(
        self,
        identifier: str,
        limit: Optional[int] = None,
        duration_ms: Optional[int] = None,
        *,
        algorithm: Optional[str] = None,
        burst: Optional[int] = None,
        domain: Optional[str] = None,
        rule: Optional[str] = None,
        cost: Optional[int] = None,
    ) -> LimitResult:
        """Decides by an identifier, and a limit of the call's own or the ID of a rule."""
        more = {"limit": limit, "duration": duration_ms, "algorithm": algorithm, "burst": burst, "cost": cost}
        return await self._run(self._limit(identifier, rule, domain, more))

    async def check(self, question: Question, *, idempotency_key: Optional[str] = None) -> Decision:
        return await self._run(self._check(question, idempotency_key))

    async def check_batch(self, questions: Sequence[Question]) -> list[Decision]:
        return await self._run(self._check_batch(questions))

    async def peek(self, question: Question) -> Decision:
        return await self._run(self._peek(question))

    async def acquire(self, question: Question) -> Acquired[AsyncPermit]:
        try:
            answer = await self._run(self._once("acquire", question.json()))
        except _Away as away:
            return Acquired(self._instead(away, question), None)
        token = text(answer.get("permit"))
        permit = AsyncPermit(self, token, _expiry(answer)) if token else None
        return Acquired(Decision.read(answer), permit)

    @asynccontextmanager
    async def permit(self, question: Question) -> AsyncGenerator[Acquired[AsyncPermit], None]:
        acquired = await self.acquire(question)
        try:
            yield acquired
        finally:
            if acquired.permit:
                await acquired.permit.__aexit__()

    async def release(self, permit: str) -> bool:
        self._drop_closed()
        # A task of its own goes on when the caller is cancelled.
        task = asyncio.ensure_future(self._let_go(permit))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        # Nobody may be left to hear of its error.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait([task])
        return task.result()

    async def _let_go(self, permit: str) -> bool:
        try:
            return await self._run(self._release(permit))
        except _Away:
            self._look_for(Lost("release", {"permit": permit}))
            raise

    async def renew(self, permit: str) -> float:
        return await self._run(self._renew(permit))

    async def reserve(
        self, question: Question, hits: int, *, ttl_ms: Optional[int] = None, idempotency_key: Optional[str] = None
    ) -> Reserved:
        return await self._run(self._reserve(question, hits, ttl_ms, idempotency_key))

    async def commit(self, reservation: str, hits: int) -> int:
        return await self._run(self._settle("commit", {"reservation": reservation, "hits": hits}))

    async def cancel(self, reservation: str) -> int:
        return await self._run(self._settle("cancel", {"reservation": reservation}))

    async def refund(self, question: Question, *, idempotency_key: Optional[str] = None) -> None:
        return await self._run(self._refund(question, idempotency_key))

    async def aclose(self) -> None:
        """Ends the client, and all of its calls but releases: for those it waits up to a second. What has no answer yet is
        asked for once more, within the same time."""
        self._drop_closed()
        deadline = time.monotonic() + _RELEASED_IN
        for task in self._tasks:
            task.cancel()
        if self._releases:
            await asyncio.wait(self._releases, timeout=_RELEASED_IN)
        if not self._client.is_closed:
            await self._run(self._give_back_now(deadline))
        await self._client.aclose()

    async def __aenter__(self) -> AsyncRatekeeper:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, steps: _Steps[_T]) -> _T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._do(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            return cast(_T, done.value)

    async def _do(self, step: Union[_Place, _Join, _Post, float]) -> Json:
        if isinstance(step, _Post):
            return await self._post(step)
        self._drop_closed()
        if isinstance(step, _Place):
            answer: Optional[Json] = {} if await self._places.enter(step.patience, step.goes_first) else None
        elif isinstance(step, _Join):
            answer = await self._together[step.path].join(step.body, step.patience)
        else:
            answer = {}
            await asyncio.sleep(step)
        if answer is None:
            raise _Unsent()
        return answer

    def _leave(self) -> None:
        self._places.leave()

    def _is_busy(self) -> bool:
        return self._places.are_taken

    async def _ask(self, path: str, texts: Sequence[str]) -> Union[Sequence[Json], ServiceError]:
        """Sends what goes together, in a place that it has."""
        many, deadline = f"{path}s", time.monotonic() + self._timeout
        try:
            answer = await self._run(self._call_in_turn(many, list(texts), False, deadline))
        except _Away as away:
            if away.is_page and away.was_not_done:
                raise
            return away
        return [mapping(one) for one in sequence(answer.get("results"))]

    def _drop_closed(self) -> None:
        """Drops the tasks of loops that were closed without ending them, gives their places back, and leaves their
        connections."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            self._connect_anew()
        self._loop = loop
        self._tasks.difference_update([task for task in self._tasks if task.get_loop().is_closed()])
        self._releases.difference_update([task for task in self._releases if task.get_loop().is_closed()])
        for together in self._together.values():
            together.drop_closed()

    def _look_for(self, lost: Lost) -> None:
        if self._unanswered.add(lost):
            self._start(self._give_back())

    def _start(self, steps: _Steps[None]) -> asyncio.Task[None]:
        return self._start_task(self._run(steps))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _post(self, post: _Post) -> Json:
        if self._client.is_closed:
            raise _closed()
        bounded = extensions(lambda: post.left() + _READ_ON, {})
        call = asyncio.ensure_future(self._client.post(post.url, content=post.content, headers=_IS_JSON, extensions=bounded))
        # Nobody hears of its error once it is given up.
        call.add_done_callback(lambda call: call.cancelled() or call.exception())
        try:
            await asyncio.wait([call], timeout=post.left())
            for _ in range(_TURNS):
                if not call.done():
                    await asyncio.sleep(0)
            if not call.done():
                raise post.late()
            response = call.result()
        except httpx.RequestError as error:
            raise post.away(error) from error
        finally:
            if call.cancel():
                await asyncio.wait([call])
        return _read(post, response.status_code, response.content)


class AsyncPermit(_Held):
    """Like ``Permit``, for ``async with``."""

    def __init__(self, service: AsyncRatekeeper, token: str, expires_after: float) -> None:
        super().__init__(token, expires_after)
        self._service = service
        self._task = service._start(service._keep(self, expires_after))  # pyright: ignore[reportPrivateUsage]

    async def release(self) -> bool:
        self._task.cancel()
        self.let_go()
        return await self._service.release(self.token)

    async def __aenter__(self) -> AsyncPermit:
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ServiceError):
            await self.release()
