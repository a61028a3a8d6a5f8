"""Lets what a forked process inherits begin again: its parent has the threads, which may have held locks."""

from __future__ import annotations

import os
import weakref
from typing import Any, Callable, Optional, TypeVar

_T = TypeVar("_T")

# No ``WeakMethod``: those of objects that last until the program ends would be called back without their module.
_begins: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def in_child(owner: _T, begin: Callable[[_T], None]) -> None:
    """Calls a method in each process that is forked from now on, for as long as its object is there."""
    _begins[owner] = begin


def _begin_all() -> None:
    failed: Optional[Exception] = None
    for owner, begin in list(_begins.items()):
        try:
            begin(owner)
        except Exception as error:
            # The others would keep the locks of the parent.
            failed = failed or error
    if failed:
        raise failed


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)
