//! The format of rules files: each kind of mapping with its keys, their kinds and their descriptions.
//!
//! A line of these tables is all that a key needs to be read with its place, to be known to messages, and to be in the
//! schema.

pub(crate) mod fields;
pub(crate) mod mapping;
mod metadata;
pub(crate) mod test_file;
pub(crate) mod values;

use std::borrow::Cow;
use std::rc::Rc;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::draft::Field;
use crate::draft::quota::{Duration, Form, Quota, Word};
use crate::mark::At;
use crate::report::Report;
use crate::table::{Typed, mappings};
use crate::yaml::Node;
use crate::{
    AdjustMode, Consistency, Evaluation, FailureMode, LeakyOverRls, OnSilence, RegionMode, ShedMode,
};
use fields::Fields;
use mapping::{Keys, Mapping, Properties, Shape, Value, read_mapping, schema_of};
use values::{
    AlgorithmName, ByPlan, Entries, Estimate, LeaseTime, List, Metadata, Moment, Names, OneOrMany,
    Percentage, Period, Places, PlanOfTenant, Requests, Share, Steps, StoreName, Text, UsageForm,
    Weight, WholeShare, with_doc,
};

/// A file: a domain with its descriptors, or a list of service levels.
struct RulesFile;

impl JsonSchema for RulesFile {
    fn schema_name() -> Cow<'static, str> {
        "RulesFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let file = generator.subschema_for::<File>();
        let levels = generator.subschema_for::<Vec<ServiceLevel>>();
        json_schema!({
            "description": "Ratekeeper rules: one file",
            "anyOf": [
                with_doc(file, File::DOC.trim()),
                with_doc(levels, "Service levels alone."),
            ],
        })
    }
}

/// The schema of a file.
pub(crate) fn schema() -> Schema {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<RulesFile>();
    // Values for aliases to refer to.
    if let Some(file) = schema.pointer_mut("/$defs/File") {
        file["patternProperties"] = serde_json::json!({ "^x-": true });
    }
    schema
}

