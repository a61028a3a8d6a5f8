//! The bodies of `/v1` requests other than checks: permits, reservations, refunds.

use std::borrow::Cow;

use serde::Deserialize;

use super::object::Object;
use super::question::{Question, View};

/// A body of `/v1/acquire`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ToAcquire<'a> {
    #[serde(borrow)]
    domain: Cow<'a, str>,
    #[serde(borrow)]
    descriptors: Vec<Object<View<'a>>>,
    #[serde(borrow, default)]
    idempotency_key: Cow<'a, str>,
    wait_ms_max: Option<u64>,
    #[serde(default)]
    pub(super) standing: bool,
}

/// A body of `/v1/refund`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ToRefund<'a> {
    #[serde(borrow)]
    domain: Cow<'a, str>,
    #[serde(borrow)]
    descriptors: Vec<Object<View<'a>>>,
    #[serde(borrow, default)]
    idempotency_key: Cow<'a, str>,
}

/// A body of `/v1/reserve`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ToReserve<'a> {
    #[serde(borrow)]
    domain: Cow<'a, str>,
    #[serde(borrow)]
    descriptors: Vec<Object<View<'a>>>,
    pub(super) hits: u64,
    #[serde(default)]
    pub(super) ttl_ms: u64,
    #[serde(borrow, default)]
    idempotency_key: Cow<'a, str>,
    wait_ms_max: Option<u64>,
}

/// A body of `/v1/release` and `/v1/renew`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct OfPermit<'a> {
    #[serde(borrow)]
    pub(super) permit: Cow<'a, str>,
}

/// A body of `/v1/commit`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ToCommit<'a> {
    #[serde(borrow)]
    pub(super) reservation: Cow<'a, str>,
    pub(super) hits: u64,
}

/// A body of `/v1/cancel`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ToCancel<'a> {
    #[serde(borrow)]
    pub(super) reservation: Cow<'a, str>,
}

impl<'a> ToAcquire<'a> {
    /// The question, and the key.
    pub(super) fn split(self) -> (Question<'a>, Cow<'a, str>) {
        let question = Question::of(self.domain, self.descriptors);
        (question.waiting(self.wait_ms_max), self.idempotency_key)
    }
}

impl<'a> ToRefund<'a> {
    /// The question, and the key.
    pub(super) fn split(self) -> (Question<'a>, Cow<'a, str>) {
        (
            Question::of(self.domain, self.descriptors),
            self.idempotency_key,
        )
    }
}

impl<'a> ToReserve<'a> {
    /// The question, and the key.
    pub(super) fn split(self) -> (Question<'a>, Cow<'a, str>) {
        let question = Question::of(self.domain, self.descriptors);
        (question.waiting(self.wait_ms_max), self.idempotency_key)
    }
}
