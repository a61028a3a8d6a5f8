// A `fetch` that keeps to rate limits: it paces itself ahead of them, and retries what is worth it.

import { Gate } from "./gate.ts";
import { readRateLimitInfo, WAIT_MAX_MS, type RateLimitInfo } from "./info.ts";
import type { Lane, Ticket } from "./pacer.ts";

/** The part of `fetch` that is wrapped. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** What happened to a request; for metrics and logs. */
export type FetchEvent =
  /** It waited for its turn. */
  | { readonly type: "paced"; readonly lane: Lane; readonly waitedMs: number }
  /** It was answered. */
  | { readonly type: "answered"; readonly lane: Lane; readonly status: number; readonly info: RateLimitInfo; readonly tookMs: number }
  /** It is tried again after a wait. */
  | { readonly type: "retry"; readonly lane: Lane; readonly attempt: number; readonly waitMs: number; readonly status: number | undefined }
  /** Its denial or failure is handed to the caller though it could be tried again. */
  | { readonly type: "gave-up"; readonly lane: Lane; readonly attempt: number; readonly status: number | undefined };

export interface FetchOptions {
  /** What sends the requests; the global `fetch` by default. */
  readonly fetch?: Fetch;
  /** What the workers of a process share; one of its own by default. `false` does not pace. */
  readonly gate?: Gate | false;
  /** The time that a request may take until its answer begins, waits and retries included, in milliseconds: 60,000 by default. */
  readonly budgetMs?: number;
  /** The most retries of a request: 5 by default. */
  readonly retries?: number;
  /** Methods that are retried: those that are idempotent, by default. */
  readonly retryMethods?: readonly string[];
  /** The wait before the nth retry is a random part of `baseMs` times 2^n, and of at most `maxMs`: 200 and 20,000 by default. */
  readonly backoff?: { readonly baseMs?: number; readonly maxMs?: number };
  /** Names whose limits a request counts towards: by default its origin and credentials, and its method and path without IDs. */
  readonly lane?: (url: URL, method: string, headers: Headers) => Lane;
  /** Is told what happens. What it throws ends the request, and reaches the caller. */
  readonly onEvent?: (event: FetchEvent) => void;
  /** Numbers from 0 to 1; `Math.random` by default. */
  readonly random?: () => number;
}

/** Methods whose repetition changes nothing (RFC 9110, section 9.2.2). */
const IDEMPOTENT = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/** Other schemes fail each time. */
const HTTP = /^https?:$/;

/** Answers of a server that may be better the next time. */
const PASSING_FAULTS = new Set([408, 502, 503, 504]);

/** Wraps `fetch`. */
export function createFetch(options: FetchOptions = {}): Fetch {
  const client = new Client(options);
  return (input, init) => client.send(input, init);
}

class Client {
  readonly #fetch: Fetch;
  readonly #gate: Gate | undefined;
  readonly #options: FetchOptions;

  constructor(options: FetchOptions) {
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.#gate = options.gate === false ? undefined : (options.gate ?? new Gate());
    this.#options = options;
  }

  async send(input: string | URL | Request, init: RequestInit = {}): Promise<Response> {
    const { budgetMs = 60_000, retries = 5, retryMethods = IDEMPOTENT, lane: laneOf = defaultLane } = this.#options;
    const request = input instanceof Request ? input : undefined;
    const method = (init.method ?? request?.method ?? "GET").toUpperCase();
    const url = new URL(request?.url ?? String(input), globalThis.location?.href);
    const lane = laneOf(url, method, new Headers(init.headers ?? request?.headers));
    const signal = init.signal ?? request?.signal;
    const mayRetry = retryMethods.includes(method) && isRepeatable(init.body) && HTTP.test(url.protocol);
    const deadline = performance.now() + budgetMs;
    for (let attempt = 0; ; attempt++) {
      const isLast = !mayRetry || attempt >= retries;
      // A body can be read once: later attempts need a copy.
      const sent = request && !isLast ? request.clone() : input;
      const ticket = await this.#enter(lane, deadline, signal);
      const begun = performance.now();
      let response: Response;
      try {
        response = await this.#exchange(sent, init, ticket, deadline, signal);
      } catch (error) {
        const wait = isLast || signal?.aborted ? undefined : this.#again(lane, attempt, undefined, deadline);
        if (wait === undefined) throw error;
        await sleep(wait, signal);
        continue;
      }
      let wait: number | undefined;
      try {
        const answer = this.#learn(response, lane, ticket, performance.now() - begun);
        const mayPass = answer.info.denied || PASSING_FAULTS.has(response.status);
        wait = isLast || !mayPass ? undefined : this.#again(lane, attempt, answer, deadline);
      } catch (error) {
        letGo(response);
        throw error;
      }
      if (wait === undefined) return response;
      letGo(response);
      if (wait > 0) await sleep(wait, signal);
    }
  }

