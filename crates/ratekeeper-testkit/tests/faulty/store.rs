//! The memory store with one fault, and with what shared stores do besides.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Moment, Timestamp};
use ratekeeper_store::{
    Answer, Charge, CounterKey, MemoryConfig, MemoryStore, PermitAct, Post, Request, Step,
    StepOutcome, Store, StoreError, Verdicts,
};
use ratekeeper_testkit::conformance::lives::Life;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// A counter starts anew when half of the time is over in which it counts.
    ForgetsAtHalf,
    /// No counter lasts for more than a day.
    ForgetsADayLater,
    /// A counter is another one under another quota.
    CountsByQuota,
    IgnoresStrict,
    IgnoresMaxDebt,
    IgnoresDelayMax,
    /// A counter of permits ends a timeout after the last act.
    EndsWithTheLastTimeout,
    NoLife,
    HalfALife,
    TakesNoPosts,
    LosesPosts,
    RepeatsPosts,
    /// A post that does not fit is not charged at all.
    PostsAllOrNothing,
    /// Posts of what was used already are charged as far as there is room.
    CutsPosts,
    IgnoresAge,
    ReturnsNothing,
    ReturnsTwice,
    ReturnsTheUnanswered,
    /// Charges that are made in any case are given back.
    ReturnsCharges,
    FreesStranded,
    ChargesStranded,
    LateIsNotCarriedOut,
    LateIsCarriedOutTwice,
    LateTimesOutAgain,
    LateIsNotTold,
    LateIsLost,
}

/// A store with a fault; clones are the same store.
#[derive(Clone)]
pub(crate) struct Faulty {
    fault: Fault,
    store: Arc<MemoryStore>,
    seen: Arc<Mutex<Seen>>,
    gate: Arc<Mutex<Gate>>,
}

#[derive(Default)]
struct Seen {
    now: Timestamp,
    /// The times at which counters end, and how often they have started anew.
    ends: HashMap<CounterKey, (Timestamp, u64)>,
    posts: HashSet<u128>,
}

/// Holds answers back while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: bool,
    waiting: Vec<Waker>,
}

impl Faulty {
    pub(crate) fn new(fault: Fault) -> Self {
        let config = MemoryConfig {
            memory_limit: 64 << 20,
            ..MemoryConfig::default()
        };
        Self {
            fault,
            store: Arc::new(MemoryStore::new(config).expect("a small store")),
            seen: Arc::default(),
            gate: Arc::default(),
        }
    }

