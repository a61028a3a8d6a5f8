/** Changes a tenant's plan and overrides, and resets its usage; each after a question. */

import { getVersion, Refused, send } from "./api";
import { fill, h } from "./dom";

interface Override {
  descriptor: string;
  requests_per_unit: number;
  unit?: string;
  window?: string;
  [more: string]: unknown;
}

interface Quotas {
  tier?: string;
  tiers?: unknown[];
  quotas: { overrides?: Override[] };
}

const UNITS = ["second", "minute", "hour", "day", "month"];

function inWords(override: Override): string {
  return `${override.descriptor}: ${override.requests_per_unit} per ${override.unit ?? override.window ?? "window"}`;
}

/** Asks in place of the buttons; nothing is sent before the answer. */
function ask(at: HTMLElement, question: string, yes: () => Promise<void>, again: () => void): void {
  const said = h("p", { role: "status" });
  const confirm = h("button", { type: "button", class: "confirm" }, "Yes, change it");
  confirm.addEventListener("click", () => {
    confirm.disabled = true;
    yes().then(again, (error: unknown) => {
      fill(said, `Not changed: ${error instanceof Error ? error.message : String(error)}`);
      confirm.disabled = false;
    });
  });
  const cancel = h("button", { type: "button", class: "cancel", click: again }, "No");
  fill(at, h("div", { class: "question" }, h("p", {}, question), confirm, cancel, said));
  confirm.focus();
}

/** Shows what the quota database has of a tenant, with a form; `changed` is called after each change. */
export async function quotas(at: HTMLElement, domain: string, tenant: string, changed: () => void): Promise<void> {
  const path = `/admin/v1/quotas/${encodeURIComponent(tenant)}`;
  const query = `?${new URLSearchParams({ domain })}`;
  let found: Quotas = { quotas: {} };
  let version: string | null = null;
  try {
    ({ value: found, version } = await getVersion<Quotas>(path + query));
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) {
      const status = error instanceof Refused ? error.status : 0;
      const text = status === 501 ? "Not configured: this node has no quota database." : String((error as Error).message);
      fill(at, h("p", { class: "empty" }, text));
      return;
    }
  }
  const again = (): void => {
    changed();
    void quotas(at, domain, tenant, changed);
  };
  // Another editor's change in between is refused, not undone.
  const guard: Record<string, string> = version === null ? { "if-none-match": "*" } : { "if-match": version };
  const overrides = found.quotas.overrides ?? [];
  if ((found.tiers?.length ?? 0) > 1) {
    fill(at, h("p", { class: "empty" }, "Has plans that change with time; ratekeeper quota set changes them."));
    return;
  }
  const tier = h("input", { id: "quota-tier", autocomplete: "off", spellcheck: "false" });
  tier.value = found.tier ?? "";
  const descriptor = h("input", { id: "quota-descriptor", autocomplete: "off", spellcheck: "false" });
  descriptor.placeholder = "default, or endpoint:POST /orders";
  const amount = h("input", { id: "quota-amount", type: "number", min: "0", step: "1" });
  const unit = h("select", { id: "quota-unit" }, ...UNITS.map((name) => h("option", { value: name }, name)));
  unit.value = "minute";
  const save = (): void => {
    const wanted = overrides.filter((override) => override.descriptor !== descriptor.value.trim());
    if (descriptor.value.trim() !== "" && amount.value !== "") {
      wanted.push({ descriptor: descriptor.value.trim(), requests_per_unit: Number(amount.value), unit: unit.value });
    }
    const plan = tier.value.trim();
    const value = { ...(plan === "" ? {} : { tier: plan }), overrides: wanted };
    const shown = wanted.length === 0 ? "no overrides" : wanted.map(inWords).join("; ");
    const question = `Give ${tenant} ${plan === "" ? "the default plan" : `the plan ${plan}`}, and ${shown}?`;
    ask(at, question, () => send("PUT", path + query, value, guard), again);
  };
  const reset = h("button", { type: "button" }, "Reset usage");
  reset.addEventListener("click", () => {
    ask(at, `Forget what ${tenant} has used?`, () => send("POST", `${path}/reset${query}`), again);
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
    h("p", {}, overrides.length === 0 ? "No overrides." : `Overrides: ${overrides.map(inWords).join("; ")}`),
    h("div", {}, h("label", { for: "quota-tier" }, "Plan (empty for the default)"), tier),
    h("div", {}, h("label", { for: "quota-descriptor" }, "Override of (empty for none)"), descriptor),
    h("div", {}, h("label", { for: "quota-amount" }, "Requests"), amount),
    h("div", {}, h("label", { for: "quota-unit" }, "per"), unit),
    h("button", { type: "submit" }, "Change"),
    reset,
  );
  fill(at, form);
}
