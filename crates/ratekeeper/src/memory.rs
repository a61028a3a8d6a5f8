//! Counters in this process.

use std::cmp::Reverse;
use std::future::{Ready, ready};
use std::time::Duration;

use ratekeeper_core::{Limit, Micros, Mode, Outcome, Verdict};
use ratekeeper_store::memory::{MemoryConfig, MemoryError, MemoryStore};
use ratekeeper_store::{CounterKey, FullMode, HashKey, Request, Step, StepOutcome, Verdicts};
use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

use crate::Checked;
use crate::clock::Clock;
use crate::counters::{Counters, Question, sealed::Sealed};

/// The wait that is told while there is no room for a counter.
const NO_ROOM_RETRY: Micros = Micros::from_secs(1);

/// Counters in this process: the default. A check takes no round trip, and allocates nothing.
///
/// ```
/// use ratekeeper::{InMemory, Limit, RateLimiter};
///
/// let limiter: RateLimiter<InMemory> = RateLimiter::keyed(Limit::per_second(5))?;
/// assert!(limiter.check("ada").allowed);
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Debug)]
pub struct InMemory {
    store: MemoryStore,
    limits: Box<[Counter]>,
    clock: Clock,
    hash_key: HashKey,
}

/// A limit, and the number by which its counter differs from those of the same key's other limits.
#[derive(Debug)]
struct Counter {
    limit: Limit,
    salt: u64,
}

impl InMemory {
    pub(crate) fn new(
        limits: &[Limit],
        memory_limit: usize,
        clock: Clock,
    ) -> Result<Self, MemoryError> {
        let hash_key = HashKey::random();
        let counters = (0_u64..).zip(limits).map(|(number, limit)| Counter {
            limit: *limit,
            salt: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        });
        let config = MemoryConfig {
            memory_limit,
            // All counters are of one rule.
            max_share_percent: 100,
        };
        Ok(Self {
            store: MemoryStore::new(config)?,
            limits: counters.collect(),
            clock,
            hash_key,
        })
    }

    pub(crate) fn decide(&self, key: &str, question: Question) -> Checked {
        let name = name(self.hash_key, key);
        let step = |counter: &Counter| {
            let key = CounterKey {
                identity: name.identity ^ counter.salt,
                ..name
            };
            let mut step = Step::new(key, counter.limit);
            step.hits = question.hits();
            step.full_mode = FullMode::Allow;
            step
        };
        let steps: SmallVec<[Step; 2]> = self.limits.iter().map(step).collect();
        let request = Request::new(&steps, Mode::default(), self.clock.now());
        read(&steps, &self.store.decide_now(&request), question)
    }
}

impl Sealed for InMemory {}

impl Counters for InMemory {
    const IS_SHARED: bool = false;

    type Answer = Ready<Checked>;

    fn ask(&self, key: &str, question: Question) -> Ready<Checked> {
        ready(self.decide(key, question))
    }
}

/// The name of the counters of `key`: two halves of a keyed hash.
pub(crate) fn name(hash_key: HashKey, key: &str) -> CounterKey {
    let hash = SipHasher13::new_with_key(&hash_key.to_bytes()).hash_128(key);
    CounterKey {
        subject: hash.h1,
        identity: hash.h2,
    }
}

trait Hash128 {
    fn hash_128(self, text: &str) -> siphasher::sip128::Hash128;
}

impl Hash128 for SipHasher13 {
    fn hash_128(mut self, text: &str) -> siphasher::sip128::Hash128 {
        std::hash::Hasher::write(&mut self, text.as_bytes());
        self.finish128()
    }
}

/// The answer of the most restrictive limit.
fn read(steps: &[Step], verdicts: &Verdicts, question: Question) -> Checked {
    let answers = steps.iter().zip(&verdicts.outcomes).enumerate();
    let answers = answers.map(|(index, (step, outcome))| {
        let told = tell(step, *outcome, verdicts.allowed, question);
        let rank = match told.verdict {
            Verdict::Never => (0, 0, Reverse(Micros::MAX)),
            Verdict::Later => (1, 0, Reverse(told.retry_after)),
            Verdict::Fits => (2, told.remaining, Reverse(told.reset_after)),
        };
        (rank, index, told)
    });
    // A limiter has at least one limit.
    let Some((_, index, told)) = answers.min_by_key(|(rank, index, _)| (*rank, *index)) else {
        return Checked::unlimited();
    };
    let degraded = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Full(_));
    Checked {
        allowed: verdicts.allowed && told.verdict == Verdict::Fits,
        limit: steps[index].limit.ceiling(),
        remaining: told.remaining,
        reset_after: told.reset_after.into(),
        full_after: told.full_after.into(),
        retry_after: (told.verdict == Verdict::Later).then(|| told.retry_after.into()),
        index,
        degraded: verdicts.outcomes.iter().any(degraded),
    }
}

/// The answer of one limit, as part of a request that was `allowed` or not.
fn tell(step: &Step, outcome: StepOutcome, allowed: bool, question: Question) -> Outcome {
    let capacity = step.limit.capacity();
    let mut told = match outcome {
        StepOutcome::Counted(told) | StepOutcome::OnThisNode(told) | StepOutcome::Leased(told) => {
            told
        }
        StepOutcome::Full(_) | StepOutcome::Unanswered(_) => {
            return no_room(capacity, outcome.fits());
        }
    };
    if !allowed && told.fits() {
        // A denied request took nothing, so hits that would have fitted remain.
        let kept = u64::try_from(step.hits).unwrap_or(0);
        told.remaining = told.remaining.saturating_add(kept).min(capacity);
        if told.remaining == capacity {
            (told.reset_after, told.full_after) = (Micros::ZERO, Micros::ZERO);
        }
    }
    if question == Question::Look && told.fits() {
        // A look always fits, and says when one hit would.
        told.verdict = match told.retry_after {
            Micros::ZERO => Verdict::Fits,
            Micros::MAX => Verdict::Never,
            _ => Verdict::Later,
        };
    }
    told
}

fn no_room(capacity: u64, fits: bool) -> Outcome {
    let (verdict, remaining, wait) = match fits {
        true => (Verdict::Fits, capacity, Micros::ZERO),
        false => (Verdict::Later, 0, NO_ROOM_RETRY),
    };
    Outcome {
        verdict,
        remaining,
        reset_after: wait,
        full_after: wait,
        retry_after: wait,
        delay: Micros::ZERO,
        cut: 0,
    }
}

impl Checked {
    /// The answer where nothing is limited.
    pub(crate) const fn unlimited() -> Self {
        Self {
            allowed: true,
            limit: u64::MAX,
            remaining: u64::MAX,
            reset_after: Duration::ZERO,
            full_after: Duration::ZERO,
            retry_after: None,
            index: 0,
            degraded: false,
        }
    }
}
