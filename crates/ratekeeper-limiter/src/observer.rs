//! An observer of one check, for traces.

use std::fmt;

use crate::{Check, Decision, LimitStatus, Snapshot};

/// Observes one check: the limiter calls a method at the end of each stage, in the order in which they stand here. It
/// drops the observer once the check has ended, even if the caller did not wait for the store's answer. It is a trait because the
/// limiter must not know what a trace is.
pub trait CheckObserver: fmt::Debug + Send + Sync {
    /// The descriptors of `check` were matched against `snapshot`; the store is asked about so many `counters` next.
    fn matched(&self, check: &Check<'_>, snapshot: &Snapshot, counters: usize);

    /// The store has answered, or failure modes have in its place.
    fn answered(&self);

    /// The answers were combined.
    fn combined(&self, decision: &Decision);

    /// The `traceparent` (W3C Trace Context) for a service that is asked to decide the check; [`None`] if it need not
    /// know. No stage ends here then: [`Self::decided_by_service`] is called in place of the three methods above.
    fn traceparent_for_service(&self) -> Option<String>;

    /// A service has decided the check, or its client's fallback has.
    fn decided_by_service(&self, decision: &ServiceDecision<'_>);
}

/// The decision of a service, as its client knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceDecision<'a> {
    /// True if the request may pass.
    pub allowed: bool,
    /// True if a limit was answered without being counted in its store.
    pub degraded: bool,
    /// The most restrictive limit; [`None`] if no enforced limit matched.
    pub limit: Option<&'a LimitStatus<'a>>,
}
