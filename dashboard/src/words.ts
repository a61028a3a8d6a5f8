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
  if (value < 1_000) return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} µs`;
  if (value < 1_000_000) return `${(value / 1_000).toPrecision(3)} ms`;
  return `${(value / 1_000_000).toPrecision(3)} s`;
}

export function millis(value: number | undefined): string {
  return value === undefined ? "no wait helps" : span(value / 1_000);
}

export function span(seconds: number): string {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1_000))} ms`;
  const units: [number, string][] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  for (const [size, name] of units) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name}`;
  }
  return "0 s";
}

export function ago(unixSeconds: number): string {
  return unixSeconds === 0 ? "never" : `${span(Math.max(0, Date.now() / 1_000 - unixSeconds))} ago`;
}

export function clock(time: string | number): string {
  return new Date(time).toLocaleTimeString("en-GB");
}

/** A time of day, with the day if it is not today's. */
export function moment(unixSeconds: number): string {
  const time = new Date(unixSeconds * 1_000);
  const today = new Date().toDateString() === time.toDateString();
  const day = today ? "" : `${time.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `;
  return day + clock(time.getTime());
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
