// Reads what an answer tells of rate limits. The rules are those of ../../vectors/README.md.

import { parseList, type Bare, type Member } from "./structured.ts";
import { date, number, span } from "./times.ts";

/** What an answer tells of one limit. Undefined is what it does not tell. */
export interface LimitInfo {
  /** The policy's name; empty if it has none. */
  readonly name: string;
  /** The partition that the policy's quota is counted for, as it stands in the header. */
  readonly partition: string | undefined;
  /** What is counted: `requests`, `tokens`, `content-bytes`, `concurrent-requests` or other words. */
  readonly unit: string;
  /** How much a window holds. */
  readonly quota: number | undefined;
  /** The window's length in milliseconds. */
  readonly windowMs: number | undefined;
  /** How much is left. */
  readonly remaining: number | undefined;
  /** Milliseconds until there is more. */
  readonly resetMs: number | undefined;
}

/** What an answer tells of rate limits. */
export interface RateLimitInfo {
  /** True if the answer refuses the request because of a limit or of overload. */
  readonly denied: boolean;
  /** All limits that it tells of. */
  readonly limits: readonly LimitInfo[];
  /** Milliseconds that `Retry-After` asks to wait. */
  readonly retryAfterMs: number | undefined;
  /** Milliseconds to wait before the next such request; 0 if it may be sent now, and never more than an hour. */
  readonly waitMs: number;
}

/** The longest wait that an answer can cause. Whoever waited as long asks again. */
export const WAIT_MAX_MS = 3_600_000;

/** The wait after a denial that tells no time. */
export const WAIT_UNTOLD_MS = 1000;

/** Headers: a `Headers`, or pairs of names and values. */
export type HeaderPairs = Iterable<readonly [string, string]>;

type Writable = { -readonly [K in keyof LimitInfo]: LimitInfo[K] };

/** Reads an answer's status and headers; `now` is the client's clock in milliseconds since 1970. */
export function readRateLimitInfo(status: number, headers: HeaderPairs, now: number = Date.now()): RateLimitInfo {
  const fields = new Map<string, string>();
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    const before = fields.get(key);
    fields.set(key, before === undefined ? value.trim() : `${before}, ${value.trim()}`);
  }
  const clock = date(fields.get("date") ?? "") ?? now;
  const isCached = (number(fields.get("age") ?? "") ?? 0) > 0;
  const limits = isCached ? [] : merged(draft(fields), legacy(fields, clock));
  const retryAfterMs = retryAfter(fields.get("retry-after"), clock);
  const isEmpty = limits.some((limit) => limit.remaining === 0);
  const denied =
    status === 429 || (status === 403 && (retryAfterMs !== undefined || isEmpty)) || (status === 503 && retryAfterMs !== undefined);
  return { denied, limits, retryAfterMs, waitMs: waitOf(denied, limits, retryAfterMs) };
}

function waitOf(denied: boolean, limits: readonly LimitInfo[], retryAfterMs: number | undefined): number {
  const resets = limits.filter((limit) => limit.remaining === 0 && isPaced(limit)).map((limit) => limit.resetMs ?? WAIT_UNTOLD_MS);
  const wait = Math.max(0, ...resets);
  if (!denied) return Math.min(wait, WAIT_MAX_MS);
  return Math.min(retryAfterMs ?? (wait || WAIT_UNTOLD_MS), WAIT_MAX_MS);
}

/** True if a request costs one of what the limit counts. */
export function isPaced(limit: LimitInfo): boolean {
  return limit.unit === "requests";
}

/** The largest of the waits it asks for: it may be told twice. */
function retryAfter(text: string | undefined, clock: number): number | undefined {
  if (text === undefined) return undefined;
  const whole = date(text);
  if (whole !== undefined) return Math.max(0, whole - clock);
  return largest(text.split(",").map((part) => {
    const seconds = number(part.trim());
    return seconds === undefined || seconds < 0 ? undefined : Math.ceil(seconds * 1000);
  }));
}

