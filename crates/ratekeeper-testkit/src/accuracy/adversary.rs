//! A caller that searches for the request pattern that gets the most through.

use std::fmt;

use ratekeeper_core::{Micros, Verdict};

use super::Counters;
use crate::random::Random;

/// An action of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// Requests all remaining hits at once.
    All,
    /// Requests this many hits at once.
    Hits(u64),
    /// Requests this many hits repeatedly, after a denial at `retry_after`, until the next move, or
    /// for a window if there is none.
    Poll(u64),
}

/// A timed action of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Time in microseconds since an edge of the window.
    pub at: u64,
    /// The action.
    pub take: Take,
}

/// A schedule, and the hits that it got through in the worst window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The most hits in a window.
    pub worst: u64,
    /// The moves, in order of time.
    pub moves: Vec<Move>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Move { at, take }) in self.moves.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}at {}.{:06} s ", at / 1_000_000, at % 1_000_000)?;
            match take {
                Take::All => write!(f, "all there is")?,
                Take::Hits(hits) => write!(f, "{hits} at once")?,
                Take::Poll(hits) => write!(f, "polling for {hits}")?,
            }
        }
        Ok(())
    }
}

/// A hill-climbing search over schedules: it keeps a pool of the best found, changes one of them at
/// a time, and keeps the change if it is no worse.
///
/// Times change in ways that have broken windows before: to just before, at and just after an edge
/// of some form's time step, or to about a window after an earlier move.
#[derive(Debug)]
pub struct Adversary<'a> {
    counters: &'a mut Counters,
    random: Random,
    /// The time steps of the forms.
    steps: Vec<u64>,
    pool: Vec<Found>,
}

impl<'a> Adversary<'a> {
    /// Schedules in the pool.
    const POOL: usize = 12;
    /// The most moves in a schedule.
    const MOVES: usize = 8;
    /// The most windows that a schedule spans.
    const WINDOWS: u64 = 4;
    /// The most requests of one [`Take::Poll`].
    const POLLS: u32 = 400;

    /// An adversary of the limit of `counters`.
    #[must_use]
    pub fn new(counters: &'a mut Counters, seed: u64) -> Self {
        let limit = *counters.limit();
        let window = limit.window().get();
        let tick = counters.form().tick(limit.quota(), limit.window()).get();
        let mut steps: Vec<u64> = [1, 12, 60].map(|parts| (window / parts).max(1)).to_vec();
        steps.push(tick.max(1));
        Self {
            counters,
            random: Random::new(seed ^ limit.quota().rotate_left(40)),
            steps,
            pool: Vec::new(),
        }
    }

    /// Tries this many schedules, and returns the worst.
    #[must_use]
    pub fn search(mut self, tries: u32) -> Found {
        for moves in self.first_tries() {
            self.try_out(moves);
        }
        for _ in 0..tries {
            let base = self.random.below(self.pool.len() as u64);
            let mut moves = self.pool[index(base)].moves.clone();
            for _ in 0..self.random.within(1, 3) {
                self.change(&mut moves);
            }
            moves.sort_by_key(|one| one.at);
            self.try_out(moves);
        }
        let best = self.pool.iter().max_by_key(|found| found.worst).cloned();
        self.without_idle_moves(best.expect("the first tries are in the pool"))
    }

    /// Removes the moves that the worst window does not need.
    fn without_idle_moves(&mut self, mut found: Found) -> Found {
        for number in (0..found.moves.len()).rev() {
            let mut fewer = found.moves.clone();
            fewer.remove(number);
            if self.play(&fewer) >= found.worst {
                found.moves = fewer;
            }
        }
        found
    }

    /// Schedules of two moves each, from which to start climbing.
    fn first_tries(&mut self) -> Vec<Vec<Move>> {
        let any = |adversary: &mut Self| {
            let mut moves = vec![adversary.any_move(&[]), adversary.any_move(&[])];
            moves.sort_by_key(|one| one.at);
            moves
        };
        (0..Self::POOL).map(|_| any(self)).collect()
    }

