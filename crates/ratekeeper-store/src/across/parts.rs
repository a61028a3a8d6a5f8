//! What each place is asked.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Algorithm, Mode, Vote};
use smallvec::SmallVec;

use super::Place;
use crate::{Extra, Once, Permit, PermitAct, Request, Step};

/// How a request is divided. Its steps are kept beside it, place by place.
#[derive(Debug)]
pub(super) struct Parts {
    /// Of each step: where it lies, and its number in the request. Ascending.
    order: SmallVec<[(Place, u32); 8]>,
    /// What every part is asked under.
    pub(super) mode: Mode,
    /// What every part wants besides its steps.
    extra: Option<Extra>,
    /// The mode of the whole.
    whole: Mode,
    /// Whether quota mode spans several parts: then none of them can say alone what it denies.
    is_quota_divided: bool,
}

impl Parts {
    pub(super) fn new(
        request: &Request<'_>,
        place_of: impl Fn(&Step) -> Place,
    ) -> (Self, SmallVec<[Step; 8]>) {
        let places = request.steps.iter().map(place_of);
        let mut order: SmallVec<[(Place, u32); 8]> = places.zip(0..).collect();
        order.sort_unstable();
        let steps = order
            .iter()
            .map(|(_, number)| request.steps[index(*number)]);
        let steps: SmallVec<[Step; 8]> = steps.collect();
        let mut quotas = order.iter().zip(&steps).filter(|(_, step)| step.quota_mode);
        let first = quotas.next();
        let is_quota_divided =
            first.is_some_and(|((first, _), _)| quotas.any(|((place, _), _)| place != first));
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

    /// Each place once, and which of the ordered steps lie there.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Place, Range<usize>)> + '_ {
        let mut end = 0;
        let parts = self.order.chunk_by(|one, other| one.0 == other.0);
        parts.map(move |part| {
            let start = end;
            end += part.len();
            (part[0].0, start..end)
        })
    }

    /// How many steps the request has.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The number in the request of the step at `place` in the order.
    pub(super) fn number(&self, place: usize) -> usize {
        index(self.order[place].1)
    }

    /// Whether the parts' quota-mode steps deny together, as none of them does alone.
    pub(super) fn quota_denies(&self, steps: &[Step], fits: impl Fn(usize) -> bool) -> bool {
        if !self.is_quota_divided {
            return false;
        }
        let mut votes: SmallVec<[Option<Vote>; 8]> = SmallVec::from_elem(None, self.len());
        for (place, step) in steps.iter().enumerate() {
            votes[self.number(place)] = Some(step.vote(fits(place)));
        }
        ratekeeper_core::quota_denies(votes.into_iter().flatten(), self.whole)
    }

    /// The id by which the parts know the request as one that is carried out once.
    pub(super) fn once(&self) -> Option<u128> {
        self.extra.as_ref()?.once.map(|once| once.id)
    }

    /// What the part of these steps wants besides them.
    pub(super) fn extra_of(&self, steps: &[Step]) -> Option<Extra> {
        let mut extra = self.extra;
        // Without a name, what is taken of a concurrency limit could not be given back.
        if extra.is_none_or(|extra| extra.permit.is_none()) && takes_nameless(steps) {
            extra.get_or_insert_default().permit = Some(Permit {
                id: fresh_id(),
                act: PermitAct::Acquire,
            });
        }
        extra
    }
}

/// What every part wants besides its steps.
fn extra(request: &Request<'_>) -> Option<Extra> {
    let mut extra = request.extra.copied();
    if let Some(once) = extra.as_mut().and_then(|extra| extra.once.as_mut()) {
        *once = covering(*once, request.steps);
    }
    extra
}

/// `once` with a content that stands for all of the steps, so that none of its parts is taken for
/// that of another request.
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

/// Whether concurrency steps take one hit each, of different counters and without a permit: to
/// hold one does the same then.
fn takes_nameless(steps: &[Step]) -> bool {
    let is_held = |step: &&Step| step.limit.algorithm() == Algorithm::Concurrency;
    let mut held: SmallVec<[_; 4]> = steps.iter().filter(is_held).map(|step| step.key).collect();
    let count = held.len();
    held.sort_unstable();
    held.dedup();
    let are_ones = steps.iter().filter(is_held).all(|step| step.hits == 1);
    count > 0 && held.len() == count && are_ones
}

/// 128 bits that nobody else has, nor can guess.
fn fresh_id() -> u128 {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: each number is given out once, in whatever order.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = [0, 1].map(|half: usize| u128::from(KEYS[half].hash_one(number)));
    high << 64 | low | 1
}

const fn index(number: u32) -> usize {
    number as usize
}
