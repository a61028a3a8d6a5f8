/** Rules and tenants with far more requests than in the hour before. */

import { breakable, fill, h } from "./dom";
import type { Open } from "./denied";
import type { Anomaly, State } from "./types";
import { ago, count, moment } from "./words";

/** How many times what was usual: `12 times`, `3.4 times`. */
function times({ per_minute, usual_per_minute }: Anomaly): string {
  const factor = per_minute / Math.max(1, usual_per_minute);
  return `${factor >= 10 ? count(Math.round(factor)) : factor.toFixed(1)} times`;
}

function row(growth: Anomaly, open: Open): HTMLElement {
  const { key, domain, rule, since, per_minute, usual_per_minute, peak_per_minute } = growth;
  const who =
    key === undefined
      ? "all its requests"
      : h("button", { class: "link", "data-key": `growth ${key}`, click: () => open(key.slice(key.indexOf(":") + 1), domain) }, breakable(key));
  return h(
    "tr",
    {},
    h("td", { class: "key" }, who),
    h("td", { class: "rule", "data-label": "rule" }, breakable(rule)),
    h("td", { class: "number", "data-label": "since" }, moment(since), h("span", { class: "source" }, ago(since))),
    h(
      "td",
      { class: "number would", "data-label": "requests a minute" },
      count(per_minute),
      h("span", { class: "source" }, `${times(growth)} the usual ${count(Math.round(usual_per_minute))}, at most ${count(peak_per_minute)}`),
    ),
  );
}

/** Shows unusual growth; returns false if there is none. */
export function unusualGrowth(at: HTMLElement, state: State, open: Open): boolean {
  const { anomalies } = state;
  const head = ["tenant", "rule", "since", "requests a minute"].map((name) => h("th", { scope: "col" }, name));
  const body = anomalies.map((growth) => row(growth, open));
  fill(
    at,
    anomalies.length > 0 && h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body)),
    h("p", { class: "note" }, "On this node, against its own hour before. Nothing is limited because of it."),
  );
  return anomalies.length > 0;
}
