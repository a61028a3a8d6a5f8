//! The store's side of leases: pure functions on a counter's state.

use super::Terms;
use crate::limit::Kind;
use crate::{
    Ask, Limit, Micros, Moment, Outcome, Spill, State, Timestamp, equal_count, fixed_window,
    sliding_window,
};

/// The answer to a request for hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Hits that were charged and are the node's to spend; 0 if there is no room.
    pub hits: u64,
    /// The store's time.
    pub at: Timestamp,
    /// For how long from then on they may be spent.
    pub usable: Micros,
    /// The place of their charge, for giving back.
    pub place: Place,
    /// The counter's answer to a peek after the grant.
    pub outcome: Outcome,
}

/// The place where the hits of a grant were charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a bucket, to which nothing is given back.
    Bucket,
    /// In the fixed window that starts then.
    Window(Timestamp),
    /// In the sub-window of this number since the epoch.
    Part(u64),
    /// In groups of equal count.
    Groups(equal_count::GrantedGroups),
}

impl Place {
    /// The place in numbers, to be told a store that reads the algorithm from elsewhere; each is below 2^53.
    #[must_use]
    pub const fn numbers(self) -> [u64; 3] {
        match self {
            Self::Bucket => [0; 3],
            Self::Window(start) => [start.as_micros(), 0, 0],
            Self::Part(index) => [index, 0, 0],
            Self::Groups(place) => place.to_words(),
        }
    }
}

/// Returns the part of `want` hits that one of `nodes` is granted of `room`: at most half of its share, so that what
/// nodes hold shrinks as the limit comes near, and never less than one.
#[must_use]
pub fn share(room: u64, want: u64, nodes: u64) -> u64 {
    match room {
        0 => 0,
        _ => want.min((room / nodes.max(1).saturating_mul(2)).max(1)),
    }
}

impl Terms {
    /// Charges up to `want` hits for one of `nodes`. The caller carries a repeated id out once.
    pub fn grant(&self, state: &mut State, want: u64, nodes: u64, at: &Moment) -> Grant {
        let limit = self.limit();
        let room = limit.test(state.as_ref(), Ask::hits(0), at).remaining;
        let hits = share(room, want, nodes);
        let begun = match &limit.kind {
            Kind::EqualCount(cut) => Some(equal_count::before_grant(cut, state.as_ref(), at.now)),
            _ => None,
        };
        // An empty grant writes nothing unless the clock has gone back.
        if hits > 0 || limit.is_ahead(state.as_ref(), at.now) {
            charge(limit, state, i64::try_from(hits).unwrap_or(i64::MAX), at);
        }
        let (place, end) = match (&limit.kind, &*state) {
            (Kind::FixedWindow, State::Words(words)) => {
                let end = fixed_window::expires_at(limit, words, at);
                let start = Timestamp::from_micros(words[1]);
                (Place::Window(start), Some(end))
            }
            (Kind::SlidingWindow(sub), state) => {
                let index = sub.index(state.as_ref());
                (Place::Part(index), Some(sub.end_of(index)))
            }
            (Kind::EqualCount(cut), state) => {
                let before = begun.unwrap_or_default();
                let place = equal_count::granted(cut, state.as_ref(), before, hits);
                (Place::Groups(place), None)
            }
            _ => (Place::Bucket, None),
        };
        let usable = match end {
            Some(end) => self.ttl().min(end.since(at.now)),
            None => self.ttl(),
        };
        Grant {
            hits,
            at: at.now,
            usable,
            place,
            outcome: limit.test(state.as_ref(), Ask::hits(0), at),
        }
    }

    /// Takes back `left` hits that were granted at `granted_at` and not spent, as far as that is safe, and says how
    /// many. What cannot be given back stays charged. The caller carries a repeated id out once.
    pub fn give_back(
        &self,
        state: &mut State,
        (granted_at, place): (Timestamp, Place),
        left: u64,
        at: &Moment,
    ) -> u64 {
        let limit = self.limit();
        // What is older has left the window, or the clock has gone back.
        if at.now.since(granted_at) >= limit.window() || granted_at.since(at.now) >= limit.window()
        {
            return 0;
        }
        match (&limit.kind, place) {
            (Kind::FixedWindow, Place::Window(start)) => {
                let State::Words(words) = state else { return 0 };
                fixed_window::give_back(limit, words, start, left, at)
            }
            (Kind::SlidingWindow(sub), Place::Part(index)) => {
                sliding_window::give_back(sub, state.as_mut(), index, left, at.now)
            }
            (Kind::EqualCount(cut), Place::Groups(place)) => {
                equal_count::give_back(cut, state.as_mut(), place, left, at.now)
            }
            _ => 0,
        }
    }
}

