/** What the admin API answers: generated from its OpenAPI document, but for explanations, which it does not describe. */

import type { Top } from "./schema";

export type {
  AnomalyEntry as Anomaly,
  BreakerFigures as Breaker,
  AuditDocument as Change,
  DenialGroup,
  Denials,
  DeniedRequest as Denial,
  KeyEntry as TopKey,
  NodeState as State,
  PlanUse,
  QuotaDatabaseFigures as QuotaDatabase,
  RuleEntry as Rule,
  SecondFigures as Second,
  TenantAnswer,
  Top,
  Usage,
} from "./schema";

/** The nodes of which an answer tells. */
export type Fleet = Pick<Top, "nodes" | "nodes_left_out" | "only_this_node">;

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
        debt?: number;
        retry_after_ms?: number;
        note?: string;
      }[];
    }[];
  }[];
}
