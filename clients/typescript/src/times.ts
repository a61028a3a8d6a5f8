// Numbers, durations and dates as they stand in headers. Whatever is none of them is undefined.

/** No number of a header counts for more: the largest integer of a structured field. */
const NUMBER_MAX = 999_999_999_999_999;

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

// IMF-fixdate; the obsolete form of RFC 850, with a year of two digits; the obsolete form of C's asctime.
const FIXDATE = /^[a-z]{3}, (\d{2}) ([a-z]{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) gmt$/i;
const RFC850 = /^[a-z]{6,9}, (\d{2})-([a-z]{3})-(\d{2}) (\d{2}):(\d{2}):(\d{2}) gmt$/i;
const ASCTIME = /^[a-z]{3} ([a-z]{3}) ([ \d]\d) (\d{2}):(\d{2}):(\d{2}) (\d{4})$/i;
const RFC3339 = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?Z$/;

/** A decimal number, at most `NUMBER_MAX`. */
export function number(text: string): number | undefined {
  if (!/^[+-]?\d{1,40}(\.\d{1,20})?$/.test(text)) return undefined;
  return Math.max(-NUMBER_MAX, Math.min(Number(text), NUMBER_MAX));
}

/** A span like `6m0s`, `1h30m`, `1.5s` or `20ms`, in milliseconds. */
export function span(text: string): number | undefined {
  if (!/^(\d{1,12}(\.\d{1,9})?(ms|us|µs|ns|[dhms]))+$/.test(text)) return undefined;
  const units: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };
  let total = 0;
  for (const [, count, unit] of text.matchAll(/([\d.]+)(ms|us|µs|ns|[dhms])/g)) total += Number(count) * (units[unit ?? ""] ?? 0);
  return Math.min(total, NUMBER_MAX);
}

/** A date of HTTP or RFC 3339, in milliseconds since 1970. */
export function date(text: string): number | undefined {
  let found = FIXDATE.exec(text);
  if (found) return utc(found[3], month(found[2]), found[1], found[4], found[5], found[6]);
  found = RFC850.exec(text);
  // Two digits are the year of this century: what these headers date is near.
  if (found) return utc(`20${found[3]}`, month(found[2]), found[1], found[4], found[5], found[6]);
  found = ASCTIME.exec(text);
  if (found) return utc(found[6], month(found[1]), found[2]?.trim(), found[3], found[4], found[5]);
  found = RFC3339.exec(text);
  if (found) return utc(found[1], Number(found[2]) - 1, found[3], found[4], found[5], found[6]);
  return undefined;
}

function month(name: string | undefined): number {
  return MONTHS.indexOf((name ?? "").toLowerCase());
}

function utc(year: string | undefined, monthIndex: number, ...rest: (string | undefined)[]): number | undefined {
  const [day = 0, hour = 0, minute = 0, second = 0] = rest.map(Number);
  const at = Date.UTC(Number(year), monthIndex, day, hour, minute, second);
  const isReal = monthIndex >= 0 && new Date(at).getUTCMonth() === monthIndex && hour < 24 && minute < 60 && second < 60;
  return isReal ? at : undefined;
}
