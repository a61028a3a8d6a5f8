/** Dialogs: a tenant, the switch of a rule, a token. */

import { get, Refused, send, setToken } from "./api";
import { breakable, fill, h } from "./dom";
import { quotas } from "./quotas";
import type { Denial, Rule, TopKey, Usage } from "./types";
import { clock, count, millis, moment } from "./words";

function dialog(title: string, ...content: (Node | string)[]): HTMLDialogElement {
  const close = h("button", { class: "close", "aria-label": "Close", click: () => element.close() }, "×");
  const head = h("header", {}, h("h2", {}, title), close);
  const element = h("dialog", { "aria-label": title }, head, ...content);
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return element;
}

function why(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Asks before a rule is switched, since it changes what the API lets pass. */
export function switchRule(rule: Rule, done: (text: string) => void): void {
  const said = h("p", { role: "status", class: "said" });
  const choose = (name: string, note: string, method: "POST" | "DELETE", verb: string): HTMLElement =>
    h(
      "button",
      {
        class: "choice",
        click: () => {
          fill(said, "Switching…");
          send(method, `/admin/v1/rules/${encodeURIComponent(rule.id)}/${verb}`).then(
            () => {
              element.close();
              done(`${rule.id}: ${name}`);
            },
            (error: unknown) => fill(said, `Not switched: ${why(error)}`),
          );
        },
      },
      h("strong", {}, name),
      h("span", {}, note),
    );
  const element = dialog(
    "Switch a rule",
    h("p", {}, h("code", {}, rule.id), ` is ${rule.mode} on this node. A switch is in force at the next request.`),
    choose("Shadow", "Decides and counts, and denies nothing.", "POST", "shadow"),
    choose("Off", "Takes no part in any decision.", "POST", "disable"),
    choose("On", "Enforces, even if the file turns it off.", "POST", "enable"),
    choose("As the file says", "Takes the switch away.", "DELETE", "switch"),
    said,
  );
}

function usageOf(usage: Usage): HTMLElement {
  const rows = Object.entries(usage.usage).map(([name, used]) => {
    const share = used.limit === 0 ? 1 : used.used / used.limit;
    const class_ = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
    return h(
      "div",
      { class: "usage" },
      h("span", { class: "name" }, name),
      h("meter", { class: class_, min: "0", max: String(used.limit), value: String(used.used), "aria-label": name }),
      h(
        "span",
        { class: "number" },
        `${count(used.used)} of ${count(used.limit)}`,
        used.remaining === 0 && `, more in ${millis(used.reset_after_ms)}`,
      ),
      h("span", { class: "note" }, `${used.rule}, ${used.mode}`),
    );
  });
  const plan = usage.plan === undefined ? "no plan" : `plan ${usage.plan}`;
  return h("div", {}, h("p", {}, `Domain ${usage.domain}, ${plan}.`), ...rows);
}

function denialsOf(denials: Denial[]): HTMLElement {
  if (denials.length === 0) return h("p", { class: "empty" }, "None in the sample of recent denials.");
  const rows = denials.map((denial) => {
    const request = [denial.method, denial.path].filter(Boolean).join(" ");
    return h(
      "tr",
      {},
      h("td", { class: "short", "data-label": "time" }, clock(denial.time)),
      h("td", { "data-label": "rule" }, denial.rule, h("span", { class: "source" }, denial.limit)),
      h("td", { "data-label": "request" }, request || denial.scope),
      h("td", { class: "short", "data-label": "reason" }, denial.degraded ? "failure mode" : `retry in ${millis(denial.retry_after_ms)}`),
      h("td", { class: "short", "data-label": "id" }, h("span", { class: "source" }, denial.request_id)),
    );
  });
  const head = ["time", "rule", "request", "reason", "request id"].map((name) => h("th", { scope: "col" }, name));
  const oldest = denials.at(-1);
  const since = oldest !== undefined && `Since ${clock(oldest.time)} at the latest, by a sample of the denials.`;
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
  return h("div", {}, h("p", { class: "note" }, since), table);
}

/** The tenant's limits and usage, and the latest denials with their reason. */
export function tenant(top: TopKey): void {
  const usage = h("div", {}, h("p", { class: "loading" }, "Reading the counters…"));
  const changes = h("div", {}, h("p", { class: "loading" }, "Reading the quotas…"));
  const denials = h("div", { class: "scroll" }, h("p", { class: "loading" }, "Reading the denials…"));
  dialog(
    top.key,
    h("p", {}, `Denied ${count(top.count)} times by `, h("code", {}, breakable(top.rule)), ` in the window shown, since ${moment(top.since)}.`),
    h("h3", {}, "Limits"),
    usage,
    h("h3", {}, "Plan and overrides"),
    changes,
    h("h3", {}, "Recent denials"),
    denials,
  );
  // The first entry is the tenant's in a domain with tenants; the server says if it is not.
  const value = top.key.split(":")[1] ?? "";
  if (value.startsWith("~")) {
    fill(usage, h("p", { class: "empty" }, "The value is a secret: only its fingerprint is known, and no usage by it."));
    fill(changes, h("p", { class: "empty" }, "Changed by the value itself: ratekeeper quota set."));
  } else {
    const query = new URLSearchParams({ domain: top.domain });
    const read = (): void => {
      get<Usage>(`/admin/v1/usage/${encodeURIComponent(value)}?${query}`).then(
        (answer) => fill(usage, usageOf(answer)),
        (error: unknown) => fill(usage, h("p", { class: "empty" }, `No usage: ${why(error)}`)),
      );
    };
    read();
    void quotas(changes, top.domain, value, read);
  }
  const query = new URLSearchParams({ domain: top.domain, key: top.key, limit: "20" });
  get<{ denials: Denial[] }>(`/admin/v1/denials?${query}`).then(
    (answer) => fill(denials, denialsOf(answer.denials)),
    (error: unknown) => fill(denials, h("p", { class: "empty" }, why(error))),
  );
}

/** Asks for a token; it stays in memory until the page is closed. */
export function askToken(at: HTMLElement, refused: Refused, go: () => void): void {
  const field = h("input", { type: "password", autocomplete: "off", id: "token", "data-key": "token" });
  const form = h(
    "form",
    {
      class: "token",
      submit: (event) => {
        event.preventDefault();
        setToken(field.value);
        go();
      },
    },
    h("h2", {}, "This node wants a token"),
    h("p", {}, refused.message),
    h("label", { for: "token" }, "Token of the admin API (a viewer may look, an editor may switch rules)"),
    field,
    h("button", { type: "submit" }, "Connect"),
    h("p", { class: "note" }, "Kept in memory until the page is closed. ", h("code", {}, "ratekeeper token create"), " makes one."),
  );
  fill(at, form);
  field.focus();
}
