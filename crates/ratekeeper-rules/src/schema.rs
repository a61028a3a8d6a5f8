//! The JSON Schema of rules files, for editors.
//!
//! These types are the file format once more, for its shape only: files are read by
//! [`load`](crate::load), which keeps places and follows YAML 1.1. A test holds the two to the
//! same keys.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Consistency, Evaluation, FailureMode, LeakyOverRls};

/// The schema of a rules file (JSON Schema, draft 2020-12).
#[must_use]
pub fn json_schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<RulesFile>();
    choose_by_type(&mut schema);
    schema
}

/// Makes of "a list, or something else" and "nothing, or something else" a choice by the value's type. An editor then says
/// what is wrong with the something else, instead of that a value is valid under none of the schemas.
fn choose_by_type(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut()
        && let Some((simple, other)) = two_by_type(object)
    {
        object.remove("anyOf");
        let of_type = serde_json::json!({ "type": simple["type"] });
        object.insert("if".to_owned(), of_type);
        object.insert("then".to_owned(), simple);
        object.insert("else".to_owned(), other);
    }
    transform_subschemas(&mut choose_by_type, schema);
}

/// The alternatives of `anyOf`, if they are two and one of them is a list or null: that one first.
fn two_by_type(object: &Map<String, Value>) -> Option<(Value, Value)> {
    let [one, other] = object.get("anyOf")?.as_array()?.as_slice() else {
        return None;
    };
    let is_simple = |schema: &Value| schema["type"] == "array" || schema["type"] == "null";
    match (is_simple(one), is_simple(other)) {
        (true, false) => Some((one.clone(), other.clone())),
        (false, true) => Some((other.clone(), one.clone())),
        _ => None,
    }
}

/// Ratekeeper rules: one file
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape is used")]
enum RulesFile {
    /// A domain and its descriptors.
    Domain(Box<File>),
    /// Service levels alone.
    ServiceLevels(Vec<ServiceLevel>),
}

