//! The keys that each kind of mapping may have.
//!
//! envoyproxy/ratelimit has one list of keys for all levels and ignores a key where it has no
//! meaning. Its keys are therefore accepted everywhere (with a warning), ours only where they act.

use crate::schema::mapping_keys;

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

impl Context {
    /// The keys that have a meaning here: those of the type that describes such a mapping in the schema.
    pub(crate) fn keys(self) -> &'static [String] {
        match self {
            Self::Ignored => &[],
            other => mapping_keys(other.row().0),
        }
    }

    /// Returns true if `key` has a meaning here.
    pub(crate) fn has(self, key: &str) -> bool {
        self.keys().iter().any(|known| known == key)
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
        self.row().1
    }

    /// The keys to suggest where there is none.
    pub(crate) fn first_keys(self) -> impl Iterator<Item = &'static str> {
        self.row().2.split_whitespace()
    }

    /// The type in the schema, the name in messages, and the keys to suggest.
    const fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Root => (
                "File",
                "at the top of a file",
                "domain descriptors evaluation",
            ),
            Self::Descriptor => ("Descriptor", "in a descriptor", "key value rate_limit"),
            Self::RateLimit => (
                "RateLimit",
                "in a rate_limit",
                "unit requests_per_unit unlimited",
            ),
            Self::Replaces => ("Replaces", "in replaces", "name"),
            Self::PlanLimit => (
                "PlanLimit",
                "in a plan's limit",
                "unit requests_per_unit unlimited",
            ),
            Self::Concurrency => ("Concurrency", "in concurrency", "limit timeout retry_after"),
            Self::ServiceLevel => ("ServiceLevel", "in a service level", "id enabled match"),
            Self::ServiceMatch => ("ServiceMatch", "in match", "methods pathPattern"),
            Self::Tier => ("Tier", "in a tier", "period threshold algorithm"),
            Self::Tenant => ("Tenant", "in a tenant", "tenant hash plan"),
            Self::TenantPlan => (
                "TenantPlan",
                "in a tenant's plan",
                "name effective_at expires_at",
            ),
            Self::TenantOverride => (
                "TenantOverride",
                "in an override",
                "descriptor limit window",
            ),
            Self::Adjust => ("Adjust", "in adjust", "plans mode raise_at"),
            Self::Shed => ("Shed", "in shed", "priorities classify default"),
            Self::Classify => ("Classify", "in classify", "class methods pathPattern"),
            Self::Fleet => ("Fleet", "in fleet", "capacity reserve mode"),
            Self::Workers => ("Workers", "in workers", "good bad mode"),
            Self::Adaptive => ("Adaptive", "in adaptive", "min max mode"),
            Self::Ignored => ("", "here", ""),
        }
    }
}
