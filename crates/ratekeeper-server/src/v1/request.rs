//! The requests of `ratekeeper.v1`. JSON bodies are read as these; gRPC's messages become these.

use std::borrow::Cow;

use ratekeeper_limiter::Override;
use ratekeeper_rules::Unit;
use serde::Deserialize;

use super::object::Object;

/// The descriptors of a request.
pub(crate) type Descriptors<'a> = Vec<Object<DescriptorRequest<'a>>>;

/// A property of a request.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescriptorRequest<'a> {
    /// The domain of its rules, if not the request's.
    #[serde(borrow, default)]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) entries: Vec<Object<EntryRequest<'a>>>,
    /// The cost: 1 if absent; 0 decides without charging.
    pub(crate) hits: Option<u64>,
    pub(crate) limit: Option<Object<OverrideRequest>>,
}

/// An entry of a descriptor.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryRequest<'a> {
    #[serde(borrow)]
    pub(crate) key: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) value: Cow<'a, str>,
}

/// A limit that a descriptor brings along.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverrideRequest {
    pub(crate) requests_per_unit: u64,
    pub(crate) unit: UnitName,
}

/// The unit of such a limit.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnitName {
    /// Refused; JSON has no word for it.
    #[serde(skip)]
    Unspecified,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl OverrideRequest {
    /// Returns the limit; none if its unit is not specified.
    pub(super) fn limit(self) -> Option<Override> {
        let unit = match self.unit {
            UnitName::Unspecified => return None,
            UnitName::Second => Unit::Second,
            UnitName::Minute => Unit::Minute,
            UnitName::Hour => Unit::Hour,
            UnitName::Day => Unit::Day,
            UnitName::Week => Unit::Week,
            UnitName::Month => Unit::Month,
            UnitName::Year => Unit::Year,
        };
        let quota = self.requests_per_unit;
        Some(Override { quota, unit })
    }
}

/// A request to decide.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) descriptors: Descriptors<'a>,
    /// The longest time the request can be delayed, in milliseconds; if absent, any delay is
    /// acceptable.
    pub(crate) wait_ms_max: Option<u64>,
    /// Asks for `standing` in the answer.
    #[serde(default)]
    pub(crate) standing: bool,
    /// Asks for `statuses` in the answer, where JSON always has them.
    #[serde(skip)]
    pub(crate) statuses: bool,
}

/// Independent requests to decide.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest<'a> {
    #[serde(borrow)]
    pub(crate) checks: Vec<Object<CheckRequest<'a>>>,
}

/// A request that needs permits.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) descriptors: Descriptors<'a>,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
    pub(crate) wait_ms_max: Option<u64>,
    #[serde(default)]
    pub(crate) standing: bool,
}

/// A request whose cost is known only afterwards.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReserveRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) descriptors: Descriptors<'a>,
    pub(crate) hits: u64,
    /// Time within which it must be settled; 0 for the default.
    #[serde(default)]
    pub(crate) ttl_ms: u64,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
    pub(crate) wait_ms_max: Option<u64>,
}

/// Hits to give back.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefundRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) descriptors: Descriptors<'a>,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
}

/// A permit to release or renew.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitRequest<'a> {
    #[serde(borrow)]
    pub(crate) permit: Cow<'a, str>,
}

/// A reservation to settle.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommitRequest<'a> {
    #[serde(borrow)]
    pub(crate) reservation: Cow<'a, str>,
    pub(crate) hits: u64,
}

/// A reservation to cancel.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelRequest<'a> {
    #[serde(borrow)]
    pub(crate) reservation: Cow<'a, str>,
}
