/** What `GET /admin/v1/live` and the other endpoints of the admin API answer. */

export interface Second {
  at: number;
  span_ms: number;
  allowed: number;
  denied: number;
  shadow_denied: number;
  degraded: number;
  shed: number;
  unmatched: number;
  unknown_domain: number;
  p50_us: number | null;
  p99_us: number | null;
}

export interface TopKey {
  domain: string;
  rule: string;
  key: string;
  count: number;
  error: number;
  /** The start, in seconds since 1970: it was denied in every window since. */
  since: number;
}

/** What `GET /admin/v1/top` answers. */
export interface Top {
  keys: TopKey[];
  unlisted_max: number;
  nodes: { name: string; age_ms: number }[];
  nodes_left_out: number;
  only_this_node?: string;
}

/** A server of the store, with counts since the start. */
export interface Breaker {
  shard: string;
  state: string;
  errors: number;
  causes: Record<string, number>;
  calls: number;
  call_seconds: number;
}

/** The use of their limits by the tenants on a plan, since the start. */
export interface PlanUse {
  domain: string;
  plan: string;
  answers: number;
  denied: number;
  close: number;
  used_sum: number;
  counted: number;
}

export interface QuotaDatabase {
  state: string;
  away_seconds: number;
  errors: number;
  tenants: number;
  version: number;
  ignored: number;
  is_known: boolean;
}

export interface Rule {
  id: string;
  domain: string;
  limit: string;
  plan?: string;
  source: string;
  mode: string;
  switch: string | null;
  counts: { allowed: number; denied: number; shadow_denied: number; uncounted: number };
}

export interface State {
  second: Second;
  node: { name: string; version: string; started_at: number; state: string; nodes: number };
  config: { accepted: number; refused: number; last_reload_at: number; error: string | null };
  top: TopKey[];
  breakers: Breaker[];
  store: { counters: number; capacity: number; bytes: number; is_shared: boolean };
  owed: { owed: number; posted: number; dropped: number; unknown: number };
  leases: { leases: number; held: number; unsynced: number; over_admission_bound: number };
  plans: PlanUse[];
  quota_database: QuotaDatabase | null;
  faults: string[];
  degraded_ratio: Record<string, number>;
  rules: Rule[];
  rules_total: number;
}

export interface Denial {
  time: string;
  request_id: string;
  protocol: string;
  domain: string;
  rule: string;
  limit: string;
  scope: string;
  method?: string;
  path?: string;
  retry_after_ms?: number;
  degraded: boolean;
}

export interface Usage {
  api_key: string;
  domain: string;
  plan?: string;
  usage: Record<
    string,
    { used: number; limit: number; remaining: number; rule: string; mode: string; reset_after_ms: number }
  >;
  dynamic?: string[];
  truncated?: boolean;
}

export interface Explanation {
  domain: string;
  known: boolean;
  domains?: string[];
  allowed: boolean;
  descriptors: {
    entries: string[];
    plan?: string;
    note?: string;
    nodes: {
      pattern: string;
      how: string;
      limits: {
        rule: string;
        place: string;
        limit: string;
        counts: boolean;
        answer: string;
        remaining?: number;
        retry_after_ms?: number;
        note?: string;
      }[];
    }[];
  }[];
}
