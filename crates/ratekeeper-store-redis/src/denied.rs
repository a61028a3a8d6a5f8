//! Denials that are repeated from memory, so that a flood costs Redis next to nothing.
//!
//! A denial is kept as the state of the counters when Redis denied a request. A request for the
//! same counters under the same limits is checked against that state, advanced to the current time;
//! only denials are answered from here. A look, a refund, a request that is charged when denied, or
//! a permit never is. Refunds and changes made elsewhere are seen after at most `deny_cache_max`;
//! this node's own refunds, at once.
//!
//! Each refund has a number, and each counter keeps that of its last one. A denial that was asked
//! for before the last refund to any of its counters is void, whether it is kept already or still
//! on its way.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use ratekeeper_store::{CounterKey, Request, Step, Verdicts};

use crate::queue::{Unhashed, signature};
use crate::script::DeniedCounters;
use crate::shard::Shard;

/// Parts with a lock of their own.
const PARTS: usize = 64;

/// Denials that each part keeps; together 16,384.
const DENIALS_MAX: usize = 256;

/// Places for the number of a counter's last refund. Counters that share a place are asked for more
/// often than necessary.
const PLACES: usize = 4_096;

/// The longest that a denial beside open leases is kept for requests that are not leased themselves.
const BESIDE_LEASES: Duration = Duration::from_millis(25);

/// The longest that a denial of a limit that regions share is kept, as another node may have borrowed meanwhile: the least time
/// between two asks. What this node has borrowed is seen at once.
const BESIDE_LOANS: Duration = Duration::from_millis(100);

/// The longest that a denial beside open leases is kept: what they hold comes back at any time.
fn beside_leases(request: &Request<'_>) -> Duration {
    let leases = request.steps.iter().filter(|step| !step.lease.is_zero());
    let quarter = |step: &Step| Duration::from(step.lease) / 4;
    leases.map(quarter).min().unwrap_or(BESIDE_LEASES)
}

/// The denials of one store.
#[derive(Debug)]
pub(crate) struct Denied {
    parts: Box<[Mutex<DenialShard>]>,
    kept: AtomicUsize,
    /// The number of refunds so far.
    returns: AtomicU64,
    /// The number of the last refund, for each place.
    returned: Box<[AtomicU64]>,
    /// Zero keeps nothing.
    max: Duration,
}

#[derive(Debug, Default)]
struct DenialShard {
    denials: HashMap<u64, Denial, BuildHasherDefault<Unhashed>>,
    /// The time at which each was sent, and its signature: those that are over are found without a look at the others.
    ages: BTreeSet<(Instant, u64)>,
    answered: u64,
}

#[derive(Debug)]
struct Denial {
    known: DeniedCounters,
    /// The time the decision was sent, which is before Redis read its clock: the time counted from
    /// here is ahead of Redis's, never behind, so that nothing is denied which Redis would let
    /// pass.
    sent: Instant,
    /// The number of refunds when the decision was sent.
    returns: u64,
    /// The shard that denied it.
    shard: Arc<Shard>,
}

impl Denied {
    pub(crate) fn new(max: Duration) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            kept: AtomicUsize::new(0),
            returns: AtomicU64::new(0),
            returned: (0..PLACES).map(|_| AtomicU64::default()).collect(),
            max,
        }
    }

    /// Returns the denial of `request`, if it is known.
    pub(crate) fn answer(&self, request: &Request<'_>, now: Instant) -> Option<Verdicts> {
        // Relaxed: a denial kept a moment ago may be found a moment later.
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let signature = signature(request);
        let mut part = self.part(signature).lock();
        let denial = part.denials.get(&signature)?;
        let since = now.saturating_duration_since(denial.sent);
        // Leases come back within their time: a denial of a leased counter lasts no longer.
        let leases = request.steps.iter().filter(|step| !step.lease.is_zero());
        let mut max = leases.fold(self.max, |max, step| max.min(step.lease.into()));
        if denial.known.is_leased() {
            max = max.min(beside_leases(request));
        }
        if denial.known.is_shared() {
            max = max.min(BESIDE_LOANS);
        }
        let is_over = since >= max || self.is_outdated(denial);
        let verdicts = match !is_over {
            true => denial.known.denial(request, Micros::from(since)),
            false => None,
        };
        match verdicts.is_some() {
            true => {
                denial.shard.metrics.denied_from_memory();
                part.answered += 1;
            }
            // It is over, or somebody asks for less, or under another limit.
            false if is_over => self.drop_one(&mut part, signature),
            false => {}
        }
        verdicts
    }

    /// The number of refunds so far: to be read before a decision is sent.
    pub(crate) fn returns(&self) -> u64 {
        self.returns.load(Ordering::Acquire)
    }

    /// Keeps the state that `shard` returned for a group it denied, sent after that many `returns`.
    pub(crate) fn keep(
        &self,
        shard: &Arc<Shard>,
        signature: u64,
        known: DeniedCounters,
        (sent, returns): (Instant, u64),
    ) {
        if self.max.is_zero() {
            return;
        }
        let mut part = self.part(signature).lock();
        let denial = Denial {
            known,
            sent,
            returns,
            shard: Arc::clone(shard),
        };
        // A newer one takes the place of one for the same counters.
        self.drop_one(&mut part, signature);
        if part.denials.len() >= DENIALS_MAX {
            self.make_room(&mut part, sent);
        }
        part.ages.insert((sent, signature));
        part.denials.insert(signature, denial);
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the denials of a counter that was refunded, or of which this region may use another share.
    pub(crate) fn forget(&self, key: CounterKey) {
        if self.max.is_zero() {
            return;
        }
        let number = self.returns.fetch_add(1, Ordering::AcqRel) + 1;
        self.returned(key).fetch_max(number, Ordering::Release);
    }

    fn is_outdated(&self, denial: &Denial) -> bool {
        let last = |key| self.returned(key).load(Ordering::Acquire);
        denial.known.keys().any(|key| last(key) > denial.returns)
    }

    /// The number of requests answered from here.
    pub(crate) fn answered(&self) -> u64 {
        self.parts.iter().map(|part| part.lock().answered).sum()
    }

    /// Drops a denial that is over by `now`; where there is none, an arbitrary one. The oldest would be the wrong
    /// choice then: of more callers than there is room for, who come in turns, each would be gone at its next turn.
    fn make_room(&self, part: &mut DenialShard, now: Instant) {
        let oldest = part.ages.first().copied();
        let over = oldest.filter(|(sent, _)| now.saturating_duration_since(*sent) >= self.max);
        let signature = over.map(|(_, signature)| signature);
        if let Some(signature) = signature.or_else(|| part.denials.keys().next().copied()) {
            self.drop_one(part, signature);
        }
    }

    fn drop_one(&self, part: &mut DenialShard, signature: u64) {
        if let Some(denial) = part.denials.remove(&signature) {
            part.ages.remove(&(denial.sent, signature));
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The part for denials of the same counters. All counters of a request count, not its first or their subject,
    /// which a whole domain can share. Maps in a part go by other bits.
    #[allow(clippy::cast_possible_truncation, reason = "only some bits count")]
    fn part(&self, signature: u64) -> &Mutex<DenialShard> {
        &self.parts[(signature >> 32) as usize % PARTS]
    }

    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn returned(&self, key: CounterKey) -> &AtomicU64 {
        &self.returned[(key.subject ^ key.identity.rotate_left(32)) as usize % PLACES]
    }
}

#[cfg(test)]
mod tests;
