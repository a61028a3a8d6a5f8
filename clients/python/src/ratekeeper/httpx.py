"""Transports of httpx that keep to rate limits.

>>> import httpx
>>> from ratekeeper.httpx import RateLimitTransport
>>> client = httpx.Client(transport=RateLimitTransport())
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Optional

import httpx

from ._info import read_rate_limit_info
from ._retry import Attempts, Options
from ._timeouts import extensions

__all__ = ["AsyncRateLimitTransport", "RateLimitTransport"]


class RateLimitTransport(httpx.BaseTransport):
    """Wraps a transport: paces requests ahead of the server's limits, and tries again what is worth it."""

    def __init__(self, transport: Optional[httpx.BaseTransport] = None, options: Optional[Options] = None) -> None:
        self._transport = transport or httpx.HTTPTransport()
        self._options = options or Options()
        self._gate = self._options.make_gate()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        attempts = Attempts(self._options, self._gate, str(request.url), request.method, request.headers)
        request.extensions = extensions(attempts.left, request.extensions)
        is_repeatable = _is_repeatable(request)
        while True:
            begun = time.monotonic()
            ticket = self._gate.enter(attempts.lane, attempts.deadline) if self._gate else None
            try:
                attempts.paced(begun, ticket)
                response = self._transport.handle_request(request)
            except BaseException as error:
                attempts.lost(ticket)
                wait = attempts.again(is_repeatable, None, None) if _may_pass(error) else None
                if wait is None:
                    raise
            else:
                try:
                    info = read_rate_limit_info(response.status_code, response.headers.multi_items())
                    attempts.answered(ticket, info, response.status_code)
                    wait = attempts.again(is_repeatable, response.status_code, info)
                except BaseException:
                    # A listener's: nobody gets the answer, which holds a connection.
                    response.close()
                    raise
                if wait is None:
                    attempts.end()
                    return response
                response.close()
            time.sleep(wait)

    def __enter__(self) -> RateLimitTransport:
        self._transport.__enter__()
        return self

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]] = None,
        exc_value: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
    ) -> None:
        self._transport.__exit__(exc_type, exc_value, traceback)

    def close(self) -> None:
        self._transport.close()


class AsyncRateLimitTransport(httpx.AsyncBaseTransport):
    """Like ``RateLimitTransport``, for ``httpx.AsyncClient`` on asyncio."""

    def __init__(
        self, transport: Optional[httpx.AsyncBaseTransport] = None, options: Optional[Options] = None
    ) -> None:
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._options = options or Options()
        self._gate = self._options.make_gate()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        attempts = Attempts(self._options, self._gate, str(request.url), request.method, request.headers)
        request.extensions = extensions(attempts.left, request.extensions)
        is_repeatable = _is_repeatable(request)
        while True:
            begun = time.monotonic()
            ticket = await self._gate.enter_async(attempts.lane, attempts.deadline) if self._gate else None
            try:
                attempts.paced(begun, ticket)
                response = await self._transport.handle_async_request(request)
            except BaseException as error:
                attempts.lost(ticket)
                wait = attempts.again(is_repeatable, None, None) if _may_pass(error) else None
                if wait is None:
                    raise
            else:
                try:
                    info = read_rate_limit_info(response.status_code, response.headers.multi_items())
                    attempts.answered(ticket, info, response.status_code)
                    wait = attempts.again(is_repeatable, response.status_code, info)
                except BaseException:
                    # A listener's: nobody gets the answer, which holds a connection.
                    await response.aclose()
                    raise
                if wait is None:
                    attempts.end()
                    return response
                await response.aclose()
            await asyncio.sleep(wait)

    async def __aenter__(self) -> AsyncRateLimitTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]] = None,
        exc_value: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
    ) -> None:
        await self._transport.__aexit__(exc_type, exc_value, traceback)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _is_repeatable(request: httpx.Request) -> bool:
    """True unless the body is a stream, which can be sent once."""
    return isinstance(request.stream, httpx.ByteStream)


def _may_pass(error: BaseException) -> bool:
    """True if the connection failed, which may pass; a request that none can carry does not."""
    is_lasting = isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError))
    return isinstance(error, httpx.TransportError) and not is_lasting