/** `RateLimit-Policy` and `RateLimit` of the IETF draft, its older forms included. */
function draft(fields: ReadonlyMap<string, string>): Writable[] {
  const limits: Writable[] = [];
  const find = (name: string, partition: string | undefined): Writable => {
    const found = limits.find((limit) => limit.name === name && limit.partition === partition);
    if (found) return found;
    const fresh = untold(name, partition);
    limits.push(fresh);
    return fresh;
  };
  for (const member of members(fields.get("ratelimit-policy"))) {
    const { params, value } = member;
    // Older drafts write the quota where the name stands now.
    const quota = natural(params.get("q") ?? (typeof value === "number" ? value : undefined));
    if (quota === undefined) continue;
    const limit = find(nameOf(member), partitionOf(params));
    limit.quota = smaller(limit.quota, quota);
    const window = natural(params.get("w"));
    if (window !== undefined && window > 0) limit.windowMs = larger(limit.windowMs, window * 1000);
    const unit = params.get("qu");
    if (typeof unit === "string") limit.unit = unit === "request" ? "requests" : unit;
  }
  const told = members(fields.get("ratelimit"));
  if (told.some((member) => member.key !== undefined)) {
    const part = (key: string): number | undefined => counted(told.find((member) => member.key === key)?.value);
    const limit = only(limits) ?? find("", undefined);
    tell(limit, part("remaining"), seconds(part("reset")));
    limit.quota = smaller(limit.quota, natural(part("limit")));
    return limits;
  }
  for (const member of told) {
    const remaining = counted(member.params.get("r"));
    if (remaining === undefined || typeof member.value !== "string") continue;
    tell(find(nameOf(member), partitionOf(member.params)), remaining, seconds(member.params.get("t")));
  }
  return limits;
}

function members(text: string | undefined): Member[] {
  return (text && parseList(text)) || [];
}

function nameOf(member: Member): string {
  return typeof member.value === "string" ? member.value : "";
}

function partitionOf(params: ReadonlyMap<string, Bare>): string | undefined {
  const partition = params.get("pk");
  return typeof partition === "string" ? partition : undefined;
}

const LEGACY = /^(?:x-)?rate-?limit-(limit|remaining|reset|used|resource)(?:-(.+))?$/;
const WINDOWS: Record<string, number> = {
  second: 1000, minute: 60_000, hour: 3_600_000, day: 86_400_000, month: 2_592_000_000, year: 31_536_000_000,
};

/** The families of `X-RateLimit-Limit`, `-Remaining` and `-Reset`. */
function legacy(fields: ReadonlyMap<string, string>, clock: number): Writable[] {
  const limits = new Map<string, Writable>();
  const find = (suffix: string): Writable => {
    const found = limits.get(suffix);
    if (found) return found;
    const windowMs = WINDOWS[suffix];
    const fresh = untold(windowMs === undefined && suffix !== "requests" && suffix !== "tokens" ? suffix : "", undefined);
    if (windowMs !== undefined) fresh.windowMs = windowMs;
    if (suffix === "tokens") fresh.unit = "tokens";
    limits.set(suffix, fresh);
    return fresh;
  };
  const others: Writable[] = [];
  for (const [name, text] of fields) {
    const [, kind, suffix = ""] = LEGACY.exec(name) ?? [];
    if (kind === undefined || kind === "used") continue;
    const limit = find(suffix);
    const [parts, extra] = listed(text);
    if (kind === "resource") limit.name = text;
    if (kind === "remaining") tell(limit, parts.reduce(smaller, undefined), undefined);
    if (kind === "reset") tell(limit, undefined, largest(text.split(",").map((part) => reset(part.trim(), clock))));
    if (kind === "limit") {
      const quota = parts.find((part) => part !== undefined && part >= 0);
      limit.quota = smaller(limit.quota, quota);
      describe(limit, extra, others);
    }
  }
  const tells = (limit: LimitInfo): boolean => limit.quota !== undefined || limit.remaining !== undefined || limit.resetMs !== undefined;
  return [...limits.values(), ...others].filter(tells);
}

