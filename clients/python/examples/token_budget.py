"""Streams a language model's answers within each user's budget of tokens:

    ratekeeper serve --rules rules.yaml --http 127.0.0.1:8080
    MODEL_URL=https://api.openai.com/v1/chat/completions MODEL=gpt-5-mini MODEL_KEY=... python3 token_budget.py ada "Why is the sky blue?"

with this rule:

    domain: llm
    descriptors:
      - key: user
        rate_limit: { name: tokens-a-day, window: 1d, limit: 1000, post_paid: true }
"""

import json
import os
import sys
from typing import Iterator, Optional

import httpx

from ratekeeper.service import Question, Ratekeeper

service = Ratekeeper(os.environ.get("RATEKEEPER_URL", "http://127.0.0.1:8080"), timeout=1.0)
model_url = os.environ.get("MODEL_URL", "http://127.0.0.1:9000/v1/chat/completions")
headers = {"authorization": f"Bearer {os.environ['MODEL_KEY']}"} if "MODEL_KEY" in os.environ else {}


class OverBudget(Exception):
    """Nothing is left of a user's budget."""

    def __init__(self, retry_after_ms: Optional[float]) -> None:
        super().__init__(f"the budget is spent; there is more in {(retry_after_ms or 0) / 1000:.0f} s")


def stream(user: str, prompt: str, expected_tokens: int = 500) -> Iterator[str]:
    """The words of the answer. Reserves what it will probably cost, so that other requests of this user see it while it
    streams; in the end commits what it did cost, which may be more."""
    reserved = service.reserve(Question.of("llm", user=user), expected_tokens, ttl_ms=600_000)
    if not reserved.decision.allowed:
        raise OverBudget(reserved.decision.retry_after_ms)
    tokens = 0
    try:
        asked = {
            "model": os.environ.get("MODEL", "small"),
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with httpx.stream("POST", model_url, json=asked, headers=headers, timeout=600) as response:
            response.raise_for_status()
            tokens = len(prompt) // 4
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[len("data: ") :])
                # Until the usage comes, a token for each event: whoever stops reading pays for what was sent.
                usage = event.get("usage")
                tokens = usage["total_tokens"] if usage else tokens + 1
                for choice in event["choices"]:
                    yield choice["delta"].get("content") or ""
    finally:
        # None if no service answered, and the fallback let it pass.
        if reserved.reservation:
            service.commit(reserved.reservation, tokens)


if __name__ == "__main__":
    for word in stream(sys.argv[1], sys.argv[2]):
        print(word, end="", flush=True)
