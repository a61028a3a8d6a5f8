//! An observer of one check, for traces.

use std::fmt;

use crate::{Check, Decision, Snapshot};

/// Observes one check: the limiter calls a method at the end of each stage, in the order in which they stand here. It
/// drops the observer once the check has ended, even if nobody waited for the store's answer.
pub trait CheckObserver: fmt::Debug + Send + Sync {
    /// The descriptors of `check` were matched against `snapshot`; the store is asked about so many `counters` next.
    fn matched(&self, check: &Check<'_>, snapshot: &Snapshot, counters: usize);

    /// The store has answered, or failure modes have in its place.
    fn answered(&self);

    /// The answers were combined.
    fn combined(&self, decision: &Decision);
}
