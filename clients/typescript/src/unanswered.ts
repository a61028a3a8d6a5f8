// Calls whose answers did not come: the service may have granted a permit or a reservation, which nobody holds then.

import type { Json } from "./answers.ts";

/** The most that are remembered, and for how long: permits of others end by themselves, and reservations stay charged. */
const REMEMBERED_MAX = 1000;
const REMEMBERED_MS = 10_000;
/** The waits before the first is asked for, and after one, two and more questions in a row without an answer. */
const PAUSES_MS = [100, 1000, 5000];

/** A call that can be repeated: `acquire` or `reserve` with a key, or `release`. */
export interface Lost {
  readonly path: "acquire" | "reserve" | "release";
  readonly body: Json;
}

interface Remembered {
  readonly lost: Lost;
  readonly at: number;
}

/** They are asked for one after another, so that a service that is away is not asked for all of them at once. */
export class Unanswered {
  readonly #calls: Remembered[] = [];
  #isLookedFor = false;

  /** `settle` finds out what became of one; false if there was no answer this time either. It never fails. */
  add(lost: Lost, settle: (lost: Lost) => Promise<boolean>): void {
    this.#calls.push({ lost, at: performance.now() });
    if (this.#calls.length > REMEMBERED_MAX) this.#calls.shift();
    if (this.#isLookedFor) return;
    this.#isLookedFor = true;
    void this.#settleAll(settle);
  }

  async #settleAll(settle: (lost: Lost) => Promise<boolean>): Promise<void> {
    let misses = 0;
    for (let first = this.#first(); first; first = this.#first()) {
      const pause = PAUSES_MS[Math.min(misses, PAUSES_MS.length - 1)] ?? 0;
      await (misses > 0 ? passes(pause, false) : passes(Math.max(0, first.at + pause - performance.now()), true));
      if (!(await settle(first.lost))) {
        misses += 1;
        continue;
      }
      misses = 0;
      // New ones may have taken its place meanwhile.
      if (this.#calls[0] === first) this.#calls.shift();
    }
    this.#isLookedFor = false;
  }

  #first(): Remembered | undefined {
    const young = this.#calls.findIndex(({ at }) => at + REMEMBERED_MS > performance.now());
    this.#calls.splice(0, young < 0 ? this.#calls.length : young);
    return this.#calls[0];
  }
}

/** Waits. What keeps nothing alive ends with a program that has nothing else to do. */
function passes(ms: number, keepsAlive: boolean): Promise<void> {
  return new Promise((wake) => {
    const timer = setTimeout(wake, ms) as { unref?: () => void };
    if (!keepsAlive) timer.unref?.();
  });
}
