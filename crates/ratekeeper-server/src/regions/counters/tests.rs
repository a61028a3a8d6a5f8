use ratekeeper_core::region::loans::{LoanRegions, TimedAsk, TimedFacts, TimedLoans, TimedUse};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Timestamp, Whole};
use ratekeeper_store::StoreSlot;

use super::super::due::DUE_MAX;
use super::*;

const KEY: CounterKey = CounterKey {
    subject: 1,
    identity: 2,
};

fn counter() -> LoanCounter {
    let spec = LimitSpec::new(Algorithm::TokenBucket, 300, Micros::from_secs(60));
    let whole = Limit::try_new(spec).expect("a valid limit");
    LoanCounter {
        key: KEY,
        owns: whole.holding(100, Whole::of(&whole)),
        whole: Whole::of(&whole),
        counted: None,
        store: StoreSlot::default(),
    }
}

const TERMS: LoanTerms = LoanTerms {
    window: Micros::from_secs(60),
    time: Micros::from_secs(600),
    margin: Micros::from_secs(60),
};

/// Hits that were asked for, of the counter of that number.
fn demand(identity: u64, hits: u64, window: Micros) -> LoanDemand {
    let spec = LimitSpec::new(Algorithm::SlidingWindow, 100, window);
    LoanDemand {
        counter: LoanCounter {
            key: CounterKey {
                subject: 1,
                identity,
            },
            owns: Limit::try_new(spec).expect("a valid limit"),
            ..counter()
        },
        terms: 1,
        hits,
    }
}

/// A counter of which so many hits are used.
fn found(count: u64, loans: Vec<u8>) -> LoanState {
    LoanState {
        at: Timestamp::from_secs(1_000),
        window: 0,
        left: Micros::ZERO,
        count,
        generation: 7,
        loans: loans.into(),
        is_written: false,
    }
}

/// The time at which a loan is taken back whose latest ask was seen at 1 s, and answered anew at 100 s.
fn taken_back(kind: LoanKind) -> u64 {
    let counter = counter();
    let lending = Lending {
        counter: &counter,
        kind,
        terms: TERMS,
        regions: &LoanRegions::named(["eu", "us"]),
    };
    let mut counters = Counters::new(2);
    let demand = LoanDemand {
        counter,
        terms: 1,
        hits: 1,
    };
    counters.record(vec![demand], Micros::from_secs(1));
    let mut over = |number, second| {
        let now = Micros::from_secs(second);
        counters.over(KEY, vec![(RegionId::of("us"), number)], &lending, now)
    };
    for second in [1, 2, 99] {
        assert_eq!(over(7, second), []);
    }
    let taken = (100..2_000).find(|second| !over(8, *second).is_empty());
    let taken = taken.expect("some time it is over");
    let loan = (RegionId::of("us"), 8);
    assert_eq!(over(8, taken), [loan], "until it is done");
    taken
}

#[test]
fn a_loan_is_taken_back_once_no_borrower_can_use_it() {
    assert_eq!(taken_back(LoanKind::Bucket), 100 + 660);
    assert_eq!(taken_back(LoanKind::Log), 100 + 660 + 60);
}

#[test]
fn what_was_lent_to_a_region_that_has_left_is_taken_back() {
    let mut loans = TimedLoans::new(100, 3);
    let ask = TimedAsk {
        number: 5,
        hold: 0,
        want: 40,
        taken: Some(0),
    };
    let facts = TimedFacts {
        used: TimedUse::Log(0),
        need: 10,
        floor: 10,
    };
    loans.lend(2, &ask, &facts).expect("it is the first ask");
    let three = LoanRegions::named(["ap", "eu", "us"]);
    let state = found(0, loans.encode(7, &three).expect("they fit"));
    let demand = demand(1, 1, TERMS.window);
    let lending = Lending {
        counter: &demand.counter,
        kind: LoanKind::Log,
        terms: TERMS,
        regions: &LoanRegions::named(["ap", "eu"]),
    };
    let mut kept = lending.read(&state).expect("they are read");
    assert_eq!(kept.share(&state), 60);
    let mut counters = Counters::new(2);
    counters.record(vec![demand], Micros::ZERO);
    let lent = kept.lent_for_a_time(&lending);
    let mut over = |second| {
        let now = Micros::from_secs(second);
        counters.over(demand.counter.key, lent.clone(), &lending, now)
    };
    assert_eq!(over(10), []);
    assert_eq!(over(10 + 719), []);
    let taken = over(10 + 720);
    assert_eq!(taken, [(RegionId::of("us"), 5)]);
    assert!(kept.regain(&lending, taken[0]));
    assert_eq!(kept.share(&state), 100);
}