/// A domain and its descriptors.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("patternProperties" = { "^x-": true }))]
#[expect(dead_code, reason = "only its shape is used")]
struct File {
    /// The namespace of the rules; required unless the file has service levels only.
    domain: Option<Text>,
    /// What is limited.
    descriptors: Option<Vec<Descriptor>>,
    /// leaf: the limits of the last matching level count; path: those of every level.
    evaluation: Option<Evaluation>,
    /// The key of the entry that names the tenant.
    tenant: Option<Text>,
    /// The plans a tenant may be on; the first is the default.
    plans: Option<Vec<String>>,
    /// Keys of entries whose values are secrets, besides api_key, token, authorization and the like.
    secrets: Option<Vec<String>>,
    /// Service levels of an HTTP API.
    slas: Option<Vec<ServiceLevel>>,
    /// What the patterns of `slas` are relative to: `/v1/organizations/{tenant}`.
    slas_base: Option<String>,
    /// The algorithm of limits that name none.
    algorithm: Option<Algorithm>,
    /// How nodes share counters.
    consistency: Option<Consistency>,
    /// Whether a denied request is counted as well.
    count_denied: Option<bool>,
    /// false switches all rules of the domain off.
    enabled: Option<bool>,
    /// The share of subjects that denials are enforced for: `10%`.
    enforce: Option<Share>,
    /// What an edge that cannot wait does with a leaky bucket's delay.
    leaky_over_rls: Option<LeakyOverRls>,
    /// What is answered while the store cannot answer.
    on_store_failure: Option<FailureMode>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// What is limited, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct Descriptor {
    /// The key of the entry; may have `*`.
    key: Text,
    /// The value of the entry; may have `*`. Without it every value matches, each with its own counter.
    value: Option<Text>,
    /// The limit, or a list of limits that must all pass.
    rate_limit: Option<OneOrMany<RateLimit>>,
    /// Descriptors of the next entry.
    descriptors: Option<Vec<Descriptor>>,
    /// Decide and count, but never deny.
    shadow_mode: Option<bool>,
    /// A denial counts only if every quota of the request denies.
    quota_mode: Option<bool>,
    /// Metrics have all values of the request in their names.
    detailed_metric: Option<bool>,
    /// Metrics have this entry's value in their names.
    value_to_metric: Option<bool>,
    /// All values that match the pattern share one counter.
    share_threshold: Option<bool>,
    /// Answered as dynamic metadata when the descriptor passes.
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// The rule's id; else it is made of domain and path.
    id: Option<Text>,
    /// The limits of the plans other than the default one, by the plan's name.
    plans: Option<BTreeMap<String, OneOrMany<PlanLimit>>>,
    /// How many requests may be in flight.
    concurrency: Option<Concurrency>,
    /// The algorithm of this descriptor's limits that name none.
    algorithm: Option<Algorithm>,
    /// How nodes share the counters.
    consistency: Option<Consistency>,
    /// Whether a denied request is counted as well.
    count_denied: Option<bool>,
    /// false switches this descriptor's limits off.
    enabled: Option<bool>,
    /// The share of subjects that denials are enforced for: `10%`.
    enforce: Option<Share>,
    /// What an edge that cannot wait does with a leaky bucket's delay.
    leaky_over_rls: Option<LeakyOverRls>,
    /// What is answered while the store cannot answer.
    on_store_failure: Option<FailureMode>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// A quota and its window.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct RateLimit {
    /// The window: second, minute, hour, day, week (7 days), month (30 days) or year (365 days).
    unit: Option<Unit>,
    /// How many a window, up to 4294967295; 0 blocks everything.
    #[schemars(range(max = 4_294_967_295_u32))]
    requests_per_unit: Option<u64>,
    /// No limit at all.
    unlimited: Option<bool>,
    /// What clients see, and what `replaces` names.
    name: Option<Text>,
    /// Limits that do not count when this one matched in the same request.
    replaces: Option<Vec<Replaces>>,
    /// How many a window, up to 2^53 - 1; 0 blocks everything.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    limit: Option<u64>,
    /// How long the window is: 10s, 250ms, 1m, 1h, 1d.
    window: Option<Duration>,
    /// The window follows the calendar of this time zone, with `unit: day`, `week` or `month`.
    calendar: Option<String>,
    /// How it counts.
    algorithm: Option<Algorithm>,
    /// The most that can pass at once from idle: token_bucket, gcra and leaky_bucket.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    burst: Option<u64>,
    /// Cuts a sliding_window into so many parts of equal time; up to twice the limit passes in a window.
    #[schemars(range(min = 1, max = 64))]
    sub_windows: Option<u32>,
    /// A sliding_window that never lets more than its limit pass, and refuses some hits near it.
    strict: Option<bool>,
    /// The rule's id; else it is made of domain and path.
    id: Option<Text>,
    /// How nodes share the counters.
    consistency: Option<Consistency>,
    /// Whether a denied request is counted as well.
    count_denied: Option<bool>,
    /// false switches this limit off.
    enabled: Option<bool>,
    /// The share of subjects that denials are enforced for: `10%`.
    enforce: Option<Share>,
    /// What an edge that cannot wait does with a leaky bucket's delay.
    leaky_over_rls: Option<LeakyOverRls>,
    /// What is answered while the store cannot answer.
    on_store_failure: Option<FailureMode>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// The limit of a plan.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct PlanLimit {
    /// The window: second, minute, hour, day, week (7 days), month (30 days) or year (365 days).
    unit: Option<Unit>,
    /// How many a window, up to 4294967295; 0 blocks everything.
    #[schemars(range(max = 4_294_967_295_u32))]
    requests_per_unit: Option<u64>,
    /// No limit at all.
    unlimited: Option<bool>,
    /// What clients see.
    name: Option<Text>,
    /// How many a window, up to 2^53 - 1; 0 blocks everything.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    limit: Option<u64>,
    /// How long the window is: 10s, 250ms, 1m, 1h, 1d.
    window: Option<Duration>,
    /// The window follows the calendar of this time zone, with `unit: day`, `week` or `month`.
    calendar: Option<String>,
    /// How it counts.
    algorithm: Option<Algorithm>,
    /// The most that can pass at once from idle: token_bucket, gcra and leaky_bucket.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    burst: Option<u64>,
    /// Cuts a sliding_window into so many parts of equal time; up to twice the limit passes in a window.
    #[schemars(range(min = 1, max = 64))]
    sub_windows: Option<u32>,
    /// A sliding_window that never lets more than its limit pass, and refuses some hits near it.
    strict: Option<bool>,
    /// How nodes share the counters.
    consistency: Option<Consistency>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// A limit that does not count.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct Replaces {
    /// The name of the limit.
    name: Text,
}

