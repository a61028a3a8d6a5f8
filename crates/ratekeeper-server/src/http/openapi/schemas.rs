//! The bodies of `ratekeeper.v1`, for the OpenAPI document.

use utoipa::ToSchema;

/// A request to decide.
#[derive(ToSchema)]
#[schema(as = Check)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct CheckSchema {
    /// The namespace of rules.
    domain: String,
    /// 1 to 100.
    #[schema(min_items = 1, max_items = 100)]
    descriptors: Vec<DescriptorSchema>,
    /// The longest time the request can be delayed, in milliseconds; any if absent.
    wait_ms_max: Option<u64>,
    /// True to have `standing` in the answer.
    standing: Option<bool>,
}

/// A property of a request.
#[derive(ToSchema)]
#[schema(as = Descriptor)]
#[expect(dead_code, reason = "only its schema is used")]
struct DescriptorSchema {
    /// 1 to 32.
    #[schema(min_items = 1, max_items = 32)]
    entries: Vec<EntrySchema>,
    /// The domain of its rules, if not the request's.
    domain: Option<String>,
    /// The cost: 1 if absent; 0 decides without charging.
    hits: Option<u64>,
    /// A limit in place of those of the rules, for callers with the permission.
    limit: Option<BroughtLimitSchema>,
}

/// An entry of a descriptor.
#[derive(ToSchema)]
#[schema(as = Entry)]
#[expect(dead_code, reason = "only its schema is used")]
struct EntrySchema {
    #[schema(min_length = 1)]
    key: String,
    value: String,
}

/// A limit that a descriptor brings along.
#[derive(ToSchema)]
#[schema(as = BroughtLimit)]
#[expect(dead_code, reason = "only its schema is used")]
struct BroughtLimitSchema {
    requests_per_unit: u64,
    unit: UnitSchema,
}

/// The unit of a window.
#[derive(ToSchema)]
#[schema(as = Unit, rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum UnitSchema {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// A decision.
#[derive(ToSchema)]
#[schema(as = Decision)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct DecisionSchema {
    #[schema(inline)]
    decision: VerdictSchema,
    /// The most restrictive limit's; null if no limit matched.
    #[schema(required)]
    rule: Option<String>,
    #[schema(required)]
    limit: Option<u64>,
    #[schema(required)]
    remaining: Option<u64>,
    /// Milliseconds until more than `remaining` is available.
    #[schema(required)]
    reset_after_ms: Option<u64>,
    /// Milliseconds until everything is available again.
    #[schema(required)]
    full_after_ms: Option<u64>,
    /// On a denial, milliseconds until the same hits would pass; absent if they never will.
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// Milliseconds to hold the request back.
    #[schema(nullable = false)]
    delay_ms: Option<u64>,
    /// True if a failure mode answered for some limit.
    degraded: bool,
    /// True if no limit matched any descriptor; absent otherwise.
    #[schema(nullable = false)]
    unmatched: Option<bool>,
    /// One for each descriptor.
    statuses: Vec<StatusSchema>,
    /// The unrounded state, if it was asked for.
    #[schema(nullable = false, value_type = Option<Object>)]
    standing: Option<()>,
}

/// The decision about one descriptor.
#[derive(ToSchema)]
#[schema(as = Status)]
#[expect(dead_code, reason = "only its schema is used")]
struct StatusSchema {
    #[schema(inline)]
    decision: VerdictSchema,
    #[schema(required)]
    rule: Option<String>,
    #[schema(required)]
    limit: Option<u64>,
    #[schema(required)]
    remaining: Option<u64>,
    #[schema(required)]
    reset_after_ms: Option<u64>,
    #[schema(required)]
    full_after_ms: Option<u64>,
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    #[schema(nullable = false)]
    delay_ms: Option<u64>,
    /// True if a rule exempts it from limits; absent otherwise.
    #[schema(nullable = false)]
    unlimited: Option<bool>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum VerdictSchema {
    Allow,
    Deny,
}

/// Independent requests to decide.
#[derive(ToSchema)]
#[schema(as = Checks)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct BatchSchema {
    /// 1 to 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    checks: Vec<CheckSchema>,
}

/// The decisions, in the order of the requests.
#[derive(ToSchema)]
#[schema(as = Decisions)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct BatchAnswerSchema {
    results: Vec<DecisionSchema>,
}

/// A request that needs permits.
#[derive(ToSchema)]
#[schema(as = Acquire)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct AcquireSchema {
    domain: String,
    #[schema(min_items = 1, max_items = 100)]
    descriptors: Vec<DescriptorSchema>,
    /// The same request of the same caller runs once under it.
    idempotency_key: Option<String>,
    wait_ms_max: Option<u64>,
    standing: Option<bool>,
}

/// A decision, and what is held if it allows.
#[derive(ToSchema)]
#[schema(as = Held)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct HeldSchema {
    #[schema(inline)]
    #[serde(flatten)]
    decision: DecisionSchema,
    /// To release or renew the permits by.
    #[schema(nullable = false)]
    permit: Option<String>,
    /// To commit or cancel the reservation by.
    #[schema(nullable = false)]
    reservation: Option<String>,
    /// Milliseconds until it expires.
    #[schema(nullable = false)]
    expires_after_ms: Option<u64>,
    /// True if the same request ran before under its idempotency key.
    repeated_before: bool,
}

/// A permit to release or renew.
#[derive(ToSchema)]
#[schema(as = Permit)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct PermitSchema {
    permit: String,
}

/// A request whose cost is known only afterwards.
#[derive(ToSchema)]
#[schema(as = Reserve)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct ReserveSchema {
    domain: String,
    #[schema(min_items = 1, max_items = 100)]
    descriptors: Vec<DescriptorSchema>,
    /// The most that each descriptor can cost.
    #[schema(minimum = 1)]
    hits: u64,
    /// Milliseconds within which it must be settled; a minute if absent.
    ttl_ms: Option<u64>,
    idempotency_key: Option<String>,
    wait_ms_max: Option<u64>,
}

/// A reservation to settle.
#[derive(ToSchema)]
#[schema(as = Commit)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct CommitSchema {
    reservation: String,
    /// The actual cost.
    hits: u64,
}

/// A reservation to cancel.
#[derive(ToSchema)]
#[schema(as = Cancel)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct CancelSchema {
    reservation: String,
}

/// Hits to give back.
#[derive(ToSchema)]
#[schema(as = Refund)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct RefundSchema {
    domain: String,
    #[schema(min_items = 1, max_items = 100)]
    descriptors: Vec<DescriptorSchema>,
    idempotency_key: Option<String>,
}
