//! The shape of rules files, as types that only the schema is made from.

#![expect(dead_code, reason = "only their shape is used")]

use std::borrow::Cow;
use std::collections::BTreeMap;

use ratekeeper_core::Algorithm;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{AdjustMode, Consistency, Evaluation, FailureMode, LeakyOverRls, ShedMode};

/// The schema of a file, as it follows from the types.
pub(super) fn schema() -> Schema {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<RulesFile>()
}

/// Ratekeeper rules: one file
#[derive(JsonSchema)]
#[serde(untagged)]
enum RulesFile {
    /// A domain and its descriptors.
    Domain(Box<File>),
    /// Service levels alone.
    ServiceLevels(Vec<ServiceLevel>),
}

/// A domain and its descriptors.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("patternProperties" = { "^x-": true }))]
struct File {
    /// The namespace of the rules; required unless the file has only service levels or tenants.
    domain: Option<Text>,
    /// The descriptors to limit.
    descriptors: Option<Vec<Descriptor>>,
    /// leaf: the limits of the last matching level count; path: those of every level.
    evaluation: Option<Evaluation>,
    /// The key of the entry that names the tenant.
    tenant: Option<Text>,
    /// The plans a tenant may be on; the first is the default.
    plans: Option<Vec<String>>,
    /// Keys of entries whose values are secrets, besides api_key, token, authorization and the like.
    secrets: Option<Vec<String>>,
    /// The tenants that have a plan or limits of their own; a file may have nothing else.
    tenants: Option<Vec<Tenant>>,
    /// Service levels of an HTTP API.
    slas: Option<Vec<ServiceLevel>>,
    /// The path that patterns of `slas` are relative to: `/v1/organizations/{tenant}`.
    slas_base: Option<String>,
    /// The requests to refuse first under overload; in one file only.
    shed: Option<Shed>,
    /// The policy by which limits of tenants follow their usage.
    adjust: Option<Adjust>,
    /// The default algorithm of this domain's limits.
    algorithm: Option<AlgorithmName>,
    /// false disables all rules of the domain.
    enabled: Option<bool>,
    /// The share of subjects for which denials are enforced: `10%`.
    enforce: Option<Share>,
    #[schemars(flatten)]
    counting: Counting,
}

/// The policy by which limits of tenants in a quota database follow their usage.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Adjust {
    /// The plans whose tenants' limits it raises; not the default one.
    #[schemars(length(min = 1))]
    plans: Vec<String>,
    /// off, shadow (the default: tell and audit each step, change nothing) or on.
    mode: Option<AdjustMode>,
    /// The share of its limit at which a tenant gets a step: 80% unless set.
    raise_at: Option<Share>,
    /// The size of a step, as a share of the plan's limit: 50% unless set.
    step: Option<Share>,
    /// The most steps: 2 unless set.
    #[schemars(range(min = 1, max = 20))]
    steps: Option<u64>,
    /// The time without need of its last step after which a tenant loses it: 24h unless set.
    lower_after: Option<Duration>,
}

/// The requests to refuse first under overload, and the shedders that refuse them.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shed {
    /// The priority classes, the least important first: test, read, write and critical unless set.
    #[schemars(length(min = 1, max = 8))]
    priorities: Option<Vec<String>>,
    /// Conditions for classes; the first that holds decides.
    classify: Option<Vec<Classify>>,
    /// The class of requests that no condition matches; without it read or write, by the method.
    default: Option<String>,
    /// Keeps a share of the fleet for the most important class.
    fleet: Option<Fleet>,
    /// Sheds by class and tenant while utilisation is bad.
    workers: Option<Workers>,
    /// Limits the requests in flight to each upstream by its round trips.
    adaptive: Option<Adaptive>,
    /// The mode of shedders that have none of their own: off, shadow or on (the default).
    mode: Option<ShedMode>,
}

/// A condition on requests, and their class. All of its parts must hold.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Classify {
    /// A name from `priorities`.
    class: String,
    /// HTTP methods.
    methods: Option<Vec<String>>,
    /// A path: `*` is one segment, `**` the rest.
    #[serde(rename = "pathPattern")]
    path_pattern: Option<String>,
    /// A header that has to be there.
    header: Option<String>,
    /// The value of the header.
    value: Option<Text>,
    /// The plan of the tenant.
    plan: Option<String>,
}

