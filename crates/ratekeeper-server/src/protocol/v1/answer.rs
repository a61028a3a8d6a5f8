//! Decisions, as both codecs report them.
//!
//! Serde's form of these types is the JSON of `ratekeeper.v1`, and the OpenAPI document derives its schemas from them. In
//! it, spans are whole milliseconds, rounded up; a limit's fields are null where none matched, and other fields are left
//! out where they say nothing. The HTTP codec writes the same text by hand, for speed.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_http::answer::RequestStatus;
use ratekeeper_limiter::{
    Code, Decision, DescriptorAnswer, LimitStatus, Policy, RequestDescriptors,
};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// A decision.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Decision)]
pub(crate) struct CheckAnswer<'a> {
    // The decision on the request; after a peek, on one hit.
    #[serde(rename = "decision", serialize_with = "in_a_word")]
    #[schema(value_type = VerdictWord, inline)]
    pub(crate) allowed: bool,
    // The most restrictive limit. No doc comment: in the document it would wrap the fields.
    #[serde(flatten)]
    #[schema(value_type = LimitFields, inline)]
    pub(crate) by: AnsweredBy<'a>,
    /// Milliseconds to hold the request back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) delay_ms: Option<u64>,
    /// True if a failure mode answered for some limit.
    pub(crate) degraded: bool,
    /// True if no limit matched any descriptor; absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) unmatched: bool,
    /// The reason that nothing was decided; absent otherwise. The request cannot be read; or, if `degraded`, the rules of the
    /// domain of this check of a batch were refused, and the failure mode of the caller is to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) unreadable: Option<&'a str>,
    /// One for each descriptor.
    #[schema(value_type = Vec<StatusAnswer>)]
    pub(crate) statuses: Statuses<'a>,
    /// The unrounded state, if it was asked for.
    #[serde(rename = "standing", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Object>)]
    pub(crate) limits: Option<RequestStatus<'a>>,
}

/// The decision about one descriptor.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Status)]
pub(crate) struct StatusAnswer<'a> {
    #[serde(rename = "decision", serialize_with = "in_a_word")]
    #[schema(value_type = VerdictWord, inline)]
    pub(crate) allowed: bool,
    #[serde(flatten)]
    #[schema(value_type = LimitFields, inline)]
    pub(crate) by: AnsweredBy<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) delay_ms: Option<u64>,
    /// True if a rule exempts it from limits; absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) unlimited: bool,
}

/// A decision, and what is held if it allows.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Held)]
pub(crate) struct HeldAnswer<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    pub(crate) answer: CheckAnswer<'a>,
    /// To release or renew the permits by.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) permit: Option<&'a str>,
    /// To commit or cancel the reservation by.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) reservation: Option<&'a str>,
    /// Milliseconds until it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) expires_after_ms: Option<u64>,
    /// True if the same request ran before under its idempotency key.
    pub(crate) repeated_before: bool,
}

/// The limit that answered.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum AnsweredBy<'a> {
    /// No limit matched.
    None,
    /// The rule that exempts from limits, by its id.
    Unlimited(&'a str),
    Limit(LimitStatus<'a>),
}

/// The limit that answered, in JSON.
#[derive(Serialize, ToSchema, Default)]
struct LimitFields<'a> {
    /// The limit's rule; null if no limit matched, or the request brought the limit along.
    #[schema(required)]
    rule: Option<&'a str>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    /// Hits by which a post-paid bucket is below zero; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    debt: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum VerdictWord {
    Allow,
    Deny,
}

/// The results of the descriptors of a decision, in their order; none if nothing was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statuses<'a>(Option<&'a Decision>);

impl<'a> CheckAnswer<'a> {
    /// The answer to a request that charged. If it passed, it has no `retry_after_ms`, though one of
    /// its limits may be exceeded without denying it (quota mode).
    pub(crate) fn charged(decision: &'a Decision) -> Self {
        Self::new(decision, decision.allowed(), decision.limit_status())
    }

    /// The answer to a request that charged nothing, and to one more hit.
    pub(crate) fn peeked(decision: &'a Decision, allowed: bool) -> Self {
        let binding = decision.binding();
        let limit = binding.map(|binding| decision.limit_status_of(binding));
        Self::new(decision, allowed, limit)
    }

    fn new(decision: &'a Decision, allowed: bool, limit: Option<LimitStatus<'a>>) -> Self {
        Self {
            allowed,
            by: limit.map_or(AnsweredBy::None, AnsweredBy::Limit),
            delay_ms: millis(decision.delay()),
            degraded: decision.is_degraded(),
            unmatched: decision.is_unmatched(),
            unreadable: None,
            statuses: Statuses(Some(decision)),
            limits: None,
        }
    }