    /// Holds answers back from now on, or no longer.
    pub(crate) fn hold(&self, holds: bool) {
        let mut gate = self.gate.lock();
        gate.is_shut = holds;
        gate.waiting.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn life(&self, step: &Step) -> Life {
        let seen = self.seen.lock();
        match (seen.ends.get(&step.key), self.fault) {
            (None, _) => Life::Gone,
            (Some(_), Fault::NoLife) => Life::Endless,
            (Some((end, _)), _) => Life::For(end.since(seen.now)),
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The limit, without what the fault ignores.
    fn limit(&self, limit: Limit) -> Limit {
        let plain = LimitSpec::new(limit.algorithm(), limit.quota(), limit.window());
        let other = match self.fault {
            Fault::IgnoresStrict if limit.is_strict() => Limit::try_new(plain),
            Fault::IgnoresMaxDebt if limit.max_debt().is_some() => Limit::try_new(LimitSpec {
                post_paid: true,
                ..plain
            }),
            Fault::IgnoresDelayMax => Ok(limit.with_delay_max(Micros::MAX)),
            _ => Ok(limit),
        };
        other.expect("a valid limit")
    }

    /// The step as the fault has it.
    fn step(&self, step: &Step, now: Timestamp) -> Step {
        let mut step = Step {
            limit: self.limit(step.limit),
            ..*step
        };
        if self.is(Fault::CountsByQuota) {
            step.key.identity ^= step.limit.quota() << 32;
        }
        if let Some((end, turn)) = self.seen.lock().ends.get_mut(&step.key) {
            *turn += u64::from(self.forgets() && *end <= now);
            step.key.identity ^= *turn << 48;
        }
        step
    }

    const fn forgets(&self) -> bool {
        matches!(
            self.fault,
            Fault::ForgetsAtHalf | Fault::ForgetsADayLater | Fault::EndsWithTheLastTimeout
        )
    }

    /// Notes the end of a counter that was charged, or whose permits were.
    fn note(&self, request: &Request<'_>, verdicts: &Verdicts) {
        let act = request.extra.and_then(|it| it.permit).map(|it| it.act);
        let mut seen = self.seen.lock();
        for (step, outcome) in request.steps.iter().zip(&verdicts.outcomes) {
            let StepOutcome::Counted(outcome) = outcome else {
                continue;
            };
            let is_permit = step.limit.algorithm() == Algorithm::Concurrency;
            let acts = is_permit && matches!(act, Some(PermitAct::Acquire | PermitAct::Renew));
            if step.hits == 0 && !acts {
                continue;
            }
            let lasts = match is_permit {
                true => step.limit.window(),
                false => outcome.full_after,
            };
            let lasts = match self.fault {
                Fault::ForgetsAtHalf | Fault::HalfALife => Micros::new(lasts.get() / 2),
                Fault::ForgetsADayLater => lasts.min(Micros::from_secs(86_400)),
                _ => lasts,
            };
            let end = verdicts.at.after(lasts);
            let entry = seen.ends.entry(step.key).or_insert((end, 0));
            let keeps = is_permit && !self.is(Fault::EndsWithTheLastTimeout);
            entry.0 = if keeps { entry.0.max(end) } else { end };
        }
    }

    fn decided(&self, request: &Request<'_>) -> Verdicts {
        let now = {
            let mut seen = self.seen.lock();
            seen.now = seen.now.max(request.now);
            seen.now
        };
        let steps: Vec<Step> = request.steps.iter().map(|it| self.step(it, now)).collect();
        let asked = Request {
            steps: &steps,
            ..*request
        };
        let verdicts = self.store.decide_now(&asked);
        self.note(request, &verdicts);
        verdicts
    }

    /// Decides a step of the store's own.
    fn charge(&self, step: Step) -> Verdicts {
        let now = self.seen.lock().now;
        self.decided(&Request::new(&[step], Mode::default(), now))
    }

    fn posted(&self, post: &Post) {
        let step = post.step;
        let now = self.seen.lock().now;
        let admitted = Timestamp::from_micros(now.as_micros() - post.age.get());
        let at = Moment {
            now,
            calendar: step.calendar,
        };
        let is_repeat = !self.seen.lock().posts.insert(post.id) && !self.is(Fault::RepeatsPosts);
        let counts = self.is(Fault::IgnoresAge) || step.limit.still_counts(admitted, &at);
        if self.is(Fault::LosesPosts) || is_repeat || !counts {
            return;
        }
        let room = match self.charge(Step { hits: 0, ..step }).outcomes[0] {
            StepOutcome::Counted(outcome) => outcome.remaining.cast_signed(),
            other => panic!("{other:?}"),
        };
        let hits = match step.limit.is_post_paid() && !self.is(Fault::CutsPosts) {
            true => step.hits,
            false if self.is(Fault::PostsAllOrNothing) && step.hits > room => 0,
            false => step.hits.min(room),
        };
        self.charge(Step { hits, ..step });
    }
}

impl Store for Faulty {
    type Ticket = Held;

    fn decide(&self, request: &Request<'_>) -> Answer<Held> {
        if !self.gate.lock().is_shut {
            return Answer::Decided(self.decided(request));
        }
        let look: Vec<Step> = request
            .steps
            .iter()
            .map(|it| Step { hits: 0, ..*it })
            .collect();
        let verdicts = match self.fault {
            Fault::LateIsNotCarriedOut => self.decided(&Request {
                steps: &look,
                ..*request
            }),
            Fault::LateIsCarriedOutTwice => {
                let first = self.decided(request);
                self.decided(request);
                first
            }
            _ => self.decided(request),
        };
        let state = match self.fault {
            Fault::LateIsNotTold => HeldState::Untold,
            Fault::LateTimesOutAgain => HeldState::TimesOut,
            Fault::LateIsLost => HeldState::Lost,
            _ => HeldState::Answered(Box::new(verdicts)),
        };
        Answer::Pending(Held {
            gate: Arc::clone(&self.gate),
            is_late: false,
            state,
        })
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        let times = match self.fault {
            Fault::ReturnsNothing => 0,
            Fault::ReturnsTwice => 2,
            _ => 1,
        };
        for (step, outcome) in request.steps.iter().zip(&taken.outcomes) {
            let is_answered = outcome.is_answered() || self.is(Fault::ReturnsTheUnanswered);
            let is_taken = step.charge == Charge::IfAllowed || self.is(Fault::ReturnsCharges);
            if is_answered && is_taken && taken.allowed {
                let hits = -step.hits * times;
                self.charge(Step { hits, ..*step });
            }
        }
    }

    fn post(&self, post: &Post) -> Option<Held> {
        if self.is(Fault::TakesNoPosts) {
            return None;
        }
        self.posted(post);
        Some(Held {
            gate: Arc::default(),
            is_late: true,
            state: HeldState::Answered(Box::new(self.charge(Step {
                hits: 0,
                ..post.step
            }))),
        })
    }

    fn strand(&self, step: &Step) {
        let hits = match self.fault {
            Fault::FreesStranded => -step.hits,
            Fault::ChargesStranded => step.hits,
            _ => return,
        };
        self.charge(Step { hits, ..*step });
    }

    fn late(ticket: Held) -> Option<Held> {
        match ticket.state {
            HeldState::Untold => None,
            _ => Some(Held {
                is_late: true,
                ..ticket
            }),
        }
    }
}

enum HeldState {
    Answered(Box<Verdicts>),
    TimesOut,
    Untold,
    Lost,
}

/// An answer that is held back: it has timed out, until it is late.
pub(crate) struct Held {
    gate: Arc<Mutex<Gate>>,
    is_late: bool,
    state: HeldState,
}

impl Future for Held {
    type Output = Result<Verdicts, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_late {
            return Poll::Ready(Err(StoreError::Timeout));
        }
        let mut gate = self.gate.lock();
        if gate.is_shut {
            gate.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(match &self.state {
            HeldState::Answered(verdicts) => Ok((**verdicts).clone()),
            HeldState::TimesOut | HeldState::Untold => Err(StoreError::Timeout),
            HeldState::Lost => Err(StoreError::Lost),
        })
    }
}
