/** Who is denied most, by tenant, and who would be, were the rules in shadow enforced. */

import { breakable, fill, h } from "./dom";
import { limitOf } from "./panels";
import type { Denials, State, Top, TopKey } from "./types";
import { ago, count, moment } from "./words";

/** Readings of a sparkline; at one in two seconds, they are of the last two minutes. */
const READINGS_MAX = 60;
/** Tenants in the list. */
const ROWS_MAX = 8;
const SVG = "http://www.w3.org/2000/svg";

/** Keys, or tenants and rules, that are asked for at once: the most that one answer has. */
export const ASKED = 100;

/** Opens the view of a tenant of a domain. */
export type Open = (tenant: string, domain: string) => void;

/** One tenant, with what it was denied by each rule. */
interface Row {
  key: string;
  domain: string;
  /** The name to ask for it by. */
  tenant: string;
  count: number;
  error: number;
  since: number;
  rules: string[];
  note: string;
}

/** The entry of a key that names the tenant. Where the node knows none, the whole key: a value may have colons of its own. */
const tenantOf = ({ subject, key }: TopKey): string => subject ?? key;

/** The value of an entry. */
const valueOf = (entry: string): string => entry.slice(entry.indexOf(":") + 1);

/** Two domains may have the same entry. */
const nameIn = (row: Row): string => `${row.domain} ${row.key}`;
const named = (rows: Row[]): { key: string; count: number }[] => rows.map((row) => ({ key: nameIn(row), count: row.count }));

function put(rows: Map<string, Row>, row: Row): void {
  const name = nameIn(row);
  const before = rows.get(name);
  if (before === undefined) {
    rows.set(name, row);
    return;
  }
  before.count += row.count;
  before.error += row.error;
  before.since = Math.min(before.since, row.since);
  for (const rule of row.rules) if (!before.rules.includes(rule)) before.rules.push(rule);
}

/** The rows of a list, and what has to be said about it. */
export interface Listed {
  rows: Row[];
  /** The nodes that it is of. */
  origin: string;
  notes: string[];
}

/** The tenants with the largest counts, and a note of those that have no room. */
function most(rows: Map<string, Row>, origin: string, notes: string[]): Listed {
  const all = [...rows.values()].sort((a, b) => b.count - a.count);
  const next = all[ROWS_MAX];
  const left = all.length - ROWS_MAX;
  const more = left === 1 ? "1 more tenant has" : `${count(left)} more tenants have up to`;
  return { rows: all.slice(0, ROWS_MAX), origin, notes: next === undefined ? notes : [...notes, `${more} ${count(next.count)}.`] };
}

/** The nodes that a list is of. */
function origin({ nodes, only_this_node }: Pick<Top, "nodes" | "only_this_node">): string {
  return only_this_node ? `This node alone: ${only_this_node}.` : `Over ${count(nodes.length)} ${nodes.length === 1 ? "node" : "nodes"}.`;
}

/** The tenants of the keys that were denied most. */
export function ofKeys(top: Top): Listed {
  const rows = new Map<string, Row>();
  for (const found of top.keys) {
    const { domain, count, error, since, rule } = found;
    const entry = tenantOf(found);
    put(rows, { key: entry, domain, tenant: valueOf(entry), count, error, since, rules: [rule], note: "" });
  }
  const isCut = top.keys.length >= ASKED;
  const bound = Math.max(top.unlisted_max, isCut ? (top.keys.at(-1)?.count ?? 0) : 0);
  const cut = isCut ? [`Of the ${count(ASKED)} keys with the most denials: a tenant may have more in others.`] : [];
  const rest = bound > 0 ? [`A key that is not among them may have up to ${count(bound)}.`] : [];
  return most(rows, origin(top), [...cut, ...rest]);
}

/** The tenants of groups, those with the most denials first, as they were asked for. */
export function ofGroups({ groups, told_by }: Denials): Listed {
  const rows = new Map<string, Row>();
  for (const { domain, key, count, since, rule } of groups) {
    put(rows, { key, domain, tenant: valueOf(key), count, error: 0, since, rules: [rule], note: "" });
  }
  const least = groups.length >= ASKED ? (groups.at(-1)?.count ?? 0) : 0;
  const cut = least > 0 ? [`By a rule that is not counted here, a tenant may have up to ${count(least)} more.`] : [];
  const left = told_by.groups_left_out;
  const rest = left > 0 ? [`Other nodes have ${count(left)} more tenants and rules than they tell.`] : [];
  return most(rows, origin(told_by), [...cut, ...rest]);
}

/** The tenants that rules would have denied. */
export function ofShadow({ groups, told_by }: Denials): Listed {
  const rows = new Map<string, Row>();
  for (const { kind, domain, key, count, since, rule, mode, mode_since } of groups) {
    if (kind === "would_be_denied") {
      const note = [mode ?? "", mode_since === undefined ? "" : `since ${moment(mode_since)}`].filter(Boolean).join(" ");
      put(rows, { key, domain, tenant: valueOf(key), count, error: 0, since, rules: [rule], note });
    }
  }
  return most(rows, origin(told_by), []);
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

function list(rows: Row[], what: string, lines: Sparks, state: State | null, open: Open): HTMLElement {
  const isOfSeveral = new Set(rows.map((row) => row.domain)).size > 1;
  const shown = rows.map((row) => {
    const [rule = "", ...others] = row.rules;
    const more = others.length > 0 ? `and ${count(others.length)} more` : "";
    const limit = [state && limitOf(state, rule), row.note, more].filter(Boolean).join(", ");
    const cell = h("td", { class: `number ${what === "denied" ? "denied" : "would"}`, "data-label": what }, count(row.count), row.error > 0 && ` (±${count(row.error)})`);
    const line = lines.line(nameIn(row));
    if (line !== null) cell.append(line);
    return h(
      "tr",
      {},
      h(
        "td",
        { class: "key" },
        h("button", { class: "link", "data-key": `${what} ${row.key}`, click: () => open(row.tenant, row.domain) }, breakable(row.key)),
        isOfSeveral && h("span", { class: "source" }, row.domain),
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
export function deniedMost(at: HTMLElement, { rows, origin, notes }: Listed, window: string, open: Open, state: State | null): void {
  sparks.denied.take(named(rows), window);
  // Where nothing is shared, there are no other nodes to speak of.
  const said = h("p", { class: "note" }, [...(state?.store.is_shared === true ? [origin] : []), ...notes].join(" "));
  if (rows.length === 0) fill(at, h("p", { class: "empty" }, `No one was denied in the last ${window}.`), said);
  else fill(at, list(rows, "denied", sparks.denied, state, open), said);
}

/** Shows the tenants that would be denied; returns false if there are none. */
export function wouldBeDenied(at: HTMLElement, denials: Denials, state: State | null, open: Open): boolean {
  const { rows, notes } = ofShadow(denials);
  sparks.shadow.take(named(rows), "hour");
  const alone = denials.told_by.only_this_node;
  const said = ["In the last hour, by rules in shadow or enforced in part.", ...notes, alone ? `This node alone: ${alone}.` : ""];
  fill(at, rows.length > 0 && list(rows, "would be denied", sparks.shadow, state, open), h("p", { class: "note" }, said.join(" ").trim()));
  return rows.length > 0;
}

/** The name by which the tenant behind a key is asked for. */
export function nameOf(key: TopKey): string {
  return valueOf(tenantOf(key));
}
