"""The services that a client asks, and what their answers say about them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Optional, Union, cast

import httpx

from ._answers import Json, ServiceError, encoded, mapping, sequence

# The time for which a service that did not answer is asked last, in seconds.
_DOWN = 1.0
# Calls without an answer in a row, after which it is.
MISSES_MAX = 3
# The codes by which a service says that it did not carry out a call.
_NOT_DONE = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
# The rules of a domain were refused. The service is well, and decides other domains.
NO_RULES = "NO_RULES"
# What a call sends; of many that go together, the JSON of each.
Body = Union[Json, list[str]]


@dataclass
class Endpoint:
    url: str
    misses: int = 0
    down_until: float = 0.0


@dataclass(frozen=True)
class Post:
    """A call of one service."""

    endpoint: Endpoint
    path: str
    body: Body
    deadline: float

    @property
    def content(self) -> str:
        return f'{{"{self.path}":[{",".join(self.body)}]}}' if isinstance(self.body, list) else encoded(self.body)

    @property
    def url(self) -> str:
        return f"{self.endpoint.url}/v1/{self.path}"

    def left(self) -> float:
        """Seconds; a moment at least, so that they can be a timeout."""
        return max(0.001, self.deadline - time.monotonic())

    def away(self, error: httpx.RequestError) -> Away:
        """The call failed on its way; without a connection it was not carried out."""
        return Away(self.endpoint, repr(error), isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)))

    def late(self) -> Away:
        return Away(self.endpoint, "the time is up")


class Away(ServiceError):
    """A service gave no answer, or cannot, or something between gave a page instead."""

    def __init__(self, endpoint: Endpoint, why: str, was_not_done: bool = False, status: Optional[int] = None) -> None:
        super().__init__("AWAY", f"the rate limit service at {endpoint.url} gave no answer: {why}", status)
        # The code of its refusal, if it gave one.
        self.reason = ""
        self.is_page = False
        # True if the call was not carried out: no connection, or the service or something between says so.
        self.was_not_done = was_not_done
        self._endpoint = endpoint
        endpoint.misses += 1

    def may_go_on(self, is_harmless: bool) -> bool:
        """Notes that the service is down if so; true if the next one may be asked."""
        if self.reason == NO_RULES:
            return False
        if (self.was_not_done and not self.is_page) or self._endpoint.misses >= MISSES_MAX:
            self._endpoint.down_until = time.monotonic() + _DOWN
        return is_harmless or self.was_not_done


class Unsent(Away):
    """No service was asked."""

    def __init__(self) -> None:
        ServiceError.__init__(self, "AWAY", "not sent: too many calls of this client are under way")
        self.reason = ""
        self.is_page = False
        self.was_not_done = True


def _page(endpoint: Endpoint, status: int) -> Away:
    """An answer that the service cannot have given."""
    page = Away(endpoint, f"something between answered {status}", status >= 300, status)
    page.code = f"HTTP_{status}"
    page.is_page = True
    return page


def is_undecided(answer: Json) -> bool:
    """True of a check of a batch in whose domain there are no rules, since they were refused."""
    return answer.get("degraded") is True and bool(answer.get("unreadable"))


def _is_answer(post: Post, body: object) -> bool:
    """True if the service can have said that: what something between says is no denial."""
    answer = mapping(body)
    if post.path in ("checks", "limits"):
        results = sequence(answer.get("results"))
        is_whole = len(results) == len(post.body if isinstance(post.body, list) else post.body[post.path])
        return is_whole and all(_is_decision(post.path[:-1], mapping(one)) for one in results)
    if post.path in ("limit", "check", "peek", "acquire", "reserve"):
        return _is_decision(post.path, answer)
    return isinstance(body, dict)


def _is_decision(path: str, answer: Json) -> bool:
    return isinstance(answer.get("success"), bool) if path == "limit" else answer.get("decision") in ("allow", "deny")


def read(post: Post, status: int, answer: bytes) -> Json:
    endpoint = post.endpoint
    try:
        body = json.loads(answer)
    except ValueError:
        body = None
    if 200 <= status < 300:
        if not _is_answer(post, body):
            raise _page(endpoint, status)
        endpoint.misses = 0
        return mapping(cast(object, body))
    refusal = ServiceError.read(status, body)
    has_no_rules = refusal.code == NO_RULES
    if status < 500 and not has_no_rules:
        if not refusal.has_word:
            raise _page(endpoint, status)
        endpoint.misses = 0
        raise refusal
    # A proxy's 503 may come after the charge: only the service's own words count.
    away = Away(endpoint, str(refusal), has_no_rules or (status == 503 and refusal.code in _NOT_DONE), status)
    away.reason = refusal.code
    if has_no_rules:
        endpoint.misses = 0
    raise away from refusal


def checked(url: str) -> str:
    try:
        parts = httpx.URL(url)
        is_one = parts.scheme in ("http", "https") and parts.host != ""
    except httpx.InvalidURL:
        is_one = False
    if not is_one:
        # The fallback would decide for ever.
        raise ValueError(f"endpoints: {url!r} is no URL of http or https, such as http://127.0.0.1:8080")
    return url


def closed() -> ServiceError:
    return ServiceError("CLOSED", "this client is closed")


def authorization(token: Optional[str]) -> dict[str, str]:
    """The token without the white space around it that files have."""
    token = (token or "").strip()
    if any(not "!" <= char <= "~" for char in token):
        # Without it: it is a secret. The fallback would decide for ever.
        raise ValueError("token: only visible ASCII characters can be sent")
    return {"authorization": f"Bearer {token}"} if token else {}
