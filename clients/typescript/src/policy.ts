// One policy of a server, as a client sees it: what is left for certain, and when there is more.
//
// Three things are known of it, and each is a lower bound on what is left:
//
// 1. An answer tells `remaining`. Whatever may have been decided after that answer is subtracted: requests that overlapped
//    with it, and those sent since.
// 2. An own log: a quota and a window hold at most `quota` requests in any span as long as the window. The log
//    counts a request until a window after its answer, when the server has certainly decided it. It is believed while it
//    explains what the answers tell; it does not where others use the same quota, or where bursts differ from the limit.
// 3. Time: after `reset` there is at least one more. That one goes alone, and its answer tells the rest.
//
// Nothing in here reads a clock: times are milliseconds that are passed in.

import { WAIT_MAX_MS, WAIT_UNTOLD_MS, type LimitInfo } from "./info.ts";

/** A request's place among the requests of a policy. */
interface Place {
  /** Its number among all requests sent. */
  readonly index: number;
  /** The requests that were under way when it was sent. */
  readonly overlapping: number;
  readonly sentAt: number;
  /** True if it was sent at a small bucket's rate. */
  readonly byRate: boolean;
}

/** What an answer says of the requests after it. */
interface Bound {
  remaining: number;
  /** Requests up to this number that were answered before cannot take from what remains; all others can. */
  readonly after: number;
  readonly answeredAt: number;
}

/** The place of a request that was sent before the policy was known. */
const EARLIER: Place = { index: 0, overlapping: 0, sentAt: -Infinity, byRate: false };

/** An answer's word on a policy. */
export interface Told {
  readonly denied: boolean;
  readonly remaining: number | undefined;
  /** True if the answer told `remaining` of this very policy. */
  readonly isOwn: boolean;
  /** The wait until there is more. */
  readonly moreMs: number | undefined;
}

/** The most requests that the own log remembers. Of larger quotas only answers tell. */
const LOG_MAX = 10_000;
/** The most answers that bounds are kept of. */
const BOUNDS_MAX = 64;
/** Sliding windows that group hits let them leave a little late. */
const LATE = 1.005;
/** Others' hits per own request, from which on the policy counts as shared. */
const SHARED_MIN = 0.05;
/** The most of them that are reckoned with. */
const OTHERS_MAX = 20;
/** The longest wait after denials that tell no time. */
const BACKOFF_MAX_MS = 60_000;
/** The most by which a wait grows because others were quicker, in times of itself. */
const AGAIN_MAX = 7;
/** Times in headers are whole seconds: a bucket that is full sooner than that is paced by its rate. */
const ROUNDING_MS = 1000;

export class Policy {
  quota: number | undefined;
  windowMs: number | undefined;
  #sent = 0;
  readonly #underWay = new Map<object, Place>();
  #bounds: Bound[] = [];
  /** When there is more than the bounds say. */
  #moreAt = 0;
  /** The request that goes alone to see whether there is more. */
  #probe: object | undefined;
  /** When requests were answered that the server let pass, oldest first. */
  #log: number[] = [];
  /** True if the own log explains what the answers tell; undefined before any told. */
  #isExplained: boolean | undefined;
  /** The most that was ever left, before the request that was told it. */
  #capacity = 0;
  /** What was left, and how many had passed, when no request was under way. */
  #anchor: { readonly remaining: number; readonly passed: number } | undefined;
  #passed = 0;
  /** Hits that were used up between such moments, and own requests among them; older ones count less. */
  #used = 0;
  #own = 0;
  /** Requests that passed at a small bucket's rate; undefined once one was denied. */
  #ratePassed: number | undefined = 0;
  /** When the last denial came. */
  #deniedAt = -Infinity;
  /** Denials in a row, of requests that were sent when there should have been more. */
  #misses = 0;
  readonly #random: () => number;

  constructor(underWay: Iterable<object>, random: () => number) {
    this.#random = random;
    // Requests that were sent before the policy was known may all count towards it.
    for (const ticket of underWay) this.#underWay.set(ticket, EARLIER);
    this.#sent = this.#underWay.size;
  }

  /** What the limit's policy says. A quota that changed makes a new bucket. */
  describe(limit: LimitInfo): void {
    if (limit.quota !== undefined && limit.quota !== this.quota) {
      this.quota = limit.quota;
      this.#capacity = 0;
      this.#anchor = undefined;
      this.#ratePassed = 0;
    }
    this.windowMs = limit.windowMs ?? this.windowMs;
  }

