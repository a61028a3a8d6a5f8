/** Requests to the admin API. The token lives in this module's memory, and nowhere else. */

let token = "";

export function setToken(text: string): void {
  token = text.trim();
}

/** The admin API refused a request; `status` is 401 if it wants a token. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** What files give a tenant that the quota database does not have. */
    readonly listed?: unknown,
    /** The domains that have tenants, where one has to be named. */
    readonly domains?: string[],
  ) {
    super(message);
  }
}

function headers(more: Record<string, string> = {}): HeadersInit {
  return token === "" ? more : { ...more, authorization: `Bearer ${token}` };
}

async function refusal(response: Response): Promise<Refused> {
  let message = `${response.status} ${response.statusText}`;
  let listed: unknown;
  let domains: string[] | undefined;
  try {
    const problem = (await response.json()) as { detail?: string; listed?: unknown; domains?: string[] };
    message = problem.detail ?? message;
    ({ listed, domains } = problem);
  } catch {
    // Not a problem of ours; the status says what there is to say.
  }
  return new Refused(response.status, message, listed, domains);
}

/** The fields that hold times; they become seconds since 1970. */
const TIMES: ReadonlySet<string> = new Set(["at", "since", "last", "started_at", "last_reload_at", "mode_since", "until"]);

/** Parses an answer about traffic. */
export function parsed<T>(text: string): T {
  const seconds = (name: string, value: unknown): unknown =>
    TIMES.has(name) && typeof value === "string" ? Date.parse(value) / 1_000 : value;
  return JSON.parse(text, seconds) as T;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await fetch(path, { headers: headers(), cache: "no-store", signal: signal ?? null });
  if (!response.ok) throw await refusal(response);
  return parsed<T>(await response.text());
}

/** How long an answer is waited for that is asked for again and again. */
const WAIT_MS = 10_000;

/** Runs `work` unless it still runs: what is asked for again and again must not pile up while the node is slow. */
export function oneAtATime(work: (signal: AbortSignal) => Promise<void>): () => void {
  let isRunning = false;
  return () => {
    if (isRunning) return;
    isRunning = true;
    void work(AbortSignal.timeout(WAIT_MS)).finally(() => (isRunning = false));
  };
}

/** Asks with a body, for what must not stand in an address. */
export async function ask<T>(path: string, question: unknown): Promise<T> {
  const type = { "content-type": "application/json" };
  const response = await fetch(path, { method: "POST", headers: headers(type), body: JSON.stringify(question) });
  if (!response.ok) throw await refusal(response);
  return parsed<T>(await response.text());
}

/** An answer with its version, for changes that must not undo another's, and the node's time in milliseconds. */
export async function getVersion<T>(path: string): Promise<{ value: T; version: string | null; time: number | null }> {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  const time = Date.parse(response.headers.get("date") ?? "");
  const value = (await response.json()) as T;
  return { value, version: response.headers.get("etag"), time: Number.isNaN(time) ? null : time };
}

/** Sends a change, and returns the answer where there is one. */
export async function send<T>(
  method: "POST" | "PUT" | "DELETE",
  path: string,
  value: unknown = {},
  more: Record<string, string> = {},
): Promise<T | undefined> {
  const body = method === "DELETE" ? null : JSON.stringify(value);
  const type: Record<string, string> = method === "DELETE" ? {} : { "content-type": "application/json" };
  const response = await fetch(path, { method, headers: headers({ ...type, ...more }), body });
  if (!response.ok) throw await refusal(response);
  const text = await response.text();
  return text === "" ? undefined : (JSON.parse(text) as T);
}

/**
 * Reads server-sent events until the server ends them. `fetch`, since EventSource cannot send a token.
 * Throws if the stream cannot be opened or breaks. `heard` is told of each part, of events that are not whole yet too.
 */
export async function events(
  path: string,
  signal: AbortSignal,
  each: (name: string, data: string) => void,
  heard: () => void,
): Promise<void> {
  const response = await fetch(path, { headers: headers(), cache: "no-store", signal });
  if (!response.ok || response.body === null) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const lines = text.slice(0, end).split("\n");
        text = text.slice(end + 2);
        const of = (field: string): string =>
          lines.find((line) => line.startsWith(`${field}: `))?.slice(field.length + 2) ?? "";
        each(of("event"), of("data"));
      }
    }
  } finally {
    // The node has few places for those who watch: an event that could not be shown must not keep one.
    reader.cancel().catch(() => {});
  }
}
