// Generated from the OpenAPI document by crates/ratekeeper-server/tests/server/dashboard_types.rs.

/** A rule, or one of its callers, with far more requests than in its own hour before. */
export interface AnomalyEntry {
  /** The domain of the rule. */
  domain: string;
  /** The entry that names the caller; a secret is a fingerprint. Absent for all requests of the rule. */
  key?: string;
  /** The most requests of a minute since. */
  peak_per_minute: number;
  /** The requests of the last minute. */
  per_minute: number;
  /** The id of the rule. */
  rule: string;
  /** The start of the time in which it was found. */
  since: number;
  /** The caller as people know it: its value, or the last characters of a secret, `…x4f2`. */
  tenant?: string;
  /** The end; absent while it goes on. */
  until?: number;
  /** The requests a minute that were usual before. */
  usual_per_minute: number;
}

/** A change. */
export interface AuditDocument {
  /** `put`, `delete`, `reset`, or `rule.…` for a switch of a rule. */
  action: string;
  /** The state after. */
  after?: Record<string, unknown> | null;
  /** The state before: of a tenant its plans and overrides, as a PUT sets them. Null if there was none. */
  before?: Record<string, unknown> | null;
  /** The time of the change, by the clock of the node that made it. */
  changed_at: Time;
  /** The domain. */
  domain: string;
  /** The name of the caller who made it. */
  editor: string;
  /** The number of times that the tenant's usage was reset, this change included. */
  epoch?: number | null;
  /** The hash of the row and of all rows before it. */
  hash: string;
  /** The `x-request-id` of the request that made it. */
  request_id?: string;
  /** The address from which it came. */
  source: string;
  /** The keyed hash of the tenant, or the id of the rule. */
  subject: string;
  /** The tenant; of a secret value only the end. Absent for a rule. */
  tenant?: string | null;
  /** The number of the change. */
  version: number;
}

/** A server of a store. */
export interface BreakerFigures {
  /** The duration of all of them. */
  call_seconds: number;
  /** Calls that it answered since the start. */
  calls: number;
  /** The same by cause, without those that there were none of. */
  causes: Record<string, number>;
  /** Decisions that it could not take, since the start. */
  errors: number;
  /** The address of the server. */
  shard: string;
  /** The state of its circuit breaker: `closed`, `half-open` or `open`. */
  state: string;
}

/** The counters of all stores. */
export interface CounterFigures {
  /** The size of their table. */
  bytes: number;
  /** The most of them. */
  capacity: number;
  /** Counters in memory. */
  counters: number;
  /** True if counters live in servers that nodes share. */
  is_shared: boolean;
}

/** Decisions of one rule since it was first loaded. */
export interface CountsEntry {
  /** Decisions that let the request pass. */
  allowed: number;
  /** Decisions that denied it. */
  denied: number;
  /** Decisions that would have denied, were the rule enforced. */
  shadow_denied: number;
  /** Decisions of failure modes, which are among the others. */
  uncounted: number;
}

export type Decided = "denied" | "allowed" | "would_be_denied";

/** The denials of one tenant by one rule, in the last hour. */
export interface DenialGroup {
  /** Denials in the last 60 to 65 minutes. */
  count: number;
  /** The domain of the rule. */
  domain: string;
  /** The entry that names the tenant, or the first one of the descriptor; a secret is a fingerprint. */
  key: string;
  /** `denied`; `would_be_denied` if the rule did not enforce its limit. */
  kind: string;
  /** The last of them. */
  last: number;
  /** The limit in words: `100 per 1m`; empty if the rules no longer have it, or have several of the id, as overrides are. */
  limit: string;
  /** The reason why it did not: `shadow`, or `enforce: 10 %`. Absent for denied requests. */
  mode?: string;
  /** The time since which the rule is so on this node: the node's start, if it was so then. Absent for denied requests. */
  mode_since?: number;
  /** The nodes that denied. */
  nodes: string[];
  /** The id of the rule. */
  rule: string;
  /** The first of them: there was no hour without one since. */
  since: number;
  /** The tenant as people know it: its value, or the last characters of a secret, `…x4f2`. */
  tenant: string;
}

