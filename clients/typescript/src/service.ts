// The calls of a Ratekeeper service, over JSON: with a deadline, failover between services, and a fallback.

import { canGoTogether, count, decision, failure, limitDecided, limitJson, limitQuestion, limitResult } from "./answers.ts";
import { hasWord, isObject, list, object, questionJson, ServiceError, text } from "./answers.ts";
import type { Decision, IdentifierLimit, Json, LimitResult, Question } from "./answers.ts";
import { allowAll, type Fallback } from "./fallback.ts";
import type { Fetch } from "./fetch.ts";
import { TIMER_MAX_MS } from "./gate.ts";
import { Places, Together } from "./places.ts";
import { Unanswered, type Lost } from "./unanswered.ts";

export interface ServiceOptions {
  /** URLs of the services, such as `http://127.0.0.1:8080`. Each is asked while those before it do not answer. */
  readonly endpoints: string | readonly string[];
  /** The bearer token that identifies this caller, without or with white space around it. */
  readonly token?: string;
  /** The time that a call may take from when it is sent, failover included, in milliseconds: 100 by default. */
  readonly timeoutMs?: number;
  /** Decides checks, acquires and reserves while no service answers: `allowAll` by default. */
  readonly fallback?: Fallback;
  /**
   * The most calls under way at once: 8 by default. Further ones wait for up to a second, or for `timeoutMs` if that is
   * longer; checks that wait go together, in one request.
   */
  readonly concurrency?: number;
  /** What sends the calls; the global `fetch` by default. */
  readonly fetch?: Fetch;
}

/** A permit's decision, and the permit: undefined if denied, without a concurrency limit, or decided by the fallback. */
export interface Acquired {
  readonly decision: Decision;
  readonly permit: Permit | undefined;
}

/** A reservation's decision, and the reservation: undefined if denied, or decided by the fallback. */
export interface Reserved {
  readonly decision: Decision;
  readonly reservation: string | undefined;
}

/** What many of can go together. */
type Kind = "check" | "limit";

/** How a call can be repeated: at will, or only if it was certainly not carried out. */
type Repeat = "harmless" | "charged";

/** The time for which a service that did not answer is asked last. */
const DOWN_MS = 1000;
/** Calls without an answer in a row, after which it is. */
const MISSES_MAX = 3;
/** The time in which a loop that was held up reads what has come meanwhile, once that of a call is up. */
const READ_ON_MS = 5;
/** The time for which a call waits for its place, if that is longer than its own time. */
const PATIENCE_MS = 1000;
/** Why a call that was not sent has no answer. */
const NOT_SENT = Symbol("not sent");
/** The code of a service that has no rules for the domain, since they were refused. */
const NO_RULES = "NO_RULES";
/** Calls that give back, or hold, what earlier ones were granted: they go before all that wait for a place. */
const FIRST = new Set(["release", "renew", "commit", "cancel"]);
/** The codes by which a service says that it did not carry out a call. */
const NOT_DONE = new Set(["UNAVAILABLE", "RESOURCE_EXHAUSTED"]);
/** The codes of errors of a connection that was not made, of Node and Bun. */
const NOT_CONNECTED = new Set<unknown>(["ECONNREFUSED", "ENOTFOUND", "ConnectionRefused", "UND_ERR_CONNECT_TIMEOUT"]);

interface Endpoint {
  readonly url: string;
  misses: number;
  downUntil: number;
}

/** A client of a Ratekeeper service. */
export class Ratekeeper {
  /** Decides while no service answers. */
  readonly fallback: Fallback;
  readonly #endpoints: readonly Endpoint[];
  readonly #options: ServiceOptions;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #unanswered = new Unanswered();
  readonly #places: Places;
  readonly #together: Readonly<Record<Kind, Together>>;

