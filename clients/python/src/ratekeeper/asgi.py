"""Middleware for FastAPI, Starlette and other ASGI applications: asks a Ratekeeper service whether a request may pass."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable, Mapping, MutableMapping, Optional

from ._answers import Decision, Question, ServiceError
from .service import AsyncRatekeeper

__all__ = ["RateLimitMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_UNAVAILABLE = {
    "type": "about:blank",
    "title": "Service Unavailable",
    "status": 503,
    "detail": "The rate limiter is unavailable.",
    "code": "UNAVAILABLE",
}


class RateLimitMiddleware:
    """Lets requests pass that the service allows, and answers others with 429. Both get rate limit headers,
    but for those that the application sets itself. WebSockets pass.

    A request is answered with 503 if no limit denies it: the fallback does, or the service cannot decide because of what
    is in it, or something between gives a page instead of its answer. The fallback
    decides too if the service refuses the application itself, such as its token."""

    def __init__(self, app: App, service: AsyncRatekeeper, question: Callable[[Scope], Optional[Question]]) -> None:
        """``question``: the request as the rules know it, from its ASGI scope; None lets it pass."""
        self._app = app
        self._service = service
        self._question = question

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question = self._question(scope) if scope["type"] == "http" else None
        if question is None:
            return await self._app(scope, receive, send)
        decision = await self._decide(question)
        if decision is None or not (decision.allowed or decision.is_by_limit):
            return await _answer(503, _UNAVAILABLE, [(b"retry-after", b"1")], send)
        headers = [(name.lower().encode(), value.encode()) for name, value in decision.headers()]
        if not decision.allowed:
            return await _answer(429, decision.problem(), headers, send)
        if decision.delay_ms > 0:
            await asyncio.sleep(decision.delay_ms / 1000)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name.lower() for name, _ in own}
                message = {**message, "headers": [*own, *(header for header in headers if header[0] not in names)]}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    async def _decide(self, question: Question) -> Optional[Decision]:
        """None if it cannot be decided. Callers influence what is in it: the fallback would be a way around limits."""
        try:
            return await self._service.check(question)
        except ServiceError as error:
            if error.status is None:
                raise
            if error.is_of_content or not error.has_word:
                return None
            # The service does not know this application, which is no fault of its callers.
            return self._service._fallback(question)  # pyright: ignore[reportPrivateUsage]


async def _answer(status: int, problem: Mapping[str, Any], headers: list[tuple[bytes, bytes]], send: Send) -> None:
    body = json.dumps(problem).encode()
    about = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": body})
