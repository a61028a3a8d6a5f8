"""Lists of RFC 9651 (Structured Field Values), as far as rate limit headers use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Optional, Union

Bare = Union[str, int, float, bool]

_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"[a-z*][a-z0-9_\-.*]*")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,3})?(?![0-9.])")
_STRING = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BYTES = re.compile(r":([A-Za-z0-9+/]*={0,2}):")
_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*")
_BOOLEAN = re.compile(r"\?([01])")
_ESCAPE = re.compile(r'\\(["\\])')


@dataclass(frozen=True)
class Member:
    """One member of a list: its value, the ``key=`` before it if it has one, and its parameters."""

    key: Optional[str]
    value: Bare
    params: Mapping[str, Bare]


def parse_list(text: str) -> Optional[list[Member]]:
    """Reads a list, whose members may also be ``key=value``; None if the field is malformed, as the RFC wants."""
    return _Reader(text).members()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def take(self, pattern: re.Pattern[str]) -> Optional[re.Match[str]]:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def is_at(self, char: str) -> bool:
        return self.text[self.at : self.at + 1] == char

    def members(self) -> Optional[list[Member]]:
        members: list[Member] = []
        while True:
            member = self.member()
            if member is None:
                return None
            members.append(member)
            self.take(_SPACE)
            if self.at == len(self.text):
                return members
            if not self.is_at(","):
                return None
            self.at += 1

    def member(self) -> Optional[Member]:
        self.take(_SPACE)
        start = self.at
        key = self.take(_KEY)
        if key and self.is_at("="):
            self.at += 1
        else:
            key = None
            self.at = start
        value = self.bare()
        if value is None:
            return None
        params = self.parameters()
        return None if params is None else Member(key.group() if key else None, value, params)

    def bare(self) -> Optional[Bare]:
        if found := self.take(_STRING):
            return _ESCAPE.sub(r"\1", found[1])
        if found := self.take(_NUMBER):
            return float(found[0]) if "." in found[0] else int(found[0])
        if found := self.take(_BYTES):
            return found[0]
        if found := self.take(_BOOLEAN):
            return found[1] == "1"
        found = self.take(_TOKEN)
        return found[0] if found else None

    def parameters(self) -> Optional[dict[str, Bare]]:
        params: dict[str, Bare] = {}
        while True:
            before = self.at
            self.take(_SPACE)
            if not self.is_at(";"):
                self.at = before
                return params
            self.at += 1
            self.take(_SPACE)
            key = self.take(_KEY)
            if not key:
                return None
            params[key[0]] = True
            if self.is_at("="):
                self.at += 1
                value = self.bare()
                if value is None:
                    return None
                params[key[0]] = value