/// The fleet-usage shedder.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fleet {
    /// Requests that all nodes together can work on at a time.
    #[schemars(range(min = 1, max = 1_000_000))]
    capacity: u32,
    /// The part for the most important class alone: `20%` unless set.
    reserve: Option<Percentage>,
    /// off, shadow or on.
    mode: Option<ShedMode>,
}

/// The worker-utilisation shedder.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Workers {
    /// Utilisation below which more is admitted: `70%` unless set.
    good: Option<Percentage>,
    /// Utilisation above which less is admitted: `80%` unless set.
    bad: Option<Percentage>,
    /// off, shadow or on.
    mode: Option<ShedMode>,
}

/// The adaptive concurrency limit.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Adaptive {
    /// The smallest limit: 1 unless set.
    #[schemars(range(min = 1, max = 1_000_000))]
    min: Option<u32>,
    /// The largest limit: 1,000 unless set.
    #[schemars(range(min = 1, max = 1_000_000))]
    max: Option<u32>,
    /// off, shadow or on.
    mode: Option<ShedMode>,
}

/// A whole percentage: 70%.
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^(100|[1-9]?[0-9])%$"))]
struct Percentage(String);

/// A key, or a key with a value, and the limits of requests that match it.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    /// The key of the entry; may have `*`.
    key: Text,
    /// The value of the entry; may have `*`. Without it every value matches, each with its own
    /// counter.
    value: Option<Text>,
    /// The limit, or a list of limits that must all pass.
    rate_limit: Option<OneOrMany<RateLimit>>,
    /// Descriptors of the next entry.
    descriptors: Option<Vec<Descriptor>>,
    /// Decide and count, but never deny.
    shadow_mode: Option<bool>,
    /// A denial counts only if every quota of the request denies.
    quota_mode: Option<bool>,
    /// Counts decisions by all values of the request, in metrics of their own.
    detailed_metric: Option<bool>,
    /// Counts decisions by this entry's value, in metrics of their own.
    value_to_metric: Option<bool>,
    /// All values that match the pattern share one counter.
    share_threshold: Option<bool>,
    /// Dynamic metadata for the answer when the descriptor passes.
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// The rule's id; by default made from domain and path.
    id: Option<Text>,
    /// The limits of plans other than the default, by plan name.
    plans: Option<BTreeMap<String, OneOrMany<PlanLimit>>>,
    /// A limit on requests in flight.
    concurrency: Option<Concurrency>,
    /// The default algorithm of this descriptor's limits.
    algorithm: Option<AlgorithmName>,
    /// false disables this descriptor's limits.
    enabled: Option<bool>,
    /// The share of subjects for which denials are enforced: `10%`.
    enforce: Option<Share>,
    #[schemars(flatten)]
    counting: Counting,
}

/// The keys of counters: where they are, and how nodes share them.
#[derive(JsonSchema)]
struct Counters {
    /// The consistency of counters between nodes.
    consistency: Option<Consistency>,
    /// The time for which a node holds hits of a leased counter: `100ms`, 5ms to 10s.
    lease_time: Option<Duration>,
    /// The store that keeps the counters.
    store: Option<String>,
    /// The interval at which nodes add their counts to the store, with `consistency: synced`: 10ms to 60s.
    sync_interval: Option<Duration>,
}

/// The keys about counting that a domain, a descriptor, a limit and a service level can have.
#[derive(JsonSchema)]
struct Counting {
    /// Counts denied requests too.
    count_denied: Option<bool>,
    /// The answer to Envoy where a leaky bucket would delay a request.
    leaky_over_rls: Option<LeakyOverRls>,
    /// The answer while the store is unavailable.
    on_store_failure: Option<FailureMode>,
    #[schemars(flatten)]
    counters: Counters,
}

/// The keys that give an algorithm its form.
#[derive(JsonSchema)]
struct Form {
    /// The most hits that can pass at once after idle time: token_bucket, gcra and leaky_bucket.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    burst: Option<u64>,
    /// Cuts a sliding_window into this many parts of equal time; up to twice the limit passes in a
    /// window.
    #[schemars(range(min = 1, max = 64))]
    sub_windows: Option<u32>,
    /// A sliding_window that never exceeds its limit, and refuses some hits near it.
    strict: Option<bool>,
    /// A budget: hits are charged in full whatever is left, and a request of 0 hits passes while
    /// anything is left.
    post_paid: Option<bool>,
    /// The most hits that a post-paid token_bucket or gcra goes below zero: ten bursts by default.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    max_debt: Option<u64>,
}

