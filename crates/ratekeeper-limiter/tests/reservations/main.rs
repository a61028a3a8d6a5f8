//! Budgets that are reserved before their cost is known: whatever is reserved, what is used counts, and nothing else.

mod away;
mod changed;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use ratekeeper_core::Micros;
use ratekeeper_limiter::{
    BudgetUse, Check, HashKey, Limiter, LimiterOptions, ReceiptMode, Reserve, Settled,
};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, Store};

const LIMIT: u64 = 1_000;

/// Every algorithm of a budget. Nothing comes back while a test runs.
const BUDGETS: [&str; 7] = [
    "sliding_window",
    // Counted in sub-windows.
    "sliding_window, consistency: synced",
    "sliding_log",
    "fixed_window",
    "token_bucket",
    "token_bucket, max_debt: 0",
    "gcra, max_debt: 700",
];

/// A budget of that algorithm, on a descriptor with such further lines.
fn rules(budget: &str, lines: &str) -> RuleSet {
    let text = format!(
        "
domain: d
tenant: user
plans: [free]
tenants: [ {{ tenant: v, plan: free }} ]
descriptors:
  - key: user
    rate_limit: {{ window: 1000d, limit: {LIMIT}, post_paid: true, algorithm: {budget} }}
{lines}"
    );
    let name = "rules.yaml".to_owned();
    match load(&[Source { name, text }], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

fn store() -> MemoryStore {
    let config = MemoryConfig {
        memory_limit: 8 << 20,
        ..MemoryConfig::default()
    };
    MemoryStore::new(config).expect("a small store")
}

fn limiter_with<S: Store>(rules: RuleSet, store: S) -> Limiter<S> {
    let mut options = LimiterOptions::default();
    options.hash_key = Some(HashKey::from_bytes([1; 16]));
    Limiter::new(rules, store, options)
}

fn limiter(budget: &str) -> Arc<Limiter<MemoryStore>> {
    Arc::new(limiter_with(rules(budget, ""), store()))
}

/// Resolves a future at once: the memory store never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store decides at once"),
    }
}

fn check(hits: u64) -> Check<'static> {
    let hits = i64::try_from(hits).expect("small");
    Check::new("d").descriptor([("user", "v")]).hits(hits)
}

fn left(limiter: &Limiter<MemoryStore>) -> u64 {
    let (decision, _) = now(limiter.peek(&check(0)));
    let binding = decision.answers()[0].binding.expect("a limit matched");
    binding.answered.remaining
}

/// A reservation; none if it was denied.
fn reserve(limiter: &Limiter<MemoryStore>, hits: u64) -> Option<String> {
    let reserve = Reserve {
        hits,
        fixed: &[],
        ttl: Micros::from_secs(60),
        key: None,
    };
    let reserved = now(limiter.caller("me").reserve(&check(hits), &reserve));
    let reservation = reserved.expect("it is carried out").reservation;
    reservation.map(|reservation| reservation.token)
}

fn commit(limiter: &Limiter<MemoryStore>, token: &str, used: u64) -> Settled {
    now(limiter.caller("me").commit(token, used)).expect("it is ours")
}

/// A way to reserve hits, and to say at once how many were used. True if it was let in.
type Way = fn(&Arc<Limiter<MemoryStore>>, u64, u64) -> bool;

fn by_reservation(limiter: &Arc<Limiter<MemoryStore>>, hits: u64, used: u64) -> bool {
    let token = reserve(limiter, hits);
    token.map(|token| commit(limiter, &token, used)).is_some()
}

fn by_bill(limiter: &Arc<Limiter<MemoryStore>>, hits: u64, used: u64) -> bool {
    let mut check = check(1);
    check.budgets = BudgetUse::Reserve(hits);
    let at = limiter.clock().now();
    let Answer::Decided(admitted) = limiter.admit(&check, at, ReceiptMode::Dropped) else {
        panic!("the memory store decides at once");
    };
    let is_allowed = admitted.decision.allowed();
    if is_allowed {
        let bill = admitted.bill.expect("a budget");
        assert!(bill.pay(limiter, used).is_none());
    }
    is_allowed
}

