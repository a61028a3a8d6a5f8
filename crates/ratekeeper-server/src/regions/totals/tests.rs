use std::collections::HashSet;

use ratekeeper_core::region::counted::{Counted, RegionPost, Silent};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Timestamp, Whole};
use ratekeeper_store::StoreSlot;

use super::super::due::DUE_MAX;
use super::*;

/// The numbers of so many regions.
fn ids(count: usize) -> Vec<RegionId> {
    let all = ["ap", "eu", "us"].map(RegionId::of);
    all[..count].to_vec()
}

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
        let mut totals = Totals::new(vec![1, 2], ids(3));
        totals.record(&demand(1), AT(10_000));
        let key = demand(1).counter.key;
        Self { totals, key }
    }

    /// The regions that are told at this time, if it is due.
    fn tells(&mut self, count: u64, at: u64, is_reachable: impl Fn(usize) -> bool) -> Vec<usize> {
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
    one.totals.record(&demand(1), AT(10_950));
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
    one.totals.record(&other, AT(20_000));
    one.tells(5, 20_000, |_| true);
    one.tells(5, 22_000, |_| true);
    assert_eq!(one.tells(5, 24_000, |_| true), [1, 2]);
}

#[test]
fn counters_are_bounded_and_those_that_all_know_make_room() {
    let mut totals = Totals::new(vec![1], ids(2));
    for identity in 0..=COUNTERS_MAX as u64 {
        totals.record(&demand(identity), AT(10_000));
    }
    assert_eq!(totals.len(), COUNTERS_MAX);
    assert!(totals.fault(AT(20_000)).is_some());
    assert!(totals.fault(AT(80_000)).is_none());
    let key = demand(3).counter.key;
    let at = (AT(12_000), AT(12_000));
    totals.looked(key, &state(5, 50), at);
    totals.record(&demand(9_999), AT(12_000));
    assert!(totals.counter(demand(9_999).counter.key).is_none());
    totals.known(
        key,
        1,
        WindowTotal {
            window: 16,
            total: 5,
        },
    );
    totals.record(&demand(9_999), AT(12_000));
    let other = demand(9_999).counter.key;
    assert!(totals.counter(other).is_none(), "room is made once a look");
    totals.record(&demand(9_999), AT(12_100));
    assert!(totals.counter(other).is_some());
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

#[test]
fn what_the_store_has_lost_is_news_again() {
    let mut one = One::new();
    let said = WindowTotal {
        window: 16,
        total: 9,
    };
    let post = |place: usize, window, total| RegionPost {
        region: ids(3)[place],
        window,
        total,
    };
    let kept = |posts: &[RegionPost]| {
        let mut sums = CountedSums::default();
        assert!(posts.iter().all(|post| sums.take(*post, 16)));
        LoanState {
            loans: sums.encode().into(),
            ..state(5, 50)
        }
    };
    one.tells(5, 10_000, |_| true);
    one.tells(5, 12_000, |_| true);
    for place in [1, 2] {
        one.knows(place, 5);
        one.totals.said(one.key, place, said, AT(12_000));
    }
    let at = (AT(14_000), AT(14_000));
    let both = kept(&[post(1, 16, 9), post(2, 16, 9)]);
    let told = one.totals.looked(one.key, &both, at);
    assert_eq!(told.map(|(_, to)| to), Some(Vec::new()));
    assert!(!one.totals.is_news(one.key, 1, said));
    // One of them is lost, and half of the other: both are asked again, though they know ours.
    let lost = kept(&[post(1, 16, 8)]);
    let told = one.totals.looked(one.key, &lost, at);
    assert_eq!(told.map(|(_, to)| to), Some(vec![1, 2]));
    assert!(one.totals.is_news(one.key, 1, said));
    assert!(one.totals.is_news(one.key, 2, said));
    // What was said of a window that is over is not kept, and not missed.
    one.totals.said(
        one.key,
        1,
        WindowTotal {
            window: 15,
            total: 9,
        },
        AT(15_000),
    );
    let told = one.totals.looked(one.key, &lost, at);
    assert_eq!(told.map(|(_, to)| to), Some(Vec::new()));
}

#[test]
fn all_counters_have_their_turn_and_it_is_told_if_that_takes_longer_than_their_interval() {
    let mut totals = Totals::new(vec![1], ids(2));
    let many = 6 * DUE_MAX;
    for identity in 0..many as u64 {
        totals.record(&demand(identity), AT(10_000));
    }
    let mut seen = HashSet::new();
    let mut at = 10_000;
    while seen.len() < many && at < 30_000 {
        let due = totals.due(|_| true, AT(at));
        assert!(due.len() <= DUE_MAX);
        for key in due {
            seen.insert(key);
            let looked = (AT(at), AT(at));
            totals.looked(key, &state(5, 50), looked);
        }
        // All are busy.
        for identity in 0..many as u64 {
            totals.record(&demand(identity), AT(at));
        }
        at += 500;
    }
    assert_eq!(seen.len(), many);
    assert_eq!(at, 13_000, "in six looks");
    assert!(totals.fault(AT(at)).is_some());
    assert_eq!(totals.fault(AT(at + 60_000)), None);
}

#[test]
fn counters_that_wait_for_a_link_are_not_late() {
    let mut totals = Totals::new(vec![1], ids(2));
    let many = 2 * DUE_MAX;
    for identity in 0..many as u64 {
        totals.record(&demand(identity), AT(10_000));
    }
    for at in [10_000, 10_100, 12_000, 12_100, 14_000, 39_900] {
        for key in totals.due(|_| false, AT(at)) {
            totals.looked(key, &state(5, 50), (AT(at), AT(at)));
        }
    }
    assert_eq!(totals.due(|_| true, AT(40_000)).len(), DUE_MAX);
    assert_eq!(totals.due(|_| true, AT(40_100)).len(), DUE_MAX);
    assert_eq!(totals.fault(AT(40_100)), None);
}

#[test]
fn the_last_look_does_not_wait_for_the_interval() {
    let mut one = One::new();
    assert_eq!(one.tells(5, 10_000, |_| true), [1, 2]);
    one.knows(1, 5);
    one.totals.record(&demand(1), AT(10_100));
    assert_eq!(one.tells(6, 10_200, |_| true), NOBODY);
    one.totals.hurry(AT(10_200));
    assert_eq!(one.tells(6, 10_200, |_| true), [1, 2]);
    one.knows(1, 6);
    assert!(!one.totals.is_known(|_| true, AT(10_300)));
    assert!(one.totals.is_known(|place| place == 1, AT(10_300)));
    one.knows(2, 6);
    assert!(one.totals.is_known(|_| true, AT(10_300)));
}
