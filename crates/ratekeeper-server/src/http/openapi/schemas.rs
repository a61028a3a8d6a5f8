//! The answers of `ratekeeper.v1`, for the OpenAPI document: they are written without serde.

use utoipa::ToSchema;

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
    /// The reason the request cannot be read, if it is denied for that; absent otherwise.
    #[schema(nullable = false)]
    unreadable: Option<String>,
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

/// The decisions, in the order of the requests.
#[derive(ToSchema)]
#[schema(as = Decisions)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct BatchAnswerSchema {
    results: Vec<DecisionSchema>,
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