/** The latest denials. */
export interface Denials {
  /** A sample of the denied requests of this node, the last first: some of each tenant and rule. */
  denials: DeniedRequest[];
  /** Tenants that were denied in the last hour, or would have been, by rule, the last one first unless `order` says otherwise. */
  groups: DenialGroup[];
  /** The reason why there may be none: the rules do not have the domain that was asked for. */
  note?: string;
  told_by: ToldBy;
}

/** A denied request. */
export interface DeniedRequest {
  /** True if a failure mode denied it, not a counter. */
  degraded: boolean;
  /** The domain of the rule. */
  domain: string;
  /** False if it passed all the same, since the gateway is in shadow mode. */
  enforced: boolean;
  /** The entry that names the tenant, or the first one of the descriptor: `api_key:~1f0c83aa5b92d07e`. */
  key: string;
  /** The limit in words: `100 per 1m`. */
  limit: string;
  /** The method of the limited request; absent if the check does not say it. */
  method?: string;
  /** Its path, without the query; absent likewise. */
  path?: string;
  /** The protocol of the check: `http`, `rls` or `gateway`, for example. */
  protocol: string;
  /** The caller's `x-request-id`, else one made here. */
  request_id: string;
  /** The time until it would pass; absent if no wait helps. */
  retry_after_ms?: number;
  /** The rule that denied; empty if the request brought its own limit. */
  rule: string;
  /** The descriptor under the limit, secrets as fingerprints. */
  scope: string;
  /** The tenant as people know it: its value, or the last characters of a secret, `…x4f2`. */
  tenant: string;
  /** The time of the denial, as RFC 3339. */
  time: string;
}

/** One of the keys with the most requests. */
export interface KeyEntry {
  /** Its requests. */
  count: number;
  /** The domain of its rule. */
  domain: string;
  /** The most by which `count` may be off because there were too many keys. */
  error: number;
  /** The key, without secrets. */
  key: string;
  /** The id of its rule. */
  rule: string;
  /** The start: there has been no whole window without such a request since. */
  since: number;
  /** The entry of it that names the tenant, as denials have it: the first one where no entry does. Absent if the rule does not match as far as that entry. */
  subject?: string;
}

/** Hits that a node holds in advance, or has not told the store yet. */
export interface LeaseFigures {
  /** Hits that they hold. */
  held: number;
  /** Leases. */
  leases: number;
  /** The most hits by which limits may be exceeded because of both. */
  over_admission_bound: number;
  /** Hits of synced counters that the store does not know yet. */
  unsynced: number;
}

/** The leases on a counter. */
export interface Leased {
  /** Hits that this node holds and has not spent; they are among the used ones, as are those of other nodes. */
  held_by_this_node: number;
}

/** A limit. */
export interface LimitDocument {
  /** The hits that a window holds. */
  requests_per_unit: number;
  /** The window as a unit. */
  unit?: string | null;
  /** The window, if no unit is as long. */
  window?: string | null;
}

/** The limits of a tenant. */
export interface LimitsDocument {
  default?: LimitDocument | null;
  /** The limits that it has alone: those in force and those of other times. */
  overrides: TenantOverride[];
}

/** A step that an operator may take. */
export interface NextStep {
  /** The command line. */
  command: string;
  /** The purpose. */
  title: string;
}

/** A node whose list is merged. */
export interface NodeEntry {
  /** Milliseconds since it laid out its list. */
  age_ms: number;
  /** Its name. */
  name: string;
}

/** A node. */
export interface NodeFacts {
  /** Its name. */
  name: string;
  /** Nodes that lease counters of the default store; 0 if that is not known. */
  nodes: number;
  /** Its start. */
  started_at: number;
  /** Its state, such as `serving`. */
  state: string;
  /** The version of the program. */
  version: string;
}