#[test]
fn every_counter_has_its_turn_before_any_has_a_second_one() {
    let many = 4 * DUE_MAX as u64;
    let mut counters = Counters::new(2);
    let second = Micros::from_secs(1);
    let demands = (0..many).map(|identity| demand(identity, 1, second));
    counters.record(demands.collect(), Micros::ZERO);
    let mut turns = HashMap::new();
    for look in 0..8 {
        for key in counters.due(Micros::from_millis(100 * look)) {
            *turns.entry(key).or_insert(0) += 1;
        }
        assert_eq!(turns.len() as u64, many.min((look + 1) * DUE_MAX as u64));
    }
    assert!(turns.values().all(|turns| *turns == 2));
    let fault = |now| counters.fault(Micros::from_secs(now));
    assert!(fault(1).is_some_and(|fault| fault.contains("less often")));
    assert_eq!(fault(61), None);
}

#[test]
fn counters_that_need_nothing_make_room_for_others() {
    let minute = TERMS.window;
    let mut counters = Counters::new(2);
    let most = COUNTERS_MAX as u64;
    let demands = (0..most).map(|identity| demand(identity, 1, minute));
    counters.record(demands.collect(), Micros::ZERO);
    let busy = demand(most, 10_000, minute);
    counters.record(vec![busy], Micros::from_millis(100));
    let due = counters.due(Micros::from_millis(200));
    assert_eq!(due, [busy.counter.key]);
    assert_eq!(counters.fault(Micros::from_millis(300)), None);
    // Those that lack hits, too, leave no room.
    let demands = (0..most).map(|identity| demand(identity, 10_000, minute));
    counters.record(demands.collect(), Micros::from_millis(300));
    assert_eq!(counters.len(), COUNTERS_MAX);
    let fault = counters.fault(Micros::from_millis(400)).expect("a fault");
    assert!(fault.starts_with("more than 4096 counters"), "{fault}");
}

#[test]
fn loans_that_cannot_be_read_are_a_fault_for_a_while() {
    let mut counters = Counters::new(2);
    counters.unread(Micros::from_secs(10));
    assert!(counters.fault(Micros::from_secs(69)).is_some());
    assert_eq!(counters.fault(Micros::from_secs(70)), None);
}

/// The looks of ten seconds at a counter that lacks hits, or whose peer wants some back, at which an ask is made. None can be sent.
fn unsent_asks(count: u64, recalled: u64) -> usize {
    let demand = demand(1, count, TERMS.window);
    let (counter, key) = (demand.counter, demand.counter.key);
    let lending = Lending {
        counter: &counter,
        kind: LoanKind::Log,
        terms: TERMS,
        regions: &LoanRegions::named(["eu", "us"]),
    };
    let state = found(count, Vec::new());
    let standing = lending.read(&state).expect("there are none");
    let standing = standing.standing(&state, &lending);
    let mut counters = Counters::new(2);
    counters.record(vec![demand], Micros::ZERO);
    if recalled > 0 {
        counters.recall((counter, 1), 1, recalled);
    }
    let regions =
        [(100, false), (200, true)].map(|(owns, is_reachable)| PeerLook { owns, is_reachable });
    let looks = (0..100).filter(|look| {
        let now = Micros::from_millis(100 * look);
        let found = Found {
            lending: &lending,
            state: &state,
            standing: &standing,
        };
        let wanted = counters.wanted(key, &found, &regions, now);
        for wanted in &wanted {
            assert_eq!(wanted.release, recalled);
            counters.unsent(key, wanted, now);
        }
        !wanted.is_empty()
    });
    looks.count()
}

#[test]
fn asks_that_cannot_be_sent_are_made_less_and_less_often() {
    let asks = unsent_asks(100, 0);
    assert!((2..=4).contains(&asks), "{asks}");
    let asks = unsent_asks(0, 30);
    assert!((2..=4).contains(&asks), "{asks}");
}