/// Charges a state that may have to move to the heap.
fn charge(limit: &Limit, state: &mut State, hits: i64, at: &Moment) {
    if limit.charge(state.as_mut(), hits, at) == Err(Spill) {
        if let State::Words(words) = state {
            *state = State::Heap(limit.spill(words));
        }
        // A heap never spills again.
        let _ = limit.charge(state.as_mut(), hits, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, LimitSpec};

    /// A round number of seconds and of ticks of a window of 2,045 s.
    const START: u64 = 1_000_000_000_000;

    fn terms(algorithm: Algorithm, quota: u64, sub_windows: Option<u32>) -> Terms {
        let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(2_045));
        let limit = Limit::try_new(LimitSpec {
            sub_windows,
            ..spec
        })
        .expect("a valid limit");
        Terms::try_new(&limit, Micros::from_secs(1)).expect("it can be leased")
    }

    fn at(secs: u64) -> Moment {
        Moment::at(Timestamp::from_micros(START + secs * 1_000_000))
    }

    fn left(terms: &Terms, state: &State, secs: u64) -> u64 {
        let look = terms.limit().test(state.as_ref(), Ask::hits(0), &at(secs));
        look.remaining
    }

    #[test]
    fn a_node_gets_half_of_its_share() {
        assert_eq!(share(100, 1_000, 1), 50);
        assert_eq!(share(100, 1_000, 4), 12);
        assert_eq!(share(100, 7, 4), 7);
        assert_eq!(share(3, 7, 16), 1);
        assert_eq!(share(0, 7, 1), 0);
        assert_eq!(share(8, 7, 0), 4);
    }

    #[test]
    fn a_fixed_window_takes_back_what_it_counts_and_ends_its_leases() {
        let terms = terms(Algorithm::FixedWindow, 100, None);
        let mut state = State::new(terms.limit().shape());
        // 2,045 s divide 488,998 times into the start, and 910 s are over.
        let grant = terms.grant(&mut state, 30, 1, &at(0));
        assert_eq!((grant.hits, grant.usable), (30, Micros::from_secs(1)));
        let lease = (grant.at, grant.place);
        assert_eq!(terms.give_back(&mut state, lease, 10, &at(1)), 10);
        assert_eq!(left(&terms, &state, 1), 80);
        let end = grant.outcome.reset_after.get() / 1_000_000;
        let late = Moment::at(Timestamp::from_micros(START + end * 1_000_000 - 1));
        let grant = terms.grant(&mut state, 1, 1, &late);
        assert_eq!(grant.usable, Micros::new(1));
        // What comes back later finds another window.
        assert_eq!(terms.give_back(&mut state, lease, 10, &at(end)), 0);
    }

    #[test]
    fn a_sub_window_takes_back_its_own_hits() {
        let terms = terms(Algorithm::SlidingWindow, 100, Some(5));
        let mut state = State::new(terms.limit().shape());
        let first = terms.grant(&mut state, 20, 1, &at(0));
        let later = terms.grant(&mut state, 20, 1, &at(1_000));
        assert_eq!((first.hits, later.hits), (20, 20));
        assert_eq!(
            terms.give_back(&mut state, (first.at, first.place), 15, &at(1_000)),
            15
        );
        assert_eq!(left(&terms, &state, 1_000), 75);
        // A window after the first the second counts as it did.
        assert_eq!(left(&terms, &state, 2_500), 80);
    }

    #[test]
    fn a_group_that_is_the_newest_takes_back_all_but_a_hit() {
        // Groups of 63.
        let terms = terms(Algorithm::SlidingWindow, 1_000, None);
        let mut state = State::new(terms.limit().shape());
        let first = terms.grant(&mut state, 10, 1, &at(0));
        let second = terms.grant(&mut state, 20, 1, &at(1));
        let lease = |grant: Grant| (grant.at, grant.place);
        // 20 of the second's hits came after the beginning: one stays.
        assert_eq!(terms.give_back(&mut state, lease(first), 10, &at(2)), 9);
        assert_eq!(terms.give_back(&mut state, lease(second), 5, &at(2)), 4);
        assert_eq!(left(&terms, &state, 2), 1_000 - 17);
        // Counted from when the last hit can come: a second later.
        assert_eq!(left(&terms, &state, 2_045), 1_000 - 17);
        assert_eq!(left(&terms, &state, 2_046), 1_000);
    }

    #[test]
    fn else_the_oldest_groups_are_taken_back() {
        let terms = terms(Algorithm::SlidingWindow, 23, None);
        let mut state = State::new(terms.limit().shape());
        let other = terms.grant(&mut state, 3, 1, &at(0));
        let lease = terms.grant(&mut state, 3, 1, &at(100));
        let last = terms.grant(&mut state, 1, 1, &at(200));
        assert_eq!((other.hits, lease.hits, last.hits), (3, 3, 1));
        assert_eq!(
            terms.give_back(&mut state, (lease.at, lease.place), 2, &at(200)),
            2
        );
        assert_eq!(left(&terms, &state, 200), 18);
        // Two of the three hits of the beginning: what is counted is newer than what was admitted.
        let then = |secs: u64| left(&terms, &state, 2_045 + secs);
        assert_eq!((then(0), then(20), then(120), then(220)), (18, 19, 22, 23));
        assert_eq!(
            terms.give_back(&mut state, (lease.at, lease.place), 1, &at(2_200)),
            0
        );
    }

    #[test]
    fn a_bucket_takes_nothing_back() {
        let terms = terms(Algorithm::Gcra, 1_000, None);
        let mut state = State::new(terms.limit().shape());
        let grant = terms.grant(&mut state, 10, 1, &at(0));
        let before = state.clone();
        assert_eq!(
            terms.give_back(&mut state, (grant.at, grant.place), 10, &at(0)),
            0
        );
        assert_eq!(state, before);
    }
}
