// Lists of RFC 9651 (Structured Field Values), as far as rate limit headers use them.

/** A value of a parameter, or of a member. */
export type Bare = string | number | boolean;

/** One member of a list: its value, whether it has a `key=` before it, and its parameters. */
export interface Member {
  readonly key: string | undefined;
  readonly value: Bare;
  readonly params: ReadonlyMap<string, Bare>;
}

const SPACE = /[ \t]*/y;
const KEY = /[a-z*][a-z0-9_\-.*]*/y;
const NUMBER = /-?[0-9]{1,15}(?:\.[0-9]{1,3})?(?![0-9.])/y;
const STRING = /"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"/y;
const BYTES = /:([A-Za-z0-9+/]*={0,2}):/y;
const TOKEN = /[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*/y;
const BOOLEAN = /\?([01])/y;

/** Reads a list, whose members may also be `key=value`; undefined if the field is malformed, as the RFC wants. */
export function parseList(text: string): Member[] | undefined {
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found;
  };
  const bare = (): Bare | undefined => {
    let found: RegExpExecArray | null;
    if ((found = take(STRING))) return (found[1] ?? "").replace(/\\(["\\])/g, "$1");
    if ((found = take(NUMBER))) return Number(found[0]);
    if ((found = take(BYTES))) return `:${found[1]}:`;
    if ((found = take(BOOLEAN))) return found[1] === "1";
    return take(TOKEN)?.[0];
  };
  const parameters = (): Map<string, Bare> | undefined => {
    const params = new Map<string, Bare>();
    for (;;) {
      const before = at;
      take(SPACE);
      if (text[at] !== ";") {
        at = before;
        return params;
      }
      at += 1;
      take(SPACE);
      const key = take(KEY)?.[0];
      if (key === undefined) return undefined;
      let value: Bare | undefined = true;
      if (text[at] === "=") {
        at += 1;
        value = bare();
        if (value === undefined) return undefined;
      }
      params.set(key, value);
    }
  };
  const members: Member[] = [];
  for (;;) {
    take(SPACE);
    const start = at;
    let key = take(KEY)?.[0];
    if (key !== undefined && text[at] === "=") {
      at += 1;
    } else {
      key = undefined;
      at = start;
    }
    const value = bare();
    const params = value === undefined ? undefined : parameters();
    if (value === undefined || params === undefined) return undefined;
    members.push({ key, value, params });
    take(SPACE);
    if (at === text.length) return members;
    if (text[at] !== ",") return undefined;
    at += 1;
  }
}
