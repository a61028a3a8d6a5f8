/** Who is denied most, by tenant, and who would be, were the rules in shadow enforced. */

import { breakable, fill, h } from "./dom";
import { limitOf } from "./panels";
import type { DenialGroup, Denials, State, Top, TopKey } from "./types";
import { ago, count, moment } from "./words";

/** Readings of a sparkline; at one in two seconds, they are of the last two minutes. */
const READINGS_MAX = 60;
/** Tenants in the list. */
const ROWS_MAX = 8;
const SVG = "http://www.w3.org/2000/svg";

/** One tenant, with what it was denied by each rule. */
interface Row {
  key: string;
  /** The name to ask for it by. */
  tenant: string;
  count: number;
  error: number;
  since: number;
  rules: string[];
  note: string;
}

/** The entry of a key that names the tenant: what denials know of it, else its first. */
function tenantOf(key: string, groups: DenialGroup[]): string {
  const entries = groups.map((group) => group.key).filter((entry) => key === entry || key.startsWith(`${entry}:`));
  return entries.sort((a, b) => b.length - a.length)[0] ?? key.split(":").slice(0, 2).join(":");
}

/** The value of an entry. */
const valueOf = (entry: string): string => entry.slice(entry.indexOf(":") + 1);

function put(rows: Map<string, Row>, row: Row): void {
  const before = rows.get(row.key);
  if (before === undefined) {
    rows.set(row.key, row);
    return;
  }
  before.count += row.count;
  before.error += row.error;
  before.since = Math.min(before.since, row.since);
  for (const rule of row.rules) if (!before.rules.includes(rule)) before.rules.push(rule);
}

function most(rows: Map<string, Row>): Row[] {
  return [...rows.values()].sort((a, b) => b.count - a.count).slice(0, ROWS_MAX);
}

function ofKeys(keys: TopKey[], groups: DenialGroup[]): Row[] {
  const rows = new Map<string, Row>();
  for (const { key, count, error, since, rule } of keys) {
    const entry = tenantOf(key, groups);
    put(rows, { key: entry, tenant: valueOf(entry), count, error, since, rules: [rule], note: "" });
  }
  return most(rows);
}

function ofShadow(groups: DenialGroup[]): Row[] {
  const rows = new Map<string, Row>();
  for (const { kind, key, count, since, rule, mode, mode_since } of groups) {
    if (kind === "would_be_denied") {
      const note = [mode ?? "", mode_since === undefined ? "" : `since ${moment(mode_since)}`].filter(Boolean).join(" ");
      put(rows, { key, tenant: valueOf(key), count, error: 0, since, rules: [rule], note });
    }
  }
  return most(rows);
}

/** The counts of each tenant over the last readings. */
export class Sparks {
  private readings = new Map<string, number[]>();
  private window = "";

  take(rows: Pick<Row, "key" | "count">[], window: string): void {
    // Counts of a minute and of an hour are no line.
    if (window !== this.window) this.readings = new Map();
    this.window = window;
    const next = new Map<string, number[]>();
    for (const { key, count } of rows) {
      next.set(key, [...(this.readings.get(key) ?? []), count].slice(-READINGS_MAX));
    }
    this.readings = next;
  }

  counts(key: string): number[] {
    return this.readings.get(key) ?? [];
  }

  line(key: string): SVGElement | null {
    const counts = this.counts(key);
    if (counts.length < 2) return null;
    const top = Math.max(1, ...counts);
    const points = counts.map((value, index) => `${READINGS_MAX - counts.length + index},${(20 * (1 - value / top)).toFixed(1)}`);
    const svg = document.createElementNS(SVG, "svg");
    const line = document.createElementNS(SVG, "polyline");
    const attributes = { class: "spark", viewBox: `0 -1 ${READINGS_MAX} 22`, preserveAspectRatio: "none", "aria-hidden": "true" };
    for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
    line.setAttribute("points", points.join(" "));
    svg.append(line);
    return svg;
  }
}

const sparks = { denied: new Sparks(), shadow: new Sparks() };

/** Where the counts of the keys come from; null if they are this node's alone. */
function origin(fleet: Top | null): HTMLElement | null {
  if (fleet === null) return null;
  const { nodes, unlisted_max, only_this_node } = fleet;
  const text = only_this_node
    ? `This node alone: ${only_this_node}.`
    : `Over ${count(nodes.length)} ${nodes.length === 1 ? "node" : "nodes"}.`;
  const rest = unlisted_max > 0 ? ` Who is not listed may have up to ${count(unlisted_max)}.` : "";
  return h("p", { class: "note" }, text + rest);
}

function list(rows: Row[], what: string, lines: Sparks, state: State | null, open: (tenant: string) => void): HTMLElement {
  const shown = rows.map((row) => {
    const [rule = "", ...others] = row.rules;
    const more = others.length > 0 ? `and ${count(others.length)} more` : "";
    const limit = [state && limitOf(state, rule), row.note, more].filter(Boolean).join(", ");
    const cell = h("td", { class: `number ${what === "denied" ? "denied" : "would"}`, "data-label": what }, count(row.count), row.error > 0 && ` (±${count(row.error)})`);
    const line = lines.line(row.key);
    if (line !== null) cell.append(line);
    return h(
      "tr",
      {},
      h(
        "td",
        { class: "key" },
        h("button", { class: "link", "data-key": `${what} ${row.key}`, click: () => open(row.tenant) }, breakable(row.key)),
      ),
      h("td", { class: "rule", "data-label": "rule" }, breakable(rule), h("span", { class: "source" }, limit)),
      h("td", { class: "number", "data-label": "since" }, moment(row.since), h("span", { class: "source" }, ago(row.since))),
      cell,
    );
  });
  const head = ["tenant", "rule", "since", what].map((name) => h("th", { scope: "col" }, name));
  return h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...shown));
}

/** Shows the tenants that are denied most in the window. */
export function deniedMost(
  at: HTMLElement,
  keys: TopKey[],
  denials: Denials | null,
  window: string,
  open: (tenant: string) => void,
  state: State | null,
  fleet: Top | null = null,
): void {
  const rows = ofKeys(keys, denials?.groups ?? []);
  sparks.denied.take(rows, window);
  if (rows.length === 0) fill(at, h("p", { class: "empty" }, `No one was denied in the last ${window}.`), origin(fleet));
  else fill(at, list(rows, "denied", sparks.denied, state, open), origin(fleet));
}

/** Shows the tenants that would be denied; returns false if there are none. */
export function wouldBeDenied(at: HTMLElement, denials: Denials, state: State | null, open: (tenant: string) => void): boolean {
  const rows = ofShadow(denials.groups);
  sparks.shadow.take(rows, "hour");
  const alone = denials.told_by.only_this_node;
  fill(
    at,
    rows.length > 0 && list(rows, "would be denied", sparks.shadow, state, open),
    h("p", { class: "note" }, `In the last hour, by rules in shadow or enforced in part.${alone ? ` This node alone: ${alone}.` : ""}`),
  );
  return rows.length > 0;
}

/** The name by which the tenant behind a key is asked for. */
export function nameOf(key: string, denials: Denials | null): string {
  return valueOf(tenantOf(key, denials?.groups ?? []));
}
