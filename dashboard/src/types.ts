/** What `GET /admin/v1/live` and the other endpoints of the admin API answer. */

export interface Second {
  at: number;
  span_ms: number;
  allowed: number;
  denied: number;
  shadow_denied: number;
  degraded: number;
  shed: number;
  p50_us: number | null;
  p99_us: number | null;
}

export interface TopKey {
  domain: string;
  rule: string;
  key: string;
  count: number;
  error: number;
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
  breakers: { shard: string; state: string; errors: number }[];
  store: { counters: number; capacity: number; bytes: number; is_shared: boolean };
  owed: { owed: number; posted: number; dropped: number; unknown: number };
  leases: { leases: number; held: number; over_admission_bound: number };
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
