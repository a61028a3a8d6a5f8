// The places of a client's calls under way. What waits for one is bounded, in time and in number.

import { ServiceError, type Json } from "./answers.ts";
import { TIMER_MAX_MS } from "./gate.ts";

/** The most calls that wait for a place, and the most checks. */
const WAITING_MAX = 10_000;
/** The most checks in one request: a service takes 1,000. */
const TOGETHER_MAX = 100;
/** The most UTF-16 units of their JSON, of up to three bytes each: a service takes 1 MiB. */
const TOGETHER_UNITS_MAX = 300_000;
/** The refusals of a batch, after which what is left of it is asked check by check: those who wait for it wait for each. */
const REFUSALS_MAX = 16;

/** First come, first served, except for what gives back: each of that follows a call that had a place. */
export class Places {
  readonly #first: ((hasPlace: boolean) => void)[] = [];
  readonly #waiting: ((hasPlace: boolean) => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  get areTaken(): boolean {
    return this.#free === 0;
  }

  /**
   * Takes a place; false if there is none within this time. Without one it waits for as long as it takes, whoever waits.
   * What goes first has a line of its own.
   */
  async enter(patienceMs?: number, goesFirst = false): Promise<boolean> {
    if (this.#free > 0) {
      this.#free -= 1;
      return true;
    }
    const line = goesFirst ? this.#first : this.#waiting;
    if (patienceMs !== undefined && line.length >= WAITING_MAX) return false;
    return await new Promise((resolve) => {
      const turn = (hasPlace: boolean): void => {
        clearTimeout(timer);
        resolve(hasPlace);
      };
      const giveUp = (): void => {
        line.splice(line.indexOf(turn), 1);
        resolve(false);
      };
      const timer = patienceMs !== undefined && patienceMs <= TIMER_MAX_MS ? setTimeout(giveUp, patienceMs) : undefined;
      line.push(turn);
    });
  }

  /** Gives a place back, to the first who waits. */
  leave(): void {
    const first = this.#first.shift() ?? this.#waiting.shift();
    if (first) first(true);
    else this.#free += 1;
  }
}

/** The answer to one of many checks: an error if no service answers, and `alone` if it has to be asked by itself. */
type Answer = Json | ServiceError | "alone";
/** Sends a request for many, and returns the answers in their order, or an error if they may have been charged all the same. Throws if none of them was. */
type Ask = (bodies: readonly Json[]) => Promise<readonly Json[] | ServiceError>;

interface Asked {
  readonly body: Json;
  readonly units: number;
  /** Undefined: there is no place within its time. */
  readonly resolve: (answer: Answer | undefined) => void;
  timer: ReturnType<typeof setTimeout> | undefined;
  /** Nobody waits for it any more. */
  isOver: boolean;
}

/** Checks that wait for a place go together, in one request. */
export class Together {
  readonly #places: Places;
  readonly #ask: Ask;
  readonly #waiting: Asked[] = [];
  #isLed = false;

  constructor(places: Places, ask: Ask) {
    this.#places = places;
    this.#ask = ask;
  }

  /** The answer to a check; undefined if there is no place within this time. */
  async join(body: Json, patienceMs: number): Promise<Answer | undefined> {
    this.#dropOver();
    if (this.#waiting.length >= WAITING_MAX) return undefined;
    return await new Promise((resolve) => {
      const asked: Asked = { body, units: JSON.stringify(body).length, resolve, timer: undefined, isOver: false };
      const giveUp = (): void => {
        asked.isOver = true;
        resolve(undefined);
      };
      if (patienceMs <= TIMER_MAX_MS) asked.timer = setTimeout(giveUp, patienceMs);
      this.#waiting.push(asked);
      if (!this.#isLed) void this.#lead();
    });
  }

  /** Waits for a place after another, while there are checks. It keeps its turn when the time of one is up: others wait. */
  async #lead(): Promise<void> {
    this.#isLed = true;
    for (this.#dropOver(); this.#waiting.length > 0; this.#dropOver()) {
      await this.#places.enter();
      void this.#send(this.#take());
    }
    this.#isLed = false;
  }

  /** Drops the first whose time is up. */
  #dropOver(): void {
    const rest = this.#waiting.findIndex(({ isOver }) => !isOver);
    this.#waiting.splice(0, rest < 0 ? this.#waiting.length : rest);
  }

  /** The first that wait, as many as may go together. */
  #take(): Asked[] {
    this.#dropOver();
    let [count, units] = [0, 0];
    for (const asked of this.#waiting.slice(0, TOGETHER_MAX)) {
      units += asked.units;
      if (count > 0 && units > TOGETHER_UNITS_MAX) break;
      clearTimeout(asked.timer);
      count += 1;
    }
    return this.#waiting.splice(0, count).filter(({ isOver }) => !isOver);
  }

  /** Asks for all of them, in the place that they have: what is refused is parted, and the rest sent again. */
  async #send(batch: Asked[]): Promise<void> {
    const parts = [batch];
    for (let refusals = 0; refusals < REFUSALS_MAX; ) {
      const part = parts.pop();
      if (!part) break;
      if (part.length === 0) continue;
      let answers: readonly Json[] | ServiceError;
      try {
        answers = await this.#ask(part.map(({ body }) => body));
      } catch (error) {
        refusals += 1;
        parts.push(...parted(part, error));
        continue;
      }
      if (!(answers instanceof ServiceError)) {
        for (const [number, { resolve }] of part.entries()) resolve(answers[number] ?? "alone");
        continue;
      }
      tell(part, answers);
      // The rest would wait for as long, one part after another.
      if (answers.code === "AWAY") tell(parts.splice(0).flat(), answers);
    }
    tell(parts.flat(), "alone");
    this.#places.leave();
  }
}

/** What is to be sent again of checks that were refused, without the one at fault; halves if that is not known. */
function parted(part: Asked[], error: unknown): Asked[][] {
  const [atFault] = part.splice(numberAtFault(error) ?? Infinity, 1);
  if (atFault) {
    atFault.resolve("alone");
    return [part];
  }
  const half = Math.floor(part.length / 2);
  if (half > 0 && error instanceof ServiceError) return [part.slice(half), part.slice(0, half)];
  tell(part, "alone");
  return [];
}

function tell(asked: readonly Asked[], answer: Answer): void {
  for (const { resolve } of asked) resolve(answer);
}

/** The number of the check that was refused, if the service tells. */
function numberAtFault(error: unknown): number | undefined {
  const told = error instanceof ServiceError ? /^(?:checks|limits)\[(\d{1,3})\]/.exec(error.field ?? "") : undefined;
  return told ? Number(told[1]) : undefined;
}
