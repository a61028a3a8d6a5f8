/** Numbers and times for people. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(value: number): string {
  return Math.abs(value) < 100_000 ? WHOLE.format(value) : SHORT.format(value);
}

export function rate(value: number): string {
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}

export function micros(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  // What rounds up to a whole unit is told in that.
  if (value < 999.5) return `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)} µs`;
  if (value < 999_500) return `${(value / 1_000).toPrecision(3)} ms`;
  const seconds = value / 1_000_000;
  return `${seconds < 999.5 ? seconds.toPrecision(3) : seconds.toFixed(0)} s`;
}

/** When to come back, by the milliseconds until then. */
export function retry(ms: number | undefined): string {
  return ms === undefined ? "no wait helps" : `retry in ${span(ms / 1_000)}`;
}

export function span(seconds: number): string {
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1_000))} ms`;
  const units: [number, string][] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  for (const [size, name] of units) {
    if (seconds >= size - 0.0005) return `${Math.floor((seconds + 0.0005) / size)} ${name}`;
  }
  return "0 s";
}

/** Seconds apart from which two clocks disagree: the node tells whole ones, and they take a while to come. */
const APART_MIN = 5;
/** How far the node's clock is ahead of this computer's, in seconds. */
let ahead = 0;

/** Notes what the time is by the node's clock. */
export function keepTo(unixSeconds: number): void {
  const apart = unixSeconds - Date.now() / 1_000;
  ahead = Math.abs(apart) < APART_MIN ? 0 : apart;
}

/** The time since then by the node's clock, in seconds. */
export function since(unixSeconds: number): number {
  return Math.max(0, Date.now() / 1_000 + ahead - unixSeconds);
}

export function ago(unixSeconds: number): string {
  return unixSeconds === 0 ? "never" : `${span(since(unixSeconds))} ago`;
}

/** The zone of all times of the page: that of the sentences and commands which come from nodes. */
const timeZone = "UTC";

export function clock(time: string | number): string {
  return new Date(time).toLocaleTimeString("en-GB", { timeZone });
}

/** A time of day, with the day if it is not today's, and the year if it is not this one, by the node's clock. */
export function moment(unixSeconds: number): string {
  const time = new Date(unixSeconds * 1_000);
  const now = new Date(Date.now() + ahead * 1_000);
  const year = (of: Date): string => of.toLocaleDateString("en-GB", { year: "numeric", timeZone });
  const day = (of: Date): string => of.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone });
  const ofYear = year(now) === year(time) ? "" : ` ${year(time)}`;
  const isToday = ofYear === "" && day(now) === day(time);
  return `${isToday ? "" : `${day(time)}${ofYear} `}${clock(time.getTime())}`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  let size = value;
  while (size >= 1_024 && unit < units.length - 1) {
    size /= 1_024;
    unit += 1;
  }
  return `${size < 10 && unit > 0 ? size.toFixed(1) : size.toFixed(0)} ${units[unit]}`;
}
