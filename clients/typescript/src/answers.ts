// What a Ratekeeper service is asked and answers, in JSON and in this language.

/** Who asks for what: entries in their order. An object will do unless keys are numbers. */
export interface Descriptor {
  readonly entries: Readonly<Record<string, string>> | readonly (readonly [key: string, value: string])[];
  /** The cost: 1 if absent, 0 only looks. */
  readonly hits?: number;
  /** Another namespace of rules for this descriptor. */
  readonly domain?: string;
}

/** A request to decide. */
export interface Question {
  /** The namespace of rules. */
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
  /** The longest that the request can be held back, in milliseconds: any by default. */
  readonly waitMsMax?: number;
}

/** A decision. What it says of a limit is of the most restrictive one, and undefined if none matches. */
export interface Decision {
  readonly allowed: boolean;
  /** True if a failure mode or the fallback answered. */
  readonly degraded: boolean;
  /** The ID of the rule. */
  readonly rule: string | undefined;
  /** The name of its policy in headers. */
  readonly policy: string | undefined;
  readonly limit: number | undefined;
  readonly remaining: number | undefined;
  /** Milliseconds until there is more. */
  readonly resetAfterMs: number | undefined;
  /** On a denial: milliseconds until the same hits would pass; undefined if they never will. */
  readonly retryAfterMs: number | undefined;
  /** Milliseconds to hold the request back. */
  readonly delayMs: number;
  /** Hits by which a post-paid bucket is below zero. */
  readonly debt: number;
  /** All policies that apply. */
  readonly policies: readonly DecidedPolicy[];
}

/** A policy that applies to a request. */
export interface DecidedPolicy {
  readonly name: string;
  readonly limit: number;
  readonly windowMs: number | undefined;
}

/** What limits an identifier: a limit of the call's own, or the ID of a rule. */
export type IdentifierLimit =
  | {
      /** Hits that pass in `durationMs`, for callers with the permission `override`. */
      readonly limit: number;
      /** The window in milliseconds, up to 366 days. */
      readonly durationMs: number;
      /** `sliding_window` by default, and `token_bucket` with a `burst`. */
      readonly algorithm?: string;
      /** Hits that pass at once after idle time. */
      readonly burst?: number;
      /** The namespace of the limit: `default` by default. */
      readonly domain?: string;
      /** The cost: 1 by default, 0 takes nothing. */
      readonly cost?: number;
    }
  | { readonly rule: string; readonly cost?: number };

/** The answer to an identifier. */
export interface LimitResult {
  /** True if the request may pass. */
  readonly success: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** When there is more: milliseconds since 1970. */
  readonly reset: number;
  /** On a denial: milliseconds until the same hits would pass; undefined if they never will. */
  readonly retryAfterMs: number | undefined;
  /** True if a failure mode or the fallback answered. */
  readonly degraded: boolean;
}

/** The identifier and its limit as the API has them. */
export function limitJson(identifier: string, by: IdentifierLimit): Json {
  if ("rule" in by) return { identifier, rule: by.rule, cost: by.cost };
  const { limit, durationMs, algorithm, burst, domain, cost } = by;
  return { identifier, limit, duration: durationMs, algorithm, burst, domain, cost };
}

/** The same as a question, for the fallback: the domain, or the ID of the rule, and the entry `identifier`. */
export function limitQuestion(identifier: string, by: IdentifierLimit): Question {
  const domain = "rule" in by ? by.rule : (by.domain ?? "default");
  return { domain, descriptors: [{ entries: { identifier }, ...(by.cost !== undefined && { hits: by.cost }) }] };
}

/** An answer to an identifier as the API has it. */
export function limitResult(json: Json): LimitResult {
  return {
    success: json["success"] === true,
    limit: count(json["limit"]) ?? 0,
    remaining: count(json["remaining"]) ?? 0,
    reset: count(json["reset"]) ?? 0,
    retryAfterMs: count(json["retry_after_ms"]),
    degraded: json["degraded"] === true,
  };
}

