/** "What would happen to this request?" */

import { ask } from "./api";
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
        fill(answer, h("p", { class: "loading" }, "Asking…"));
        explain(domain.value.trim(), entries.value.split("\n")).then(
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

/** Asks about entries, each on a line. One may be a secret, which must not stand in an address. */
export async function explain(domain: string, lines: string[]): Promise<Explanation> {
  const entries = lines.map((line) => line.trim()).filter((line) => line !== "");
  return ask<Explanation>("/admin/v1/explain", { domain, descriptors: [{ entries: entries.map(entryOf) }] });
}

/** An entry of `key:value`, the key being what is before the first colon. */
function entryOf(line: string): { key: string; value: string } {
  const colon = line.indexOf(":");
  if (colon < 1) throw new Error(`${line} is not an entry; write KEY:VALUE`);
  return { key: line.slice(0, colon), value: line.slice(colon + 1) };
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
