"""Runs one batch with one client in Python: NAME REQUESTS PER_SECOND WORKERS URL KEY."""

from __future__ import annotations

import asyncio
import math
import sys
import threading

import httpx
import urllib3
from aiolimiter import AsyncLimiter

from ratekeeper import Options
from ratekeeper.httpx import AsyncRateLimitTransport


async def with_httpx(client: httpx.AsyncClient, requests: int, workers: int, url: str, limiter: AsyncLimiter | None) -> None:
    left = iter(range(requests))

    async def send() -> None:
        while True:
            if limiter:
                await limiter.acquire()
            answer = await client.get(url)
            if answer.is_success:
                return
            await asyncio.sleep(float(answer.headers.get("retry-after", 1)))

    async def work() -> None:
        for _ in left:
            await send()

    async with client:
        await asyncio.gather(*(work() for _ in range(workers)))


def with_urllib3(requests: int, workers: int, url: str, headers: dict[str, str]) -> None:
    retry = urllib3.Retry(total=1000, status_forcelist=[429], backoff_factor=0.2)
    pool = urllib3.PoolManager(maxsize=workers, retries=retry, headers=headers)
    left = iter(range(requests))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            pool.request("GET", url)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    name, requests, per_second, workers, url, key = sys.argv[1:]
    headers = {"x-api-key": key}
    count, at_once = int(requests), int(workers)
    if name == "urllib3":
        return with_urllib3(count, at_once, url, headers)
    paced = AsyncRateLimitTransport(options=Options(budget=math.inf)) if name == "ratekeeper" else None
    client = httpx.AsyncClient(transport=paced, headers=headers, timeout=60)
    limiter = AsyncLimiter(int(per_second), 1) if name == "aiolimiter" else None
    asyncio.run(with_httpx(client, count, at_once, url, limiter))


if __name__ == "__main__":
    main()
