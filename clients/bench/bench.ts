// The time that batches take with each client, and the requests that were wasted on denials.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import Bottleneck from "bottleneck";
import ky from "ky";
import pThrottle from "p-throttle";
import { createFetch } from "ratekeeper";
import { serve, startGateway } from "../typescript/test/live/binary.ts";
import { draw, type Point, type Run } from "./plot.ts";

/** Requests under way at once, for all clients. */
const WORKERS = 20;
/** A batch, and the limit that it runs into. */
interface Batch {
  readonly name: string;
  readonly requests: number;
  readonly perSecond: number;
}
const BATCHES: readonly Batch[] = [
  { name: "small", requests: 50, perSecond: 100 },
  { name: "large", requests: 10_000, perSecond: 250 },
];

/** How a client sends one request until it passes. */
type Send = (url: string, headers: Record<string, string>) => Promise<void>;

/** As many programs do: try again, after the wait that is told unless another is given. */
async function retrying(url: string, headers: Record<string, string>, waitMs?: number): Promise<void> {
  for (;;) {
    const answer = await fetch(url, { headers });
    await answer.arrayBuffer();
    if (answer.ok) return;
    const told = 1000 * Number(answer.headers.get("retry-after") ?? 1);
    await new Promise((resolve) => setTimeout(resolve, waitMs ?? told));
  }
}

/** Clients in TypeScript. Peers are told the limit; this one is not. */
const CLIENTS: Record<string, (perSecond: number) => Send> = {
  "a loop that tries again every 100 ms": () => (url, headers) => retrying(url, headers, 100),
  "**ratekeeper, TypeScript**": () => {
    const paced = createFetch({ budgetMs: Infinity });
    return async (url, headers) => {
      await (await paced(url, { headers })).arrayBuffer();
    };
  },
  "a loop that waits as Retry-After tells": () => retrying,
  "p-throttle, told the limit": (perSecond) => pThrottle({ limit: perSecond, interval: 1000 })((url: string, headers: Record<string, string>) =>
    retrying(url, headers)),
  "bottleneck, told the limit": (perSecond) => {
    const limiter = new Bottleneck({ reservoir: perSecond, reservoirRefreshAmount: perSecond, reservoirRefreshInterval: 1000 });
    return (url, headers) => limiter.schedule(() => retrying(url, headers));
  },
  "ky, which retries": () => {
    const client = ky.create({ retry: { limit: 1000 }, timeout: false });
    return async (url, headers) => {
      await client.get(url, { headers }).arrayBuffer();
    };
  },
};
/** Clients in Python, by their names there. */
const PYTHON: Record<string, string> = {
  "**ratekeeper, Python (httpx)**": "ratekeeper",
  "aiolimiter, told the limit": "aiolimiter",
  "urllib3's Retry": "urllib3",
};

async function batch(send: Send, requests: number, url: string, headers: Record<string, string>): Promise<void> {
  let left = requests;
  const work = async (): Promise<void> => {
    while (left-- > 0) await send(url, headers);
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
}

async function python(name: string, { requests, perSecond }: Batch, url: string, key: string): Promise<void> {
  const script = new URL("bench.py", import.meta.url).pathname;
  const args = [script, name, String(requests), String(perSecond), String(WORKERS), url, key];
  const child = spawn("python3", args, { stdio: ["ignore", "pipe", "inherit"] });
  // What counts is from the first answer to the last, not the start of Python.
  const [[code], said] = await Promise.all([once(child, "close"), text(child.stdout)]);
  if (code !== 0) throw new Error(`${name} ended with ${String(code)}: ${said}`);
}

/** What the gateway's access log tells, once it tells of so many requests that passed. */
async function logged(file: string, passed: number): Promise<Point[]> {
  for (;;) {
    const lines = readFileSync(file, "utf8").split("\n").filter((line) => line !== "");
    const points = lines.map((line) => {
      const { time, status } = JSON.parse(line) as { time: string; status: number };
      return { at: Date.parse(time), denied: status === 429 };
    });
    if (points.filter((point) => !point.denied).length >= passed) return points.sort((a, b) => a.at - b.at);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Runs a client against a gateway of its own, whose access log says what it did. */
async function measured(of: Batch, client: string, run: (url: string, key: string) => Promise<void>): Promise<Run> {
  const upstream = await serve((_request, answer) => { answer.end("ok"); });
  const rules = `domain: api\ndescriptors:\n  - { key: api_key, rate_limit: { window: 1s, limit: ${of.perSecond}, algorithm: sliding_log } }\n`;
  const gateway = await startGateway(rules, upstream.url, ["--access-log", "access.log"]);
  try {
    await run(`${gateway.url("gateway")}/orders`, "bench");
    return { client, batch: of.name, points: await logged(`${gateway.folder}/access.log`, of.requests) };
  } finally {
    await gateway.stop();
    await upstream.stop();
  }
}

const runs: Run[] = [];
for (const of of BATCHES) {
  for (const [name, make] of Object.entries(CLIENTS)) {
    runs.push(await measured(of, name, (url, key) => batch(make(of.perSecond), of.requests, url, { "x-api-key": key })));
    tell(runs.at(-1));
  }
  for (const [name, inPython] of Object.entries(PYTHON)) {
    runs.push(await measured(of, name, (url, key) => python(inPython, of, url, key)));
    tell(runs.at(-1));
  }
}

function tell(run: Run | undefined): void {
  if (!run) return;
  const denied = run.points.filter((point) => point.denied).length;
  const seconds = ((run.points.at(-1)?.at ?? 0) - (run.points[0]?.at ?? 0)) / 1000;
  console.log(`| ${run.batch} | ${run.client} | ${seconds.toFixed(2)} s | ${denied.toLocaleString("en")} | ${run.points.length.toLocaleString("en")} |`);
}

const [, , file = "clients.svg"] = process.argv;
writeFileSync(file, draw(runs.filter((run) => run.batch === "large").slice(0, 2)));
