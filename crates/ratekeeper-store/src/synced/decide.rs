//! Decisions by synced counters, in memory.

use parking_lot::MutexGuard;
use ratekeeper_core::synced::SyncedCounter;
use ratekeeper_core::{Ask, Micros, Moment, Timestamp, combine};
use smallvec::SmallVec;

use super::table::{Entry, Phase, Shard};
use super::{PARTS, SyncedCounters};
use crate::{Charge, CounterKey, Execution, Request, Step, StepOutcome, Verdicts};

/// An answer, and what its caller has to do.
#[derive(Debug)]
pub struct SyncedVerdicts {
    /// The answer.
    pub verdicts: Verdicts,
    /// True if a counter has become due before all others: whoever waits for the next turn has to be woken.
    pub wakes: bool,
}

/// The test of one step.
#[derive(Debug)]
struct Tested {
    outcome: StepOutcome,
    at: Moment,
    /// Hits that this step and those before it take from its counter.
    taken: u64,
}

impl SyncedCounters {
    /// Decides `request`, whose steps are all synced, at `now` of the boot clock. The request's own time counts until the
    /// store has told its own.
    pub fn decide(&self, request: &Request<'_>, now: Micros) -> SyncedVerdicts {
        let ahead = self
            .known_ahead()
            .unwrap_or_else(|| self.guess_ahead(request.now, now));
        match request.steps {
            [step] if request.extra.is_none() => self.decide_one(step, request, ahead, now),
            _ => self.decide_all(request, ahead, now),
        }
    }

    fn decide_one(
        &self,
        step: &Step,
        request: &Request<'_>,
        ahead: i64,
        now: Micros,
    ) -> SyncedVerdicts {
        let part = &mut *self.part(step.key).lock();
        // One look-up, where the counter is there, as nearly all are.
        let (tested, allowed, wakes) = match part.entries.get_mut(&step.key) {
            Some(entry) => {
                let tested = test_known(entry, step, 0, ahead, now);
                let allowed = step.decides_alone(tested.outcome.fits(), request.mode);
                let hits = tested.charged(step, allowed);
                let (dropped, wakes) = hits.map_or((0, false), |hits| {
                    self.charge_known(entry, step, &tested, hits, now)
                });
                part.counts.dropped += dropped;
                (tested, allowed, wakes)
            }
            None => {
                let tested = test_new(part, step, (0, 0), ahead, now);
                let allowed = step.decides_alone(tested.outcome.fits(), request.mode);
                let wakes = self.charge(part, step, &tested, allowed, ahead, now);
                (tested, allowed, wakes)
            }
        };
        SyncedVerdicts {
            verdicts: Verdicts::one(allowed, tested.outcome, tested.at.now),
            wakes,
        }
    }

    /// Decides any number of steps. The locks are taken in ascending order, so that requests never deadlock.
    #[inline(never)]
    fn decide_all(&self, request: &Request<'_>, ahead: i64, now: Micros) -> SyncedVerdicts {
        let mut locked = Locked::new(self, request.steps);
        let taken_at = request.extra.and_then(|extra| extra.taken_at);
        let mut steps: SmallVec<[Step; 4]> = SmallVec::from_slice(request.steps);
        let mut tests: SmallVec<[Tested; 4]> = SmallVec::new();
        for index in 0..steps.len() {
            let part = locked.part(&steps[index]);
            if let Some(taken_at) = taken_at {
                let at = moment(part, &steps[index], ahead, now);
                steps[index] = steps[index].as_of(taken_at, at.now);
            }
            let step = &steps[index];
            let before = steps[..index].iter().rposition(|it| it.key == step.key);
            let taken = before.map_or(0, |before| tests[before].taken);
            let mut tested = match part.entries.get(&step.key) {
                Some(entry) => test_known(entry, step, taken, ahead, now),
                None => {
                    let promised = windows_promised(part, &steps[..index], &tests, step.key);
                    test_new(part, step, (taken, promised), ahead, now)
                }
            };
            let takes = tested.outcome.fits() || step.charge == Charge::Always;
            if takes && matches!(tested.outcome, StepOutcome::Counted(_)) {
                tested.taken = taken.saturating_add(u64::try_from(step.hits).unwrap_or(0));
            }
            tests.push(tested);
        }
        let votes = steps.iter().zip(&tests);
        let votes = votes.map(|(step, tested)| step.vote(tested.outcome.fits()));
        let allowed = combine(votes, request.mode);
        let mut wakes = false;
        for (step, tested) in steps.iter().zip(&tests) {
            wakes |= self.charge(locked.part(step), step, tested, allowed, ahead, now);
        }
        let times = tests.iter().map(|tested| tested.at.now);
        SyncedVerdicts {
            verdicts: Verdicts {
                allowed,
                outcomes: tests.iter().map(|tested| tested.outcome).collect(),
                at: times.min().unwrap_or(request.now),
                execution: Execution::Now,
            },
            wakes,
        }
    }

    /// Charges a tested step, and puts its counter in line. Returns true if it is due before all others.
    fn charge(
        &self,
        part: &mut Shard,
        step: &Step,
        tested: &Tested,
        allowed: bool,
        ahead: i64,
        now: Micros,
    ) -> bool {
        let Some(hits) = tested.charged(step, allowed) else {
            return false;
        };
        if !part.entries.contains_key(&step.key) {
            // What a counter without hits denies, none admits: the store need not be asked.
            let is_made = hits != 0 || step.limit.is_post_paid();
            if !is_made || !part.make(step, ahead, now) {
                return false;
            }
        }
        let Some(entry) = part.entries.get_mut(&step.key) else {
            return false;
        };
        let (dropped, wakes) = self.charge_known(entry, step, tested, hits, now);
        part.counts.dropped += dropped;
        wakes
    }