/// It must neither push out what had been used, nor give back more than it took.
#[test]
fn an_oversized_reservation_leaves_what_was_used() {
    for budget in BUDGETS {
        for (before, hits, used, counted) in [
            (990, 5_000, 0, 990),
            (990, 5_000, 5, 995),
            (990, 5_000, 4_000, 1_000),
            (600, 600, 300, 900),
            (0, 5_000, 100, 100),
        ] {
            for way in [by_reservation as Way, by_bill] {
                let limiter = limiter(budget);
                assert!(before == 0 || way(&limiter, before, before));
                assert!(way(&limiter, hits, used));
                let left = left(&limiter);
                assert_eq!(left, LIMIT - counted, "{budget}: {hits}, {used}");
            }
        }
    }
}

#[test]
fn a_cancel_gives_back_what_was_taken() {
    for budget in BUDGETS {
        let limiter = limiter(budget);
        assert!(by_reservation(&limiter, 990, 990));
        let token = reserve(&limiter, 50_000).expect("10 are left");
        assert_eq!(left(&limiter), 0, "{budget}");
        assert_eq!(reserve(&limiter, 1), None, "{budget}");
        let settled = now(limiter.caller("me").cancel(&token)).expect("it is ours");
        assert_eq!(settled.limits, 1, "{budget}");
        assert_eq!(left(&limiter), 10, "{budget}");
    }
}

/// Calls: the hits that each reserves, and those that it uses.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let hits = || prop_oneof![1..50_u64, 1..600_u64, 1..20_000_u64];
    let used = prop_oneof![0..50_u64, 0..600_u64, 0..2_000_u64];
    prop::collection::vec((hits(), used), 1..30)
}

/// A call is let in while anything is left, and then costs what it used.
fn check_calls(budget: &str, way: Way, calls: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let limiter = limiter(budget);
    let mut spent = 0;
    for (hits, used) in calls {
        let is_allowed = way(&limiter, *hits, *used);
        prop_assert_eq!(is_allowed, spent < LIMIT, "{}", budget);
        spent += if is_allowed { *used } else { 0 };
        prop_assert_eq!(left(&limiter), LIMIT.saturating_sub(spent), "{}", budget);
    }
    Ok(())
}

/// A budget in shadow counts what was used, though it denies no one: whoever tries it out learns what it would deny.
fn check_shadow(budget: &str, calls: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let rules = rules(budget, "    shadow_mode: true");
    let limiter = Arc::new(limiter_with(rules, store()));
    let mut spent = 0;
    for (hits, used) in calls {
        prop_assert!(by_bill(&limiter, *hits, *used), "{}", budget);
        spent += used;
        prop_assert_eq!(left(&limiter), LIMIT.saturating_sub(spent), "{}", budget);
    }
    Ok(())
}

/// Calls of which several are under way at once: what costs no more than was taken for it is never lost.
fn check_together(budget: &str, calls: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let limiter = limiter(budget);
    let (mut spent, mut open) = (0, Vec::new());
    for (number, (hits, used)) in calls.iter().enumerate() {
        let was_left = left(&limiter);
        let token = reserve(&limiter, *hits);
        prop_assert_eq!(token.is_some(), was_left > 0, "{}", budget);
        if let Some(token) = token {
            open.push((token, *used.min(hits).min(&was_left)));
        }
        if number % 3 == 2 && !open.is_empty() {
            let (token, used) = open.remove(number % open.len());
            commit(&limiter, &token, used);
            spent += used;
        }
    }
    for (token, used) in open {
        commit(&limiter, &token, used);
        spent += used;
    }
    prop_assert_eq!(left(&limiter), LIMIT - spent, "{}", budget);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_used_counts_whatever_was_reserved(calls in calls()) {
        for budget in BUDGETS {
            check_calls(budget, by_reservation, &calls)?;
            check_calls(budget, by_bill, &calls)?;
            check_shadow(budget, &calls)?;
        }
    }

    #[test]
    fn reservations_that_are_open_together_lose_nothing(calls in calls()) {
        for budget in BUDGETS {
            check_together(budget, &calls)?;
        }
    }
}
