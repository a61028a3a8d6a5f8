//! JSON of the admin API that programs beside the server read too: the state of a node (`/admin/v1/live`), the use of
//! limits, the nodes, the outcome of an import.
//!
//! Times are seconds since 1970 here, and RFC 3339 in JSON. A reader takes what another version leaves out for empty, and
//! passes over what it does not know.

mod denials;
pub(crate) mod keys;
pub(crate) mod moments;
mod nodes;
mod regions;
mod usage;

use std::collections::BTreeMap;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Growth;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::denials::{DenialGroup, DeniedRequest};
pub use self::nodes::{FleetNode, FleetNodes, NodeEntry, ToldBy};
pub use self::regions::{RegionFigures, RegionPeer};
pub use self::usage::{Leased, Span, Usage, Used};
use keys::shown;

/// The data of the event `history`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SecondsHistory {
    /// The seconds of the last hour, the oldest first.
    pub seconds: Vec<SecondFigures>,
}

/// The state of a node: the data of the event `state`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NodeState {
    /// The second that has just ended.
    pub second: SecondFigures,
    /// The node itself.
    pub node: NodeFacts,
    /// The loads of its files.
    pub config: ReloadFigures,
    /// The keys that were denied most in the last minute.
    pub top: Vec<KeyEntry>,
    /// The most denials of a key that is not in `top`.
    pub top_unlisted_max: u64,
    /// The keys that would have been denied most in the last hour, were their rules enforced.
    pub top_shadowed: Vec<KeyEntry>,
    /// The rules and callers with unusual growth, the largest first.
    pub anomalies: Vec<AnomalyEntry>,
    /// The servers of its stores.
    pub breakers: Vec<BreakerFigures>,
    /// Its counters.
    pub store: CounterFigures,
    /// Hits that failure modes let pass.
    pub owed: OwedFigures,
    /// Hits that this node holds in advance, or has not told the store yet.
    pub leases: LeaseFigures,
    /// The use of their limits by tenants on each plan.
    pub plans: Vec<PlanUse>,
    /// The database with tenants' quotas; null without one.
    pub quota_database: Option<QuotaDatabaseFigures>,
    /// The loans between regions; null without a limit that is lent.
    pub regions: Option<RegionFigures>,
    /// All faults that `/readyz` tells.
    pub faults: Vec<String>,
    /// The rules that operators have switched, at most 100 of them, with the positions of their switches.
    pub switched: BTreeMap<String, String>,
    /// Share of the last ten seconds' decisions that failure modes gave, by store.
    pub degraded_ratio: BTreeMap<Box<str>, f64>,
    /// The rules with the most answers.
    pub rules: Vec<RuleEntry>,
    /// Rules in force, of which `rules` may be a part.
    pub rules_total: usize,
}

/// The answers and durations of a second, or of the time until the next look.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SecondFigures {
    /// Its end.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub at: u64,
    /// Its length.
    pub span_ms: u64,
    /// Answers of rules that let the request pass.
    pub allowed: u64,
    /// Answers of rules that denied it.
    pub denied: u64,
    /// Answers that would have denied, were the rule enforced.
    pub shadow_denied: u64,
    /// Answers that failure modes gave; they are among the others.
    pub degraded: u64,
    /// Requests that were refused because of overload.
    pub shed: u64,
    /// Descriptors that no limit matched, which are allowed.
    pub unmatched: u64,
    /// Requests for a domain without rules, which are allowed.
    pub unknown_domain: u64,
    /// The median duration of checks, in microseconds; null if there was none.
    pub p50_us: Option<f64>,
    /// The duration that 99 of 100 checks did not exceed.
    pub p99_us: Option<f64>,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// Its start.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: u64,
    /// Its state, such as `serving`.
    pub state: String,
    /// Nodes that lease counters of the default store; 0 if that is not known.
    pub nodes: u64,
}

