/** Changes a tenant's plans and overrides, and resets its usage; each after a question. */

import { getVersion, Refused, send } from "./api";
import { fill, h } from "./dom";
import { bodyOf, changes, inWords, partsOf, remove, setOverride, setPlan } from "./merge";
import type { Own, Override, Parts, Plan } from "./merge";

interface Quotas {
  own?: Own;
  warnings?: string[];
}

const UNITS = ["second", "minute", "hour", "day", "month"];

/** Asks in place of the buttons; nothing is sent before the answer. */
function ask(
  at: HTMLElement,
  question: string,
  lines: string[],
  yes: () => Promise<Quotas | undefined>,
  again: (answer?: Quotas) => void,
): void {
  const said = h("p", { role: "status" });
  const confirm = h("button", { type: "button", class: "confirm" }, "Yes, change it");
  confirm.addEventListener("click", () => {
    confirm.disabled = true;
    yes().then(again, (error: unknown) => {
      fill(said, `Not changed: ${error instanceof Error ? error.message : String(error)}`);
      confirm.disabled = false;
    });
  });
  const cancel = h("button", { type: "button", class: "cancel", click: () => again() }, "No");
  const list = lines.length > 0 && h("ul", {}, ...lines.map((line) => h("li", {}, line)));
  fill(at, h("div", { class: "question" }, h("p", {}, question), list, confirm, cancel, said));
  confirm.focus();
}

function field(id: string, label: string, attributes: Record<string, string> = {}): [HTMLElement, HTMLInputElement] {
  const input = h("input", { id, autocomplete: "off", spellcheck: "false", ...attributes });
  return [h("div", {}, h("label", { for: id }, label), input), input];
}

/** The dates of two fields, as midnights in UTC. */
function datesOf(from: HTMLInputElement, until: HTMLInputElement): { effective_at?: string; expires_at?: string } {
  const start = from.value === "" ? {} : { effective_at: `${from.value}T00:00:00Z` };
  return until.value === "" ? start : { ...start, expires_at: `${until.value}T00:00:00Z` };
}

/**
 * Shows what the quota database has of a tenant, with a form; `changed` is called after each change, and `warnings` are
 * those of the last one.
 */
export async function quotas(
  at: HTMLElement,
  domain: string,
  tenant: string,
  changed: () => void,
  warnings: string[] = [],
): Promise<void> {
  const path = `/admin/v1/quotas/${encodeURIComponent(tenant)}`;
  const query = `?${new URLSearchParams({ domain })}`;
  let own: Own | undefined = {};
  let version: string | null = null;
  let now = Date.now();
  try {
    const found = await getVersion<Quotas>(path + query);
    ({ own } = found.value);
    version = found.version;
    now = found.time ?? now;
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) {
      const status = error instanceof Refused ? error.status : 0;
      const text = status === 501 ? "Not configured: this node has no quota database." : String((error as Error).message);
      fill(at, h("p", { class: "empty" }, text));
      return;
    }
  }
  if (own === undefined) {
    fill(at, h("p", { class: "empty" }, "This node is of an older version; ratekeeper quota set changes the tenant."));
    return;
  }
  const parts = partsOf(own);
  const said = h("p", { role: "status" });
  const again = (answer?: Quotas): void => {
    changed();
    void quotas(at, domain, tenant, changed, answer?.warnings ?? []);
  };
  // Another editor's change in between is refused, not undone.
  const guard: Record<string, string> = version === null ? { "if-none-match": "*" } : { "if-match": version };
  const put = (wanted: Parts): void => {
    const lines = changes(parts, wanted);
    if (lines.length === 0) fill(said, "Nothing is named that would change.");
    else ask(at, `Change ${tenant}?`, lines, () => send<Quotas>("PUT", path + query, bodyOf(wanted), guard), again);
  };
  const row = (part: Plan | Override): HTMLElement => {
    const words = inWords(part);
    const button = h("button", { type: "button", class: "remove", "aria-label": `Remove ${words}` }, "Remove");
    button.addEventListener("click", () => put(remove(parts, part)));
    return h("li", {}, words, " ", button);
  };
  const [tierField, tier] = field("quota-tier", "Plan (empty: as it is)");
  const [descriptorField, descriptor] = field("quota-descriptor", "Override of (empty for none)");
  descriptor.placeholder = "default, or endpoint:POST /orders";
  const [amountField, amount] = field("quota-amount", "Requests", { type: "number", min: "0", step: "1" });
  const unit = h("select", { id: "quota-unit" }, ...UNITS.map((name) => h("option", { value: name }, name)));
  unit.value = "minute";
  const [fromField, from] = field("quota-from", "From (UTC, empty: now)", { type: "date" });
  const [untilField, until] = field("quota-until", "Until (UTC, empty: for good)", { type: "date" });
  const save = (): void => {
    const dates = datesOf(from, until);
    const plan = tier.value.trim();
    const name = descriptor.value.trim();
    let wanted = plan === "" ? parts : setPlan(parts, { tier: plan, ...dates }, now);
    if (name !== "" && amount.value !== "") {
      const override = { descriptor: name, requests_per_unit: Number(amount.value), unit: unit.value, ...dates };
      wanted = setOverride(wanted, override, now);
    }
    put(wanted);
  };
  const reset = h("button", { type: "button" }, "Reset usage");
  reset.addEventListener("click", () => {
    ask(at, `Forget what ${tenant} has used?`, [], () => send<Quotas>("POST", `${path}/reset${query}`), again);
  });
  const form = h(
    "form",
    {
      class: "quotas",
      submit: (event) => {
        event.preventDefault();
        save();
      },
    },
    ...warnings.map((warning) => h("p", { class: "warning", role: "status" }, warning)),
    parts.plans.length > 0 ? h("ul", { class: "plans" }, ...parts.plans.map(row)) : h("p", {}, "No plan of its own."),
    parts.overrides.length > 0 ? h("ul", { class: "overrides" }, ...parts.overrides.map(row)) : h("p", {}, "No overrides."),
    tierField,
    descriptorField,
    amountField,
    h("div", {}, h("label", { for: "quota-unit" }, "per"), unit),
    fromField,
    untilField,
    h("button", { type: "submit" }, "Change"),
    reset,
    said,
  );
  fill(at, form);
}