/// The keys of a quota and its window.
#[derive(JsonSchema)]
struct Quota {
    /// The window: second, minute, hour, day, week (7 days), month (30 days) or year (365 days).
    unit: Option<Unit>,
    /// Requests per window, up to 4294967295; 0 blocks everything.
    #[schemars(range(max = 4_294_967_295_u32))]
    requests_per_unit: Option<u64>,
    /// No limit.
    unlimited: Option<bool>,
    /// Hits per window, up to 2^53 - 1; 0 blocks everything.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    limit: Option<u64>,
    /// The length of the window: 10s, 250ms, 1m, 1h, 1d.
    window: Option<Duration>,
    /// The time zone whose calendar the window follows, with `unit: day`, `week` or `month`.
    calendar: Option<String>,
    #[schemars(flatten)]
    form: Form,
}

/// A quota and its window.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    /// The name that clients see, and that `replaces` refers to.
    name: Option<Text>,
    /// Limits that do not count when this one matches in the same request.
    replaces: Option<Vec<Replaces>>,
    /// The counting algorithm.
    algorithm: Option<AlgorithmName>,
    /// The rule's id; by default made from domain and path.
    id: Option<Text>,
    /// false disables this limit.
    enabled: Option<bool>,
    /// The share of subjects for which denials are enforced: `10%`.
    enforce: Option<Share>,
    #[schemars(flatten)]
    quota: Quota,
    #[schemars(flatten)]
    counting: Counting,
}

/// The limit of a plan.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanLimit {
    /// The name that clients see.
    name: Option<Text>,
    /// The counting algorithm.
    algorithm: Option<AlgorithmName>,
    #[schemars(flatten)]
    quota: Quota,
    #[schemars(flatten)]
    counters: Counters,
}

/// A tenant, its plan and the limits that it has alone.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tenant {
    /// The value of the entry that names the tenant.
    tenant: Option<Text>,
    /// The hash of that value, as `ratekeeper key hash` prints it, for values that are secrets.
    hash: Option<Text>,
    /// The plan; by default the domain's first. A list has plans of different times.
    plan: Option<OneOrMany<PlanOfTenant>>,
    /// Limits that this tenant has alone.
    overrides: Option<Vec<TenantOverride>>,
    /// The time from which plan and overrides are in force: 2027-01-31T00:00:00Z.
    effective_at: Option<String>,
    /// The time from which they no longer are.
    expires_at: Option<String>,
}

/// The name of a plan, with its term in a list.
#[derive(JsonSchema)]
#[serde(untagged)]
enum PlanOfTenant {
    /// The name.
    Name(Text),
    /// The name and the term.
    Term(TenantPlan),
}

/// A plan that a tenant is on for a time.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantPlan {
    /// The plan.
    name: Text,
    /// The time from which the tenant is on it: 2027-01-31T00:00:00Z.
    effective_at: Option<String>,
    /// The time from which it no longer is.
    expires_at: Option<String>,
}

/// A limit that one tenant has alone, in place of its plan's.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantOverride {
    /// The entries after the tenant's, each as `key:value`, or `sla:` and the id of a service level; without it the
    /// tenant as a whole.
    descriptor: Option<OneOrMany<String>>,
    /// The time from which it is in force; by default as the tenant.
    effective_at: Option<String>,
    /// The time from which it no longer is; by default as the tenant.
    expires_at: Option<String>,
    /// The name that clients see.
    name: Option<Text>,
    /// The counting algorithm; by default that of the limit whose place it takes.
    algorithm: Option<AlgorithmName>,
    #[schemars(flatten)]
    quota: Quota,
}

/// A limit that this one replaces.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replaces {
    /// The name of the limit.
    name: Text,
}

/// A limit on requests in flight.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Concurrency {
    /// The most requests in flight.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    limit: u64,
    /// The lifetime of a permit that is never released; 60s by default.
    timeout: Option<Duration>,
    /// The retry time given to callers that get no permit.
    retry_after: Option<Duration>,
    /// The name that clients see.
    name: Option<Text>,
    /// The rule's id; by default made from domain and path, with `#concurrency`.
    id: Option<Text>,
    /// The consistency of counters between nodes.
    consistency: Option<Consistency>,
    /// false disables this limit.
    enabled: Option<bool>,
    /// The share of subjects for which denials are enforced: `10%`.
    enforce: Option<Share>,
    /// The answer while the store is unavailable.
    on_store_failure: Option<FailureMode>,
    /// The store that keeps the counters.
    store: Option<String>,
}

