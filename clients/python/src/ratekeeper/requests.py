"""An adapter of requests that keeps to rate limits.

>>> import requests
>>> from ratekeeper.requests import mount
>>> session = mount(requests.Session())
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from socket import getdefaulttimeout
from typing import Any, Callable, Mapping, Optional, Union

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Timeout

from ._info import read_rate_limit_info
from ._reads import read_in_time, reading_within
from ._retry import Attempts, Options

__all__ = ["RateLimitAdapter", "mount"]

_Timeout = Union[None, float, tuple[Optional[float], Optional[float]], Timeout]


class RateLimitAdapter(HTTPAdapter):
    """Paces requests ahead of the server's limits, and tries again what is worth it."""

    def __init__(self, options: Optional[Options] = None, **kwargs: Any) -> None:
        """``kwargs`` are those of ``HTTPAdapter``, whose own retries stay off unless asked for."""
        super().__init__(**kwargs)
        self._options = options or Options()
        self._gate = self._options.make_gate()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        read_in_time(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager: Any = super().proxy_manager_for(*args, **kwargs)
        read_in_time(manager)
        return manager

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: _Timeout = None,
        verify: Union[bool, str] = True,
        cert: Any = None,
        proxies: Optional[Mapping[str, str]] = None,
    ) -> requests.Response:
        attempts = Attempts(self._options, self._gate, request.url or "", request.method or "GET", request.headers)
        # A file or a generator can be sent once.
        is_repeatable = not (hasattr(request.body, "read") or hasattr(request.body, "__next__"))
        while True:
            begun = time.monotonic()
            ticket = self._gate.enter(attempts.lane, attempts.deadline) if self._gate else None
            try:
                attempts.paced(begun, ticket)
                # The types of requests lack what it takes.
                bounded: Any = _bounded(timeout, attempts.left())
                with reading_within(_reads(timeout, attempts)):
                    response = super().send(request, stream, bounded, verify, cert, proxies)
            except BaseException as error:
                attempts.lost(ticket)
                may_pass = isinstance(error, (requests.ConnectionError, requests.Timeout))
                wait = attempts.again(is_repeatable, None, None) if may_pass else None
                if wait is None:
                    raise
            else:
                try:
                    info = read_rate_limit_info(response.status_code, list(response.raw.headers.items()))
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


def mount(session: requests.Session, options: Optional[Options] = None) -> requests.Session:
    """Lets all requests of a session keep to rate limits; returns the session."""
    adapter = RateLimitAdapter(options)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _bounded(timeout: _Timeout, left: float) -> Timeout:
    """Timeouts for connecting and reading, together no longer than what is left of the budget."""
    bounded = _given(timeout)
    if math.isfinite(left):
        bounded.total = min(bounded.total, left) if isinstance(bounded.total, (int, float)) else left
    return bounded


def _reads(timeout: _Timeout, attempts: Attempts) -> Callable[[], Optional[float]]:
    """The bound of a read: the caller's, and what is left of the budget until the answer has begun."""
    given = _given(timeout)
    given.start_connect()

    @lru_cache(maxsize=None)
    def own() -> Optional[float]:
        """Of a total what connecting has left, for each read: so says urllib3."""
        read = given.read_timeout
        # Neither a number nor None: what the process has by default.
        return read if read is None or isinstance(read, (int, float)) else getdefaulttimeout()

    def bound() -> Optional[float]:
        read, left = own(), attempts.left()
        return read if math.isinf(left) else left if read is None else min(read, left)

    return bound


def _given(timeout: _Timeout) -> Timeout:
    if isinstance(timeout, Timeout):
        return timeout.clone()
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return Timeout(connect=connect, read=read)