/** A decision of the fallback as the answer to an identifier. */
export function limitDecided(decided: Decision): LimitResult {
  return {
    success: decided.allowed,
    limit: decided.limit ?? 0,
    remaining: decided.remaining ?? 0,
    reset: Math.ceil(Date.now() + (decided.resetAfterMs ?? 0)),
    retryAfterMs: decided.retryAfterMs,
    degraded: decided.degraded,
  };
}

/** Words of the service for why a call failed, such as `INVALID_ARGUMENT` or `NOT_HELD`; `AWAY` if no service answered. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  readonly code: string;
  readonly status: number | undefined;
  /** The part of the request that is at fault. */
  readonly field: string | undefined;

  constructor(code: string, message: string, status?: number, field?: string, cause?: unknown) {
    super(message, { cause });
    this.code = code;
    this.status = status;
    this.field = field;
  }
}

export type Json = Readonly<Record<string, unknown>>;

/** The question as the API has it. */
export function questionJson(question: Question): Json {
  const { domain, descriptors, waitMsMax } = question;
  return {
    domain,
    descriptors: descriptors.map(({ entries, hits, domain: own }) => ({
      entries: pairs(entries).map(([key, value]) => ({ key, value })),
      hits,
      domain: own,
    })),
    wait_ms_max: waitMsMax,
  };
}

/** False for a check of which it is certain that the service refuses it, and with it what goes along. */
export function canGoTogether(body: Json): boolean {
  const descriptors = list(body["descriptors"]).map(object);
  const entries = descriptors.flatMap((one) => list(one["entries"]).map(object));
  const numbers = [...["wait_ms_max", "limit", "duration", "burst", "cost"].map((name) => body[name]), ...descriptors.map((one) => one["hits"])];
  return (
    entries.every(({ key, value }) => typeof key === "string" && key !== "" && typeof value === "string") &&
    numbers.every((number) => number === undefined || (Number.isInteger(number) && Number(number) >= 0 && Number(number) < 2 ** 64)) &&
    body["domain"] !== "" &&
    (body["descriptors"] === undefined || descriptors.length > 0)
  );
}

/** Entries in their order. */
export function pairs(entries: Descriptor["entries"]): (readonly [string, string])[] {
  return Array.isArray(entries) ? (entries as (readonly [string, string])[]) : Object.entries(entries as Record<string, string>);
}

/** A decision as the API has it. */
export function decision(json: Json): Decision {
  const standing = object(json["standing"]);
  const policies = list(standing["policies"]).map(object);
  return {
    allowed: json["decision"] === "allow",
    degraded: json["degraded"] === true,
    rule: text(json["rule"]),
    policy: text(object(object(standing["binding"])["policy"])["name"]),
    limit: count(json["limit"]),
    remaining: count(json["remaining"]),
    resetAfterMs: count(json["reset_after_ms"]),
    retryAfterMs: count(json["retry_after_ms"]),
    delayMs: count(json["delay_ms"]) ?? 0,
    debt: count(json["debt"]) ?? 0,
    policies: policies.map((policy) => ({
      name: text(policy["name"]) ?? "",
      limit: count(policy["limit"]) ?? 0,
      windowMs: scaled(count(policy["window_us"])),
    })),
  };
}

function scaled(micros: number | undefined): number | undefined {
  return micros === undefined ? undefined : micros / 1000;
}

/** True if the service can have said that: a page of something between has no code. */
export function hasWord(refusal: ServiceError): boolean {
  return !refusal.code.startsWith("HTTP_");
}

/** An error's body: problem details (RFC 9457) with a `code`, or `{"error": {…}}`. */
export function failure(status: number, body: unknown): ServiceError {
  const problem = object(body);
  const older = object(problem["error"]);
  const code = text(problem["code"]) ?? text(older["code"]) ?? `HTTP_${status}`;
  const message = text(problem["detail"]) ?? text(older["message"]) ?? text(problem["title"]) ?? `the service answered ${status}`;
  return new ServiceError(code, message, status, text(problem["field"]) ?? text(older["field"]));
}

export function object(value: unknown): Json {
  return isObject(value) ? value : {};
}

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

export function count(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? value : undefined;
}