  async #enter(lane: Lane, deadline: number, signal: AbortSignal | undefined): Promise<Ticket | undefined> {
    if (!this.#gate) return undefined;
    const begun = performance.now();
    const ticket = await this.#gate.enter(lane, deadline, signal);
    const waitedMs = ticket.sentAt - begun;
    try {
      if (waitedMs >= 1) this.#tell({ type: "paced", lane, waitedMs });
    } catch (error) {
      this.#gate.lost(ticket);
      throw error;
    }
    return ticket;
  }

  /** Sends it once. */
  async #exchange(
    input: string | URL | Request, init: RequestInit, ticket: Ticket | undefined, deadline: number, signal: AbortSignal | undefined,
  ): Promise<Response> {
    const timeout = new AbortController();
    const left = deadline - performance.now();
    const timer = left < 2 ** 31 ? setTimeout(() => timeout.abort(new DOMException("the budget of time is used up", "TimeoutError")), left) : undefined;
    try {
      const both = signal ? AbortSignal.any([signal, timeout.signal]) : timeout.signal;
      return await this.#fetch(input, { ...init, signal: both });
    } catch (error) {
      if (ticket) this.#gate?.lost(ticket);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Learns from an answer. */
  #learn(response: Response, lane: Lane, ticket: Ticket | undefined, tookMs: number): Answer {
    const info = readRateLimitInfo(response.status, response.headers);
    if (ticket) this.#gate?.answered(ticket, info);
    this.#tell({ type: "answered", lane, status: response.status, info, tookMs });
    return { response, info };
  }

  /** The wait before the next attempt; undefined if there is no time for it. */
  #again(lane: Lane, attempt: number, answer: Answer | undefined, deadline: number): number | undefined {
    const { baseMs = 200, maxMs = 20_000 } = this.#options.backoff ?? {};
    const random = this.#options.random ?? Math.random;
    const jitter = random() * Math.min(maxMs, baseMs * 2 ** attempt);
    const status = answer?.response.status;
    const told = answer ? toldMs(answer.info) : 0;
    // Never earlier than told. The gate itself spreads those that it holds back.
    const isHeldBack = answer?.info.denied === true && this.#gate !== undefined;
    const waitMs = isHeldBack ? told : told + jitter;
    if (performance.now() + waitMs >= deadline) {
      this.#tell({ type: "gave-up", lane, attempt, status });
      return undefined;
    }
    this.#tell({ type: "retry", lane, attempt: attempt + 1, waitMs, status });
    return isHeldBack ? 0 : waitMs;
  }

  #tell(event: FetchEvent): void {
    this.#options.onEvent?.(event);
  }
}

interface Answer {
  readonly response: Response;
  readonly info: RateLimitInfo;
}

/** The wait that an answer asks for: of a fault that is no denial, too. */
function toldMs(info: RateLimitInfo): number {
  return info.denied ? info.waitMs : Math.max(info.waitMs, Math.min(info.retryAfterMs ?? 0, WAIT_MAX_MS));
}

/** Credentials by which servers tell who calls. */
const CREDENTIALS = ["authorization", "x-api-key", "api-key"];

/** The most credentials that have a mark; the least recently used ones get another one. */
const MARKS_MAX = 1000;
const marks = new Map<string, string>();
let marked = 0;

/** What stands for a credential in this process. */
function markOf(credential: string): string {
  if (credential === "") return "";
  const mark = marks.get(credential) ?? String(++marked);
  marks.delete(credential);
  marks.set(credential, mark);
  if (marks.size > MARKS_MAX) marks.delete(marks.keys().next().value ?? "");
  return mark;
}

/**
 * One budget for each origin and credential, and one route for each method and path, IDs left out. Events tell of lanes: a
 * mark stands for each credential.
 */
export function defaultLane(url: URL, method: string, headers: Headers): Lane {
  const credentials = CREDENTIALS.map((name) => markOf(headers.get(name) ?? ""));
  return { budget: JSON.stringify([url.origin, ...credentials]), route: `${method} ${url.pathname.split("/").map(template).join("/")}` };
}

/** A path's segment, or `*` for a number, a UUID or a long string with digits. */
function template(segment: string): string {
  return /^\d+$|^[0-9a-f-]{16,}$/i.test(segment) || (segment.length >= 16 && /\d/.test(segment)) ? "*" : segment;
}

/** Frees the connection of an answer that nobody gets. It may have broken off. */
function letGo(response: Response): void {
  response.body?.cancel().catch(() => {});
}

/** True unless the body is a stream, which can be sent once. */
function isRepeatable(body: unknown): boolean {
  return typeof body !== "object" || body === null || !(Symbol.asyncIterator in body || body instanceof ReadableStream);
}

/** Waits, or fails with the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((wake, fail) => {
    if (signal?.aborted) return fail(signal.reason as Error);
    const onAbort = (): void => {
      clearTimeout(timer);
      fail(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      wake();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
