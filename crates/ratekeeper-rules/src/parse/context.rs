//! The keys that each kind of mapping may have.
//!
//! envoyproxy/ratelimit has one list of keys for all levels and ignores a key where it has no
//! meaning. Its keys are therefore accepted everywhere (with a warning), ours only where they act.

/// The keys of envoyproxy/ratelimit.
pub(crate) const ENVOY_KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// A kind of mapping in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    /// The file itself.
    Root,
    /// An item of `descriptors:`.
    Descriptor,
    /// `rate_limit:`, or an item of it.
    RateLimit,
    /// An item of `replaces:`.
    Replaces,
    /// A limit under the descriptor's `plans:`.
    PlanLimit,
    /// `concurrency:`.
    Concurrency,
    /// An item of `slas:`.
    ServiceLevel,
    /// `match:` of a service level.
    ServiceMatch,
    /// An item of `tiers:`.
    Tier,
    /// An item of `tenants:`.
    Tenant,
    /// An item of a tenant's `plan:`.
    TenantPlan,
    /// An item of a tenant's `overrides:`.
    TenantOverride,
    /// `adjust:`.
    Adjust,
    /// `shed:`.
    Shed,
    /// An item of `classify:`.
    Classify,
    /// `fleet:`.
    Fleet,
    /// `workers:`.
    Workers,
    /// `adaptive:`.
    Adaptive,
    /// A key of envoyproxy/ratelimit where it has no meaning; the keys in it have none either.
    Ignored,
}

const ROOT: [&str; 21] = [
    "domain",
    "descriptors",
    "evaluation",
    "tenant",
    "plans",
    "secrets",
    "tenants",
    "slas",
    "slas_base",
    "shed",
    "adjust",
    "algorithm",
    "consistency",
    "count_denied",
    "enabled",
    "enforce",
    "leaky_over_rls",
    "lease_time",
    "on_store_failure",
    "store",
    "sync_interval",
];

const DESCRIPTOR: [&str; 23] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "id",
    "plans",
    "concurrency",
    "algorithm",
    "consistency",
    "count_denied",
    "enabled",
    "enforce",
    "leaky_over_rls",
    "lease_time",
    "on_store_failure",
    "store",
    "sync_interval",
];

const RATE_LIMIT: [&str; 22] = [
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "limit",
    "window",
    "calendar",
    "algorithm",
    "burst",
    "sub_windows",
    "strict",
    "id",
    "consistency",
    "count_denied",
    "enabled",
    "enforce",
    "leaky_over_rls",
    "lease_time",
    "on_store_failure",
    "store",
    "sync_interval",
];

const PLAN_LIMIT: [&str; 15] = [
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "limit",
    "window",
    "calendar",
    "algorithm",
    "burst",
    "sub_windows",
    "strict",
    "consistency",
    "lease_time",
    "store",
    "sync_interval",
];

const CONCURRENCY: [&str; 10] = [
    "limit",
    "timeout",
    "retry_after",
    "name",
    "id",
    "consistency",
    "enabled",
    "enforce",
    "on_store_failure",
    "store",
];

const SERVICE_LEVEL: [&str; 17] = [
    "id",
    "enabled",
    "match",
    "methods",
    "pathPattern",
    "tiers",
    "plans",
    "algorithm",
    "consistency",
    "count_denied",
    "enforce",
    "leaky_over_rls",
    "lease_time",
    "on_store_failure",
    "shadow_mode",
    "store",
    "sync_interval",
];
const SERVICE_MATCH: [&str; 2] = ["methods", "pathPattern"];
const TIER: [&str; 6] = [
    "period",
    "threshold",
    "algorithm",
    "burst",
    "sub_windows",
    "strict",
];

const TENANT: [&str; 6] = [
    "tenant",
    "hash",
    "plan",
    "overrides",
    "effective_at",
    "expires_at",
];
const TENANT_PLAN: [&str; 3] = ["name", "effective_at", "expires_at"];
const TENANT_OVERRIDE: [&str; 14] = [
    "descriptor",
    "limit",
    "window",
    "effective_at",
    "expires_at",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "calendar",
    "algorithm",
    "burst",
    "sub_windows",
    "strict",
];

const ADJUST: [&str; 6] = ["plans", "mode", "raise_at", "step", "steps", "lower_after"];

const SHED: [&str; 7] = [
    "priorities",
    "classify",
    "default",
    "fleet",
    "workers",
    "adaptive",
    "mode",
];
const CLASSIFY: [&str; 6] = ["class", "methods", "pathPattern", "header", "value", "plan"];

impl Context {
    /// The keys that have a meaning here.
    pub(crate) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Root => &ROOT,
            Self::Descriptor => &DESCRIPTOR,
            Self::RateLimit => &RATE_LIMIT,
            Self::Replaces => &["name"],
            Self::PlanLimit => &PLAN_LIMIT,
            Self::Concurrency => &CONCURRENCY,
            Self::ServiceLevel => &SERVICE_LEVEL,
            Self::ServiceMatch => &SERVICE_MATCH,
            Self::Tier => &TIER,
            Self::Tenant => &TENANT,
            Self::TenantPlan => &TENANT_PLAN,
            Self::TenantOverride => &TENANT_OVERRIDE,
            Self::Adjust => &ADJUST,
            Self::Shed => &SHED,
            Self::Classify => &CLASSIFY,
            Self::Fleet => &["capacity", "reserve", "mode"],
            Self::Workers => &["good", "bad", "mode"],
            Self::Adaptive => &["min", "max", "mode"],
            Self::Ignored => &[],
        }
    }

    /// Returns true if envoyproxy/ratelimit has such a mapping, and so accepts all of its keys in
    /// it.
    pub(crate) const fn is_known_to_envoy(self) -> bool {
        matches!(
            self,
            Self::Root | Self::Descriptor | Self::RateLimit | Self::Replaces | Self::Ignored
        )
    }

    /// The name of such a mapping in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Root => "at the top of a file",
            Self::Descriptor => "in a descriptor",
            Self::RateLimit => "in a rate_limit",
            Self::Replaces => "in replaces",
            Self::PlanLimit => "in a plan's limit",
            Self::Concurrency => "in concurrency",
            Self::ServiceLevel => "in a service level",
            Self::ServiceMatch => "in match",
            Self::Tier => "in a tier",
            Self::Tenant => "in a tenant",
            Self::TenantPlan => "in a tenant's plan",
            Self::TenantOverride => "in an override",
            Self::Adjust => "in adjust",
            Self::Shed => "in shed",
            Self::Classify => "in classify",
            Self::Fleet => "in fleet",
            Self::Workers => "in workers",
            Self::Adaptive => "in adaptive",
            Self::Ignored => "here",
        }
    }
}
