/** "What would happen to this request?" */

import { get } from "./api";
import { fill, h } from "./dom";
import type { Explanation } from "./types";
import { count, retry } from "./words";

export function explainer(at: HTMLElement): void {
  const domain = h("input", { id: "explain-domain", required: true, autocomplete: "off", spellcheck: "false" });
  const entries = h("textarea", { id: "explain-entries", rows: "3", required: true, spellcheck: "false" });
  entries.placeholder = "customer:acme\nendpoint:POST /orders";
  const answer = h("div", { class: "answer", role: "status" });
  const form = h(
    "form",
    {
      submit: (event) => {
        event.preventDefault();
        const query = new URLSearchParams({ domain: domain.value.trim() });
        for (const line of entries.value.split("\n").map((text) => text.trim())) {
          if (line !== "") query.append("entry", line);
        }
        fill(answer, h("p", { class: "loading" }, "Asking…"));
        get<Explanation>(`/admin/v1/explain?${query}`).then(
          (found) => fill(answer, explained(found)),
          (error: unknown) =>
            fill(answer, h("p", { class: "trouble bad" }, error instanceof Error ? error.message : String(error))),
        );
      },
    },
    h("div", {}, h("label", { for: "explain-domain" }, "Domain"), domain),
    h("div", {}, h("label", { for: "explain-entries" }, "Entries, each on a line: key:value"), entries),
    h("button", { type: "submit" }, "Explain"),
    h("p", { class: "note" }, "Takes nothing from any limit."),
  );
  fill(at, form, answer);
}

export function suggestDomain(at: HTMLElement, domain: string): void {
  const field = at.querySelector<HTMLInputElement>("#explain-domain");
  if (field !== null && field.value === "" && document.activeElement !== field) field.value = domain;
}

function explained(found: Explanation): HTMLElement {
  if (!found.known) {
    const known = found.domains?.join(", ") ?? "";
    return h("p", { class: "trouble warn" }, `Allowed: no rules for domain ${found.domain}. Domains with rules: ${known}`);
  }
  const verdict = found.allowed ? "It would be allowed." : "It would be denied.";
  const parts = found.descriptors.map((descriptor) =>
    h(
      "div",
      {},
      h("p", {}, h("code", {}, descriptor.entries.join(", ")), descriptor.plan !== undefined && ` (plan ${descriptor.plan})`),
      descriptor.note !== undefined && h("p", { class: "note" }, descriptor.note),
      ...descriptor.nodes.map((node) =>
        h(
          "ul",
          {},
          h("li", { class: "note" }, `${node.pattern} (${node.how})`),
          ...node.limits.map((limit) => {
            const left = limit.remaining === undefined ? "" : `, ${count(limit.remaining)} left`;
            const debt = limit.debt === undefined ? "" : `, ${count(limit.debt)} in debt`;
            const wait = limit.answer === "deny" ? `, ${retry(limit.retry_after_ms)}` : "";
            const word = limit.counts ? limit.answer : "does not count";
            return h(
              "li",
              {},
              h("strong", { class: limit.answer === "allow" || !limit.counts ? "good" : "bad" }, word),
              ` ${limit.rule}: ${limit.limit}${left}${debt}${wait}`,
              h("span", { class: "source" }, limit.place),
              limit.note !== undefined && h("span", { class: "note" }, limit.note),
            );
          }),
        ),
      ),
    ),
  );
  return h("div", {}, h("p", { class: `trouble ${found.allowed ? "good" : "bad"}` }, h("strong", {}, verdict)), ...parts);
}
