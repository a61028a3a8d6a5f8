// Lets requests through one after another, when their pacer says so.

import type { RateLimitInfo } from "./info.ts";
import { Pacer, type Lane, type PacerOptions, type Ticket } from "./pacer.ts";

/** The request was not sent: the limit would not let it pass within its budget of time. */
export class RateLimitError extends Error {
  override readonly name = "RateLimitError";
  /** Milliseconds until it could have been sent, if known. */
  readonly waitMs: number;
  /** The policy that it waited for, if known. */
  readonly policy: string | undefined;

  constructor(waitMs: number, policy: string | undefined) {
    const when = Number.isFinite(waitMs) ? `for another ${Math.ceil(waitMs)} ms` : "for answers to other requests";
    super(`not sent: the limit${policy ? ` "${policy}"` : ""} makes it wait ${when}, longer than its budget of time`);
    this.waitMs = waitMs;
    this.policy = policy;
  }
}

/** A place in the queue. */
interface Waiter {
  readonly deadline: number;
  readonly enter: (ticket: Ticket) => void;
  readonly fail: (reason: unknown) => void;
  readonly timer: ReturnType<typeof setTimeout> | undefined;
  policy: string | undefined;
}

interface Queue {
  readonly lane: Lane;
  readonly waiters: Waiter[];
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** The longest time that a timer can be set to. */
export const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * What the workers of a process share, so that together they keep to a server's limits: give one to several clients of one
 * server.
 */
export class Gate {
  readonly #pacer: Pacer;
  readonly #queues = new Map<string, Map<string, Queue>>();

  constructor(options: PacerOptions = {}) {
    this.#pacer = new Pacer(options);
  }

  /**
   * Waits until a request may be sent; the ticket must be answered or lost. Fails with a `RateLimitError` if that is not
   * before `deadline` (of `performance.now()`), and with the signal's reason if that aborts.
   */
  enter(lane: Lane, deadline: number = Infinity, signal?: AbortSignal): Promise<Ticket> {
    signal?.throwIfAborted();
    const queue = this.#queue(lane);
    if (queue.waiters.length === 0) {
      const ticket = this.#pacer.take(lane, performance.now());
      if ("sentAt" in ticket) return Promise.resolve(ticket);
    }
    return new Promise<Ticket>((enter, fail) => {
      const left = deadline - performance.now();
      const leave = (reason: unknown): void => {
        const at = queue.waiters.indexOf(waiter);
        if (at < 0) return;
        queue.waiters.splice(at, 1);
        waiter.fail(reason);
        this.#pump(queue);
      };
      const onAbort = (): void => leave(signal?.reason);
      const done = (): void => {
        clearTimeout(waiter.timer);
        signal?.removeEventListener("abort", onAbort);
      };
      const waiter: Waiter = {
        deadline,
        enter: (ticket) => { done(); enter(ticket); },
        fail: (reason) => { done(); fail(reason as Error); },
        timer: left > TIMER_MAX_MS ? undefined : setTimeout(() => leave(new RateLimitError(Infinity, queue.waiters[0]?.policy)), Math.max(0, left)),
        policy: undefined,
      };
      signal?.addEventListener("abort", onAbort);
      queue.waiters.push(waiter);
      this.#pump(queue);
    });
  }

  /** Learns from an answer, and lets others through. */
  answered(ticket: Ticket, info: RateLimitInfo): void {
    this.#pacer.answered(ticket, info, performance.now());
    this.#wake(ticket.lane.budget);
  }

  /** Counts a request as sent whose answer will not come. */
  lost(ticket: Ticket): void {
    this.#pacer.lost(ticket, performance.now());
    this.#wake(ticket.lane.budget);
  }

  #wake(budget: string): void {
    for (const queue of this.#queues.get(budget)?.values() ?? []) this.#pump(queue);
  }

  /** Lets through whom it can, and sets a timer for the next. */
  #pump(queue: Queue): void {
    clearTimeout(queue.timer);
    queue.timer = undefined;
    for (let first = queue.waiters[0]; first; first = queue.waiters[0]) {
      const now = performance.now();
      const taken = this.#pacer.take(queue.lane, now);
      if ("sentAt" in taken) {
        queue.waiters.shift();
        first.enter(taken);
        continue;
      }
      first.policy = taken.policy;
      if (taken.waitMs === Infinity) return;
      if (now + taken.waitMs > first.deadline) {
        queue.waiters.shift();
        first.fail(new RateLimitError(taken.waitMs, taken.policy));
        continue;
      }
      // A timer may end up to a millisecond early.
      queue.timer = setTimeout(() => this.#pump(queue), Math.min(Math.ceil(taken.waitMs) + 1, TIMER_MAX_MS));
      return;
    }
    this.#forget(queue);
  }

  #queue(lane: Lane): Queue {
    let queues = this.#queues.get(lane.budget);
    if (!queues) this.#queues.set(lane.budget, (queues = new Map()));
    let queue = queues.get(lane.route);
    if (!queue) queues.set(lane.route, (queue = { lane, waiters: [], timer: undefined }));
    return queue;
  }

  #forget({ lane }: Queue): void {
    const queues = this.#queues.get(lane.budget);
    queues?.delete(lane.route);
    if (queues?.size === 0) this.#queues.delete(lane.budget);
  }
}