  /** Milliseconds until a request may be sent: 0 for now, infinite if only an answer can tell. */
  wait(now: number): number {
    if (this.#bounds.length === 0 && this.#moreAt === 0) return this.#logWait(now);
    const isOld = this.#isShared() && now >= this.#moreAt;
    if (!isOld && this.#isCovered()) return 0;
    const waits = [this.#probeWait(now), this.#rateWait(now)];
    if (this.#isExplained === true) waits.push(this.#logWait(now));
    return Math.min(...waits);
  }

  /** Counts a request as sent. */
  take(ticket: object, now: number): void {
    const isCovered = this.#isCovered();
    const isProbe = !isCovered && !this.#probe && this.#moreAt > 0 && now >= this.#moreAt;
    if (isProbe) this.#probe = ticket;
    const byRate = !isCovered && !isProbe && this.#rateWait(now) <= 0;
    const overlapping = this.#underWay.size;
    this.#sent += 1;
    this.#underWay.set(ticket, { index: this.#sent, overlapping, sentAt: now, byRate });
  }

  /** Counts a request as answered, and learns what its answer tells. */
  answered(ticket: object, told: Told, now: number): void {
    if (!told.denied) this.#misses = 0;
    else if (this.#probe === ticket) this.#misses += 1;
    const place = this.#settle(ticket) ?? EARLIER;
    if (!told.denied) this.#charge(now);
    const remaining = told.denied ? 0 : told.remaining;
    if (remaining === undefined) return place === EARLIER ? undefined : this.#lower();
    if (place.byRate && this.#ratePassed !== undefined) this.#ratePassed = told.denied ? undefined : this.#ratePassed + 1;
    // It may have been decided before the denial, which overtook it, and by a limit that was higher then.
    if (!told.denied && place.sentAt < this.#deniedAt) return;
    if (told.isOwn) this.#compare(remaining);
    if (told.denied) [this.#isExplained, this.#deniedAt] = [false, now];
    else if (told.isOwn) this.#explain(remaining, now);
    // A denial ends what others promised. What was sent after an answer arrived was decided after it.
    this.#bounds = this.#bounds.filter((bound) => !told.denied && bound.answeredAt > place.sentAt).slice(1 - BOUNDS_MAX);
    if (this.#bounds.length === 0) this.#moreAt = 0;
    this.#bounds.push({ remaining, after: place.index - place.overlapping, answeredAt: now });
    this.#moreAt = Math.max(this.#moreAt, now + this.#moreMs(told));
  }

  /** Counts a request as passed whose answer does not tell of this policy. */
  passed(ticket: object, now: number): void {
    if (!this.#settle(ticket)) return;
    this.#charge(now);
    this.#lower();
  }

  /** Counts a request that has no answer: it may have been let pass. */
  lost(ticket: object, now: number): void {
    const wasProbe = this.#probe === ticket;
    if (!this.#settle(ticket)) return;
    this.#charge(now);
    this.#lower();
    if (wasProbe) this.#moreAt = now + WAIT_UNTOLD_MS;
  }

  /** Takes one from what is left: a request passed whose answer does not tell. */
  #lower(): void {
    for (const bound of this.#bounds) bound.remaining -= 1;
  }

  #settle(ticket: object): Place | undefined {
    if (this.#probe === ticket) this.#probe = undefined;
    const place = this.#underWay.get(ticket);
    this.#underWay.delete(ticket);
    return place;
  }

  /** What is left for certain, if each own request comes with so many of others. */
  #left(others = 0): number {
    let left = -Infinity;
    for (const { remaining, after } of this.#bounds) left = Math.max(left, remaining / (1 + others) + after - this.#sent);
    if (this.#underWay.size > 0 || this.#bounds.length === 0) return left;
    // All are answered, so the least that any was told is what the last of them left.
    return Math.max(left, Math.min(...this.#bounds.map((bound) => bound.remaining)) / (1 + others));
  }

  /** True if what is left covers one more request, others' share set aside. */
  #isCovered(): boolean {
    // Others may be quicker with the last one.
    return this.#isShared() ? this.#left(this.#others()) >= 2 : this.#left() >= 1;
  }

  /** Hits of others for each own request. */
  #others(): number {
    if (this.#own === 0) return this.#used > 0 ? OTHERS_MAX : 0;
    return Math.min(Math.max(0, this.#used / this.#own - 1), OTHERS_MAX);
  }

  #isShared(): boolean {
    return this.#others() > SHARED_MIN;
  }

  #probeWait(now: number): number {
    return this.#probe ? Infinity : Math.max(0, this.#moreAt - now);
  }

  /** The wait by the own log. */
  #logWait(now: number): number {
    const { quota, windowMs } = this;
    if (quota === undefined || windowMs === undefined || quota > LOG_MAX) return this.#bounds.length === 0 ? 0 : Infinity;
    const span = this.#prune(windowMs, now);
    const over = this.#log.length + this.#underWay.size - Math.max(quota, 1);
    if (over < 0) return 0;
    const leaves = this.#log[over];
    return leaves === undefined ? Infinity : Math.max(0, leaves + span - now);
  }

  /** Takes from the log what has left the window, and returns how long that takes. */
  #prune(windowMs: number, now: number): number {
    const span = windowMs * LATE;
    let left = 0;
    while ((this.#log[left] ?? Infinity) + span <= now) left += 1;
    this.#log.splice(0, left);
    return span;
  }

  /** The wait at the rate of a bucket that fills within the second to which times are rounded. */
  #rateWait(now: number): number {
    const { quota, windowMs } = this;
    const last = this.#bounds.at(-1);
    if (!last || !quota || !windowMs || this.#ratePassed === undefined || this.#isShared()) return Infinity;
    // After a denial by a quota that is new, nothing is known of its bucket.
    const isSmall = this.#capacity > 0 && this.#capacity < 0.9 * quota && (this.#capacity * windowMs) / quota < ROUNDING_MS;
    // Such a bucket has more within a second, as it tells.
    if (!isSmall || this.#isExplained !== false || this.#moreAt > last.answeredAt + ROUNDING_MS) return Infinity;
    // The first goes alone; each that passes allows one more beside it.
    if (this.#underWay.size > Math.min(this.#ratePassed, this.#capacity)) return Infinity;
    const perHit = (windowMs / quota) * 1.02;
    // Some are left over, for requests that overtake each other.
    const missing = 1 + Math.floor(this.#capacity / 5) - this.#left();
    return Math.max(0, last.answeredAt + missing * perHit - now);
  }

  #charge(now: number): void {
    this.#passed += 1;
    if (this.quota === undefined || this.quota <= LOG_MAX) this.#log.push(now);
    if (this.#log.length > LOG_MAX) this.#log.shift();
  }

  /** Compares what is used up with what passed for this client: the rest went to others. */
  #compare(remaining: number): void {
    // Only then is it certain what of it was this client's.
    if (this.#underWay.size > 0) return;
    const before = this.#anchor;
    this.#anchor = { remaining, passed: this.#passed };
    const used = before ? before.remaining - remaining : -1;
    // More than before: a window ended, or a bucket was filled.
    if (!before || used < 0) return;
    this.#used = 0.7 * this.#used + used;
    this.#own = 0.7 * this.#own + this.#passed - before.passed;
  }

  /** Notes whether own requests explain all that is used up. */
  #explain(remaining: number, now: number): void {
    this.#capacity = Math.max(this.#capacity, remaining + 1);
    const unsure = this.#underWay.size;
    if (this.quota === undefined || this.windowMs === undefined || unsure > Math.max(1, this.quota / 10)) return;
    this.#prune(this.windowMs, now);
    const most = this.#log.length + unsure + remaining;
    const least = this.#log.length + remaining;
    this.#isExplained = most >= this.quota && least <= this.quota * 1.1 + 1 && this.#capacity >= 0.9 * this.quota;
  }

  #moreMs(told: Told): number {
    const again = Math.max(0, this.#misses - 1);
    if (told.moreMs === undefined) {
      if (!told.denied) return this.windowMs ?? WAIT_UNTOLD_MS;
      return Math.min(WAIT_UNTOLD_MS * 2 ** again, BACKOFF_MAX_MS);
    }
    // Others were told the same time: not all of them should come at once, and whoever came too late waits for longer.
    const jitter = this.#isShared() || again > 0 ? (0.1 + 0.4 * Math.min(again, 1)) * this.#random() : 0;
    return Math.min((told.moreMs || WAIT_UNTOLD_MS) * (1 + Math.min(again, AGAIN_MAX) + jitter), WAIT_MAX_MS);
  }
}