    /// Plays a schedule and keeps it if it is no worse than the best kept.
    fn try_out(&mut self, moves: Vec<Move>) {
        let worst = self.play(&moves);
        let found = Found { worst, moves };
        if self.pool.len() < Self::POOL {
            self.pool.push(found);
            return;
        }
        let least = self.pool.iter_mut().min_by_key(|kept| kept.worst);
        if let Some(least) = least.filter(|kept| kept.worst <= worst) {
            *least = found;
        }
    }

    /// Returns the hits that pass in the worst window.
    fn play(&mut self, moves: &[Move]) -> u64 {
        let mut visit = self.counters.visit();
        for (number, one) in moves.iter().enumerate() {
            match one.take {
                Take::All => {
                    let room = visit.room(one.at);
                    if room > 0 {
                        visit.ask(one.at, room);
                    }
                }
                Take::Hits(hits) => {
                    visit.ask(one.at, hits);
                }
                Take::Poll(hits) => {
                    let next = moves.get(number + 1).map(|next| next.at);
                    let until = next.unwrap_or(one.at + visit.window());
                    let mut now = one.at.max(visit.now());
                    for _ in 0..Self::POLLS {
                        if now >= until {
                            break;
                        }
                        let outcome = visit.ask(now, hits);
                        if outcome.verdict != Verdict::Fits {
                            now += outcome.retry_after.max(Micros::new(1)).get();
                        }
                    }
                }
            }
        }
        visit.end().worst
    }

    fn change(&mut self, moves: &mut Vec<Move>) {
        let chosen = index(self.random.below(moves.len() as u64));
        match self.random.below(8) {
            0 | 1 if moves.len() < Self::MOVES => {
                let new = self.any_move(moves);
                moves.push(new);
            }
            2 if moves.len() > 1 => {
                moves.remove(chosen);
            }
            3 | 4 => {
                let take = self.any_take();
                moves[chosen].take = take;
            }
            5 => {
                // All later moves shift along.
                let shift = self.random.within(0, 2 * self.steps[0] / 3);
                let back = self.random.below(2) == 0;
                for one in &mut moves[chosen..] {
                    let moved = if back {
                        one.at.saturating_sub(shift)
                    } else {
                        one.at + shift
                    };
                    one.at = moved.min(self.span());
                }
            }
            _ => {
                let at = self.any_time(moves);
                moves[chosen].at = at;
            }
        }
    }

    fn any_move(&mut self, others: &[Move]) -> Move {
        Move {
            at: self.any_time(others),
            take: self.any_take(),
        }
    }

    fn any_take(&mut self) -> Take {
        let quota = self.counters.limit().quota().max(1);
        let group = quota.div_ceil(15);
        match self.random.below(8) {
            0..=2 => Take::All,
            3 => Take::Hits(self.random.within(1, quota)),
            4 => {
                let hits = [1, group, group.saturating_sub(1).max(1), quota - quota / 15];
                Take::Hits(self.random.pick(&hits))
            }
            // Large enough that a poll does not end before it has taken the whole limit.
            5 => Take::Poll(self.random.within(1, quota).max(quota / 300)),
            _ => Take::Poll(self.random.pick(&[1, quota / 100, group]).max(quota / 300)),
        }
    }

    fn any_time(&mut self, others: &[Move]) -> u64 {
        let step = self.random.pick(&self.steps);
        let nudge = self
            .random
            .pick(&[0, 1, 1, 2, step / 50, step / 15, step / 4]);
        let target = match self.random.below(4) {
            0 => return self.random.below(self.span()),
            // Near an edge of a step.
            1 | 2 => step * self.random.within(1, (self.span() / step).max(1)),
            // About a window after another move, plus a few ticks.
            _ => {
                let of = self.random.below(others.len().max(1) as u64);
                let other = others.get(index(of)).map_or(0, |one| one.at);
                other + self.steps[0] + step * self.random.below(3)
            }
        };
        let time = if self.random.below(3) < 2 {
            target.saturating_sub(nudge)
        } else {
            target + nudge
        };
        time.min(self.span())
    }

    fn span(&self) -> u64 {
        Self::WINDOWS * self.steps[0]
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