/** `10, 10;w=1;name="a", 600;w=60`: the numbers before each semicolon, and members with parameters. */
function listed(text: string): [(number | undefined)[], Member[]] {
  const parts = text.split(",").map((part) => number((part.split(";")[0] ?? "").trim()));
  return [parts, text.includes(";") ? members(text) : []];
}

/** Gives `limit` the window that `entries` tell for its quota, and `others` a limit for each further one. */
function describe(limit: Writable, entries: readonly Member[], others: Writable[]): void {
  let isDescribed = false;
  for (const { value, params } of entries) {
    const quota = natural(value);
    const window = natural(params.get("w"));
    if (quota === undefined || window === undefined || window === 0) continue;
    const name = params.get("name");
    let one = limit;
    if (quota !== limit.quota || isDescribed) {
      one = untold("", undefined);
      one.quota = quota;
      others.push(one);
    } else {
      isDescribed = true;
    }
    if (typeof name === "string") one.name = name;
    one.windowMs = window * 1000;
  }
}

/** A wait in seconds, a duration, or a point in time: in seconds or milliseconds since 1970, or a date. */
function reset(text: string, clock: number): number | undefined {
  const value = number(text);
  let at = date(text);
  if (value !== undefined && value >= 1e12) at = value;
  else if (value !== undefined && value >= 1e9) at = value * 1000;
  else if (value !== undefined) return value < 0 ? undefined : Math.ceil(value * 1000);
  if (at === undefined) {
    const wait = span(text);
    return wait === undefined ? undefined : Math.ceil(wait);
  }
  // A time that is over tells nothing: two clocks disagree, or the answer is old.
  return at < clock ? undefined : Math.ceil(at - clock);
}

/** The limits of the draft, and those of older families that are not the same ones in other words. */
function merged(limits: Writable[], older: Writable[]): LimitInfo[] {
  for (const one of older) {
    const same = limits.find((limit) => isSame(limit, one));
    if (!same) {
      limits.push(one);
      continue;
    }
    same.quota = smaller(same.quota, one.quota);
    same.windowMs ??= one.windowMs;
    same.name ||= one.name;
    tell(same, one.remaining, one.resetMs);
  }
  return limits.map((limit) => ({ ...limit }));
}

function isSame(limit: LimitInfo, one: LimitInfo): boolean {
  if (limit.unit !== one.unit || (limit.name && one.name && limit.name !== one.name)) return false;
  if (limit.windowMs !== undefined && one.windowMs !== undefined && limit.windowMs !== one.windowMs) return false;
  // Without what is left there is nothing to contradict.
  if (limit.remaining === undefined && one.remaining !== undefined) return false;
  return limit.quota === undefined || one.quota === undefined || limit.quota === one.quota;
}

/** Adds to what is known; of two tellings the more careful one stays. */
function tell(limit: Writable, remaining: number | undefined, resetMs: number | undefined): void {
  limit.remaining = smaller(limit.remaining, remaining === undefined ? undefined : Math.max(0, Math.floor(remaining)));
  limit.resetMs = larger(limit.resetMs, resetMs);
}

function untold(name: string, partition: string | undefined): Writable {
  return { name, partition, unit: "requests", quota: undefined, windowMs: undefined, remaining: undefined, resetMs: undefined };
}

function only<T>(items: readonly T[]): T | undefined {
  return items.length === 1 ? items[0] : undefined;
}

function counted(value: Bare | undefined): number | undefined {
  return typeof value === "number" && Number.isInteger(value) ? value : undefined;
}

function natural(value: Bare | undefined): number | undefined {
  const count = counted(value);
  return count === undefined || count < 0 ? undefined : count;
}

/** A number of seconds, in milliseconds. */
function seconds(value: Bare | undefined): number | undefined {
  const count = natural(value);
  return count === undefined ? undefined : count * 1000;
}

function smaller(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b);
}

function larger(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.max(a, b);
}

function largest(values: readonly (number | undefined)[]): number | undefined {
  return values.reduce(larger, undefined);
}
