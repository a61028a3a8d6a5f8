"""What stands in headers: numbers, durations, dates, and lists of RFC 9651 (Structured Field Values).

Whatever is none of them is None.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from typing import Mapping, Optional, Union

# No number of a header counts for more: the largest integer of a structured field.
NUMBER_MAX = 999_999_999_999_999

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_TIME = r"([0-9]{2}):([0-9]{2}):([0-9]{2})"
# IMF-fixdate; the obsolete form of RFC 850, with a year of two digits; the obsolete form of C's asctime.
_FIXDATE = re.compile(rf"[a-z]{{3}}, ([0-9]{{2}}) ([a-z]{{3}}) ([0-9]{{4}}) {_TIME} gmt", re.I)
_RFC850 = re.compile(rf"[a-z]{{6,9}}, ([0-9]{{2}})-([a-z]{{3}})-([0-9]{{2}}) {_TIME} gmt", re.I)
_ASCTIME = re.compile(rf"[a-z]{{3}} ([a-z]{{3}}) ([ 0-9][0-9]) {_TIME} ([0-9]{{4}})", re.I)
_RFC3339 = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})T{_TIME}(?:\.[0-9]+)?Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,20})?")
_PART = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|us|µs|ns|[dhms])"
_UNITS = {"d": 86_400_000.0, "h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}


def number(text: str) -> Optional[float]:
    """A decimal number, at most ``NUMBER_MAX``."""
    if not _NUMBER.fullmatch(text):
        return None
    return max(-NUMBER_MAX, min(float(text), NUMBER_MAX))


def span(text: str) -> Optional[float]:
    """A span like ``6m0s``, ``1h30m``, ``1.5s`` or ``20ms``, in milliseconds."""
    if not re.fullmatch(f"(?:{_PART})+", text):
        return None
    return min(sum(float(count) * _UNITS[unit] for count, unit in re.findall(_PART, text)), NUMBER_MAX)


def date(text: str) -> Optional[int]:
    """A date of HTTP or RFC 3339, in milliseconds since 1970."""
    if found := _FIXDATE.fullmatch(text):
        day, month, year, *time = found.groups()
        return _utc(year, _month(month), day, *time)
    if found := _RFC850.fullmatch(text):
        day, month, year, *time = found.groups()
        # Two digits are the year of this century: what these headers date is near.
        return _utc(f"20{year}", _month(month), day, *time)
    if found := _ASCTIME.fullmatch(text):
        month, day, *time, year = found.groups()
        return _utc(year, _month(month), day, *time)
    if found := _RFC3339.fullmatch(text):
        year, month, day, *time = found.groups()
        return _utc(year, int(month), day, *time)
    return None


def _month(name: str) -> int:
    return _MONTHS.index(name.lower()) + 1 if name.lower() in _MONTHS else 0


def _utc(year: str, month: int, *rest: str) -> Optional[int]:
    day, hour, minute, second = (int(part) for part in rest)
    if not (1 <= month <= 12 and int(year) >= 1 and hour < 24 and minute < 60 and second < 60):
        return None
    if not 1 <= day <= calendar.monthrange(int(year), month)[1]:
        return None
    return calendar.timegm((int(year), month, day, hour, minute, second)) * 1000


Bare = Union[str, int, float, bool]

_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"[a-z*][a-z0-9_\-.*]*")
_SF_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,3})?(?![0-9.])")
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
        if found := self.take(_SF_NUMBER):
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