/** The state of a node: the data of the event `state`. */
export interface NodeState {
  /** The rules and callers with unusual growth, the largest first. */
  anomalies: AnomalyEntry[];
  /** The servers of its stores. */
  breakers: BreakerFigures[];
  config: ReloadFigures;
  /** Share of the last ten seconds' decisions that failure modes gave, by store. */
  degraded_ratio: Record<string, number>;
  /** All faults that `/readyz` tells. */
  faults: string[];
  leases: LeaseFigures;
  node: NodeFacts;
  owed: OwedFigures;
  /** The use of their limits by tenants on each plan. */
  plans: PlanUse[];
  quota_database: QuotaDatabaseFigures | null;
  regions: RegionFigures | null;
  /** The rules with the most answers. */
  rules: RuleEntry[];
  /** Rules in force, of which `rules` may be a part. */
  rules_total: number;
  second: SecondFigures;
  store: CounterFigures;
  /** The rules that operators have switched, at most 100 of them, with the positions of their switches. */
  switched: Record<string, string>;
  /** The keys that were denied most in the last minute. */
  top: KeyEntry[];
  /** The keys that would have been denied most in the last hour, were their rules enforced. */
  top_shadowed: KeyEntry[];
  /** The most denials of a key that is not in `top`. */
  top_unlisted_max: number;
}

export type OverrideDescriptor = string | string[];

/** Hits that failure modes let pass. */
export interface OwedFigures {
  /** Those that were not. */
  dropped: number;
  /** All of them. */
  owed: number;
  /** Those that were charged afterwards. */
  posted: number;
  /** Those that were sent, and may have been charged. */
  unknown: number;
}

/** The use of their limits by the tenants on one plan, since the start. */
export interface PlanUse {
  /** Answers of the plan's limits. */
  answers: number;
  /** Answers after which at most a tenth of the limit was left. */
  close: number;
  /** The number of them. */
  counted: number;
  /** Denials among them. */
  denied: number;
  /** The domain of the plan. */
  domain: string;
  /** Its name. */
  plan: string;
  /** The sum of the used shares of the limits after each of those that were counted. */
  used_sum: number;
}

/** The database with tenants' quotas. */
export interface QuotaDatabaseFigures {
  /** Seconds for which it has not answered. */
  away_seconds: number;
  /** Times that it could not be read. */
  errors: number;
  /** Domains, plans and overrides in it that mean nothing under the rules. */
  ignored: number;
  /** False if tenants are without their quotas: neither the database nor a copy was there. */
  is_known: boolean;
  /** `up`, or `away`. */
  state: string;
  /** Tenants that are known here. */
  tenants: number;
  /** The number of the last change that is in force here. */
  version: number;
}

/** The plans and overrides that a tenant is to have, in place of all that it has. */
export interface QuotaDocument {
  effective_at?: Time | null;
  expires_at?: Time | null;
  /** The limits that the tenant has alone. */
  overrides?: TenantOverride[];
  /** The plan: one of the domain's `plans`, or `custom` for overrides alone. Without it the tenant is on the default plan. */
  plan?: string | null;
  /** Several plans, one after the other, in place of `plan`. */
  plans?: TenantPlan[];
}

/** The loans of a node's region, as this node sees them. */
export interface RegionFigures {
  /** Counters that this node looks after. */
  counters: number;
  /** Hits of a window that the region owns, one counter of each limit that is lent. */
  owned: number;
  /** The other regions, by name. */
  peers: RegionPeer[];
  /** The name of the region. */
  region: string;
  /** The version of the weights by which regions own shares. */
  weights_version: number;
}

/** Another region. */
export interface RegionPeer {
  /** Its asks that this node has answered. */
  answered: number;
  /** Asks that this node has sent to it. */
  asks: number;
  /** Hits of this window that are borrowed from it. */
  borrowed: number;
  /** The reason why nothing is lent between the two; null while nothing is in the way. */
  fault: string | null;
  /** Hits of this window that are lent to it, of the counters that this node looks after. */
  lent: number;
  /** The link of this node to it: `up`, `down`, or `none` if no `link` is set for it. */
  link: string;
  /** Links of its nodes to this one. */
  links: number;
  /** Totals of limits that regions count together that this node has posted to it. */
  posts: number;
  /** Its asks that this node has refused. */
  refused: number;
  /** Its name. */
  region: string;
  /** The last round trip on the link, in microseconds; null before there was one. */
  round_trip_us: number | null;
  /** Seconds since the link was made, or broke. */
  since_seconds: number;
}

/** The loads of rules files. */
export interface ReloadFigures {
  /** Loads that succeeded. */
  accepted: number;
  /** The reason why the current files are not in force, with place and message; null if they are. */
  error: string | null;
  /** The time of the last load. */
  last_reload_at: number;
  /** Loads that failed. */
  refused: number;
}