  constructor(options: ServiceOptions) {
    const urls = typeof options.endpoints === "string" ? [options.endpoints] : options.endpoints;
    if (urls.length === 0) throw new TypeError("endpoints: there is no service to ask");
    this.#endpoints = urls.map((url) => ({ url: checked(url), misses: 0, downUntil: 0 }));
    this.#options = options;
    const { concurrency = 8 } = options;
    if (!(concurrency >= 1)) throw new RangeError("concurrency: has to be at least 1");
    this.#places = new Places(Math.floor(concurrency));
    const together = (kind: Kind): Together => new Together(this.#places, (bodies) => this.#askAll(kind, bodies));
    this.#together = { check: together("check"), limit: together("limit") };
    this.fallback = options.fallback ?? allowAll;
    this.#headers = { "content-type": "application/json", accept: "application/json", ...authorization(options.token) };
  }

  /** Decides by an identifier, and a limit of the call's own or the ID of a rule. */
  async limit(identifier: string, by: IdentifierLimit): Promise<LimitResult> {
    const answer = await this.#askOrJoin("limit", limitJson(identifier, by));
    return answer ? limitResult(answer) : limitDecided(this.fallback(limitQuestion(identifier, by)));
  }

  /**
   * Decides a request, and charges its limits. With a key, once in 24 hours, and without the names of policies: repeat it if
   * no service answered, which throws.
   */
  async check(question: Question, idempotencyKey?: string): Promise<Decision> {
    const body = questionJson(question);
    if (idempotencyKey) return decision(await this.#call("check", { ...body, idempotency_key: idempotencyKey }, "harmless"));
    const answer = await this.#askOrJoin("check", { ...body, standing: true });
    return answer && !isUndecided(answer) ? decision(answer) : this.fallback(question);
  }

  /** Decides up to 1,000 requests in order, each by itself. */
  async checkBatch(questions: readonly Question[]): Promise<Decision[]> {
    if (questions.length === 0) return [];
    const answer = await unlessAway(this.#call("checks", { checks: questions.map(questionJson) }, "charged"));
    const results = answer && list(answer["results"]).map(object);
    return questions.map((question, number) => {
      const one = results?.[number];
      return one && !isUndecided(one) ? decision(one) : this.fallback(question);
    });
  }

  /** Decides a request without charging it. */
  async peek(question: Question): Promise<Decision> {
    return decision(await this.#call("peek", questionJson(question), "harmless"));
  }

  /** Decides a request, concurrency limits included. The permit renews itself until it is released. */
  async acquire(question: Question): Promise<Acquired> {
    const answer = await unlessAway(this.#once("acquire", questionJson(question)));
    if (!answer) return { decision: this.fallback(question), permit: undefined };
    const token = text(answer["permit"]);
    return { decision: decision(answer), permit: token ? new Permit(this, token, count(answer["expires_after_ms"]) ?? 0) : undefined };
  }

  /** Acquires a permit, and runs `work` if allowed; the permit is released when that ends. */
  async withPermit<T>(question: Question, work: (acquired: Acquired) => Promise<T>): Promise<T> {
    const acquired = await this.acquire(question);
    try {
      return await work(acquired);
    } finally {
      await acquired.permit?.release().catch(() => false);
    }
  }

  /** Returns a permit. True if it was held until now. Without an answer it is tried again for ten seconds. */
  async release(permit: string): Promise<boolean> {
    try {
      return (await this.#call("release", { permit }, "harmless"))["was_held"] === true;
    } catch (error) {
      if (hasNoAnswer(error)) this.#lookFor({ path: "release", body: { permit } });
      throw error;
    }
  }

  /** Holds a permit for longer; returns the milliseconds until it expires. */
  async renew(permit: string): Promise<number> {
    return count((await this.#call("renew", { permit }, "harmless"))["expires_after_ms"]) ?? 0;
  }

  /**
   * Charges the most that the work can cost, `hits`; `commit` or `cancel` settles it within `ttlMs`. With a key, once in
   * that time: repeat it if no service answered, which throws.
   */
  async reserve(question: Question, hits: number, options: { ttlMs?: number; idempotencyKey?: string } = {}): Promise<Reserved> {
    const { ttlMs, idempotencyKey } = options;
    const body = { ...questionJson(question), hits, ttl_ms: ttlMs };
    const answer = idempotencyKey
      ? await this.#call("reserve", { ...body, idempotency_key: idempotencyKey }, "harmless")
      : await unlessAway(this.#once("reserve", body));
    if (answer) return { decision: decision(answer), reservation: text(answer["reservation"]) };
    const costly = question.descriptors.map((descriptor) => ({ hits, ...descriptor }));
    return { decision: this.fallback({ ...question, descriptors: costly }), reservation: undefined };
  }

  /** States what the work cost; returns the hits that were given back. */
  async commit(reservation: string, hits: number): Promise<number> {
    return count((await this.#call("commit", { reservation, hits }, "harmless"))["given_back"]) ?? 0;
  }

  /** Gives all of a reservation back; returns the hits. */
  async cancel(reservation: string): Promise<number> {
    return count((await this.#call("cancel", { reservation }, "harmless"))["given_back"]) ?? 0;
  }

  /** Gives back the hits of the descriptors, as far as they still count; with a key once in five minutes. */
  async refund(question: Question, idempotencyKey?: string): Promise<void> {
    const { waitMsMax: _, ...rest } = question;
    await this.#call("refund", { ...questionJson(rest), idempotency_key: idempotencyKey || undefined }, idempotencyKey ? "harmless" : "charged");
  }

  /** Calls with a key of its own: what is granted in an answer that does not come is found by it, and given back. */
  async #once(path: "acquire" | "reserve", body: Json): Promise<Json> {
    const keyed = { ...body, idempotency_key: crypto.randomUUID() };
    try {
      return await this.#inPlace(path, (signal) => this.#callInTurn(path, keyed, "charged", signal).catch((error: unknown) => {
        if (!hasNoRoomForKeys(error)) throw error;
        // What it grants matters more than a key.
        return this.#callInTurn(path, body, "charged", signal);
      }));
    } catch (error) {
      if (hasNoAnswer(error) && !wasNotDone(error)) this.#lookFor({ path, body: keyed });
      throw error;
    }
  }

  /** Asks by itself, or as one of many if there is no place. */
  async #askOrJoin(kind: Kind, body: Json): Promise<Json | undefined> {
    if (this.#places.areTaken && canGoTogether(body)) {
      const answer = await this.#together[kind].join(body, this.#patienceMs());
      if (answer instanceof ServiceError && !isAway(answer)) throw answer;
      if (answer !== "alone") return answer instanceof ServiceError ? undefined : answer;
    }
    return await unlessAway(this.#call(kind, body, "charged"));
  }

  /** Asks for many in a place that there is for them. */
  async #askAll(kind: Kind, bodies: readonly Json[]): Promise<readonly Json[] | ServiceError> {
    const many = `${kind}s`;
    try {
      const answer = await this.#inTime((signal) => this.#callInTurn(many, { [many]: bodies }, "charged", signal));
      return list(answer["results"]).map(object);
    } catch (error) {
      if (isAway(error) || (hasNoAnswer(error) && !wasNotDone(error))) return error;
      throw error;
    }
  }

  /** Calls in a place of its own, within the time that a call may take from then on. */
  async #call(path: string, body: Json, repeat: Repeat): Promise<Json> {
    return await this.#inPlace(path, (signal) => this.#callInTurn(path, body, repeat, signal));
  }

  async #inPlace(path: string, call: (signal: AbortSignal) => Promise<Json>): Promise<Json> {
    if (!(await this.#places.enter(this.#patienceMs(), FIRST.has(path)))) {
      throw new ServiceError("AWAY", "not sent: too many calls of this client are under way", undefined, undefined, NOT_SENT);
    }
    try {
      return await this.#inTime(call);
    } finally {
      this.#places.leave();
    }
  }

  /** The time for which a call waits for its place: no longer than for a service while none answers. */
  #patienceMs(): number {
    const { timeoutMs = 100 } = this.#options;
    return this.#endpoints.every(({ misses }) => misses >= MISSES_MAX) ? timeoutMs : Math.max(timeoutMs, PATIENCE_MS);
  }

  async #inTime(call: (signal: AbortSignal) => Promise<Json>): Promise<Json> {
    const { timeoutMs = 100 } = this.#options;
    const timeout = new AbortController();
    const end = (): void => timeout.abort(new DOMException(`no answer within ${timeoutMs} ms`, "TimeoutError"));
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (timeoutMs <= TIMER_MAX_MS) timer = setTimeout(() => { timer = setTimeout(end, READ_ON_MS); }, timeoutMs);
    try {
      return await call(timeout.signal);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Calls one service after another until one answers. */
  async #callInTurn(path: string, body: Json, repeat: Repeat, signal: AbortSignal): Promise<Json> {
    // What JSON cannot hold fails here, for its caller.
    const sent = JSON.stringify(body);
    const now = performance.now();
    const up = (endpoint: Endpoint): boolean => endpoint.downUntil <= now;
    const inTurn = [...this.#endpoints.filter(up), ...this.#endpoints.filter((endpoint) => !up(endpoint))];
    let last: ServiceError | undefined;
    let page: ServiceError | undefined;
    for (const endpoint of inTurn) {
      try {
        const answer = await this.#post(endpoint, path, body, sent, signal);
        endpoint.misses = 0;
        return answer;
      } catch (error) {
        if (!hasNoAnswer(error)) {
          endpoint.misses = 0;
          throw error;
        }
        last = error;
        if (hasNoRules(error)) {
          endpoint.misses = 0;
          throw error;
        }
        if (!hasWord(error)) page ??= error;
        const notDone = wasNotDone(last);
        endpoint.misses += 1;
        if ((notDone && hasWord(error)) || endpoint.misses >= MISSES_MAX) endpoint.downUntil = performance.now() + DOWN_MS;
        if (signal.aborted || (repeat === "charged" && !notDone)) break;
      }
    }
    // The page tells its caller more, and the last one may have done it.
    if (page && last && !wasNotDone(last)) throw new ServiceError(page.code, page.message, page.status, page.field, last);
    throw page ?? last ?? new ServiceError("AWAY", "no rate limit service answers");
  }

  async #post({ url }: Endpoint, path: string, body: Json, sent: string, signal: AbortSignal): Promise<Json> {
    const { fetch = globalThis.fetch } = this.#options;
    let response: Response;
    let answer: unknown;
    try {
      response = await fetch(`${url}/v1/${path}`, { method: "POST", headers: this.#headers, body: sent, signal });
      answer = await response.json().catch((error: unknown) => {
        if (signal.aborted || (response.ok && !(error instanceof SyntaxError))) throw error;
      });
    } catch (error) {
      throw new ServiceError("AWAY", `the rate limit service at ${url} gave no answer: ${String(error)}`, undefined, undefined, error);
    }
    if (response.ok && isAnswer(path, body, answer)) return answer;
    const refusal = failure(response.status, answer);
    const isWithoutRules = refusal.code === NO_RULES;
    if (!response.ok && response.status < 500 && hasWord(refusal) && !isWithoutRules) throw refusal;
    // What the service cannot have said is something between's.
    const code = response.status < 500 && !isWithoutRules ? `HTTP_${response.status}` : "AWAY";
    throw new ServiceError(code, `the rate limit service at ${url} cannot answer: ${refusal.message}`, response.status, undefined, refusal);
  }

  #lookFor(lost: Lost): void {
    this.#unanswered.add(lost, (late) => this.#giveBack(late));
  }

  /** Repeats a call, and gives back what it was granted; false without an answer. */
  async #giveBack({ path, body }: Lost): Promise<boolean> {
    try {
      const answer = await this.#call(path, body, "harmless");
      const [permit, reservation] = [text(answer["permit"]), text(answer["reservation"])];
      if (path === "acquire" && permit) await this.#call("release", { permit }, "harmless");
      if (path === "reserve" && reservation) await this.#call("cancel", { reservation }, "harmless");
      return true;
    } catch (error) {
      // Refused: there is nothing to give back.
      return !hasNoAnswer(error);
    }
  }
}

/** A held place of a concurrency limit. It renews itself until it is released: `await using` does that at the end of a block. */
export class Permit implements AsyncDisposable {
  /** Identifies it to the service. */
  readonly token: string;
  readonly #service: Ratekeeper;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When it ends; infinite once it is released, and negative once it is lost. */
  #ends: number;

  constructor(service: Ratekeeper, token: string, expiresAfterMs: number) {
    this.#service = service;
    this.token = token;
    this.#ends = expiresAfterMs > 0 ? performance.now() + expiresAfterMs : Infinity;
    this.#renewLater(expiresAfterMs);
  }

  /** True if it could not be renewed in time: another request may have its place. */
  get isLost(): boolean {
    return performance.now() >= this.#ends;
  }

  /** Releases it; true if it was held until now. Releasing twice is harmless. */
  async release(): Promise<boolean> {
    clearTimeout(this.#timer);
    this.#ends = this.isLost ? -Infinity : Infinity;
    return await this.#service.release(this.token);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => false);
  }

  /** Without an answer it tries again sooner than it began to, so that several may be lost. */
  #renewLater(expiresAfterMs: number, pauseMs = expiresAfterMs / 3): void {
    if (expiresAfterMs <= 0 || !Number.isFinite(this.#ends)) return;
    this.#timer = setTimeout(() => {
      this.#service.renew(this.token).then(
        (left) => {
          if (Number.isFinite(this.#ends)) this.#ends = performance.now() + left;
          this.#renewLater(left);
        },
        (error: unknown) => {
          // It may still be held if the service is away.
          if (hasNoAnswer(error)) this.#renewLater(expiresAfterMs, expiresAfterMs / 12);
          else if (Number.isFinite(this.#ends)) this.#ends = -Infinity;
        },
      );
    }, Math.min(pauseMs, TIMER_MAX_MS));
    // A permit alone keeps no process alive.
    const timer = this.#timer as { unref?: () => void };
    timer.unref?.();
  }
}

/** An endpoint without a slash at its end. */
function checked(endpoint: string): string {
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (url?.username || url?.password) throw new TypeError("endpoints: a URL can have no login here");
  if (url?.protocol === "http:" || url?.protocol === "https:") return url.href.replace(/\/$/, "");
  // The fallback would decide for ever.
  throw new TypeError(`endpoints: ${JSON.stringify(endpoint)} is no URL of http or https, such as http://127.0.0.1:8080`);
}

/** The token without the white space around it that files have. */
function authorization(token: string | null | undefined): Readonly<Record<string, string>> {
  const sent = (token ?? "").trim();
  // Without it: it is a secret. The fallback would decide for ever.
  if (/[^\x21-\x7e]/.test(sent)) throw new TypeError("token: only visible ASCII characters can be sent");
  return sent ? { authorization: `Bearer ${sent}` } : {};
}

/** True if the service can have said that: what something between says is no denial. */
function isAnswer(path: string, body: Json, answer: unknown): answer is Json {
  if (!isObject(answer)) return false;
  if (path === "checks" || path === "limits") {
    const results = list(answer["results"]);
    return results.length === list(body[path]).length && results.every((one) => isDecision(path.slice(0, -1), object(one)));
  }
  return !["limit", "check", "peek", "acquire", "reserve"].includes(path) || isDecision(path, answer);
}

function isDecision(path: string, answer: Json): boolean {
  return path === "limit" ? typeof answer["success"] === "boolean" : answer["decision"] === "allow" || answer["decision"] === "deny";
}

/** The answer; undefined if no service gives one. Callers can provoke a page with what is in a question: it is thrown. */
async function unlessAway(call: Promise<Json>): Promise<Json | undefined> {
  try {
    return await call;
  } catch (error) {
    if (isAway(error)) return undefined;
    throw error;
  }
}

function isAway(error: unknown): error is ServiceError {
  return error instanceof ServiceError && error.code === "AWAY";
}

/** True if no service answered, or something between gave a page instead. */
function hasNoAnswer(error: unknown): error is ServiceError {
  return error instanceof ServiceError && (error.code === "AWAY" || !hasWord(error));
}

/** True if the rules of the domain were refused. The service is well, and decides other domains. */
function hasNoRules(error: ServiceError): boolean {
  return object(error.cause)["code"] === NO_RULES;
}

/** True of a check of a batch for whose domain there are none. */
function isUndecided(answer: Json): boolean {
  return answer["degraded"] === true && Boolean(answer["unreadable"]);
}

function hasNoRoomForKeys(error: unknown): boolean {
  return isAway(error) && object(error.cause)["code"] === "RESOURCE_EXHAUSTED";
}

/** True if the call was not carried out: no connection, or the service or something between says so. */
function wasNotDone(error: ServiceError): boolean {
  if (!hasWord(error)) return (error.status ?? 0) >= 300 && !(hasNoAnswer(error.cause) && !wasNotDone(error.cause));
  // A proxy's 503 may come after the charge: only the service's own words count.
  if (error.cause === NOT_SENT || hasNoRules(error)) return true;
  if (error.status !== undefined) return error.status === 503 && NOT_DONE.has((error.cause as ServiceError).code);
  return isOfConnecting(error.cause);
}

/** True for an error of a connection that was not made, or that one caused. */
function isOfConnecting(error: unknown): boolean {
  const { code, syscall, errors, cause } = object(error);
  if (NOT_CONNECTED.has(code) || syscall === "connect" || syscall === "getaddrinfo") return true;
  // Of several addresses of a host.
  const each = list(errors);
  return each.length > 0 ? each.every(isOfConnecting) : cause !== undefined && isOfConnecting(cause);
}
