"""An application of FastAPI whose callers are limited by a Ratekeeper service:

    ratekeeper serve --rules rules.yaml
    RATEKEEPER_URL=http://127.0.0.1:8080 uvicorn fastapi_app:app

with this rule:

    domain: shop
    descriptors:
      - { key: customer, rate_limit: { name: per-minute, window: 1m, limit: 3 } }
"""

import os

from fastapi import FastAPI
from starlette.requests import HTTPConnection

from ratekeeper.asgi import RateLimitMiddleware, Scope
from ratekeeper.service import AsyncRatekeeper, Question, deny_all


def question(scope: Scope) -> Question:
    return Question.of("shop", customer=HTTPConnection(scope).headers.get("x-customer", ""))


url = os.environ.get("RATEKEEPER_URL", "http://127.0.0.1:8080")
service = AsyncRatekeeper(url, timeout=1.0, fallback=deny_all)
app = FastAPI()
app.add_middleware(RateLimitMiddleware, service=service, question=question)


@app.get("/orders")
async def orders() -> dict[str, list[str]]:
    return {"orders": []}
