/** One tenant: plan, use of its limits, denials, the last hour, changes, and the next step. */

import { ask, Refused } from "./api";
import { breakable, fill, fold, h, showDialog } from "./dom";
import { quotas } from "./quotas";
import type { Change, TenantAnswer, Denial, DenialGroup, Usage } from "./types";
import { ago, clock, count, moment, retry, span } from "./words";

/** The hour of the time line, in seconds. */
const HOUR = 3_600;
/** The narrowest bar that is seen, in seconds. */
const WIDTH_MIN = 40;
const PARAMETER = "tenant";
/** Its name in older links. */
const OLD_PARAMETER = "customer";

export function why(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function usageOf(usage: Usage): HTMLElement {
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
        !!used.debt && `, ${count(used.debt)} in debt`,
        used.remaining === 0 && `, more in ${span(used.reset_after_ms / 1_000)}`,
      ),
      h("span", { class: "note" }, `${used.rule}, ${used.mode}`),
    );
  });
  return h("div", {}, ...rows);
}

function table(names: string[], rows: HTMLElement[]): HTMLElement {
  const head = names.map((name) => h("th", { scope: "col" }, name));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)));
}

/** The time from the first denial to the last, on a line of an hour that ends now. */
function timeLine(group: DenialGroup, now: number): HTMLElement {
  const from = Math.min(HOUR, Math.max(0, now - group.since));
  const until = Math.min(from, Math.max(0, now - group.last));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const text = `from ${from >= HOUR ? "more than an hour" : span(from)} ago to ${span(until)} ago`;
  const attributes = { class: "hour", viewBox: `0 0 ${HOUR} 100`, preserveAspectRatio: "none", role: "img", "aria-label": text };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const width = Math.max(WIDTH_MIN, from - until);
  const place = { x: Math.min(HOUR - width, HOUR - from), y: 0, width, height: 100, class: group.kind };
  for (const [name, value] of Object.entries(place)) bar.setAttribute(name, String(value));
  svg.append(bar);
  const cell = h("td", { class: "line", "data-label": "last hour" });
  cell.append(svg);
  return cell;
}

function groupsOf(groups: DenialGroup[], now: number): HTMLElement {
  const rows = groups.map((group) =>
    h(
      "tr",
      {},
      h("td", { class: "rule", "data-label": "rule" }, breakable(group.rule), h("span", { class: "source" }, group.limit)),
      h(
        "td",
        { class: "number", "data-label": group.kind === "denied" ? "denied" : "would be denied" },
        count(group.count),
        h("span", { class: "source" }, group.mode),
      ),
      h("td", { class: "number", "data-label": "since" }, moment(group.since), h("span", { class: "source" }, `last ${ago(group.last)}`)),
      timeLine(group, now),
    ),
  );
  return table(["rule", groups[0]?.kind === "denied" ? "denied" : "would be denied", "since", "last hour"], rows);
}

function requestsOf(denials: Denial[]): HTMLElement {
  const rows = denials.map((denial) => {
    const request = [denial.method, denial.path].filter(Boolean).join(" ");
    return h(
      "tr",
      {},
      h("td", { class: "short", "data-label": "time" }, clock(denial.time)),
      h("td", { "data-label": "rule" }, denial.rule, h("span", { class: "source" }, denial.limit)),
      h("td", { "data-label": "request" }, request || denial.scope),
      h("td", { class: "short", "data-label": "reason" }, denial.degraded ? "failure mode" : retry(denial.retry_after_ms)),
      h("td", { class: "short", "data-label": "id" }, h("span", { class: "source" }, denial.request_id)),
    );
  });
  return table(["time", "rule", "request", "reason", "request id"], rows);
}

/** A plan and overrides on one line, as the audit trail keeps them. */
function stateOf(state: Change["after"]): string {
  if (state === null || state === undefined) return "none";
  const { plan, plans, overrides } = state;
  const dated = (name: unknown, part: Record<string, unknown>): string =>
    [name, part.effective_at && `from ${part.effective_at}`, part.expires_at && `until ${part.expires_at}`].filter(Boolean).join(" ");
  const list = (value: unknown): Record<string, unknown>[] => (Array.isArray(value) ? value : []);
  const one = plan;
  const parts = [
    typeof one === "string" && `plan ${one}`,
    ...list(plans).map((part) => `plan ${dated(part.plan, part)}`),
    ...list(overrides).map((part) =>
      dated(`${part.descriptor ?? "default"} ${part.requests_per_unit} per ${part.unit ?? part.window ?? "window"}`, part),
    ),
  ].filter(Boolean);
  return parts.length === 0 ? "none" : parts.join("; ");
}

