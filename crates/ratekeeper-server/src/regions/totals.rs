//! The counters that regions count together: which of them are due to be posted, and what others know and have said.
//!
//! ```text
//!  asked for --> due: looked at, and posted to each region --> told back: posted again until then, while its window lasts
//! ```

use std::collections::HashMap;

use ratekeeper_core::Micros;
use ratekeeper_store::{CounterKey, LoanCounter, LoanDemand, LoanState};

/// The most counters that a node posts.
const COUNTERS_MAX: usize = 4_096;

/// The most counters that are looked at together.
const DUE_MAX: usize = 512;

/// The time after which a hit that was asked for is counted, or never will be.
const SETTLED: Micros = Micros::from_secs(1);

/// The time after which a counter that nobody asks for, and that all others know, is forgotten.
const IDLE: Micros = Micros::from_secs(60);

/// The time for which it is told that there were too many counters.
const TOLD: Micros = Micros::from_secs(60);

/// A total in a window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct WindowTotal {
    pub(super) window: u64,
    pub(super) total: u64,
}

/// The counters that were asked for here of late.
#[derive(Debug)]
pub(super) struct Totals {
    /// The places of the regions that are told.
    others: Vec<usize>,
    regions: usize,
    all: HashMap<CounterKey, Posted>,
    /// The last time at which a counter found no place.
    left_out: Option<Micros>,
}

/// A counter, and what other regions know of it.
#[derive(Debug)]
struct Posted {
    counter: LoanCounter,
    terms: u64,
    /// The time of the last demand, of the last look, and of the next one.
    used_at: Micros,
    looked_at: Option<Micros>,
    next_at: Micros,
    /// What was counted at the last look, and the time until its window ends.
    own: WindowTotal,
    ends_at: Micros,
    peers: Vec<Peer>,
}

/// What another region knows, and has said last.
#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    knows: WindowTotal,
    said: Option<(WindowTotal, Micros)>,
}

impl Totals {
    /// Nothing is posted yet, to the regions at the places `others` of so many.
    pub(super) fn new(others: Vec<usize>, regions: usize) -> Self {
        Self {
            others,
            regions,
            all: HashMap::new(),
            left_out: None,
        }
    }

    /// Notes what was asked for.
    pub(super) fn note(&mut self, demand: &LoanDemand, now: Micros) {
        let key = demand.counter.key;
        if self.all.len() >= COUNTERS_MAX && !self.all.contains_key(&key) {
            let others = &self.others;
            self.all
                .retain(|_, it| it.is_fresh() || it.is_due_to_any(others, now));
            if self.all.len() >= COUNTERS_MAX {
                self.left_out = Some(now);
                return;
            }
        }
        let regions = self.regions;
        let posted = self.all.entry(key).or_insert_with(|| Posted {
            counter: demand.counter,
            terms: demand.terms,
            used_at: now,
            looked_at: None,
            next_at: now,
            own: WindowTotal::default(),
            ends_at: now,
            peers: vec![Peer::default(); regions],
        });
        if posted.terms != demand.terms {
            // Other rules: what others know is of another limit.
            posted.peers = vec![Peer::default(); regions];
        }
        (posted.counter, posted.terms, posted.used_at) = (demand.counter, demand.terms, now);
    }

    /// The counters to look at now, of which a region that `is_reachable` does not know everything.
    pub(super) fn due(
        &mut self,
        is_reachable: impl Fn(usize) -> bool,
        now: Micros,
    ) -> Vec<CounterKey> {
        let others = &self.others;
        self.all.retain(|_, it| {
            now < later(it.used_at, IDLE) || it.is_fresh() || it.is_due_to_any(others, now)
        });
        let reached: Vec<usize> = others
            .iter()
            .copied()
            .filter(|at| is_reachable(*at))
            .collect();
        let due = self.all.iter_mut().filter(|(_, it)| {
            it.next_at <= now && (it.is_fresh() || it.is_due_to_any(&reached, now))
        });
        let mut keys = Vec::new();
        for (key, posted) in due.take(DUE_MAX) {
            let interval = posted.counter.counted.map(|counted| counted.interval);
            posted.next_at = later(now, interval.unwrap_or(SETTLED));
            keys.push(*key);
        }
        keys
    }

    pub(super) fn counter(&self, key: CounterKey) -> Option<(LoanCounter, u64)> {
        let posted = self.all.get(&key)?;
        Some((posted.counter, posted.terms))
    }

    pub(super) fn forget(&mut self, key: CounterKey) {
        self.all.remove(&key);
    }

