import assert from "node:assert/strict";
import { test } from "node:test";
import { readRateLimitInfo, type LimitInfo } from "../src/info.ts";
import { vectors } from "./vectors.ts";

interface Vector {
  name: string;
  status: number;
  now: string;
  headers: [string, string][];
  understood: object;
}

for (const vector of vectors<Vector>("headers.json")) {
  test(vector.name, () => {
    const { denied, limits, retryAfterMs, waitMs } = readRateLimitInfo(vector.status, vector.headers, Date.parse(vector.now));
    const told = { denied, limits: limits.map(asInVectors), wait_ms: waitMs, retry_after_ms: retryAfterMs };
    assert.deepEqual(JSON.parse(JSON.stringify(told)), vector.understood);
  });
}

function asInVectors(limit: LimitInfo): object {
  const { name, partition, unit, quota, windowMs, remaining, resetMs } = limit;
  return { name, partition, unit: unit === "requests" ? undefined : unit, quota, window_ms: windowMs, remaining, reset_ms: resetMs };
}