    /// Adds the state of the limits of the request, as decided at the time `at`.
    pub(crate) fn with_limits(
        self,
        policies: &[Policy],
        descriptors: RequestDescriptors<'_>,
        at: Timestamp,
    ) -> Self {
        let limits = |decision| RequestStatus::of(policies, decision, descriptors, at);
        Self {
            limits: self.statuses.0.map(limits),
            ..self
        }
    }

    /// The answer to a request that cannot be read, and why not.
    pub(crate) const fn unreadable(allowed: bool, why: &'a str) -> Self {
        Self {
            allowed,
            by: AnsweredBy::None,
            delay_ms: None,
            degraded: false,
            unmatched: false,
            unreadable: Some(why),
            statuses: Statuses(None),
            limits: None,
        }
    }

    /// The answer to a check of a batch that there are no rules for, and why. It passes, as under most failure modes; callers
    /// with another one see that nothing was decided.
    pub(crate) fn undecided(why: &'a str) -> Self {
        Self {
            degraded: true,
            ..Self::unreadable(true, why)
        }
    }
}

impl<'a> HeldAnswer<'a> {
    /// The answer to a request of which nothing is held.
    pub(crate) const fn nothing(answer: CheckAnswer<'a>) -> Self {
        Self {
            answer,
            permit: None,
            reservation: None,
            expires_after_ms: None,
            repeated_before: false,
        }
    }
}

impl<'a> StatusAnswer<'a> {
    fn new(decision: &'a Decision, status: &'a DescriptorAnswer) -> Self {
        let rules = decision.snapshot().rules();
        let by = match (&status.binding, status.unlimited) {
            (Some(binding), _) => AnsweredBy::Limit(decision.limit_status_of(binding)),
            (None, Some(index)) => AnsweredBy::Unlimited(&rules.rule(index).id),
            (None, None) => AnsweredBy::None,
        };
        Self {
            allowed: status.code == Code::Ok,
            delay_ms: millis(status.delay),
            unlimited: matches!(by, AnsweredBy::Unlimited(_)),
            by,
        }
    }

    /// Returns true if the whole request has the same decision, limit and delay.
    pub(crate) fn has_decided(&self, answer: &CheckAnswer<'_>) -> bool {
        self.allowed == answer.allowed && self.delay_ms == answer.delay_ms && self.by == answer.by
    }
}

impl<'a> AnsweredBy<'a> {
    /// The state of the limit, if it is one that counts.
    pub(crate) const fn limit(&self) -> Option<&LimitStatus<'a>> {
        match self {
            Self::Limit(limit) => Some(limit),
            Self::None | Self::Unlimited(_) => None,
        }
    }
}

impl<'a> Statuses<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = StatusAnswer<'a>> + use<'a> {
        let statuses = |decision: &'a Decision| {
            let statuses = decision.answers().iter();
            statuses.map(move |status| StatusAnswer::new(decision, status))
        };
        self.0.into_iter().flat_map(statuses)
    }
}

impl Serialize for Statuses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'a> LimitFields<'a> {
    fn of(limit: &'a LimitStatus<'_>) -> Self {
        let LimitStatus {
            rule,
            limit,
            remaining,
            reset_after,
            full_after,
            retry_after,
            is_over: _, // The decision tells it.
            debt,
        } = limit;
        Self {
            rule: rule.as_deref(),
            limit: Some(*limit),
            remaining: Some(*remaining),
            reset_after_ms: Some(reset_after.as_millis_ceil()),
            full_after_ms: Some(full_after.as_millis_ceil()),
            retry_after_ms: retry_after.map(Micros::as_millis_ceil),
            debt: Some(*debt).filter(|debt| *debt > 0),
        }
    }
}

impl Serialize for AnsweredBy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = match self {
            Self::None => LimitFields::default(),
            Self::Unlimited(rule) => LimitFields {
                rule: Some(rule),
                ..LimitFields::default()
            },
            Self::Limit(limit) => LimitFields::of(limit),
        };
        fields.serialize(serializer)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn in_a_word<S: Serializer>(allowed: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    let word = match allowed {
        true => VerdictWord::Allow,
        false => VerdictWord::Deny,
    };
    word.serialize(serializer)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Milliseconds to wait; None if there is nothing to wait for.
fn millis(span: Micros) -> Option<u64> {
    (!span.is_zero()).then(|| span.as_millis_ceil())
}