/// The loads of rules files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReloadFigures {
    /// Loads that succeeded.
    pub accepted: u64,
    /// Loads that failed.
    pub refused: u64,
    /// The time of the last load.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub last_reload_at: u64,
    /// The reason why the current files are not in force, with place and message; null if they are.
    pub error: Option<String>,
}

/// One of the keys with the most requests.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct KeyEntry {
    /// The domain of its rule.
    pub domain: Box<str>,
    /// The id of its rule.
    pub rule: Box<str>,
    /// The key, without secrets.
    pub key: Box<str>,
    /// The entry of it that names the tenant, as denials have it: the first one where no entry does. Absent if the
    /// rule does not match as far as that entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subject: Option<Box<str>>,
    /// Its requests.
    pub count: u64,
    /// The most by which `count` may be off because there were too many keys.
    pub error: u64,
    /// The start: there has been no whole window without such a request since.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub since: u64,
}

/// A rule, or one of its callers, with far more requests than in its own hour before.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct AnomalyEntry {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The id of the rule.
    pub rule: Box<str>,
    /// The entry that names the caller; a secret is a fingerprint. Absent for all requests of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<Box<str>>,
    /// The caller as people know it: its value, or the last characters of a secret, `…x4f2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tenant: Option<Box<str>>,
    /// The requests of the last minute.
    pub per_minute: u64,
    /// The requests a minute that were usual before.
    pub usual_per_minute: f64,
    /// The most requests of a minute since.
    pub peak_per_minute: u64,
    /// The start of the time in which it was found.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub since: u64,
    /// The end; absent while it goes on.
    #[serde(
        with = "crate::admin_json::moments::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub until: Option<u64>,
}

impl From<Growth> for AnomalyEntry {
    fn from(growth: Growth) -> Self {
        let seconds = |time: Timestamp| time.as_micros() / 1_000_000;
        Self {
            domain: (*growth.domain).into(),
            rule: (*growth.rule).into(),
            key: growth.subject.as_deref().map(Into::into),
            tenant: growth.subject.as_deref().map(|key| shown(key).into()),
            per_minute: growth.per_minute,
            usual_per_minute: growth.usual_per_minute,
            peak_per_minute: growth.peak_per_minute,
            since: seconds(growth.since),
            until: growth.until.map(seconds),
        }
    }
}

/// A server of a store.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BreakerFigures {
    /// The address of the server.
    pub shard: Box<str>,
    /// The state of its circuit breaker: `closed`, `half-open` or `open`.
    pub state: String,
    /// Decisions that it could not take, since the start.
    pub errors: u64,
    /// The same by cause, without those that there were none of.
    pub causes: BTreeMap<String, u64>,
    /// Calls that it answered since the start.
    pub calls: u64,
    /// The duration of all of them.
    pub call_seconds: f64,
}

/// The counters of all stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CounterFigures {
    /// Counters in memory.
    pub counters: u64,
    /// The most of them.
    pub capacity: u64,
    /// The size of their table.
    pub bytes: u64,
    /// True if counters live in servers that nodes share.
    pub is_shared: bool,
}

/// Hits that failure modes let pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct OwedFigures {
    /// All of them.
    pub owed: u64,
    /// Those that were charged afterwards.
    pub posted: u64,
    /// Those that were not.
    pub dropped: u64,
    /// Those that were sent, and may have been charged.
    pub unknown: u64,
}

/// Hits that a node holds in advance, or has not told the store yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LeaseFigures {
    /// Leases.
    pub leases: u64,
    /// Hits that they hold.
    pub held: u64,
    /// Hits of synced counters that the store does not know yet.
    pub unsynced: u64,
    /// The most hits by which limits may be exceeded because of both.
    pub over_admission_bound: u64,
}

/// The use of their limits by the tenants on one plan, since the start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PlanUse {
    /// The domain of the plan.
    pub domain: Box<str>,
    /// Its name.
    pub plan: Box<str>,
    /// Answers of the plan's limits.
    pub answers: u64,
    /// Denials among them.
    pub denied: u64,
    /// Answers after which at most a tenth of the limit was left.
    pub close: u64,
    /// The sum of the used shares of the limits after each of those that were counted.
    pub used_sum: f64,
    /// The number of them.
    pub counted: u64,
}

