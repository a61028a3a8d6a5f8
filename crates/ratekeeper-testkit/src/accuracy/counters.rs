//! The counters of one limit, in a memory store.

use ratekeeper_core::{Limit, Micros, Mode, Outcome, Timestamp};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{CounterKey, FullMode, Request, Step, StepOutcome};

use super::{Form, Ledger, Random, Tally};

/// Visits begin here: 1 January 2027.
const START: u64 = 1_798_761_600_000_000;

/// The counters of one limit, in a memory store of their own.
#[derive(Debug)]
pub struct Counters {
    form: Form,
    limit: Limit,
    store: MemoryStore,
    /// Visitors so far.
    visitors: u64,
    /// When the next visit may begin.
    free_at: u64,
}

impl Counters {
    /// No counters yet, of a limit of `quota` hits in `window`; None where `form` has no such limit.
    ///
    /// # Panics
    /// If the system does not give the memory for the store.
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

    /// Asks the counter of `client` for `hits`; 0 only looks. No counter is asked of a time before the latest.
    ///
    /// # Panics
    /// If the store has no room for another counter: then nothing would be measured.
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

    /// A new counter, and a time for it that is a multiple of the window since the epoch, when all earlier visits are
    /// long over.
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

    /// Bytes of all states that do not fit in line.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.store.stats().heap_bytes
    }

    /// The form of the limit.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// The limit itself.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }
}

/// One caller's stay at a counter of its own. Times are microseconds since it began.
#[derive(Debug)]
pub struct Visit<'a> {
    counters: &'a mut Counters,
    client: u64,
    start: u64,
    now: u64,
    ledger: Ledger,
}

impl Visit<'_> {
    /// Asks for `hits`, 1 or more, and enters the answer. An earlier time than that of the last ask counts as that.
    pub fn ask(&mut self, at: u64, hits: u64) -> Outcome {
        self.now = self.now.max(at);
        let now = Timestamp::from_micros(self.start + self.now);
        let outcome = self.counters.ask(self.client, now, hits);
        self.ledger.enter(now, hits, outcome.fits());
        outcome
    }

    /// How many hits would pass.
    pub fn room(&mut self, at: u64) -> u64 {
        self.now = self.now.max(at);
        let now = Timestamp::from_micros(self.start + self.now);
        self.counters.ask(self.client, now, 0).remaining
    }

    /// The time of the last ask.
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

    /// Ends the visit: what came of it.
    #[must_use]
    pub fn end(self) -> Tally {
        let window = self.counters.limit.window().get();
        self.counters.free_at = self.start + self.now + 3 * window;
        *self.ledger.tally()
    }
}
