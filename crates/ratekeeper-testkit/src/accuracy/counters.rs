//! Counters of one limit, in a memory store.

use ratekeeper_core::{Limit, Micros, Mode, Outcome, Timestamp};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{CounterKey, FullMode, Request, Step, StepOutcome};

use super::{Form, Ledger, Tally};
use crate::random::Random;

/// The start of the first visit: 1 January 2027.
const START: u64 = 1_798_761_600_000_000;

/// Counters of one limit, in a memory store of their own.
#[derive(Debug)]
pub struct Counters {
    form: Form,
    limit: Limit,
    store: MemoryStore,
    /// Clients so far.
    visitors: u64,
    /// The earliest start of the next visit.
    free_at: u64,
}

impl Counters {
    /// Creates the store for a limit of `quota` hits in `window`; None if `form` has no such limit.
    ///
    /// # Panics
    /// If the system does not provide the memory for the store.
    #[must_use]
    pub fn new(form: Form, quota: u64, window: Micros) -> Option<Self> {
        let config = MemoryConfig {
            memory_limit: 64 << 20,
            max_share_percent: 100,
        };
        Some(Self {
            form,
            limit: form.limit(quota, window)?,
            store: MemoryStore::new(config).expect("64 MiB are there"),
            visitors: 0,
            free_at: START,
        })
    }

    /// Checks `hits` on the counter of `client`; 0 only looks. Time never goes back for a counter.
    ///
    /// # Panics
    /// If the store has no room for another counter: the measurement would be void.
    pub fn ask(&self, client: u64, now: Timestamp, hits: u64) -> Outcome {
        let mut names = Random::new(client);
        let step = Step {
            hits: i64::try_from(hits).unwrap_or(i64::MAX),
            full_mode: FullMode::Deny,
            ..Step::new(
                CounterKey {
                    subject: names.bits(),
                    identity: names.bits(),
                },
                self.limit,
            )
        };
        let steps = [step];
        let verdicts = self
            .store
            .decide_now(&Request::new(&steps, Mode::default(), now));
        match verdicts.outcomes.first() {
            Some(StepOutcome::Counted(outcome)) => *outcome,
            other => panic!("the store has not counted: {other:?}"),
        }
    }

    /// Starts a visit with a new counter, at a time that is a multiple of the window since the
    /// epoch and long after all earlier visits.
    pub fn visit(&mut self) -> Visit<'_> {
        self.visitors += 1;
        let window = self.limit.window().get();
        let start = self.free_at.next_multiple_of(window);
        let quota = self.limit.quota();
        Visit {
            ledger: Ledger::new(self.form, quota, self.limit.window()),
            client: self.visitors,
            start,
            now: 0,
            counters: self,
        }
    }

    /// Bytes of all states that do not fit inline.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.store.stats().heap_bytes
    }

    /// The form of the limit.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }
}

/// One caller's visit to a counter of its own. Times are in microseconds since its start.
#[derive(Debug)]
pub struct Visit<'a> {
    counters: &'a mut Counters,
    client: u64,
    start: u64,
    now: u64,
    ledger: Ledger,
}

impl Visit<'_> {
    /// Requests `hits`, 1 or more, and records the answer. A time before the last request counts as
    /// that.
    pub fn ask(&mut self, at: u64, hits: u64) -> Outcome {
        self.now = self.now.max(at);
        let now = Timestamp::from_micros(self.start + self.now);
        let outcome = self.counters.ask(self.client, now, hits);
        self.ledger.enter(now, hits, outcome.fits());
        outcome
    }

    /// The number of hits that would pass.
    pub fn room(&mut self, at: u64) -> u64 {
        self.now = self.now.max(at);
        let now = Timestamp::from_micros(self.start + self.now);
        self.counters.ask(self.client, now, 0).remaining
    }

    /// The time of the last request.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// The limit's quota.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.counters.limit.quota()
    }

    /// The limit's window.
    #[must_use]
    pub const fn window(&self) -> u64 {
        self.counters.limit.window().get()
    }

    /// Ends the visit and returns its tally.
    #[must_use]
    pub fn end(self) -> Tally {
        let window = self.counters.limit.window().get();
        self.counters.free_at = self.start + self.now + 3 * window;
        *self.ledger.tally()
    }
}
