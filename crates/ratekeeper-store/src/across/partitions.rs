//! The partitions of a store.

use std::future::Future;

use super::journey::Rest;
use super::partition::Partition;
#[cfg(doc)]
use crate::FullMode;
use crate::{Answer, Request, StoreError, Verdicts};

/// The partitions where counters are kept. Each counter is in one of them.
pub trait Partitions: Clone + Send + Sync + 'static {
    /// The pending answer of a partition that cannot decide at once.
    type Ticket: Future<Output = Result<Verdicts, StoreError>> + Send + Unpin + 'static;

    /// Asks one partition, as [`Store::decide`](crate::Store::decide) does.
    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<Self::Ticket>;

    /// The reason not to ask this partition now, if there is one: its steps are then unanswered. If the
    /// [`FullMode`] of such a step is to deny, the request will be denied, so the other partitions are
    /// told.
    fn away(&self, partition: Partition) -> Option<StoreError> {
        let _ = partition;
        None
    }

    /// The partition's denial of `request`, if it is known without asking. Charges nothing.
    fn recall(&self, partition: Partition, request: &Request<'_>) -> Option<Verdicts> {
        let _ = (partition, request);
        None
    }

    /// Returns true if an answer has to wait until hits have been given back, at the cost of
    /// another round trip. For callers that provide the time, and would provide a later one
    /// meanwhile.
    fn answers_last(&self) -> bool {
        false
    }

    /// The ticket to await a late answer with, as in [`Store::late`](crate::Store::late).
    fn late(ticket: Self::Ticket) -> Option<Self::Ticket> {
        drop(ticket);
        None
    }

    /// Awaits `rest` in the background, because the caller has gone, or has its answer.
    fn detach(&self, rest: Rest<Self>);

    /// Reports hits that were, or may have been, taken for nothing at `partition`, and could not be
    /// given back as far as is known.
    fn stranded(&self, partition: Partition, hits: u64);
}
