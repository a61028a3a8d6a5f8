"""Lets what a forked process inherits begin again: its parent has the threads, which may have held locks."""

from __future__ import annotations

import os
import weakref
from typing import Callable, Optional

_begins: set[weakref.WeakMethod[Callable[[], None]]] = set()


def in_child(begin: Callable[[], None]) -> None:
    """Calls a method in each process that is forked from now on, for as long as its object is there."""
    _begins.add(weakref.WeakMethod(begin, _begins.discard))


def _begin_all() -> None:
    failed: Optional[Exception] = None
    for method in list(_begins):
        begin = method()
        try:
            if begin:
                begin()
        except Exception as error:
            # The others would keep the locks of the parent.
            failed = failed or error
    if failed:
        raise failed


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)
