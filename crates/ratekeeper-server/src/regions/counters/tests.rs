use ratekeeper_core::{Algorithm, Limit, LimitSpec, Whole};
use ratekeeper_store::StoreSlot;

use super::super::kept::PeerStanding;
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

fn lent(number: u64) -> Standing {
    let peer = PeerStanding {
        lent: 40,
        is_lent: true,
        timed: Some(number),
        ..PeerStanding::default()
    };
    Standing {
        owns: 100,
        now: 60,
        next: 60,
        peers: vec![PeerStanding::default(), peer],
    }
}

/// The time at which a loan is taken back whose latest ask was seen at 1 s, and answered anew at 100 s.
fn taken_back(kind: LoanKind) -> u64 {
    let counter = counter();
    let lending = Lending {
        counter: &counter,
        kind,
        terms: LoanTerms {
            window: Micros::from_secs(60),
            time: Micros::from_secs(600),
            margin: Micros::from_secs(60),
        },
        names: (1, 2),
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
        counters.over(KEY, &lent(number), &lending, now)
    };
    for second in [1, 2, 99] {
        assert_eq!(over(7, second), []);
    }
    let taken = (100..2_000).find(|second| !over(8, *second).is_empty());
    let taken = taken.expect("some time it is over");
    assert_eq!(over(8, taken), [(1, 8)], "until it is done");
    taken
}

#[test]
fn a_loan_is_taken_back_once_no_borrower_can_use_it() {
    assert_eq!(taken_back(LoanKind::Bucket), 100 + 660);
    assert_eq!(taken_back(LoanKind::Log), 100 + 660 + 60);
}
