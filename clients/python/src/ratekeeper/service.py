"""The calls of a Ratekeeper service, over JSON: with a deadline, failover between services, and a fallback.

Needs httpx. ``Ratekeeper`` is for threads, ``AsyncRatekeeper`` for asyncio.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, AsyncGenerator, Callable, Generator, Generic, Optional, Sequence, TypeVar, Union

import httpx

from ._answers import DecidedPolicy, Decision, Descriptor, Json, Question, ServiceError, count, mapping, sequence, text
from ._fallback import Fallback, LocalLimit, LocalLimits, allow_all, deny_all

__all__ = [
    "Acquired",
    "AsyncPermit",
    "AsyncRatekeeper",
    "DecidedPolicy",
    "Decision",
    "Descriptor",
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
_P = TypeVar("_P")


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


class _Calls:
    """What both clients do without waiting."""

    def __init__(self, endpoints: Union[str, Sequence[str]], timeout: float, fallback: Fallback) -> None:
        urls = [endpoints] if isinstance(endpoints, str) else endpoints
        if not urls:
            raise ValueError("endpoints: there is no service to ask")
        self._endpoints = [_Endpoint(url.rstrip("/")) for url in urls]
        self._timeout = timeout
        self._fallback = fallback

    def _in_turn(self) -> list[_Endpoint]:
        now = time.monotonic()
        return sorted(self._endpoints, key=lambda endpoint: endpoint.down_until > now)

    def _read(self, endpoint: _Endpoint, response: httpx.Response) -> Json:
        try:
            body = response.json()
        except ValueError:
            body = None
        if response.is_success:
            endpoint.misses = 0
            return mapping(body)
        refusal = ServiceError.read(response.status_code, body)
        if response.status_code < 500:
            raise refusal
        raise _Away(endpoint, str(refusal), response.status_code, refusal.code) from refusal

    def _acquire(self, question: Question) -> dict[str, Any]:
        return {**question.json(), "idempotency_key": str(uuid.uuid4())}


class _Away(ServiceError):
    """A service gave no answer, or cannot."""

    def __init__(self, endpoint: _Endpoint, why: str, status: Optional[int] = None, reason: str = "") -> None:
        super().__init__("AWAY", f"the rate limit service at {endpoint.url} gave no answer: {why}", status)
        self.reason = reason
        # True if the call was certainly not carried out: no connection, or the service says so.
        self.was_not_done = status == 503
        endpoint.misses += 1
        self._endpoint = endpoint

    def refused(self, was_not_done: bool) -> _Away:
        self.was_not_done = was_not_done
        return self

    def may_go_on(self, is_harmless: bool) -> bool:
        """Notes that the service is down if so; true if the next one may be asked."""
        if self.was_not_done or self._endpoint.misses >= _MISSES_MAX:
            self._endpoint.down_until = time.monotonic() + _DOWN
        return is_harmless or self.was_not_done


def _reserve(question: Question, hits: int, ttl_ms: Optional[int], key: Optional[str]) -> dict[str, Any]:
    more = {"hits": hits, "ttl_ms": ttl_ms, "idempotency_key": key}
    return {**question.json(), **{name: part for name, part in more.items() if part is not None}}


def _refund(question: Question, key: Optional[str]) -> dict[str, Any]:
    body = {name: part for name, part in question.json().items() if name != "wait_ms_max"}
    return {**body, "idempotency_key": key} if key else body


def _headers(token: Optional[str]) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


class Ratekeeper(_Calls):
    """A client of a Ratekeeper service. Threads may share it."""

    def __init__(
        self,
        endpoints: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        timeout: float = 0.1,
        fallback: Fallback = allow_all,
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        """``endpoints``: URLs of the services; each is asked while those before it do not answer. ``token``: the bearer
        token that identifies this caller. ``timeout``: the seconds that a call may take, failover included.
        ``fallback``: decides checks, acquires and reserves while no service answers."""
        super().__init__(endpoints, timeout, fallback)
        self._client = httpx.Client(transport=transport, headers=_headers(token))

    def check(self, question: Question) -> Decision:
        """Decides a request, and charges its limits."""
        answer = self._ask("check", {**question.json(), "standing": True})
        return self._fallback(question) if answer is None else Decision.read(answer)

    def check_batch(self, questions: Sequence[Question]) -> list[Decision]:
        """Decides up to 1,000 requests in order, each by itself."""
        if not questions:
            return []
        answer = self._ask("checks", {"checks": [question.json() for question in questions]})
        if answer is None:
            return [self._fallback(question) for question in questions]
        return [Decision.read(mapping(one)) for one in sequence(answer.get("results"))]

    def peek(self, question: Question) -> Decision:
        """Decides a request without charging it."""
        return Decision.read(self._call("peek", question.json(), True))

    def acquire(self, question: Question) -> Acquired[Permit]:
        """Decides a request, concurrency limits included. The permit renews itself until it is released."""
        body = self._acquire(question)
        try:
            try:
                answer = self._call("acquire", body, False)
            except _Away as away:
                if away.reason != "RESOURCE_EXHAUSTED":
                    raise
                # A permit matters more than a key.
                answer = self._call("acquire", question.json(), False)
        except _Away:
            # The service may have granted it all the same.
            threading.Thread(target=self._give_back, args=(body,), daemon=True).start()
            return Acquired(self._fallback(question), None)
        token = text(answer.get("permit"))
        left = (count(answer.get("expires_after_ms")) or 0) / 1000
        return Acquired(Decision.read(answer), Permit(self, token, left) if token else None)

    @contextmanager
    def permit(self, question: Question) -> Generator[Acquired[Permit], None, None]:
        """Acquires a permit, and releases it at the end of the block."""
        acquired = self.acquire(question)
        try:
            yield acquired
        finally:
            if acquired.permit:
                acquired.permit.__exit__(None, None, None)

    def release(self, permit: str) -> bool:
        """Returns a permit. True if it was held until now."""
        return self._call("release", {"permit": permit}, True).get("was_held") is True

    def renew(self, permit: str) -> float:
        """Holds a permit for longer; returns the seconds until it expires."""
        return (count(self._call("renew", {"permit": permit}, True).get("expires_after_ms")) or 0) / 1000

    def reserve(
        self, question: Question, hits: int, *, ttl_ms: Optional[int] = None, idempotency_key: Optional[str] = None
    ) -> Reserved:
        """Charges the most that the work can cost; ``commit`` or ``cancel`` settles it within ``ttl_ms``."""
        answer = self._ask("reserve", _reserve(question, hits, ttl_ms, idempotency_key), idempotency_key is not None)
        if answer is None:
            return Reserved(self._fallback(question.costing(hits)), None)
        return Reserved(Decision.read(answer), text(answer.get("reservation")))

    def commit(self, reservation: str, hits: int) -> int:
        """States what the work cost; returns the hits that were given back."""
        return count(self._call("commit", {"reservation": reservation, "hits": hits}, True).get("given_back")) or 0

    def cancel(self, reservation: str) -> int:
        """Gives all of a reservation back; returns the hits."""
        return count(self._call("cancel", {"reservation": reservation}, True).get("given_back")) or 0

    def refund(self, question: Question, *, idempotency_key: Optional[str] = None) -> None:
        """Gives back the hits of the descriptors, as far as they still count; with a key once in five minutes."""
        self._call("refund", _refund(question, idempotency_key), idempotency_key is not None)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Ratekeeper:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _ask(self, path: str, body: Json, is_harmless: bool = False) -> Optional[Json]:
        """Calls, and returns None if no service answers."""
        try:
            return self._call(path, body, is_harmless)
        except _Away:
            return None

    def _call(self, path: str, body: Json, is_harmless: bool) -> Json:
        """Calls one service after another until one answers."""
        deadline = time.monotonic() + self._timeout
        for number, endpoint in enumerate(self._in_turn(), 1):
            try:
                return self._post(endpoint, path, body, deadline)
            except _Away as away:
                may_go_on = away.may_go_on(is_harmless) and time.monotonic() < deadline
                if not may_go_on or number == len(self._endpoints):
                    raise
        raise AssertionError("there is an endpoint")

    def _post(self, endpoint: _Endpoint, path: str, body: Json, deadline: float) -> Json:
        left = max(0.001, deadline - time.monotonic())
        try:
            response = self._client.post(f"{endpoint.url}/v1/{path}", json=body, timeout=left)
        except httpx.TransportError as error:
            raise _Away(endpoint, repr(error)).refused(isinstance(error, httpx.ConnectError)) from error
        return self._read(endpoint, response)

    def _give_back(self, body: Json) -> None:
        """Finds out whether a permit was granted in an answer that did not come, and releases it."""
        for pause in (0.1, 1.0, 5.0):
            time.sleep(pause)
            try:
                permit = text(self._call("acquire", body, True).get("permit"))
                if permit:
                    self.release(permit)
            except _Away:
                continue
            except (ServiceError, RuntimeError):
                # Refused, so there is nothing to give back, or this client is closed. It ends by itself otherwise.
                pass
            return


class Permit:
    """A held place of a concurrency limit. It renews itself until it is released: ``with`` does that at its end."""

    def __init__(self, service: Ratekeeper, token: str, expires_after: float) -> None:
        self.token = token
        """Identifies it to the service."""
        self.is_lost = False
        """True if it could not be renewed in time: another request may have its place."""
        self._service = service
        self._released = threading.Event()
        if expires_after > 0:
            threading.Thread(target=self._renew, args=(expires_after,), daemon=True).start()

    def release(self) -> bool:
        """Releases it; true if it was held until now. Releasing twice is harmless."""
        self._released.set()
        return self._service.release(self.token)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.release()
        except ServiceError:
            # It ends by itself.
            pass

    def _renew(self, expires_after: float) -> None:
        while not self._released.wait(expires_after / 3):
            try:
                expires_after = self._service.renew(self.token) or expires_after
            except _Away:
                # It may still be held.
                continue
            except (ServiceError, RuntimeError):
                self.is_lost = not self._released.is_set()
                return


class AsyncRatekeeper(_Calls):
    """Like ``Ratekeeper``, for asyncio."""

    def __init__(
        self,
        endpoints: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        timeout: float = 0.1,
        fallback: Fallback = allow_all,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        super().__init__(endpoints, timeout, fallback)
        self._client = httpx.AsyncClient(transport=transport, headers=_headers(token))
        # Held, so that they are not collected before they end.
        self._tasks: set[asyncio.Task[None]] = set()

    async def check(self, question: Question) -> Decision:
        answer = await self._ask("check", {**question.json(), "standing": True})
        return self._fallback(question) if answer is None else Decision.read(answer)

    async def check_batch(self, questions: Sequence[Question]) -> list[Decision]:
        if not questions:
            return []
        answer = await self._ask("checks", {"checks": [question.json() for question in questions]})
        if answer is None:
            return [self._fallback(question) for question in questions]
        return [Decision.read(mapping(one)) for one in sequence(answer.get("results"))]

    async def peek(self, question: Question) -> Decision:
        return Decision.read(await self._call("peek", question.json(), True))

    async def acquire(self, question: Question) -> Acquired[AsyncPermit]:
        body = self._acquire(question)
        try:
            try:
                answer = await self._call("acquire", body, False)
            except _Away as away:
                if away.reason != "RESOURCE_EXHAUSTED":
                    raise
                answer = await self._call("acquire", question.json(), False)
        except _Away:
            self._run(self._give_back(body))
            return Acquired(self._fallback(question), None)
        token = text(answer.get("permit"))
        left = (count(answer.get("expires_after_ms")) or 0) / 1000
        return Acquired(Decision.read(answer), AsyncPermit(self, token, left) if token else None)

    @asynccontextmanager
    async def permit(self, question: Question) -> AsyncGenerator[Acquired[AsyncPermit], None]:
        acquired = await self.acquire(question)
        try:
            yield acquired
        finally:
            if acquired.permit:
                await acquired.permit.__aexit__(None, None, None)

    async def release(self, permit: str) -> bool:
        return (await self._call("release", {"permit": permit}, True)).get("was_held") is True

    async def renew(self, permit: str) -> float:
        return (count((await self._call("renew", {"permit": permit}, True)).get("expires_after_ms")) or 0) / 1000

    async def reserve(
        self, question: Question, hits: int, *, ttl_ms: Optional[int] = None, idempotency_key: Optional[str] = None
    ) -> Reserved:
        body = _reserve(question, hits, ttl_ms, idempotency_key)
        answer = await self._ask("reserve", body, idempotency_key is not None)
        if answer is None:
            return Reserved(self._fallback(question.costing(hits)), None)
        return Reserved(Decision.read(answer), text(answer.get("reservation")))

    async def commit(self, reservation: str, hits: int) -> int:
        answer = await self._call("commit", {"reservation": reservation, "hits": hits}, True)
        return count(answer.get("given_back")) or 0

    async def cancel(self, reservation: str) -> int:
        return count((await self._call("cancel", {"reservation": reservation}, True)).get("given_back")) or 0

    async def refund(self, question: Question, *, idempotency_key: Optional[str] = None) -> None:
        await self._call("refund", _refund(question, idempotency_key), idempotency_key is not None)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._client.aclose()

    async def __aenter__(self) -> AsyncRatekeeper:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()

    def _run(self, work: Any) -> Callable[[], object]:
        """Runs in the background; returns what ends it."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task.cancel

    async def _ask(self, path: str, body: Json, is_harmless: bool = False) -> Optional[Json]:
        try:
            return await self._call(path, body, is_harmless)
        except _Away:
            return None

    async def _call(self, path: str, body: Json, is_harmless: bool) -> Json:
        deadline = time.monotonic() + self._timeout
        for number, endpoint in enumerate(self._in_turn(), 1):
            try:
                return await self._post(endpoint, path, body, deadline)
            except _Away as away:
                may_go_on = away.may_go_on(is_harmless) and time.monotonic() < deadline
                if not may_go_on or number == len(self._endpoints):
                    raise
        raise AssertionError("there is an endpoint")

    async def _post(self, endpoint: _Endpoint, path: str, body: Json, deadline: float) -> Json:
        left = max(0.001, deadline - time.monotonic())
        post = self._client.post(f"{endpoint.url}/v1/{path}", json=body, timeout=left)
        try:
            response = await asyncio.wait_for(post, left)
        except asyncio.TimeoutError as error:
            raise _Away(endpoint, "the time is up") from error
        except httpx.TransportError as error:
            raise _Away(endpoint, repr(error)).refused(isinstance(error, httpx.ConnectError)) from error
        return self._read(endpoint, response)

    async def _give_back(self, body: Json) -> None:
        for pause in (0.1, 1.0, 5.0):
            await asyncio.sleep(pause)
            try:
                permit = text((await self._call("acquire", body, True)).get("permit"))
                if permit:
                    await self.release(permit)
            except _Away:
                continue
            except ServiceError:
                pass
            return


class AsyncPermit:
    """Like ``Permit``, for ``async with``."""

    def __init__(self, service: AsyncRatekeeper, token: str, expires_after: float) -> None:
        self.token = token
        self.is_lost = False
        self._service = service
        self._stop = service._run(self._renew(expires_after)) if expires_after > 0 else lambda: None  # pyright: ignore[reportPrivateUsage]

    async def release(self) -> bool:
        self._stop()
        return await self._service.release(self.token)

    async def __aenter__(self) -> AsyncPermit:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.release()
        except ServiceError:
            pass

    async def _renew(self, expires_after: float) -> None:
        while True:
            await asyncio.sleep(expires_after / 3)
            try:
                expires_after = await self._service.renew(self.token) or expires_after
            except _Away:
                continue
            except ServiceError:
                self.is_lost = True
                return
