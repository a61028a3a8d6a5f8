"""Runs the vectors that all clients share."""

import json
import unittest
from datetime import datetime
from pathlib import Path
from typing import Any

from ratekeeper import LimitInfo, read_rate_limit_info

VECTORS = Path(__file__).parents[2] / "vectors" / "headers.json"


class Vectors(unittest.TestCase):
    def test_headers_are_understood(self) -> None:
        for vector in json.loads(VECTORS.read_text())["vectors"]:
            with self.subTest(vector["name"]):
                now = datetime.fromisoformat(vector["now"].replace("Z", "+00:00")).timestamp() * 1000
                info = read_rate_limit_info(vector["status"], [tuple(pair) for pair in vector["headers"]], now)
                told = {
                    "denied": info.denied,
                    "limits": [as_in_vectors(limit) for limit in info.limits],
                    "wait_ms": info.wait_ms,
                }
                if info.retry_after_ms is not None:
                    told["retry_after_ms"] = info.retry_after_ms
                self.assertEqual(told, vector["understood"])


def as_in_vectors(limit: LimitInfo) -> dict[str, Any]:
    parts = {name: part for name, part in vars(limit).items() if part is not None}
    if limit.unit == "requests":
        del parts["unit"]
    return parts


if __name__ == "__main__":
    unittest.main()