/// How many requests may be in flight.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct Concurrency {
    /// Permits.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    limit: u64,
    /// After how long a permit that nobody gave back is free again; 60s unless it says otherwise.
    timeout: Option<Duration>,
    /// When those who got no permit are told to come back.
    retry_after: Option<Duration>,
    /// What clients see.
    name: Option<Text>,
    /// The rule's id; else it is made of domain and path, with `#concurrency`.
    id: Option<Text>,
    /// How nodes share the counters.
    consistency: Option<Consistency>,
    /// false switches this limit off.
    enabled: Option<bool>,
    /// The share of subjects that denials are enforced for: `10%`.
    enforce: Option<Share>,
    /// What is answered while the store cannot answer.
    on_store_failure: Option<FailureMode>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// How often some calls of an HTTP API may be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct ServiceLevel {
    /// Unique among all service levels and rules.
    id: Text,
    /// false switches it off.
    enabled: Option<bool>,
    /// Which calls; or its keys beside the id.
    r#match: Option<ServiceMatch>,
    /// HTTP methods; all if there are none.
    methods: Option<Vec<String>>,
    /// The path: `*` is one segment, `**` the rest, `{name}` a variable.
    #[serde(rename = "pathPattern")]
    path_pattern: Option<String>,
    /// The limits; all must pass.
    #[schemars(length(min = 1))]
    tiers: Vec<Tier>,
    /// Decide and count, but never deny.
    shadow_mode: Option<bool>,
    /// The algorithm of tiers that name none: else fixed_window.
    algorithm: Option<Algorithm>,
    /// How nodes share the counters.
    consistency: Option<Consistency>,
    /// Whether a denied request is counted as well.
    count_denied: Option<bool>,
    /// The share of tenants that denials are enforced for: `10%`.
    enforce: Option<Share>,
    /// What an edge that cannot wait does with a leaky bucket's delay.
    leaky_over_rls: Option<LeakyOverRls>,
    /// What is answered while the store cannot answer.
    on_store_failure: Option<FailureMode>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// Which calls.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct ServiceMatch {
    /// HTTP methods; all if there are none.
    methods: Option<Vec<String>>,
    /// The path: `*` is one segment, `**` the rest, `{name}` a variable.
    #[serde(rename = "pathPattern")]
    path_pattern: String,
}

/// How many calls a period.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is used")]
struct Tier {
    /// Seconds, or a duration with its unit.
    period: Period,
    /// Calls a period.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    threshold: u64,
    /// How it counts: fixed_window unless it says otherwise.
    algorithm: Option<Algorithm>,
    /// The most that can pass at once from idle: token_bucket, gcra and leaky_bucket.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    burst: Option<u64>,
    /// Cuts a sliding_window into so many parts of equal time; up to twice the limit passes in a window.
    #[schemars(range(min = 1, max = 64))]
    sub_windows: Option<u32>,
    /// A sliding_window that never lets more than its limit pass, and refuses some hits near it.
    strict: Option<bool>,
}

/// One, or a list.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape is used")]
enum OneOrMany<T> {
    /// One.
    One(T),
    /// All of these.
    Many(Vec<T>),
}

/// Text, also as a number or a boolean, which count as they are written.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape is used")]
enum Text {
    /// As it is.
    Literal(String),
    /// Its digits.
    Number(i64),
    /// Its word.
    Boolean(bool),
}

/// How a limit counts.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Algorithm {
    /// Windows aligned to the epoch; up to twice the limit across an edge.
    FixedWindow,
    /// The last window: exact for limits up to 23, at most a sixteenth more above.
    SlidingWindow,
    /// The last window exactly; every hit is kept.
    SlidingLog,
    /// A bucket of `burst` tokens, refilled at the rate.
    TokenBucket,
    /// The same in one word.
    Gcra,
    /// A queue that drains at the rate: delays instead of denying, where the edge can wait.
    LeakyBucket,
}

/// A window of fixed length, in lower or upper case.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("pattern" = "^(?i:second|minute|hour|day|week|month|year)$"))]
#[expect(dead_code, reason = "only its shape is used")]
struct Unit(String);

/// Whole numbers with units: us, ms, s, m, h, d, w.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("pattern" = "^([0-9]+(us|ms|s|m|h|d|w))+$"))]
#[expect(dead_code, reason = "only its shape is used")]
struct Duration(String);

/// A share from 0% to 100%, with up to two decimals.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("pattern" = "^[0-9]{1,3}(\\.[0-9]{1,2})?%$"))]
#[expect(dead_code, reason = "only its shape is used")]
struct Share(String);

/// Seconds, or a duration with its unit.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape is used")]
enum Period {
    /// Seconds.
    Seconds(u64),
    /// With its unit.
    Duration(Duration),
}

#[cfg(test)]
mod tests;