    /// Charges a counter that is there. Returns the hits whose window was over, and true if it is due before all others.
    #[inline]
    fn charge_known(
        &self,
        entry: &mut Entry,
        step: &Step,
        tested: &Tested,
        hits: i64,
        now: Micros,
    ) -> (u64, bool) {
        entry.interval = step.sync;
        entry.calendar = step.calendar;
        let dropped = match hits != 0 || !tested.outcome.fits() {
            true => entry.counter.charge(&step.limit, hits, &tested.at),
            false => 0,
        };
        (dropped, self.ask(entry, step, now))
    }

    /// Records that the counter was asked for. One that was asleep is due at once.
    #[inline]
    fn ask(&self, entry: &mut Entry, step: &Step, now: Micros) -> bool {
        entry.is_asked = true;
        if entry.phase != Phase::Asleep {
            return false;
        }
        entry.phase = Phase::Waiting;
        self.line_up(now, step.key)
    }
}

impl Tested {
    /// The hits that the step charges; [`None`] if its counter has nothing to do with the answer: the store is not asked for
    /// it then, nor is it made.
    #[inline]
    fn charged(&self, step: &Step, allowed: bool) -> Option<i64> {
        let is_post_paid = step.limit.is_post_paid();
        // Whoever asks a budget only looks: other nodes may be the ones that charge it.
        let is_asked = step.hits != 0 || is_post_paid;
        if !matches!(self.outcome, StepOutcome::Counted(_)) || !is_asked {
            return None;
        }
        let fits = self.outcome.fits();
        let hits = step.charged(fits && allowed);
        // Not so where another limit denies the request.
        let is_concerned = hits != 0 || !fits || (allowed && is_post_paid);
        is_concerned.then_some(hits)
    }
}

/// The time of the step's counter.
fn moment(part: &Shard, step: &Step, ahead: i64, now: Micros) -> Moment {
    let entry = part.entries.get(&step.key);
    let ahead = entry.and_then(|entry| entry.ahead).unwrap_or(ahead);
    moment_of(step, ahead, now)
}

fn moment_of(step: &Step, ahead: i64, now: Micros) -> Moment {
    Moment {
        now: Timestamp::from_micros(now.get().saturating_add_signed(ahead)),
        calendar: step.calendar,
    }
}

/// Tests a step whose counter is there, before which `taken` hits were taken from it.
#[inline]
fn test_known(entry: &Entry, step: &Step, taken: u64, ahead: i64, now: Micros) -> Tested {
    let at = moment_of(step, entry.ahead.unwrap_or(ahead), now);
    let outcome = entry.counter.test(&step.limit, ask(step, taken), &at);
    Tested {
        outcome: StepOutcome::Counted(outcome),
        at,
        taken,
    }
}

/// Tests a step whose counter is made when it is charged, if there is room for it beside `promised` windows.
fn test_new(
    part: &mut Shard,
    step: &Step,
    (taken, promised): (u64, usize),
    ahead: i64,
    now: Micros,
) -> Tested {
    let at = moment_of(step, ahead, now);
    // A look makes no counter.
    let outcome = match step.hits == 0 || part.has_room(step, promised, ahead, now) {
        true => {
            let fresh = SyncedCounter::new();
            StepOutcome::Counted(fresh.test(&step.limit, ask(step, taken), &at))
        }
        false => StepOutcome::Full(step.full_mode),
    };
    Tested { outcome, at, taken }
}

/// The (sub-)windows of the counters other than `key` that `steps` make in `part` when they are charged. Each was tested when
/// there was room for it, and has to find that still.
fn windows_promised(part: &Shard, steps: &[Step], tests: &[Tested], key: CounterKey) -> usize {
    let place = SyncedCounters::part_of(key);
    let makes_one = |(step, tested): &(&Step, &Tested)| {
        matches!(tested.outcome, StepOutcome::Counted(_))
            && (step.hits != 0 || step.limit.is_post_paid())
            && step.key != key
            && SyncedCounters::part_of(step.key) == place
            && !part.entries.contains_key(&step.key)
    };
    // Several steps may have a counter in common, which the first of those that make one makes.
    let mut made: SmallVec<[CounterKey; 4]> = SmallVec::new();
    let mut windows = 0;
    for (step, _) in steps.iter().zip(tests).filter(makes_one) {
        if !made.contains(&step.key) {
            made.push(step.key);
            windows += SyncedCounter::parts_of(&step.limit);
        }
    }
    windows
}

const fn ask(step: &Step, taken: u64) -> Ask {
    Ask {
        taken,
        hits: step.hits,
    }
}

/// The parts of one request, locked.
struct Locked<'a> {
    /// One bit for each part that is locked.
    mask: u64,
    /// In ascending order.
    guards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
}

impl<'a> Locked<'a> {
    fn new(counters: &'a SyncedCounters, steps: &[Step]) -> Self {
        let mask = steps.iter().fold(0_u64, |mask, step| {
            mask | 1 << SyncedCounters::part_of(step.key)
        });
        let ascending = (0..PARTS).filter(|index| mask >> index & 1 == 1);
        Self {
            mask,
            guards: ascending
                .map(|index| counters.parts[index].lock())
                .collect(),
        }
    }

    fn part(&mut self, step: &Step) -> &mut Shard {
        let before = self.mask & ((1 << SyncedCounters::part_of(step.key)) - 1);
        &mut self.guards[before.count_ones() as usize]
    }
}
