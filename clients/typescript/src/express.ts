// Middleware for Express, and what else has its handlers: asks a Ratekeeper service whether a request may pass.

import { hasWord, ServiceError, type Decision, type Question } from "./answers.ts";
import { sleep } from "./fetch.ts";
import type { Ratekeeper } from "./service.ts";

/** What is used of an answer of Express, or of `node:http`. */
export interface OutgoingAnswer {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}

export interface LimitOptions<Request> {
  readonly service: Ratekeeper;
  /** The request as the rules know it; undefined lets it pass. */
  readonly question: (request: Request) => Question | undefined;
}

/** The body of an answer (RFC 9457). */
interface Problem {
  readonly status: number;
  readonly [part: string]: unknown;
}

const UNAVAILABLE: Problem = {
  type: "about:blank",
  title: "Service Unavailable",
  status: 503,
  detail: "The rate limiter is unavailable.",
  code: "UNAVAILABLE",
};

/**
 * Lets requests pass that the service allows, and answers others with 429. Both get rate limit headers,
 * but for those that the application sets itself.
 *
 * A request is answered with 503 if no limit denies it: the fallback does, or the service cannot decide because of what
 * is in it, or something between gives a page instead of its answer. The fallback decides too if the service refuses the
 * application itself, such as its token.
 */
export function rateLimit<Request>(
  options: LimitOptions<Request>,
): (request: Request, answer: OutgoingAnswer, next: (error?: unknown) => void) => void {
  return (request, answer, next) => {
    decide(options, request, answer).then((allowed) => { if (allowed) next(); }, next);
  };
}

async function decide<Request>({ service, question }: LimitOptions<Request>, request: Request, answer: OutgoingAnswer): Promise<boolean> {
  const asked = question(request);
  if (!asked) return true;
  const decision = await decided(service, asked);
  if (!decision || (!decision.allowed && decision.degraded && decision.limit === undefined)) {
    answer.setHeader("Retry-After", "1");
    refuse(answer, UNAVAILABLE);
    return false;
  }
  for (const [name, value] of rateLimitHeaders(decision)) answer.setHeader(name, value);
  if (decision.allowed) {
    if (decision.delayMs > 0) await sleep(decision.delayMs);
    return true;
  }
  refuse(answer, problem(decision));
  return false;
}

/** Undefined if it cannot be decided. Callers influence what is in it: the fallback would be a way around limits. */
async function decided(service: Ratekeeper, question: Question): Promise<Decision | undefined> {
  try {
    return await service.check(question);
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (!hasWord(error) || error.code === "INVALID_ARGUMENT" || error.code === "TOO_LARGE") return undefined;
    // The service does not know this application, which is no fault of its callers.
    return service.fallback(question);
  }
}

function refuse(answer: OutgoingAnswer, body: Problem): void {
  answer.statusCode = body.status;
  answer.setHeader("content-type", "application/problem+json");
  answer.end(JSON.stringify(body));
}

/** `RateLimit-Policy`, `RateLimit` and `Retry-After` of a decision. */
export function rateLimitHeaders(decision: Decision): [string, string][] {
  const { policy, remaining, policies, allowed, resetAfterMs, retryAfterMs } = decision;
  const headers: [string, string][] = [];
  const listed = policies.map(({ name, limit, windowMs }) => {
    const seconds = (windowMs ?? 0) / 1000;
    return `${quoted(name)};q=${limit}${Number.isInteger(seconds) && seconds > 0 ? `;w=${seconds}` : ""}`;
  });
  if (listed.length > 0) headers.push(["RateLimit-Policy", listed.join(", ")]);
  if (policy !== undefined && remaining !== undefined) {
    const wait = Math.ceil(((allowed ? resetAfterMs : (retryAfterMs ?? resetAfterMs)) ?? 0) / 1000);
    headers.push(["RateLimit", `${quoted(policy)};r=${remaining};t=${wait}`]);
  }
  if (!allowed && retryAfterMs !== undefined) headers.push(["Retry-After", String(Math.max(1, Math.ceil(retryAfterMs / 1000)))]);
  return headers;
}

function problem({ policy, retryAfterMs }: Decision): Problem {
  const when = retryAfterMs === undefined ? "" : ` Retry after ${Math.max(1, Math.ceil(retryAfterMs / 1000))} seconds.`;
  return {
    type: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "Quota Exceeded",
    status: 429,
    detail: `Rate limit exceeded.${when}`,
    code: "RATE_LIMITED",
    ...(policy !== undefined && { "violated-policies": [policy] }),
  };
}

/** A string of RFC 9651; characters that it cannot hold are percent-encoded. */
function quoted(name: string): string {
  const held = name.replace(/[^\x20-\x7e]/gu, encodeURIComponent);
  return `"${held.replace(/["\\]/g, "\\$&")}"`;
}

