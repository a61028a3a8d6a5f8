//! The generation of a region: the span in which its servers' clocks only went forward, as far as nodes can tell.
//!
//! A region that holds hits of another one for a time takes the end of that time from its server's clock. A step back would
//! put it off, while the lender waits no longer. So what is held counts in one generation only, and a new one begins when
//! the clock goes back by more than nodes tolerate, or when no node was there to see whether it did.
//!
//! Each node asks for the generation once a second, and tells how far it has seen the clock go back: as a part of the time
//! by its own boot clock, so that many small steps are one large step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use redis::Cmd;

/// A step back that is tolerated: a quarter of the shortest margin of a loan.
const TOLERATED_US: u64 = 250_000;

/// The most by which a clock may run slow without a step, in parts in a million.
const SLOW_PPM: u64 = 1_000;

/// This node's knowledge of the generation.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    is_asked: AtomicBool,
    known: AtomicU64,
    clock: Mutex<Clock>,
}

/// The server's clock, against this node's boot clock.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The server's time, and that of the boot clock, when the former was furthest ahead of what it has to be.
    ahead: Option<(u64, u64)>,
    /// Steps back of any server's clock that answers to decisions have told.
    steps: u64,
    /// True if a step back was seen that Redis does not know of yet.
    went_back: bool,
}

impl Generation {
    /// Asks for it from now on.
    pub(crate) fn join(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// The generation; 0 while it is not known.
    pub(crate) fn get(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// The key that keeps it.
    pub(crate) fn key(prefix: &str) -> String {
        format!("{prefix}region-gen")
    }

    /// The command that asks for it; [`None`] if nobody needs it.
    pub(crate) fn ask(&self, key: &str) -> Option<Cmd> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return None;
        }
        let is_first = self.get() == 0;
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("script/generation.lua"));
        command.arg(1).arg(key).arg(u8::from(is_first));
        command.arg(u8::from(self.clock.lock().went_back));
        command.arg(TOLERATED_US);
        Some(command)
    }

    /// Takes in how many steps back of any server's clock were seen: a counter's own server may be another one.
    pub(crate) fn saw_steps(&self, steps: u64) {
        let mut clock = self.clock.lock();
        if steps > clock.steps {
            clock.went_back = true;
            self.known.store(0, Ordering::Relaxed);
        }
        clock.steps = steps;
    }

    /// Takes in an answer: the generation, and the server's time, which was `told` between `sent` and `now` by the boot clock.
    pub(crate) fn observe(&self, generation: u64, told: u64, (sent, now): (Micros, Micros)) {
        let mut clock = self.clock.lock();
        // What was asked for is done.
        clock.went_back = false;
        if clock.goes_back(told, (sent.get(), now.get())) {
            clock.went_back = true;
            // Nothing that is held counts until a new generation is known.
            return self.known.store(0, Ordering::Relaxed);
        }
        self.known.store(generation, Ordering::Relaxed);
    }
}

impl Clock {
    /// Returns true if the server's clock is behind what it was, for the time that has passed since: at least until the
    /// question was `sent`, as its answer may be read much later than the clock was.
    fn goes_back(&mut self, told: u64, (sent, now): (u64, u64)) -> bool {
        let Some((ahead, at)) = self.ahead else {
            self.ahead = Some((told, now));
            return false;
        };
        let least = |then: u64| {
            let span = then.saturating_sub(at);
            ahead.saturating_add(span - span / (1_000_000 / SLOW_PPM))
        };
        if told >= least(now) {
            self.ahead = Some((told, now));
            return false;
        }
        let went_back = least(sent).saturating_sub(told) > TOLERATED_US;
        if went_back {
            self.ahead = Some((told, now));
        }
        went_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// A clock that was seen at these times, asked for and read so much later.
    fn seen_late(times: &[(u64, (u64, u64))]) -> Vec<bool> {
        let mut clock = Clock::default();
        let seen = times.iter();
        seen.map(|(told, at)| clock.goes_back(*told, *at)).collect()
    }

    /// The same for answers that are read at once.
    fn seen(times: &[(u64, u64)]) -> Vec<bool> {
        let at_once = times.iter().map(|(told, now)| (*told, (*now, *now)));
        seen_late(&at_once.collect::<Vec<_>>())
    }

    #[test]
    fn steps_back_are_seen_large_ones_and_many_small_ones() {
        let base = 1_000 * SECOND;
        assert_eq!(
            seen(&[(base, 0), (base + SECOND, SECOND), (base, 2 * SECOND)]),
            [false, false, true]
        );
        // A tenth of a second each second.
        let times: Vec<_> = (0..5)
            .map(|at| (base + at * SECOND * 9 / 10, at * SECOND))
            .collect();
        assert_eq!(seen(&times), [false, false, false, true, false]);
    }

    #[test]
    fn a_slow_clock_and_an_answer_that_is_read_late_are_no_steps() {
        let base = 1_000 * SECOND;
        let slow: Vec<_> = (0..1_000)
            .map(|at| (base + at * (SECOND - 500), at * SECOND))
            .collect();
        assert!(seen(&slow).iter().all(|went_back| !went_back));
        assert_eq!(
            seen(&[
                (base, 0),
                (base + 2 * SECOND, SECOND),
                (base + 3 * SECOND, 2 * SECOND)
            ]),
            [false; 3]
        );
    }

    #[test]
    fn an_answer_that_is_read_late_hides_no_step_and_is_none() {
        let base = 1_000 * SECOND;
        let half = SECOND / 2;
        let first = (base, (0, 0));
        let late = (base + SECOND, (SECOND, SECOND + half));
        assert_eq!(seen_late(&[first, late]), [false; 2]);
        let next = (base + 2 * SECOND, (2 * SECOND, 2 * SECOND));
        assert_eq!(seen_late(&[first, late, next]), [false; 3]);
        // By three tenths of a second.
        let stepped = |at| (base + at * SECOND - 300_000, (at * SECOND, at * SECOND));
        assert_eq!(seen_late(&[first, stepped(1)]), [false, true]);
        assert_eq!(seen_late(&[first, late, stepped(2)]), [false, false, true]);
    }

    #[test]
    fn a_step_back_ends_the_generation_until_a_new_one_is_known() {
        let at = |second| (Micros::from_secs(second), Micros::from_secs(second));
        let generation = Generation::default();
        assert!(generation.ask("k").is_none());
        generation.join();
        assert!(generation.ask("k").is_some());
        generation.observe(7, 1_000 * SECOND, at(1));
        assert_eq!(generation.get(), 7);
        generation.observe(7, 900 * SECOND, at(2));
        assert_eq!(generation.get(), 0);
        generation.observe(9, 901 * SECOND, at(3));
        assert_eq!(generation.get(), 9);
        // Of another server of the same store.
        generation.saw_steps(1);
        assert_eq!(generation.get(), 0);
        generation.observe(11, 902 * SECOND, at(4));
        generation.saw_steps(1);
        assert_eq!(generation.get(), 11);
    }
}
