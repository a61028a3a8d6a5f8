//! Divides a request among partitions.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Mode, Vote};
use smallvec::SmallVec;

use super::partition::Partition;
use crate::{Extra, Once, Permit, PermitAct, Request, Step};

/// The division of a request by partition. The steps themselves are kept beside it, in this order.
#[derive(Debug)]
pub(super) struct Parts {
    /// For each step its partition and its index in the request. Ascending.
    order: SmallVec<[(Partition, u32); 8]>,
    /// The mode of every part.
    pub(super) mode: Mode,
    /// The options of every part.
    extra: Option<Extra>,
    /// The mode of the whole request.
    whole: Mode,
    /// True if quota mode spans several parts: then none of them alone can decide it.
    is_quota_divided: bool,
}

impl Parts {
    pub(super) fn new(
        request: &Request<'_>,
        partition_of: impl Fn(&Step) -> Partition,
    ) -> (Self, SmallVec<[Step; 8]>) {
        let partitions = request.steps.iter().map(partition_of);
        let mut order: SmallVec<[(Partition, u32); 8]> = partitions.zip(0..).collect();
        order.sort_unstable();
        let steps = order
            .iter()
            .map(|(_, number)| request.steps[index(*number)]);
        let steps: SmallVec<[Step; 8]> = steps.collect();
        let mut quotas = order.iter().zip(&steps).filter(|(_, step)| step.quota_mode);
        let first = quotas.next();
        let is_quota_divided = first
            .is_some_and(|((first, _), _)| quotas.any(|((partition, _), _)| partition != first));
        let parts = Self {
            order,
            mode: Mode {
                idle_quota: request.mode.idle_quota || is_quota_divided,
                ..request.mode
            },
            extra: extra(request),
            whole: request.mode,
            is_quota_divided,
        };
        (parts, steps)
    }

    /// The partitions, each once, with their ranges of the ordered steps.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Partition, Range<usize>)> + '_ {
        let mut end = 0;
        let parts = self.order.chunk_by(|one, other| one.0 == other.0);
        parts.map(move |part| {
            let start = end;
            end += part.len();
            (part[0].0, start..end)
        })
    }

    /// The number of steps.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The index in the request of the step at `partition` in the order.
    pub(super) fn number(&self, partition: usize) -> usize {
        index(self.order[partition].1)
    }

    /// Returns true if the quota-mode steps of all parts deny together, since no part decides that
    /// alone.
    pub(super) fn quota_denies(&self, steps: &[Step], fits: impl Fn(usize) -> bool) -> bool {
        if !self.is_quota_divided {
            return false;
        }
        let mut votes: SmallVec<[Option<Vote>; 8]> = SmallVec::from_elem(None, self.len());
        for (partition, step) in steps.iter().enumerate() {
            votes[self.number(partition)] = Some(step.vote(fits(partition)));
        }
        ratekeeper_core::quota_denies(votes.into_iter().flatten(), self.whole)
    }

    /// The id of an idempotent request in its parts.
    pub(super) fn once(&self) -> Option<u128> {
        self.extra.as_ref()?.once.map(|once| once.id)
    }

    /// The options for the part with these steps.
    pub(super) fn extra_of(&self, steps: &[Step]) -> Option<Extra> {
        let mut extra = self.extra;
        // Without an id, hits on a concurrency limit could not be given back.
        if extra.is_none_or(|extra| extra.permit.is_none()) && takes_nameless(steps) {
            extra.get_or_insert_default().permit = Some(Permit {
                id: fresh_id(),
                act: PermitAct::Acquire,
            });
        }
        extra
    }
}

/// The options of every part.
fn extra(request: &Request<'_>) -> Option<Extra> {
    let mut extra = request.extra.copied();
    if let Some(once) = extra.as_mut().and_then(|extra| extra.once.as_mut()) {
        *once = covering(*once, request.steps);
    }
    extra
}

/// `once` with a content hash that covers all of the steps, so that no part is taken for that of
/// another request.
fn covering(once: Once, steps: &[Step]) -> Once {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |folded: u64, word: u64| (folded.rotate_left(23) ^ word).wrapping_mul(ODD);
    let content = steps
        .iter()
        .fold(fold(once.content, steps.len() as u64), |folded, step| {
            fold(fold(folded, step.key.subject), step.key.identity)
        });
    Once { content, ..once }
}

/// Returns true if the concurrency steps take one hit each, from different counters and without a
/// permit: one permit for all of them has the same effect.
fn takes_nameless(steps: &[Step]) -> bool {
    let is_held = |step: &&Step| step.limit.algorithm().holds_permits();
    let mut held: SmallVec<[_; 4]> = steps.iter().filter(is_held).map(|step| step.key).collect();
    let count = held.len();
    held.sort_unstable();
    held.dedup();
    let are_ones = steps.iter().filter(is_held).all(|step| step.hits == 1);
    count > 0 && held.len() == count && are_ones
}

/// 128 unique and unpredictable bits.
fn fresh_id() -> u128 {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: each number is handed out once, in any order.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = [0, 1].map(|half: usize| u128::from(KEYS[half].hash_one(number)));
    high << 64 | low | 1
}

const fn index(number: u32) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Timestamp};

    use super::*;
    use crate::{CounterKey, StoreSlot};

    fn extra_of(algorithm: Algorithm) -> Option<Extra> {
        let spec = LimitSpec::new(algorithm, 10, Micros::from_secs(60));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let key = CounterKey {
            subject: 1,
            identity: 2,
        };
        let steps = [Step::new(key, limit)];
        let request = Request::new(&steps, Mode::default(), Timestamp::from_micros(1));
        let (parts, steps) = Parts::new(&request, |_| StoreSlot(0).into());
        parts.extra_of(&steps)
    }

    #[test]
    fn only_hits_that_are_held_get_a_permit() {
        let permit = extra_of(Algorithm::Concurrency).and_then(|extra| extra.permit);
        assert_eq!(permit.map(|it| it.act), Some(PermitAct::Acquire));
        assert_eq!(extra_of(Algorithm::FixedWindow), None);
    }

    #[test]
    fn permits_differ_in_both_halves_of_their_ids() {
        let ids: Vec<_> = (0..100).map(|_| fresh_id()).collect();
        // Ids are odd, so 63 bits of the lower half are left to differ.
        for shift in [0, 64] {
            let halves: HashSet<_> = ids
                .iter()
                .map(|id| (id >> shift) & u128::from(u64::MAX))
                .collect();
            assert_eq!(halves.len(), ids.len(), "bits from {shift}");
        }
    }
}