mappings! {
    /// A domain and its descriptors.
    struct File ("at the top of a file", ["domain", "descriptors", "evaluation"], envoy) {
        /// The namespace of the rules; required unless the file has only service levels or tenants.
        domain: Text,
        /// The descriptors to limit.
        descriptors: List<Descriptor>,
        /// leaf: the limits of the last matching level count; path: those of every level.
        evaluation: Evaluation,
        /// The key of the entry that names the tenant.
        tenant: Text,
        /// The plans a tenant may be on; the first is the default.
        plans: Names,
        /// Keys of entries whose values are secrets, besides api_key, token, authorization and the like.
        secrets: Names,
        /// The tenants that have a plan or limits of their own; a file may have nothing else.
        tenants: List<Tenant>,
        /// Service levels of an HTTP API.
        slas: List<ServiceLevel>,
        /// The path that patterns of `slas` are relative to: `/v1/organizations/{tenant}`.
        slas_base: Word,
        /// The requests to refuse first under overload; in one file only.
        shed: Shed,
        /// The policy by which limits of tenants follow their usage.
        adjust: Adjust,
        /// The place in responses that tells what a request used of the limits that are paid afterwards.
        usage: UsageForm,
        /// The default algorithm of this domain's limits.
        algorithm: AlgorithmName,
        /// false disables all rules of the domain.
        enabled: bool,
        /// The share of subjects for which denials are enforced: `10%`.
        enforce: Share,
        ..counting: Counting,
    }

    /// The policy by which limits of tenants in a quota database follow their usage.
    struct Adjust ("in adjust", ["plans", "mode", "raise_at"]) {
        /// The plans whose tenants' limits it raises; not the default one.
        plans: Names where { "minItems": 1 } = required,
        /// off, shadow (the default: tell and audit each step, change nothing) or on.
        mode: AdjustMode,
        /// The share of its limit at which a tenant gets a step: 80% unless set.
        raise_at: WholeShare,
        /// The size of a step, as a share of the plan's limit: 50% unless set.
        step: WholeShare,
        /// The most steps: 2 unless set.
        steps: Steps where { "minimum": 1, "maximum": 20 },
        /// The time without need of its last step after which a tenant loses it: 24h unless set.
        lower_after: Duration,
    }

    /// The place in responses that tells what a request used.
    struct Usage ("in usage", ["tokens", "json", "header"]) {
        /// The tokens that APIs of models tell, each kind with the hits that one counts for.
        tokens: TokenHits,
        /// The place in bodies of JSON, and in each event of a stream, as a JSON pointer: `/usage/total_tokens`.
        json: Places,
        /// The place in the events of a stream, where it is not that of `json`.
        sse: Places,
        /// The name of the header or trailer that tells it.
        header: Word,
        /// The charge for a response that does not tell: `bytes/4`, or a number of hits.
        estimate: Estimate,
        /// The hits that a request reserves before it is forwarded.
        reserve: u64 where { "maximum": 9_007_199_254_740_991_u64 },
    }

    /// The hits that tokens count for: 1 unless set.
    struct TokenHits ("in tokens", ["input", "cached_input", "output"]) {
        /// For a token of the prompt.
        input: Weight,
        /// For a token of the prompt that came from a cache; as `input` unless set.
        cached_input: Weight,
        /// For a token of the answer.
        output: Weight,
    }

    /// The requests to refuse first under overload, and the shedders that refuse them.
    struct Shed ("in shed", ["priorities", "classify", "default"]) {
        /// The priority classes, the least important first: test, read, write and critical unless set.
        priorities: Names where { "minItems": 1, "maxItems": 8 },
        /// Conditions for classes; the first that holds decides.
        classify: List<Classify>,
        /// The class of requests that no condition matches; without it read or write, by the method.
        default: Word,
        /// Keeps a share of the fleet for the most important class.
        fleet: Fleet,
        /// Sheds by class and tenant while utilisation is bad.
        workers: Workers,
        /// Limits the requests in flight to each upstream by its round trips.
        adaptive: Adaptive,
        /// The mode of shedders that have none of their own: off, shadow or on (the default).
        mode: ShedMode,
    }

    /// A condition on requests, and their class. All of its parts must hold.
    struct Classify ("in classify", ["class", "methods", "pathPattern"]) {
        /// A name from `priorities`.
        class: Word = required,
        /// HTTP methods.
        methods: Names,
        /// A path: `*` is one segment, `**` the rest.
        path_pattern: Word as "pathPattern",
        /// A header that has to be there.
        header: Word,
        /// The value of the header.
        value: Text,
        /// The plan of the tenant.
        plan: Word,
    }

    /// The fleet-usage shedder.
    struct Fleet ("in fleet", ["capacity", "reserve", "mode"]) {
        /// Requests that all nodes together can work on at a time.
        capacity: Requests where { "minimum": 1, "maximum": 1_000_000 } = required,
        /// The part for the most important class alone: `20%` unless set.
        reserve: Percentage,
        /// off, shadow or on.
        mode: ShedMode,
    }

    /// The worker-utilisation shedder.
    struct Workers ("in workers", ["good", "bad", "mode"]) {
        /// Utilisation below which more is admitted: `70%` unless set.
        good: Percentage,
        /// Utilisation above which less is admitted: `80%` unless set.
        bad: Percentage,
        /// off, shadow or on.
        mode: ShedMode,
    }

    /// The adaptive concurrency limit.
    struct Adaptive ("in adaptive", ["min", "max", "mode"]) {
        /// The smallest limit: 1 unless set.
        min: Requests where { "minimum": 1, "maximum": 1_000_000 },
        /// The largest limit: 1,000 unless set.
        max: Requests where { "minimum": 1, "maximum": 1_000_000 },
        /// off, shadow or on.
        mode: ShedMode,
    }

    /// A key, or a key with a value, and the limits of requests that match it.
    struct Descriptor ("in a descriptor", ["key", "value", "rate_limit"], envoy) {
        /// The key of the entry; may have `*`.
        key: Text = required,
        /// The value of the entry; may have `*`. Without it every value matches, each with its own
        /// counter.
        value: Text,
        /// The limit, or a list of limits that must all pass.
        rate_limit: OneOrMany<RateLimit>,
        /// Descriptors of the next entry.
        descriptors: List<Descriptor>,
        /// Decide and count, but never deny.
        shadow_mode: bool,
        /// A denial counts only if every quota of the request denies.
        quota_mode: bool,
        /// Counts decisions by all values of the request, in metrics of their own.
        detailed_metric: bool,
        /// Counts decisions by this entry's value, in metrics of their own.
        value_to_metric: bool,
        /// All values that match the pattern share one counter.
        share_threshold: bool,
        /// Dynamic metadata for the answer when the descriptor passes.
        metadata: Metadata,
        /// The rule's id; by default made from domain and path.
        id: Text,
        /// The limits of plans other than the default, by plan name.
        plans: ByPlan<PlanLimit>,
        /// A limit on requests in flight.
        concurrency: Concurrency,
        /// The default algorithm of this descriptor's limits.
        algorithm: AlgorithmName,
        /// false disables this descriptor's limits.
        enabled: bool,
        /// The share of subjects for which denials are enforced: `10%`.
        enforce: Share,
        ..counting: Counting,
    }

    /// The keys of counters: where they are, and how nodes share them.
    struct Counters {
        /// The consistency of counters between nodes.
        consistency: Consistency,
        /// The time for which a node holds hits of a leased counter: `100ms`, 5ms to 10s.
        lease_time: LeaseTime,
        /// With `regions: counted`, the assumption about a region that was not heard for three intervals; share by default.
        on_silence: OnSilence,
        /// With `regions: counted`, the time between two posts of a counter to other regions: 100ms to 60s; 1s by default.
        post_interval: Duration,
        /// The way in which regions share the limit; without it each region enforces the whole limit by its own store.
        regions: RegionMode,
        /// The store that keeps the counters.
        store: StoreName,
        /// The interval at which nodes add their counts to the store, with `consistency: synced`: 10ms to 60s.
        sync_interval: Duration,
    }

    /// The keys about counting that a domain, a descriptor, a limit and a service level can have.
    struct Counting {
        /// Counts denied requests too.
        count_denied: bool,
        /// The answer to Envoy where a leaky bucket would delay a request.
        leaky_over_rls: LeakyOverRls,
        /// The answer while the store is unavailable.
        on_store_failure: FailureMode,
        ..counters: Counters,
    }

    /// A quota and its window.
    struct RateLimit ("in a rate_limit", ["unit", "requests_per_unit", "unlimited"], envoy) {
        /// The name that clients see, and that `replaces` refers to.
        name: Text,
        /// Limits that do not count when this one matches in the same request.
        replaces: List<Replaces>,
        /// The counting algorithm.
        algorithm: AlgorithmName,
        /// The rule's id; by default made from domain and path.
        id: Text,
        /// false disables this limit.
        enabled: bool,
        /// The share of subjects for which denials are enforced: `10%`.
        enforce: Share,
        ..quota: Quota,
        ..counting: Counting,
    }

    /// The limit of a plan.
    struct PlanLimit ("in a plan's limit", ["unit", "requests_per_unit", "unlimited"]) {
        /// The name that clients see.
        name: Text,
        /// The counting algorithm.
        algorithm: AlgorithmName,
        ..quota: Quota,
        ..counters: Counters,
    }

    /// A tenant, its plan and the limits that it has alone.
    struct Tenant ("in a tenant", ["tenant", "hash", "plan"]) {
        /// The value of the entry that names the tenant.
        tenant: Text,
        /// The hash of that value, as `ratekeeper key hash` prints it, for values that are secrets.
        hash: Text,
        /// The plan; by default the domain's first. A list has plans of different times.
        plan: OneOrMany<PlanOfTenant>,
        /// Limits that this tenant has alone.
        overrides: List<TenantOverride>,
        /// The time from which plan and overrides are in force: 2027-01-31T00:00:00Z.
        effective_at: Moment,
        /// The time from which they no longer are.
        expires_at: Moment,
    }

    /// A plan that a tenant is on for a time.
    struct TenantPlan ("in a tenant's plan", ["name", "effective_at", "expires_at"]) {
        /// The plan.
        name: Text = required,
        /// The time from which the tenant is on it: 2027-01-31T00:00:00Z.
        effective_at: Moment,
        /// The time from which it no longer is.
        expires_at: Moment,
    }

    /// A limit that one tenant has alone, in place of its plan's.
    struct TenantOverride ("in an override", ["descriptor", "limit", "window"]) {
        /// The entries after the tenant's, each as `key:value`, or `sla:` and the id of a service level; without it the
        /// tenant as a whole.
        descriptor: Entries,
        /// The time from which it is in force; by default as the tenant.
        effective_at: Moment,
        /// The time from which it no longer is; by default as the tenant.
        expires_at: Moment,
        /// The name that clients see.
        name: Text,
        /// The counting algorithm; by default that of the limit whose place it takes.
        algorithm: AlgorithmName,
        ..quota: Quota,
    }

    /// A limit that this one replaces.
    struct Replaces ("in replaces", ["name"], envoy) {
        /// The name of the limit.
        name: Text = required,
    }

    /// A limit on requests in flight.
    struct Concurrency ("in concurrency", ["limit", "timeout", "retry_after"]) {
        /// The most requests in flight.
        limit: u64 where { "maximum": 9_007_199_254_740_991_u64 } = required,
        /// The lifetime of a permit that is never released; 60s by default.
        timeout: Duration,
        /// The retry time given to callers that get no permit.
        retry_after: Duration,
        /// The name that clients see.
        name: Text,
        /// The rule's id; by default made from domain and path, with `#concurrency`.
        id: Text,
        /// The consistency of counters between nodes.
        consistency: Consistency,
        /// false disables this limit.
        enabled: bool,
        /// The share of subjects for which denials are enforced: `10%`.
        enforce: Share,
        /// The answer while the store is unavailable.
        on_store_failure: FailureMode,
        /// The way in which regions share the permits; without it each region enforces the whole limit.
        regions: RegionMode,
        /// The store that keeps the counters.
        store: StoreName,
    }

    /// Limits for some calls of an HTTP API.
    struct ServiceLevel ("in a service level", ["id", "enabled", "match"]) {
        /// Unique among all service levels and rules.
        id: Text = required,
        /// false disables it.
        enabled: bool,
        /// The calls that it applies to; its keys may also stand beside the id.
        calls: ServiceMatch as "match",
        /// HTTP methods; all methods if left out.
        methods: Names,
        /// The path: `*` is one segment, `**` the rest, `{name}` a variable.
        path_pattern: Word as "pathPattern",
        /// The limits; all must pass. With `plans`, those of the default plan.
        tiers: List<Tier> where { "minItems": 1 } = required,
        /// The limits of plans other than the default, by plan name.
        plans: ByPlan<Tier>,
        /// Decide and count, but never deny.
        shadow_mode: bool,
        /// The default algorithm of the tiers; fixed_window if left out.
        algorithm: AlgorithmName,
        /// The share of tenants for which denials are enforced: `10%`.
        enforce: Share,
        ..counting: Counting,
    }

    /// The calls that a service level applies to.
    struct ServiceMatch ("in match", ["methods", "pathPattern"]) {
        /// HTTP methods; all methods if left out.
        methods: Names,
        /// The path: `*` is one segment, `**` the rest, `{name}` a variable.
        path_pattern: Word as "pathPattern" = required,
    }

    /// A number of calls per period.
    struct Tier ("in a tier", ["period", "threshold", "algorithm"]) {
        /// Seconds, or a duration with its unit.
        period: Period = required,
        /// Calls per period.
        threshold: u64 where { "maximum": 9_007_199_254_740_991_u64 } = required,
        /// The counting algorithm; fixed_window by default.
        algorithm: AlgorithmName,
        ..form: Form,
    }
}
