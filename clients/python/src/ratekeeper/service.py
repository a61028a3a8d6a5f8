"""The calls of a Ratekeeper service, over JSON: with a deadline, failover between services, and a fallback.

Needs httpx. ``Ratekeeper`` is for threads, ``AsyncRatekeeper`` for asyncio.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, AsyncGenerator, Coroutine, Generator, Generic, Mapping, Optional, Sequence, TypeVar, Union, cast

import httpx

from ._answers import DecidedPolicy, Decision, Descriptor, Json, LimitResult, Question, ServiceError, mapping, sequence, text
from ._calls import Calls, Held, Join, Place, Reserved, Steps, expiry
from ._endpoints import Away, Post, Unsent, authorization, closed, read
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

# The longest that closing a client waits for the releases of permits, and for what has no answer, in seconds.
_RELEASED_IN = 1.0
# The turns in which a loop that was held up reads what has come meanwhile, once the time is up, and seconds for them.
_TURNS = 10
_READ_ON = 0.05
_IS_JSON = {"content-type": "application/json"}
_P = TypeVar("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Acquired(Generic[_P]):
    """A decision, and the permit: None if denied, without a concurrency limit, or decided by the fallback."""

    decision: Decision
    permit: Optional[_P]


class Ratekeeper(Calls):
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
        self._client = httpx.Client(transport=transport, headers=authorization(token), limits=self._limits)
        self._is_closed = False
        self._keeper = Keeper(self._advance)
        # Ends the thread that gives back, between two calls.
        self._closing = threading.Event()
        self._giving_back: Optional[threading.Thread] = None
        self._released = threading.Condition()
        # Those under way.
        self._releases = 0
        in_child(self, Ratekeeper._begin)

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
        except Away as away:
            return Acquired(self._instead(away, question), None)
        token = text(answer.get("permit"))
        permit = Permit(self, token, expiry(answer)) if token else None
        if permit:
            try:
                self._keeper.add(permit, self._keep(permit, expiry(answer)))
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
        except Away:
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

    def _run(self, steps: Steps[_T], stop: Optional[threading.Event] = None) -> _T:
        """Runs a call; a stop while it waits ends the thread."""
        try:
            while True:
                pause = self._advance(steps)
                if stop is not None and stop.wait(pause):
                    raise SystemExit
        except StopIteration as done:
            return cast(_T, done.value)

    def _advance(self, steps: Steps[_T]) -> float:
        """Runs a call until it is to wait for so many seconds."""
        step = next(steps)
        while isinstance(step, (Place, Join, Post)):
            try:
                answer = self._do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
        return step

    def _do(self, step: Union[Place, Join, Post]) -> Json:
        if isinstance(step, Post):
            return self._post(step)
        goes_first = isinstance(step, Place) and step.goes_first
        if not self._places.enter(step.patience, goes_first):
            raise Unsent()
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

    def _post(self, post: Post) -> Json:
        if self._is_closed:
            raise closed()
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
        return read(post, response.status_code, bytes(answer))


class Permit(Held):
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


class AsyncRatekeeper(Calls):
    """Like ``Ratekeeper``, for asyncio: for one event loop at a time. Threads with loops of their own need clients of their
    own: calls in a second loop raise ``RuntimeError`` until the first one is closed."""

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
        self._client = self._connecting(authorization(token))
        self._begin()
        in_child(self, AsyncRatekeeper._begin_in_child)

    def _begin(self) -> None:
        """Begins without calls."""
        self._places = Places(self._concurrency)
        self._together = {path: Together(self._places, partial(self._ask, path), self._start_task) for path in ("check", "limit")}
        # Held, so that they are not collected before they end.
        self._tasks: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[bool]] = set()
        self._giving_back: Optional[asyncio.Task[None]] = None
        self._lock = threading.Lock()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        # Where that runs.
        self._thread = threading.current_thread()

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
        except Away as away:
            return Acquired(self._instead(away, question), None)
        token = text(answer.get("permit"))
        permit = AsyncPermit(self, token, expiry(answer)) if token else None
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
        self._enter_loop()
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
        except (Away, asyncio.CancelledError):
            # Cancelled with its loop.
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
        self._enter_loop()
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

    async def _run(self, steps: Steps[_T]) -> _T:
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

    async def _do(self, step: Union[Place, Join, Post, float]) -> Json:
        if isinstance(step, Post):
            return await self._post(step)
        self._enter_loop()
        if isinstance(step, Place):
            answer: Optional[Json] = {} if await self._places.enter(step.patience, step.goes_first) else None
        elif isinstance(step, Join):
            answer = await self._together[step.path].join(step.body, step.patience)
        else:
            answer = {}
            await asyncio.sleep(step)
        if answer is None:
            raise Unsent()
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
        except Away as away:
            if away.is_page and away.was_not_done:
                raise
            return away
        return [mapping(one) for one in sequence(answer.get("results"))]

    def _enter_loop(self) -> None:
        """Goes on in the loop that runs, on connections of its own. Raises ``RuntimeError`` while another may use it."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        with self._lock:
            before = self._loop
            if before is not None and not before.is_closed():
                # One that does not run may go on at any time in its thread, which is this one or has ended.
                is_elsewhere = self._thread is not threading.current_thread() and self._thread.is_alive()
                if before.is_running() or is_elsewhere:
                    raise RuntimeError("this client is used by an event loop that is not closed: make one for each thread, or use Ratekeeper")
            self._loop, self._thread = loop, threading.current_thread()
        if before is not None:
            self._connect_anew()
            self._drop_closed()
        if not self._client.is_closed and self._unanswered.goes_on():
            self._begin_to_give_back()

    def _drop_closed(self) -> None:
        """Drops the tasks of loops that were closed without ending them, and gives their places back."""
        for tasks in (self._tasks, self._releases):
            for task in [task for task in tasks if task.get_loop().is_closed()]:
                tasks.discard(task)
                _tell_no_end(task)
                # What it leads or looks for is free now, and not when it is collected. It may wait for what was closed.
                with suppress(RuntimeError):
                    if coroutine := task.get_coro():
                        coroutine.close()
        for together in self._together.values():
            together.drop_closed()
        if self._giving_back and self._giving_back.get_loop().is_closed():
            self._giving_back = None
            self._unanswered.stopped()

    def _look_for(self, lost: Lost) -> None:
        if self._unanswered.add(lost):
            self._begin_to_give_back()

    def _begin_to_give_back(self) -> None:
        self._giving_back = self._start(self._give_back())
        # A loop may end under it, and the next one goes on: what is lost is remembered.
        _tell_no_end(self._giving_back)

    def _start(self, steps: Steps[None]) -> asyncio.Task[None]:
        return self._start_task(self._run(steps))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _post(self, post: Post) -> Json:
        if self._client.is_closed:
            raise closed()
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
        return read(post, response.status_code, response.content)


class AsyncPermit(Held):
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


def _tell_no_end(task: asyncio.Task[Any]) -> None:
    """Keeps asyncio from printing that the task never ended, as it does not for its own."""
    setattr(task, "_log_destroy_pending", False)