/** A rule in force. */
export interface RuleEntry {
  counts: CountsEntry;
  /** Its domain. */
  domain: string;
  /** Its id. */
  id: string;
  /** The limit in words: `100 per 1m, sliding_window`. */
  limit: string;
  /** The part that the rule has in decisions now: `enforced`, `shadow` or `disabled`. */
  mode: string;
  /** The plan that the limit is of: `custom` for a single tenant's; absent in domains without plans. */
  plan?: string;
  /** The place of the rule: `file:line:column`. */
  source: string;
  /** The position of its switch; null if it does what the file says. */
  switch: string | null;
}

/** The answers and durations of a second, or of the time until the next look. */
export interface SecondFigures {
  /** Answers of rules that let the request pass. */
  allowed: number;
  /** Its end. */
  at: number;
  /** Answers that failure modes gave; they are among the others. */
  degraded: number;
  /** Answers of rules that denied it. */
  denied: number;
  /** The median duration of checks, in microseconds; null if there was none. */
  p50_us: number | null;
  /** The duration that 99 of 100 checks did not exceed. */
  p99_us: number | null;
  /** Answers that would have denied, were the rule enforced. */
  shadow_denied: number;
  /** Requests that were refused because of overload. */
  shed: number;
  /** Its length. */
  span_ms: number;
  /** Requests for a domain without rules, which are allowed. */
  unknown_domain: number;
  /** Descriptors that no limit matched, which are allowed. */
  unmatched: number;
}

/** The data of the event `history`. */
export interface SecondsHistory {
  /** The seconds of the last hour, the oldest first. */
  seconds: SecondFigures[];
}

/** The window of a limit. */
export interface Span {
  /** Its end, likewise. */
  end?: string | null;
  /** Its length: `1m`. */
  length: string;
  /** Its place now, by the clock of this node; absent for limits that have no window: buckets, and concurrency. */
  start?: string | null;
}

/** All that bears on a tenant. */
export interface TenantAnswer {
  at: number;
  /** The latest changes of its plans and overrides, the newest first; for admins alone. */
  changes: AuditDocument[];
  /** Denials of the last hour by rule, the last one first. */
  denials: DenialGroup[];
  /** The domain of its plans and overrides; absent if no domain has tenants, or what is denied is no tenant. */
  domain?: string;
  /** The domains that have tenants, where several have and the question names none of them. */
  domains?: string[];
  /** `hash:` and its keyed hash in the quota database; absent without one. */
  hash?: string;
  /** The entry that names it, as denials and `/admin/v1/top` have it: a secret is a fingerprint. Absent if unknown. */
  key?: string;
  /** The reason why parts of the answer are missing, in sentences. */
  missing?: string[];
  /** The form in which it was named: `value`, `fingerprint`, `hash` or `last_characters`. */
  named_by: string;
  /** The steps that may be taken now. */
  next_steps: NextStep[];
  /** The plan that it is on now; absent in domains without plans, or if it is not known. */
  plan?: string;
  quotas?: TenantDocument | null;
  /** The latest denied requests on this node. */
  requests: DeniedRequest[];
  /** The answer in a sentence. */
  summary: string;
  /** The tenant as people know it: its value, or the last characters of a secret. */
  tenant: string;
  told_by: ToldBy;
  usage?: Usage | null;
  /** The same of requests that passed because their rule is in shadow, or enforced for a part of the tenants. */
  would_be_denied: DenialGroup[];
}

/** A tenant as the admin API shows it. */
export interface TenantDocument {
  /** The time at which it was first put. */
  created_at: Time;
  /** The domain. */
  domain: string;
  /** The number of times that its usage was reset. */
  epoch: number;
  /** The keyed hash of its value, by which it can be named as `hash:…`. */
  hash: string;
  own?: QuotaDocument | null;
  /** The plan that it is on now; `custom` if it has overrides alone. Absent in a domain without plans. */
  plan?: string | null;
  /** Its plans with their times, if they are not the same for ever. */
  plans?: TenantPlan[];
  /** Its limits. */
  quotas: LimitsDocument;
  /** The tenant; of a secret value only the end, unless the reader named it. */
  tenant: string;
  /** The time of the last change. */
  updated_at: Time;
  /** The number of the change that made it so; its entity tag. */
  version: number;
  /** Slips that the change may have which this answers: a descriptor that no rule has, an end in the past, a tenant that has never been seen. It is made all the same. */
  warnings?: string[];
}

