//! One lease on a node: a word that is spent from, and what is known of it.
//!
//! The word is `generation | phase | credit`. Whoever spends, puts back or closes compares and swaps the whole word, so
//! each hit leaves it once. What is known of the lease lies in words beside it. They are written only while one
//! thread has claimed the slot, and the generation goes up with each call to the store, each answer, and when a lease
//! ends: a swap that succeeds proves that what was read before it belonged to that lease.

#[cfg(ratekeeper_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(ratekeeper_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Facts, facts::WORDS};
use crate::Micros;

/// Bits of the word that hold the credit.
const CREDIT_BITS: u32 = 32;

const CREDIT_MASK: u64 = (1 << CREDIT_BITS) - 1;

/// The most hits that one lease holds.
pub const CREDIT_MAX: u64 = CREDIT_MASK;

const PHASE_MASK: u64 = 3 << CREDIT_BITS;

/// It is free.
const FREE: u64 = 0;

/// Somebody writes what is known of its lease.
const CLAIMED: u64 = 1 << CREDIT_BITS;

/// There is a lease.
const OPEN: u64 = 2 << CREDIT_BITS;

/// One generation.
const GENERATION: u64 = 4 << CREDIT_BITS;

/// A place for a lease.
#[derive(Debug)]
pub struct Slot {
    word: AtomicU64,
    facts: [AtomicU64; WORDS],
}

/// Hits that left a slot and were not admitted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    /// The word's upper half: generation and phase.
    lease: u64,
    /// The number of hits.
    pub hits: u64,
    /// Hits that the lease held right after.
    pub left: u64,
}

/// The reason for spending nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unspent {
    /// There is no lease, or one of something else.
    Other,
    /// It is not to be spent at that time: it was granted later, or its deadline has passed.
    Expired,
    /// It holds so many hits, fewer than were asked for.
    Short(u64),
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            facts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Slot {
    /// Begins a lease where there is none; whether it did. `credit` is at most [`CREDIT_MAX`].
    pub fn open(&self, facts: &Facts, credit: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let claimed = word | CLAIMED;
        let is_free = word & PHASE_MASK == FREE;
        // Acquire: what is written below is not seen by those who read the lease before.
        let claim = |word| {
            let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
            self.word.compare_exchange(word, claimed, taken, not)
        };
        if !is_free || claim(word).is_err() {
            return false;
        }
        self.publish(word, facts, credit);
        true
    }

    /// Writes the facts of a lease whose word is claimed, and opens it.
    fn publish(&self, word: u64, facts: &Facts, credit: u64) {
        for (word, value) in self.facts.iter().zip(facts.to_words()) {
            // Release: whoever reads it sees that the word was claimed, and cannot swap what it read before.
            word.store(value, Ordering::Release);
        }
        let open = (word & !PHASE_MASK & !CREDIT_MASK) | OPEN | credit.min(CREDIT_MAX);
        // Release: whoever sees the lease sees what it is.
        self.word.store(open, Ordering::Release);
    }

    /// Takes `hits` from the lease, if it is the one that is meant and holds at `now` of the node's boot
    /// time.
    ///
    /// # Errors
    /// [`Unspent`]
    pub fn spend(
        &self,
        is_meant: impl Fn(&Facts) -> bool,
        hits: u64,
        now: Micros,
    ) -> Result<Credit, Unspent> {
        loop {
            let (word, facts) = self.read().ok_or(Unspent::Other)?;
            let credit = word & CREDIT_MASK;
            // What was read may be of two leases; then the swap fails, and what is answered without one
            // is as if it had been asked a moment before.
            if !is_meant(&facts) {
                return Err(Unspent::Other);
            }
            if now < facts.from || now >= facts.deadline {
                return Err(Unspent::Expired);
            }
            if hits > credit {
                return Err(Unspent::Short(credit));
            }
            if self.swap(word, word - hits) {
                return Ok(Credit {
                    lease: word & !CREDIT_MASK,
                    hits,
                    left: credit - hits,
                });
            }
        }
    }

    /// Puts hits back that were not admitted after all, if their lease still stands.
    ///
    /// # Errors
    /// The hits, where it does not: they are to be given back or burned.
    pub fn put_back(&self, credit: Credit) -> Result<(), Credit> {
        loop {
            // Relaxed: nothing is read by it but the word itself.
            let word = self.word.load(Ordering::Relaxed);
            if word & !CREDIT_MASK != credit.lease {
                return Err(credit);
            }
            if self.swap(word, word + credit.hits) {
                return Ok(());
            }
        }
    }

    /// Begins a call to the store: raises the generation, so that what is put back later stays spent, and says what is
    /// left. A final call takes that out; else it goes on being spent. [`None`] if there is no lease.
    pub fn begin_call(&self, is_final: bool) -> Option<u64> {
        loop {
            // Acquire: what the store is told of it was written before.
            let word = self.word.load(Ordering::Acquire);
            if word & PHASE_MASK != OPEN {
                return None;
            }
            let left = word & CREDIT_MASK;
            let kept = if is_final { 0 } else { left };
            let next = (word & !CREDIT_MASK).wrapping_add(GENERATION) | kept;
            if self.swap(word, next) {
                return Some(left);
            }
        }
    }

    /// Gives the lease other facts, and the credit that `credit` makes of what is left. Meanwhile nothing is spent of
    /// it. Returns false if there is no lease.
    pub fn refill(&self, facts: &Facts, credit: impl FnOnce(u64) -> u64) -> bool {
        let word = loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & PHASE_MASK != OPEN {
                return false;
            }
            if self.swap(word, (word & !PHASE_MASK) | CLAIMED) {
                break word;
            }
        };
        let credit = credit(word & CREDIT_MASK).min(CREDIT_MAX);
        self.publish(word.wrapping_add(GENERATION), facts, credit);
        true
    }

    /// Ends the lease; hits that it still held.
    pub fn close(&self) -> Option<u64> {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & PHASE_MASK != OPEN {
                return None;
            }
            let next = (word & !PHASE_MASK & !CREDIT_MASK).wrapping_add(GENERATION) | FREE;
            if self.swap(word, next) {
                return Some(word & CREDIT_MASK);
            }
        }
    }

    /// The lease that is there, and hits that it holds.
    pub fn look(&self) -> Option<(Facts, u64)> {
        loop {
            let (word, facts) = self.read()?;
            // Unchanged but for hits: what was read is of this lease.
            let now = self.word.load(Ordering::Relaxed);
            if now & !CREDIT_MASK == word & !CREDIT_MASK {
                return Some((facts, word & CREDIT_MASK));
            }
        }
    }

    /// The word, and what is known of its lease unless the word changes meanwhile.
    fn read(&self) -> Option<(u64, Facts)> {
        // Acquire: what the lease is was written before it was opened.
        let word = self.word.load(Ordering::Acquire);
        if word & PHASE_MASK != OPEN {
            return None;
        }
        // Acquire: of a value written later it is seen that this lease is over.
        let words = std::array::from_fn(|at| self.facts[at].load(Ordering::Acquire));
        Some((word, Facts::from_words(words)))
    }

    fn swap(&self, from: u64, to: u64) -> bool {
        let (done, not) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(from, to, done, not).is_ok()
    }
}