/** What a change made of the tenant; a step that was only noted made nothing. */
export function afterOf({ action, after }: Pick<Change, "action" | "after">): string {
  if (action === "reset") return "usage forgotten";
  if (action !== "adjust.shadow") return stateOf(after);
  const steps = Number(after?.steps ?? 0);
  if (steps === 0) return "would be raised no more";
  const to = after?.requests_per_unit === undefined ? "" : `, to ${after.requests_per_unit}`;
  return `would be raised by ${count(steps)} ${steps === 1 ? "step" : "steps"}${to}`;
}

function changesOf(changes: Change[]): HTMLElement {
  const rows = changes.map((change) =>
    h(
      "tr",
      {},
      h("td", { class: "short", "data-label": "time" }, moment(Date.parse(change.changed_at) / 1_000)),
      h("td", { "data-label": "by" }, change.editor, h("span", { class: "source" }, change.action)),
      h("td", { "data-label": "before" }, change.action.endsWith(".shadow") ? "" : stateOf(change.before)),
      h("td", { "data-label": "after" }, afterOf(change)),
    ),
  );
  return table(["time", "by", "before", "after"], rows);
}

/** The name that may stand in an address: a value that is no secret, else its fingerprint or hash. */
function addressOf(answer: Pick<TenantAnswer, "key" | "hash">): string | undefined {
  const { key, hash } = answer;
  return key === undefined ? hash : key.slice(key.indexOf(":") + 1);
}

/** Why there is no form for its plan; null if there can be one. A fingerprint is no name in the quota database. */
export function noForm(answer: Pick<TenantAnswer, "domain" | "domains" | "hash" | "key">): string | null {
  const { domain, domains, hash } = answer;
  if ((domains ?? []).length > 0) return "Several domains have tenants: choose one above.";
  if (domain === undefined) return "There is no plan to change here: the last lines say why.";
  const name = hash ?? addressOf(answer);
  if (name === undefined || (hash === undefined && name.startsWith("~"))) {
    return "Its plan cannot be changed here: neither its value nor its hash is known.";
  }
  return null;
}

function show(at: HTMLElement, answer: TenantAnswer, plans: string[], again: () => void): void {
  const { usage, denials, would_be_denied, requests, changes, next_steps, told_by } = answer;
  const form = h("div", {});
  const named = answer.hash ?? addressOf(answer);
  const none = (text: string): HTMLElement => h("p", { class: "empty" }, text);
  fill(
    at,
    h("p", { class: denials.length > 0 ? "trouble warn" : "trouble good" }, h("strong", {}, answer.summary)),
    h("p", {}, answer.plan === undefined ? "No plan" : `Plan ${answer.plan}`, answer.domain !== undefined && ` in domain ${answer.domain}`, "."),
    h("h3", {}, "Limits now"),
    usage ? usageOf(usage) : none("Its use is not known."),
    h("h3", {}, "Denied in the last hour"),
    denials.length > 0 ? groupsOf(denials, answer.at) : none("Nothing was denied."),
    told_by.only_this_node !== undefined && h("p", { class: "note" }, `This node alone: ${told_by.only_this_node}.`),
    would_be_denied.length > 0 && h("h3", {}, "Would be denied, if the rule were enforced"),
    would_be_denied.length > 0 && groupsOf(would_be_denied, answer.at),
    requests.length > 0 && fold("requests", `The latest ${count(requests.length)} denied requests on this node`, true, requestsOf(requests)),
    h("h3", {}, "Plan and overrides"),
    form,
    changes.length > 0 && h("h3", {}, "Last changes"),
    changes.length > 0 && changesOf(changes),
    next_steps.length > 0 &&
      fold(
        "steps",
        "The same from a terminal",
        false,
        h("ul", {}, ...next_steps.map((step) => h("li", {}, `${step.title}: `, h("code", {}, step.command)))),
      ),
    ...(answer.missing ?? []).map((text) => h("p", { class: "note" }, text)),
  );
  const why = noForm(answer);
  if (why !== null || named === undefined || answer.domain === undefined) fill(form, none(why ?? ""));
  else void quotas(form, answer.domain, named, answer.tenant, plans, again);
}