    /// Takes in a look that was begun at `begun`; returns what is to be posted, and to whom.
    pub(super) fn looked(
        &mut self,
        key: CounterKey,
        state: &LoanState,
        (begun, now): (Micros, Micros),
    ) -> Option<(WindowTotal, Vec<usize>)> {
        let posted = self.all.get_mut(&key)?;
        let is_fresh = posted.is_fresh();
        posted.looked_at = posted.looked_at.max(Some(begun));
        posted.own = WindowTotal {
            window: state.window,
            // A limit that was lowered may be exceeded.
            total: state.count.min(posted.counter.whole.quota),
        };
        posted.ends_at = later(now, state.left);
        let own = posted.own;
        if own.total == 0 {
            return None;
        }
        let others = self.others.iter().copied();
        let to = others.filter(|place| is_fresh || !posted.peers[*place].has(own));
        Some((own, to.collect()))
    }

    /// Notes that the region at `place` knows a total.
    pub(super) fn known(&mut self, key: CounterKey, place: usize, total: WindowTotal) {
        if let Some(peer) = self.peer(key, place)
            && !peer.has(total)
        {
            peer.knows = total;
        }
    }

    /// Notes what the region at `place` has said.
    pub(super) fn said(&mut self, key: CounterKey, place: usize, total: WindowTotal, now: Micros) {
        if let Some(peer) = self.peer(key, place) {
            peer.said = Some((total, now));
        }
    }

    /// True if the region at `place` has not said that before.
    pub(super) fn is_news(&self, key: CounterKey, place: usize, total: WindowTotal) -> bool {
        let peer = self.all.get(&key).and_then(|it| it.peers.get(place));
        let said = peer.and_then(|peer| peer.said);
        said.is_none_or(|(said, _)| said != total)
    }

    /// The time at which each region last said what it has counted in `window`; empty if this node does not post the counter.
    pub(super) fn heard(&self, key: CounterKey, window: u64) -> Vec<Option<Micros>> {
        let peers = self.all.get(&key).map(|posted| &posted.peers);
        let peers = peers.into_iter().flatten();
        let heard = peers.map(|peer| {
            let (said, at) = peer.said?;
            (said.window == window).then_some(at)
        });
        heard.collect()
    }

    /// The counters that are posted.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// A fault if there were too many counters of late.
    pub(super) fn fault(&self, now: Micros) -> Option<String> {
        let left_out = self.left_out?;
        (now < later(left_out, TOLD)).then(|| {
            format!(
                "more than {COUNTERS_MAX} counters are counted together with other regions: this node does not post the rest"
            )
        })
    }

    fn peer(&mut self, key: CounterKey, place: usize) -> Option<&mut Peer> {
        self.all.get_mut(&key)?.peers.get_mut(place)
    }
}

impl Posted {
    /// True if hits may have been counted since the last look.
    fn is_fresh(&self) -> bool {
        let looked_at = self.looked_at;
        looked_at.is_none_or(|looked_at| looked_at <= later(self.used_at, SETTLED))
    }

    /// True if one of these regions does not know what was counted in a window that is not over.
    fn is_due_to_any(&self, places: &[usize], now: Micros) -> bool {
        let is_over = now >= self.ends_at || self.own.total == 0;
        !is_over && places.iter().any(|place| !self.peers[*place].has(self.own))
    }
}

impl Peer {
    const fn has(&self, total: WindowTotal) -> bool {
        let knows = self.knows;
        knows.window > total.window || knows.window == total.window && knows.total >= total.total
    }
}

