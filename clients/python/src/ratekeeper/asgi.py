"""Middleware for FastAPI, Starlette and other ASGI applications: asks a Ratekeeper service whether a request may pass."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable, MutableMapping, Optional

from ._answers import Decision, Question
from .service import AsyncRatekeeper

__all__ = ["RateLimitMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RateLimitMiddleware:
    """Lets requests pass that the service allows, and answers others with 429. Both get rate limit headers."""

    def __init__(self, app: App, service: AsyncRatekeeper, question: Callable[[Scope], Optional[Question]]) -> None:
        """``question``: the request as the rules know it, from its ASGI scope; None lets it pass."""
        self._app = app
        self._service = service
        self._question = question

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question = self._question(scope) if scope["type"] == "http" else None
        if question is None:
            return await self._app(scope, receive, send)
        decision = await self._service.check(question)
        headers = [(name.lower().encode(), value.encode()) for name, value in decision.headers()]
        if not decision.allowed:
            return await _refuse(decision, headers, send)
        if decision.delay_ms > 0:
            await asyncio.sleep(decision.delay_ms / 1000)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _refuse(decision: Decision, headers: list[tuple[bytes, bytes]], send: Send) -> None:
    body = json.dumps(decision.problem()).encode()
    about = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 429, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": body})
