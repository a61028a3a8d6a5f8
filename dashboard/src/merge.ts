/**
 * Changes of a tenant's quotas that leave alone what they do not name, as `ratekeeper quota set` makes them. What this
 * page does not know of a plan or an override goes back as it came.
 */

interface Dated {
  effective_at?: string;
  expires_at?: string;
  [more: string]: unknown;
}

export interface Plan extends Dated {
  plan: string;
}

export interface Override extends Dated {
  descriptor?: string | string[];
  requests_per_unit: number;
  unit?: string;
  window?: string;
  steps?: number;
}

/** The own plans and overrides of a tenant: what a PUT takes, and an answer has as `own`. */
export interface Own {
  plan?: string;
  plans?: Plan[];
  overrides?: Override[];
}

/** The same in two lists. */
export interface Parts {
  plans: Plan[];
  overrides: Override[];
}

/** The plan of tenants that have overrides alone. */
const CUSTOM = "custom";
/** Starts that only have to differ do so by this much. */
const APART_MS = 1_000;

export function partsOf(own: Own): Parts {
  const one = own.plan === undefined || own.plan === CUSTOM ? [] : [{ plan: own.plan }];
  return { plans: own.plans?.length ? own.plans : one, overrides: own.overrides ?? [] };
}

export function bodyOf({ plans, overrides }: Parts): Own {
  return { ...(plans.length === 0 ? {} : { plans }), ...(overrides.length === 0 ? {} : { overrides }) };
}

const startOf = (part: Dated): number => (part.effective_at === undefined ? 0 : Date.parse(part.effective_at));
const endOf = (part: Dated): number => (part.expires_at === undefined ? Infinity : Date.parse(part.expires_at));
const at = (time: number): string => new Date(time).toISOString().replace(".000Z", "Z");

/** A descriptor as one text: `default` for the tenant as a whole. */
export function nameOf(override: Override): string {
  const { descriptor } = override;
  if (Array.isArray(descriptor)) return descriptor.length === 0 ? "default" : JSON.stringify(descriptor);
  return descriptor === undefined || descriptor === "" ? "default" : descriptor;
}

/** Lets those that begin then begin a second later, so that they still come before the one that is put there. */
function makeRoom<T extends Dated>(list: T[], isSame: (part: T) => boolean, start: number): T[] {
  let taken = start;
  const inOrder = list.filter(isSame).sort((a, b) => startOf(a) - startOf(b));
  const moved = new Map<T, T>();
  for (const part of inOrder) {
    if (startOf(part) !== taken) continue;
    taken += APART_MS;
    moved.set(part, { ...part, effective_at: at(taken) });
  }
  return list.map((part) => moved.get(part) ?? part);
}

/** The part in the place of one: what it does not name stays, but for the dates and the window. */
function over<T extends Dated>(before: T, part: T): T {
  const { effective_at: _start, expires_at: _end, unit: _unit, window: _window, ...rest } = before;
  return { ...rest, ...part };
}

/**
 * Puts a part among those it `isSame` as. Without dates it takes the place of the one that has begun and never ends;
 * with a start, of the one with that start; with an end alone it begins now.
 */
function place<T extends Dated>(list: T[], isSame: (part: T) => boolean, part: T, now: number): T[] {
  const all = list.filter(isSame);
  let found: T | undefined;
  let next = part;
  if (part.effective_at === undefined && part.expires_at === undefined) {
    const begun = all.filter((other) => endOf(other) === Infinity && startOf(other) <= now);
    found = begun.sort((a, b) => startOf(b) - startOf(a))[0];
    if (found?.effective_at !== undefined) next = { ...part, effective_at: found.effective_at };
  } else if (part.effective_at === undefined) {
    const inForce = (other: T): boolean => startOf(other) <= now && now < endOf(other);
    found = all.find((other) => endOf(other) === endOf(part) && inForce(other)) ?? all.find((other) => startOf(other) === now);
    if (found === undefined) next = { ...part, effective_at: at(now) };
    else if (found.effective_at !== undefined) next = { ...part, effective_at: found.effective_at };
  } else {
    found = all.find((other) => startOf(other) === startOf(part));
  }
  if (found !== undefined) return list.map((other) => (other === found ? over(other, next) : other));
  return [...makeRoom(list, isSame, startOf(next)), next];
}

const isRaise = (override: Override): boolean => nameOf(override) === "default" && override.steps !== undefined;
const withoutRaise = (overrides: Override[]): Override[] => overrides.filter((override) => !isRaise(override));

/** The parts with this plan; a raise by the policy follows the plan, and goes. */
export function setPlan({ plans, overrides }: Parts, plan: Plan, now: number): Parts {
  return { plans: place(plans, () => true, plan, now), overrides: withoutRaise(overrides) };
}

/** The parts with this override. */
export function setOverride({ plans, overrides }: Parts, override: Override, now: number): Parts {
  const name = nameOf(override);
  const others = name === "default" ? withoutRaise(overrides) : overrides;
  return { plans, overrides: place(others, (other) => nameOf(other) === name, override, now) };
}

/** The parts without one of them. */
export function remove({ plans, overrides }: Parts, part: Plan | Override): Parts {
  const rest = { plans: plans.filter((plan) => plan !== part), overrides: overrides.filter((own) => own !== part) };
  return rest.plans.length === plans.length ? rest : { ...rest, overrides: withoutRaise(rest.overrides) };
}

function dates(part: Dated): string {
  const from = part.effective_at === undefined ? "" : ` from ${part.effective_at}`;
  return from + (part.expires_at === undefined ? "" : ` until ${part.expires_at}`);
}

/** `pro from 2027-01-31T00:00:00Z`, or `500 per minute`. */
function valueOf(part: Plan | Override): string {
  if ("plan" in part) return String(part.plan) + dates(part);
  const { requests_per_unit, unit, window, burst, algorithm } = part as Override;
  const extras = [burst === undefined ? "" : `, burst ${burst}`, algorithm === undefined ? "" : `, ${algorithm}`];
  return `${requests_per_unit} per ${unit ?? window ?? "window"}${extras.join("")}${dates(part)}`;
}

const whatOf = (part: Plan | Override): string => ("plan" in part ? "plan" : nameOf(part as Override));

export function inWords(part: Plan | Override): string {
  return `${whatOf(part)}: ${valueOf(part)}`;
}

/** What changes, each with both sides: `default: none → 500 per minute`. */
export function changes(before: Parts, after: Parts): string[] {
  const rest: (Plan | Override)[] = [...after.plans, ...after.overrides];
  const lines: string[] = [];
  for (const part of [...before.plans, ...before.overrides]) {
    const same = (other: Plan | Override): boolean => whatOf(other) === whatOf(part) && startOf(other) === startOf(part);
    const next = rest.findIndex(same);
    const now = next < 0 ? undefined : rest.splice(next, 1)[0];
    const value = now === undefined ? "none" : valueOf(now);
    if (value !== valueOf(part)) lines.push(`${whatOf(part)}: ${valueOf(part)} → ${value}`);
  }
  return [...lines, ...rest.map((part) => `${whatOf(part)}: none → ${valueOf(part)}`)];
}