fn later(at: Micros, span: Micros) -> Micros {
    Micros::new(at.get().saturating_add(span.get()))
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::region::counted::{Counted, Silent};
    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Timestamp, Whole};
    use ratekeeper_store::StoreSlot;

    use super::*;

    fn demand(identity: u64) -> LoanDemand {
        let limit = LimitSpec::new(Algorithm::FixedWindow, 100, Micros::from_secs(60));
        let limit = Limit::try_new(limit).expect("a valid limit");
        LoanDemand {
            counter: LoanCounter {
                key: CounterKey {
                    subject: 1,
                    identity,
                },
                owns: limit,
                whole: Whole::of(&limit),
                counted: Some(Counted {
                    interval: Micros::from_secs(1),
                    silent: Silent::Share,
                }),
                store: StoreSlot::default(),
            },
            terms: 7,
            hits: 1,
        }
    }

    fn state(count: u64, left: u64) -> LoanState {
        LoanState {
            at: Timestamp::from_secs(1_000),
            window: 16,
            left: Micros::from_secs(left),
            count,
            generation: 0,
            loans: Box::default(),
            is_written: false,
        }
    }

    const AT: fn(u64) -> Micros = Micros::from_millis;

    const NOBODY: [usize; 0] = [];

    /// A counter that was asked for at 10 s, the first of three regions.
    struct One {
        totals: Totals,
        key: CounterKey,
    }

    impl One {
        fn new() -> Self {
            let mut totals = Totals::new(vec![1, 2], 3);
            totals.note(&demand(1), AT(10_000));
            let key = demand(1).counter.key;
            Self { totals, key }
        }

        /// The regions that are told at this time, if it is due.
        fn tells(
            &mut self,
            count: u64,
            at: u64,
            is_reachable: impl Fn(usize) -> bool,
        ) -> Vec<usize> {
            if self.totals.due(is_reachable, AT(at)).is_empty() {
                return Vec::new();
            }
            let left = 60_u64.saturating_sub(at / 1_000);
            let told = self
                .totals
                .looked(self.key, &state(count, left), (AT(at), AT(at)));
            told.map(|(_, to)| to).unwrap_or_default()
        }

        fn knows(&mut self, place: usize, total: u64) {
            let total = WindowTotal { window: 16, total };
            self.totals.known(self.key, place, total);
        }
    }

    #[test]
    fn a_counter_is_posted_once_an_interval_while_it_is_asked_for() {
        let mut one = One::new();
        assert_eq!(one.tells(5, 10_000, |_| true), [1, 2]);
        one.knows(1, 5);
        one.knows(2, 5);
        assert_eq!(one.tells(5, 10_900, |_| true), NOBODY, "not yet");
        one.totals.note(&demand(1), AT(10_950));
        assert_eq!(one.tells(6, 11_000, |_| true), [1, 2]);
        one.knows(1, 6);
        one.knows(2, 6);
        // A hit that was on its way at the last look is told.
        assert_eq!(one.tells(7, 12_000, |_| true), [1, 2]);
        one.knows(1, 7);
        one.knows(2, 7);
        assert_eq!(one.tells(7, 13_000, |_| true), NOBODY);
    }

    #[test]
    fn what_a_region_does_not_know_is_posted_until_its_window_ends() {
        let mut one = One::new();
        let only_two = |place| place == 2;
        assert_eq!(one.tells(5, 10_000, only_two), [1, 2]);
        one.knows(2, 5);
        assert_eq!(
            one.tells(5, 12_000, only_two),
            [1, 2],
            "more may have been on its way"
        );
        assert_eq!(
            one.tells(5, 14_000, only_two),
            NOBODY,
            "there is nobody to tell"
        );
        assert_eq!(one.tells(5, 50_000, |_| true), [1]);
        assert_eq!(one.tells(5, 52_000, |_| true), [1]);
        assert_eq!(one.tells(5, 61_000, |_| true), NOBODY, "it is over");
        assert_eq!(one.totals.len(), 1);
        assert_eq!(one.tells(5, 71_000, |_| true), NOBODY);
        assert_eq!(one.totals.len(), 0);
    }

    #[test]
    fn no_more_than_the_limit_is_posted_and_nothing_is_not() {
        let mut one = One::new();
        let at = (AT(10_000), AT(10_000));
        assert_eq!(one.totals.looked(one.key, &state(0, 50), at), None);
        let told = one.totals.looked(one.key, &state(500, 50), at);
        assert_eq!(told.map(|(own, _)| own.total), Some(100));
    }

    #[test]
    fn other_rules_void_what_others_know() {
        let mut one = One::new();
        one.tells(5, 10_000, |_| true);
        one.knows(1, 5);
        one.knows(2, 5);
        let other = LoanDemand {
            terms: 8,
            ..demand(1)
        };
        one.totals.note(&other, AT(20_000));
        one.tells(5, 20_000, |_| true);
        one.tells(5, 22_000, |_| true);
        assert_eq!(one.tells(5, 24_000, |_| true), [1, 2]);
    }

    #[test]
    fn counters_are_bounded_and_those_that_all_know_make_room() {
        let mut totals = Totals::new(vec![1], 2);
        for identity in 0..=COUNTERS_MAX as u64 {
            totals.note(&demand(identity), AT(10_000));
        }
        assert_eq!(totals.len(), COUNTERS_MAX);
        assert!(totals.fault(AT(20_000)).is_some());
        assert!(totals.fault(AT(80_000)).is_none());
        let key = demand(3).counter.key;
        let at = (AT(12_000), AT(12_000));
        totals.looked(key, &state(5, 50), at);
        totals.note(&demand(9_999), AT(12_000));
        assert!(totals.counter(demand(9_999).counter.key).is_none());
        totals.known(
            key,
            1,
            WindowTotal {
                window: 16,
                total: 5,
            },
        );
        totals.note(&demand(9_999), AT(12_000));
        assert!(totals.counter(demand(9_999).counter.key).is_some());
        assert!(totals.counter(key).is_none());
    }

    #[test]
    fn what_others_say_is_news_once() {
        let mut one = One::new();
        let said = WindowTotal {
            window: 16,
            total: 9,
        };
        assert!(one.totals.is_news(one.key, 1, said));
        one.totals.said(one.key, 1, said, AT(11_000));
        assert!(!one.totals.is_news(one.key, 1, said));
        assert!(one.totals.is_news(one.key, 2, said));
        assert_eq!(
            one.totals.heard(one.key, 16),
            [None, Some(AT(11_000)), None]
        );
        assert_eq!(one.totals.heard(one.key, 17), [None; 3]);
    }
}
