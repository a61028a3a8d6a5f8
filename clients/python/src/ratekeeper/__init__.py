"""Reads rate limits and paces itself ahead of them.

``ratekeeper.httpx`` has transports of httpx, and ``ratekeeper.requests`` an adapter of requests. What is here needs
neither.
"""

from ._gate import Gate, RateLimitError
from ._info import LimitInfo, RateLimitInfo, read_rate_limit_info
from ._pacer import Lane, Ticket
from ._retry import Event, Options, default_lane

__all__ = [
    "Event",
    "Gate",
    "Lane",
    "LimitInfo",
    "Options",
    "RateLimitError",
    "RateLimitInfo",
    "Ticket",
    "default_lane",
    "read_rate_limit_info",
]
