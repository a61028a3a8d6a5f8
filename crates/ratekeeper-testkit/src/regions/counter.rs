//! The counter of one region, under whatever share it has.

use ratekeeper_core::{Ask, Limit, Moment, State, StateMut, StateRef, Timestamp, Whole};

use super::plan::{Kind, RegionPlan};

/// The parts of a hit in which promises about buckets are checked.
pub(super) const HIT: u64 = 1_000_000;

/// More hits than any log counts.
const UNCOUNTED: u64 = 1 << 30;

/// A counter in a region's store.
#[derive(Clone, Debug)]
pub(super) enum Counter {
    /// The window that is counted, and its hits.
    Windows {
        length: u64,
        window: u64,
        count: u64,
    },
    /// A log or a bucket, as core counts it.
    Stepped(State),
}

impl RegionPlan {
    /// The limit as one counter for all regions would have it.
    pub(super) fn whole(&self) -> Limit {
        let spec = self.spec();
        Limit::try_new(spec).expect("a limit of small numbers is valid")
    }

    /// The limit of a region with that share.
    pub(super) fn held(&self, share: u64) -> Limit {
        let whole = self.whole();
        whole.holding(share, Whole::of(&whole))
    }
}

impl Counter {
    pub(super) fn new(plan: &RegionPlan) -> Self {
        match plan.kind {
            Kind::Windows => Self::Windows {
                length: plan.window,
                window: 0,
                count: 0,
            },
            Kind::Log | Kind::Bucket => Self::Stepped(State::new(plan.whole().shape())),
        }
    }

    /// Begins the window of `now`. Returns the window that ended, with its hits.
    pub(super) fn roll(&mut self, now: Timestamp) -> Option<(u64, u64)> {
        let Self::Windows {
            length,
            window,
            count,
        } = self
        else {
            return None;
        };
        let current = now.as_micros() / *length;
        if current <= *window {
            return None;
        }
        let ended = (*window, *count);
        (*window, *count) = (current, 0);
        Some(ended)
    }

    /// The hits that fit now, under that share.
    pub(super) fn room(&self, plan: &RegionPlan, share: u64, now: Timestamp) -> u64 {
        match self {
            Self::Windows { count, .. } => share.saturating_sub(*count),
            Self::Stepped(state) => remaining(&plan.held(share), state, now),
        }
    }

    /// Counts hits, dated `at`.
    pub(super) fn charge(&mut self, plan: &RegionPlan, share: u64, hits: u64, at: Timestamp) {
        match self {
            Self::Windows { count, .. } => *count += hits,
            Self::Stepped(State::Words(words)) => {
                let (limit, at) = (plan.held(share), Moment::at(at));
                let charged = limit.charge(StateMut::Words(words), hits.cast_signed(), &at);
                charged.expect("small numbers fit the words of a state");
            }
            Self::Stepped(State::Heap(_)) => unreachable!("the limits of worlds are small"),
        }
    }

    /// The window that is counted; 0 for other counters.
    pub(super) const fn window(&self) -> u64 {
        match self {
            Self::Windows { window, .. } => *window,
            Self::Stepped(_) => 0,
        }
    }

    /// The hits counted; 0 for a bucket.
    pub(super) fn count(&self, plan: &RegionPlan, now: Timestamp) -> u64 {
        match (self, plan.kind) {
            (Self::Windows { count, .. }, _) => *count,
            (Self::Stepped(state), Kind::Log) => {
                UNCOUNTED - remaining(&plan.held(UNCOUNTED), state, now)
            }
            (Self::Stepped(_), _) => 0,
        }
    }

    /// The hits that are there in a bucket; 0 for other counters.
    pub(super) fn level(&self, plan: &RegionPlan, share: u64, now: Timestamp) -> u64 {
        match (self, plan.kind) {
            (Self::Stepped(state), Kind::Bucket) => remaining(&plan.held(share), state, now),
            _ => 0,
        }
    }

    /// Puts a bucket from one share under another, while tokens leave it.
    pub(super) fn resize(
        &mut self,
        plan: &RegionPlan,
        (before, after): (u64, u64),
        tokens: i64,
        now: Timestamp,
    ) {
        if let Self::Stepped(State::Words(words)) = self {
            let (before, after) = (plan.held(before), plan.held(after));
            before.resize(&after, StateMut::Words(words), tokens, now);
        }
    }

    /// Lowers a bucket whose share became smaller by itself.
    pub(super) fn lower(&mut self, plan: &RegionPlan, (before, after): (u64, u64), end: Timestamp) {
        if let Self::Stepped(State::Words(words)) = self {
            let (before, after) = (plan.held(before), plan.held(after));
            before.lower(&after, StateMut::Words(words), end);
        }
    }
}

fn remaining(limit: &Limit, state: &State, now: Timestamp) -> u64 {
    let state = match state {
        State::Words(words) => StateRef::Words(words),
        State::Heap(heap) => StateRef::Heap(heap),
    };
    let look = Ask { taken: 0, hits: 0 };
    limit.test(state, look, &Moment::at(now)).remaining
}
