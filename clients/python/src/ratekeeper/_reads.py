"""Connections of urllib3 whose reads have a bound of their own each.

``http.client`` sets one timeout before it reads an answer's head, which each part of the head and of the body then has
for itself.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from typing import Any, Callable, Generator, Optional

from urllib3 import PoolManager

# The seconds that a read may take which begins now; None for any.
Bound = Callable[[], Optional[float]]
_bound: ContextVar[Optional[Bound]] = ContextVar("_bound", default=None)


@contextmanager
def reading_within(bound: Bound) -> Generator[None, None, None]:
    """Answers that begin meanwhile are read within this bound, to their end."""
    token = _bound.set(bound)
    try:
        yield
    finally:
        _bound.reset(token)


def read_in_time(manager: PoolManager) -> None:
    """Lets the connections of a manager keep to such bounds."""
    pools = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _in_time(pool) for scheme, pool in pools.items()}


def _in_time(pool: Any) -> Any:
    """The same class of pools, for all schemes and proxies."""
    if getattr(pool, "is_read_in_time", False):
        return pool

    def new_conn(self: Any) -> Any:
        connection = pool._new_conn(self)
        # Connections of others, such as mocks, stay as they are.
        if getattr(connection, "response_class", None) is HTTPResponse:
            connection.response_class = _Response
        return connection

    return type(pool.__name__, (pool,), {"_new_conn": new_conn, "is_read_in_time": True})


class _Response(HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        bound = _bound.get()
        if bound is not None:
            reads: Any = self.fp
            self.fp = io.BufferedReader(_Reads(sock, reads.detach(), bound))


class _Reads(io.RawIOBase):
    def __init__(self, sock: Any, raw: io.RawIOBase, bound: Bound) -> None:
        self._sock = sock
        self._raw = raw
        self._bound = bound

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        self._sock.settimeout(self._bound())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        super().close()
        self._raw.close()