/** Why the view of a tenant has nothing to show, in words. */
export function failure(error: unknown): string {
  if (!(error instanceof Refused)) return `No answer: ${why(error)}.`;
  const { status, message } = error;
  if (status === 404) return `Not found: ${message}. Try the whole key, or its last four characters.`;
  if (status === 409) return `Not clear: ${message}. Ask with one of these names.`;
  if (status === 401 || status === 403) return `Not allowed: ${message}.`;
  return `Not shown: ${message}.`;
}

/** Opens the view of a tenant, named by its value, its fingerprint, its hash or its last characters, and of the domain of
 * whatever named it, if that has tenants. */
export function openTenant(tenant: string, plans: () => string[], domainOfRow?: string): void {
  document.querySelector("dialog.tenant")?.remove();
  const close = h("button", { class: "close", "aria-label": "Close", click: () => element.close() }, "×");
  const title = h("h2", {}, "Tenant");
  const choice = h("div", { class: "choices", role: "group", "aria-label": "Domain" });
  const body = h("div", {}, h("p", { class: "loading" }, "Asking…"));
  const element = h("dialog", { class: "tenant", "aria-label": "Tenant" }, h("header", {}, title, close), choice, body);
  showDialog(element, () => window.history.replaceState(null, "", location.pathname));
  let domain: string | undefined;
  const choose = (chosen: string, domains: string[]): void => {
    domain = chosen;
    offer(domains);
    read();
  };
  const offer = (domains: string[]): void => {
    const button = (name: string): HTMLElement =>
      h("button", { type: "button", "aria-pressed": String(name === domain), click: () => choose(name, domains) }, name);
    fill(choice, ...domains.map(button));
  };
  /** Chooses the domain of the row where there are several, or offers them all; returns true if it asks again. */
  const isAskedAgain = (domains: string[] | undefined): boolean => {
    if (domains === undefined || domains.length === 0 || domain !== undefined) return false;
    if (domainOfRow !== undefined && domains.includes(domainOfRow)) {
      choose(domainOfRow, domains);
      return true;
    }
    offer(domains);
    return false;
  };
  const read = (): void => {
    ask<TenantAnswer>("/admin/v1/tenants", domain === undefined ? { tenant } : { tenant, domain }).then(
      (answer) => {
        // Closed meanwhile: the address names nobody any more.
        if (!element.isConnected || isAskedAgain(answer.domains)) return;
        fill(title, breakable(answer.tenant));
        const address = addressOf(answer);
        // What was typed may be a secret; only its mark may stand in an address.
        if (address !== undefined) window.history.replaceState(null, "", `?${new URLSearchParams({ [PARAMETER]: address })}`);
        show(body, answer, plans(), read);
      },
      (error: unknown) => {
        if (!element.isConnected || (error instanceof Refused && isAskedAgain(error.domains))) return;
        fill(body, h("p", { class: "trouble warn", role: "status" }, failure(error)));
      },
    );
  };
  read();
}

/** The search of the header; `/` goes there. */
export function search(plans: () => string[]): HTMLElement {
  const field = h("input", {
    id: "search",
    type: "search",
    placeholder: "acme, or the end of a key",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": "Find a tenant",
  });
  document.addEventListener("keydown", (event) => {
    const at = document.activeElement;
    if (event.key !== "/" || at instanceof HTMLInputElement || at instanceof HTMLTextAreaElement) return;
    event.preventDefault();
    field.focus();
  });
  return h(
    "form",
    {
      class: "search",
      role: "search",
      submit: (event) => {
        event.preventDefault();
        const tenant = field.value.trim();
        if (tenant !== "") openTenant(tenant, plans);
      },
    },
    field,
    h("button", { type: "submit" }, "Find"),
  );
}

/** The tenant that the address names, if it does. */
export function addressed(): string | null {
  const parameters = new URLSearchParams(location.search);
  return parameters.get(PARAMETER) ?? parameters.get(OLD_PARAMETER);
}
