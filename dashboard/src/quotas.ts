/** Changes a tenant's plans and overrides, and resets its usage; each after a question. */

import { getVersion, Refused, send } from "./api";
import { fill, h } from "./dom";
import { bodyOf, changes, inWords, partsOf, remove, setOverride, setPlan } from "./merge";
import type { Own, Override, Parts, Plan } from "./merge";

interface Quotas {
  own?: Own;
  version?: number;
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

/** The last change on this page: of whom, from what, to which version, and what the node said of it. */
interface LastChange {
  /** The domain and the tenant as shown: the database names one by its hash only once it has it. */
  whose: string;
  before: Parts;
  /** False if the tenant was not in the database, and had what files give it. */
  wasKnown: boolean;
  version: number | undefined;
  warnings: string[];
}

let last: LastChange | null = null;

/** The choice of a plan: those that the page knows, and those that the tenant has. */
function planChoice(plans: string[], own: Plan[]): [HTMLElement, HTMLSelectElement] {
  const names = new Set([...plans, ...own.map((it) => it.plan)]);
  const options = [...names].map((name) => h("option", { value: name }, name));
  const select = h("select", { id: "quota-plan" }, h("option", { value: "" }, "as it is"), ...options);
  return [h("div", {}, h("label", { for: "quota-plan" }, "Plan"), select), select];
}

/** The way back from the last change, while the tenant has not been changed since. */
function undoButton(undo: LastChange, version: string | null, go: (last: LastChange) => void): HTMLElement | null {
  if (undo.version === undefined || version?.replace(/[^0-9]/g, "") !== String(undo.version)) return null;
  const button = h("button", { type: "button", class: "undo", "data-key": "undo" }, "Undo the last change");
  button.addEventListener("click", () => go(undo));
  return button;
}

/** Shows what the quota database has of a tenant, with a form; `changed` is called after each change. */
export async function quotas(
  at: HTMLElement,
  domain: string,
  tenant: string,
  shown: string,
  plans: string[],
  changed: () => void,
): Promise<void> {
  const path = `/admin/v1/quotas/${encodeURIComponent(tenant)}`;
  const query = `?${new URLSearchParams({ domain })}`;
  let own: Own | undefined = {};
  let version: string | null = null;
  let now = Date.now();
  let isKnown = true;
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
    isKnown = false;
    // A change begins with what files give the tenant: they do not count once the database has it.
    own = (error.listed as Own | undefined) ?? {};
  }
  if (own === undefined) {
    fill(at, h("p", { class: "empty" }, "This node is of an older version; ratekeeper quota set changes the tenant."));
    return;
  }
  const parts = partsOf(own);
  const said = h("p", { role: "status" });
  const whose = `${domain} ${shown}`;
  const undo = last?.whose === whose ? last : null;
  const again = (answer?: Quotas): void => {
    if (answer !== undefined) {
      last = { whose, before: parts, wasKnown: isKnown, version: answer.version, warnings: answer.warnings ?? [] };
    }
    changed();
  };
  const cancelled = (answer?: Quotas): void => {
    if (answer === undefined) void quotas(at, domain, tenant, shown, plans, changed);
    else again(answer);
  };
  // Another editor's change in between is refused, not undone.
  const guard: Record<string, string> = version === null ? { "if-none-match": "*" } : { "if-match": version };
  const put = (wanted: Parts, question = `Change ${shown}?`): void => {
    const lines = changes(parts, wanted);
    if (lines.length === 0) fill(said, "Nothing is named that would change.");
    else ask(at, question, lines, () => send<Quotas>("PUT", path + query, bodyOf(wanted), guard), cancelled);
  };
  const goBack = ({ before, wasKnown }: LastChange): void => {
    if (wasKnown) {
      put(before, `Undo the last change of ${shown}?`);
      return;
    }
    const lines = changes(parts, before);
    const forget = async (): Promise<Quotas> => {
      await send("DELETE", path + query, {}, guard);
      return {};
    };
    ask(at, `Undo the last change of ${shown}?`, lines, forget, cancelled);
  };
  const row = (part: Plan | Override): HTMLElement => {
    const words = inWords(part);
    const button = h("button", { type: "button", class: "remove", "aria-label": `Remove ${words}` }, "Remove");
    button.addEventListener("click", () => put(remove(parts, part)));
    return h("li", {}, h("span", {}, words), button);
  };
  const [planField, planChosen] = planChoice(plans, parts.plans);
  const [descriptorField, descriptor] = field("quota-descriptor", "Limit that is overridden (empty: none)");
  descriptor.placeholder = "default, or endpoint:POST /orders";
  const [amountField, amount] = field("quota-amount", "Requests", { type: "number", min: "0", step: "1" });
  const unit = h("select", { id: "quota-unit" }, ...UNITS.map((name) => h("option", { value: name }, name)));
  unit.value = "minute";
  const [fromField, from] = field("quota-from", "From (UTC, empty: now)", { type: "date" });
  const [untilField, until] = field("quota-until", "Until (UTC, empty: for good)", { type: "date" });
  const save = (): void => {
    const dates = datesOf(from, until);
    const plan = planChosen.value;
    const name = descriptor.value.trim();
    if ((name === "") !== (amount.value === "")) {
      fill(said, name === "" ? "Name the limit that the requests are for, such as default." : "Say how many requests the limit is to be.");
      return;
    }
    let wanted = plan === "" ? parts : setPlan(parts, { plan, ...dates }, now);
    if (name !== "") {
      const override = { descriptor: name, requests_per_unit: Number(amount.value), unit: unit.value, ...dates };
      wanted = setOverride(wanted, override, now);
    }
    put(wanted);
  };
  const reset = h("button", { type: "button" }, "Reset usage");
  reset.addEventListener("click", () => {
    const forget = async (): Promise<Quotas> => {
      await send("POST", `${path}/reset${query}`);
      return {};
    };
    ask(at, `Forget what ${shown} has used?`, [], forget, cancelled);
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
    ...(undo?.warnings ?? []).map((warning) => h("p", { class: "warning", role: "status" }, warning)),
    parts.plans.length > 0 ? h("ul", { class: "plans" }, ...parts.plans.map(row)) : h("p", {}, "No plan of its own."),
    parts.overrides.length > 0 ? h("ul", { class: "overrides" }, ...parts.overrides.map(row)) : h("p", {}, "No overrides."),
    planField,
    descriptorField,
    amountField,
    h("div", {}, h("label", { for: "quota-unit" }, "per"), unit),
    fromField,
    untilField,
    h("button", { type: "submit" }, "Change"),
    reset,
    undo && undoButton(undo, version, goBack),
    said,
  );
  fill(at, form);
}