/** A limit that one tenant has alone. */
export interface TenantOverride {
  /** The algorithm; by default that of the limit whose place it takes. */
  algorithm?: string | null;
  /** The hits that may come at once, for algorithms with bursts. */
  burst?: number | null;
  /** The entries after the tenant's, each as `key:value`; `default`, or nothing, for the tenant as a whole. */
  descriptor?: OverrideDescriptor;
  effective_at?: Time | null;
  expires_at?: Time | null;
  /** The most hits that a post-paid bucket goes below zero; by default ten bursts. */
  max_debt?: number | null;
  /** True for a budget: hits are charged in full whatever is left. By default as the limit whose place it takes. */
  post_paid?: boolean | null;
  /** The hits that a window holds; also read as `limit`, as rules have it. */
  requests_per_unit: number;
  /** The steps by which the domain's policy (`adjust`) has raised the plan's limit; absent in an override that somebody has set. */
  steps?: number | null;
  /** The window as a unit: `second`, `minute`, `hour`, `day`, `week`, `month` or `year`. */
  unit?: string | null;
  /** The window as a duration, in place of `unit`: `10s`. */
  window?: string | null;
}

/** A plan and the time in which a tenant is on it. */
export interface TenantPlan {
  effective_at?: Time | null;
  expires_at?: Time | null;
  /** The plan. */
  plan: string;
}

export type Time = string;

/** The nodes that an answer is of. */
export interface ToldBy {
  /** Tenants and rules that other nodes do not tell, because they have too many. */
  groups_left_out: number;
  /** The nodes whose denials are among the groups, this one first. */
  nodes: NodeEntry[];
  /** Nodes whose denials are not, because there are too many. */
  nodes_left_out: number;
  /** The reason why only this node's denials are told; absent if those of all nodes are. */
  only_this_node?: string;
}

/** The keys with the most requests, the largest count first. */
export interface Top {
  decision: Decided;
  keys: KeyEntry[];
  /** The nodes whose lists are merged, this one first. */
  nodes: NodeEntry[];
  /** Nodes whose lists are not among them, because there are too many. */
  nodes_left_out: number;
  /** The reason why only this node's keys are told; absent if those of all nodes are. */
  only_this_node?: string | null;
  /** Requests for each one that is counted: 1 if all are. */
  sampled: number;
  /** The most requests that a key may have had that is on no node's list. */
  unlisted_max: number;
  window: Window;
}

/** The usage of one tenant. */
export interface Usage {
  current_window?: Span | null;
  /** Its domain. */
  domain: string;
  /** Descriptors whose values differ from request to request. Their counters are shown with `?descriptor=KEY:VALUE`. */
  dynamic?: string[];
  /** The plan of the tenant; `custom` if it has overrides alone. Absent in a domain without plans. */
  plan?: string | null;
  /** Its value, or the end of a secret one. */
  tenant: string;
  /** True if the domain has more descriptors than are read for one answer. */
  truncated?: boolean;
  /** By descriptor: `default`, or the entries after the tenant's. Where several limits are on one descriptor, the name ends with `#` and the window, and with the algorithm if two windows are as long. */
  usage: Record<string, Used>;
}

/** The use of one limit. */
export interface Used {
  /** The algorithm by its name in rules. */
  algorithm: string;
  /** Hits by which a post-paid bucket is below zero; absent if it is not. */
  debt?: number | null;
  leased?: Leased | null;
  /** The most that it holds: the quota, or the burst of a bucket. */
  limit: number;
  /** The part that the rule has in decisions now. */
  mode: string;
  /** Hits that are left. */
  remaining: number;
  /** Milliseconds until more is left. */
  reset_after_ms: number;
  /** The id of the rule. */
  rule: string;
  /** Hits used; of a leased limit, with those that nodes hold in advance. */
  used: number;
  window: Span;
}

export type Window = "minute" | "hour";