/// The database with tenants' quotas.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct QuotaDatabaseFigures {
    /// `up`, or `away`.
    pub state: String,
    /// Seconds for which it has not answered.
    pub away_seconds: u64,
    /// Times that it could not be read.
    pub errors: u64,
    /// Tenants that are known here.
    pub tenants: u64,
    /// The number of the last change that is in force here.
    pub version: u64,
    /// Domains, plans and overrides in it that mean nothing under the rules.
    pub ignored: u64,
    /// False if tenants are without their quotas: neither the database nor a copy was there.
    pub is_known: bool,
}

/// A rule in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RuleEntry {
    /// Its id.
    pub id: String,
    /// Its domain.
    pub domain: String,
    /// The limit in words: `100 per 1m, sliding_window`.
    pub limit: String,
    /// The plan that the limit is of: `custom` for a single tenant's; absent in domains without plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub plan: Option<String>,
    /// The place of the rule: `file:line:column`.
    pub source: String,
    /// The part that the rule has in decisions now: `enforced`, `shadow` or `disabled`.
    pub mode: String,
    /// The position of its switch; null if it does what the file says.
    pub switch: Option<String>,
    /// Its decisions.
    pub counts: CountsEntry,
}

/// Decisions of one rule since it was first loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CountsEntry {
    /// Decisions that let the request pass.
    pub allowed: u64,
    /// Decisions that denied it.
    pub denied: u64,
    /// Decisions that would have denied, were the rule enforced.
    pub shadow_denied: u64,
    /// Decisions of failure modes, which are among the others.
    pub uncounted: u64,
}

/// The outcome of an import of tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Imported {
    /// The tenants that the body has.
    pub tenants: usize,
    /// Those that are new in the database.
    pub created: usize,
    /// Those that had other quotas before.
    pub updated: usize,
    /// Those that had these quotas already.
    pub unchanged: usize,
}

impl SecondFigures {
    /// Makes rates of the counts: a second is longer where the node was busy.
    #[must_use]
    pub fn per_second(self) -> Self {
        let rate = |count: u64| count.saturating_mul(1_000) / self.span_ms.max(1);
        Self {
            span_ms: 1_000,
            allowed: rate(self.allowed),
            denied: rate(self.denied),
            shadow_denied: rate(self.shadow_denied),
            degraded: rate(self.degraded),
            shed: rate(self.shed),
            unmatched: rate(self.unmatched),
            unknown_domain: rate(self.unknown_domain),
            ..self
        }
    }

    /// The same second of two nodes: rates add up, and the longer durations count.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let longer = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        Self {
            at: self.at.max(other.at),
            span_ms: 1_000,
            allowed: self.allowed.saturating_add(other.allowed),
            denied: self.denied.saturating_add(other.denied),
            shadow_denied: self.shadow_denied.saturating_add(other.shadow_denied),
            degraded: self.degraded.saturating_add(other.degraded),
            shed: self.shed.saturating_add(other.shed),
            unmatched: self.unmatched.saturating_add(other.unmatched),
            unknown_domain: self.unknown_domain.saturating_add(other.unknown_domain),
            p50_us: longer(self.p50_us, other.p50_us),
            p99_us: longer(self.p99_us, other.p99_us),
        }
    }
}

impl CountsEntry {
    /// The decisions of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The decisions since there were `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    fn with(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            allowed: of(self.allowed, other.allowed),
            denied: of(self.denied, other.denied),
            shadow_denied: of(self.shadow_denied, other.shadow_denied),
            uncounted: of(self.uncounted, other.uncounted),
        }
    }

    /// All decisions, each once.
    #[must_use]
    pub fn sum(self) -> u64 {
        let denied = self.denied.saturating_add(self.shadow_denied);
        self.allowed.saturating_add(denied)
    }
}
