// Acquires whose answers did not come: the service may have granted each of them a permit.

import type { Json } from "./answers.ts";
import { sleep } from "./fetch.ts";

/** The most that are remembered, and for how long: permits of others end by themselves. */
const REMEMBERED_MAX = 1000;
const REMEMBERED_MS = 10_000;
/** The waits before the first is asked for, and after one, two and more questions in a row without an answer. */
const PAUSES_MS = [100, 1000, 5000];

interface Acquire {
  readonly body: Json;
  readonly at: number;
}

/** They are asked for one after another, so that a service that is away is not asked for all of them at once. */
export class Unanswered {
  readonly #acquires: Acquire[] = [];
  #isLookedFor = false;

  /** `settle` finds out what became of one; false if there was no answer this time either. It never fails. */
  add(body: Json, settle: (body: Json) => Promise<boolean>): void {
    this.#acquires.push({ body, at: performance.now() });
    if (this.#acquires.length > REMEMBERED_MAX) this.#acquires.shift();
    if (this.#isLookedFor) return;
    this.#isLookedFor = true;
    void this.#settleAll(settle);
  }

  async #settleAll(settle: (body: Json) => Promise<boolean>): Promise<void> {
    let misses = 0;
    for (let first = this.#first(); first; first = this.#first()) {
      const pause = PAUSES_MS[Math.min(misses, PAUSES_MS.length - 1)] ?? 0;
      await sleep(misses > 0 ? pause : Math.max(0, first.at + pause - performance.now()));
      if (!(await settle(first.body))) {
        misses += 1;
        continue;
      }
      misses = 0;
      // New ones may have taken its place meanwhile.
      if (this.#acquires[0] === first) this.#acquires.shift();
    }
    this.#isLookedFor = false;
  }

  #first(): Acquire | undefined {
    const young = this.#acquires.findIndex(({ at }) => at + REMEMBERED_MS > performance.now());
    this.#acquires.splice(0, young < 0 ? this.#acquires.length : young);
    return this.#acquires[0];
  }
}