/// Limits for some calls of an HTTP API.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceLevel {
    /// Unique among all service levels and rules.
    id: Text,
    /// false disables it.
    enabled: Option<bool>,
    /// The calls that it applies to; its keys may also stand beside the id.
    r#match: Option<ServiceMatch>,
    /// HTTP methods; all methods if left out.
    methods: Option<Vec<String>>,
    /// The path: `*` is one segment, `**` the rest, `{name}` a variable.
    #[serde(rename = "pathPattern")]
    path_pattern: Option<String>,
    /// The limits; all must pass. With `plans`, those of the default plan.
    #[schemars(length(min = 1))]
    tiers: Vec<Tier>,
    /// The limits of plans other than the default, by plan name.
    plans: Option<BTreeMap<String, OneOrMany<Tier>>>,
    /// Decide and count, but never deny.
    shadow_mode: Option<bool>,
    /// The default algorithm of the tiers; fixed_window if left out.
    algorithm: Option<AlgorithmName>,
    /// The share of tenants for which denials are enforced: `10%`.
    enforce: Option<Share>,
    #[schemars(flatten)]
    counting: Counting,
}

/// The calls that a service level applies to.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServiceMatch {
    /// HTTP methods; all methods if left out.
    methods: Option<Vec<String>>,
    /// The path: `*` is one segment, `**` the rest, `{name}` a variable.
    #[serde(rename = "pathPattern")]
    path_pattern: String,
}

/// A number of calls per period.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tier {
    /// Seconds, or a duration with its unit.
    period: Period,
    /// Calls per period.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    threshold: u64,
    /// The counting algorithm; fixed_window by default.
    algorithm: Option<AlgorithmName>,
    #[schemars(flatten)]
    form: Form,
}

/// One item, or a list.
#[derive(JsonSchema)]
#[serde(untagged)]
enum OneOrMany<T> {
    /// A single item.
    One(T),
    /// A list, all of which apply.
    Many(Vec<T>),
}

/// Text. Numbers and booleans are taken as they are written.
#[derive(JsonSchema)]
#[serde(untagged)]
enum Text {
    /// A string.
    Literal(String),
    /// The digits of the number.
    Number(i64),
    /// The word for the boolean.
    Boolean(bool),
}

/// A counting algorithm.
struct AlgorithmName;

impl JsonSchema for AlgorithmName {
    fn schema_name() -> Cow<'static, str> {
        "Algorithm".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let named = Algorithm::ALL.into_iter().filter_map(|algorithm| {
            let description = match algorithm {
                Algorithm::FixedWindow => "Windows aligned to the epoch; up to twice the limit across an edge.",
                Algorithm::SlidingWindow => "The last window: exact for limits up to 23, at most a sixteenth more above.",
                Algorithm::SlidingLog => "The last window exactly; every hit is kept.",
                Algorithm::TokenBucket => "A bucket of `burst` tokens, refilled at the rate.",
                Algorithm::Gcra => "The same as token_bucket, in one word of state.",
                Algorithm::LeakyBucket => "A queue that drains at the rate: delays instead of denying, where the edge can wait.",
                // It has a key of its own.
                Algorithm::Concurrency => return None,
            };
            let name = algorithm.name();
            Some(json_schema!({ "description": description, "type": "string", "const": name }))
        });
        let named: Vec<Schema> = named.collect();
        json_schema!({ "description": "A counting algorithm.", "oneOf": named })
    }
}

/// A window of fixed length, in lower or upper case.
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^(?i:second|minute|hour|day|week|month|year)$"))]
struct Unit(String);

/// Whole numbers with units: us, ms, s, m, h, d, w.
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^([0-9]+(us|ms|s|m|h|d|w))+$"))]
struct Duration(String);

/// A share from 0% to 100%, with up to two decimals.
#[derive(JsonSchema)]
#[schemars(extend("pattern" = "^[0-9]{1,3}(\\.[0-9]{1,2})?%$"))]
struct Share(String);

/// Seconds, or a duration with its unit.
#[derive(JsonSchema)]
#[serde(untagged)]
enum Period {
    /// Seconds.
    Seconds(u64),
    /// With its unit.
    Duration(Duration),
}
