//! Permits, reservations and refunds, from rules in YAML to remaining hits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_limiter::{
    Admitted, Bill, BudgetUse, Check, Decision, HashKey, HoldError, Limiter, LimiterOptions,
    ReceiptMode, Reserve,
};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::Answer;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

/// A time in the window of 10,000 days before the present one.
const BEFORE: Timestamp = Timestamp::from_secs(15_000 * 86_400);

/// Windows whose next edge is decades away: no test sees them end.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window }
  - key: calls
    rate_limit: { window: 10000d, limit: 5, algorithm: token_bucket }
  - key: month
    rate_limit: { calendar: UTC, unit: month, limit: 100, algorithm: fixed_window }
  - key: budget
    rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: gcra, max_debt: 50 }
  - key: spend
    rate_limit: { window: 10000d, limit: 100, post_paid: true, algorithm: fixed_window }
  - key: job
    concurrency: { limit: 2, timeout: 60s }
    descriptors:
      - key: user
        rate_limit: { window: 10000d, limit: 3, algorithm: sliding_log }
";

fn rules(text: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

fn limiter_of(text: &str, seed: u8) -> Limiter<MemoryStore> {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let mut options = LimiterOptions::default();
    options.hash_key = Some(HashKey::from_bytes([seed; 16]));
    Limiter::new(rules(text), store, options)
}

fn limiter() -> Limiter<MemoryStore> {
    limiter_of(RULES, 1)
}

/// Resolves a future at once: the memory store never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store decides at once"),
    }
}

/// Makes a check of one descriptor for each key, with its hits.
fn with<T>(keys: &[(&str, i64)], ask: impl FnOnce(&Check<'_>) -> T) -> T {
    let mut check = Check::new("d");
    for (key, hits) in keys {
        check.push([(*key, "v")]).hits = *hits;
    }
    ask(&check)
}

fn left(decision: &Decision, status: usize) -> u64 {
    let binding = decision.answers()[status].binding.expect("a limit matched");
    binding.answered.remaining
}

fn remaining(limiter: &Limiter<MemoryStore>, key: &str) -> u64 {
    with(&[(key, 1)], |check| left(&now(limiter.peek(check)).0, 0))
}

fn acquire(limiter: &Limiter<MemoryStore>, key: Option<&str>) -> Option<String> {
    let acquired = with(&[("job", 1)], |check| {
        now(limiter.caller("me").acquire(check, key)).expect("acquired or denied")
    });
    let allowed = acquired.decision.allowed();
    let token = acquired.permit.map(|permit| {
        assert!(permit.expires_after <= Micros::from_secs(60));
        permit.token
    });
    assert_eq!(allowed, token.is_some());
    token
}

fn reserve(
    limiter: &Limiter<MemoryStore>,
    hits: u64,
    key: Option<&str>,
) -> Result<(Option<String>, bool), HoldError> {
    let reserved = with(&[("user", i64::try_from(hits).expect("small"))], |check| {
        let reserve = Reserve {
            hits,
            fixed: &[],
            ttl: Micros::from_secs(60),
            key,
        };
        now(limiter.caller("me").reserve(check, &reserve))
    })?;
    let token = reserved.reservation.map(|reservation| reservation.token);
    assert_eq!(reserved.decision.allowed(), token.is_some());
    Ok((token, reserved.is_repeat))
}

fn reserved(limiter: &Limiter<MemoryStore>, hits: u64) -> String {
    let (token, is_repeat) = reserve(limiter, hits, None).expect("reserved");
    assert!(!is_repeat);
    token.expect("there is room")
}

#[test]
fn a_permit_is_held_until_it_is_released() {
    let limiter = limiter();
    let first = acquire(&limiter, None).expect("the first of two");
    assert!(acquire(&limiter, None).is_some());
    assert!(acquire(&limiter, None).is_none(), "two are held");
    assert_eq!(
        now(limiter.caller("me").renew(&first)).map(|held| held.token),
        Ok(first.clone())
    );
    for was_held in [true, false] {
        let released = now(limiter.caller("me").release(&first)).expect("it is ours");
        assert_eq!(released.was_held, was_held);
    }
    assert_eq!(
        now(limiter.caller("me").renew(&first)),
        Err(HoldError::NotHeld)
    );
    assert!(acquire(&limiter, None).is_some());
    // A plain check cannot give back, so it takes no permit.
    with(&[("job", 1)], |check| {
        assert!(limiter.check_now(check).allowed())
    });
    assert_eq!(remaining(&limiter, "job"), 0);
}

#[test]
fn a_key_acquires_one_permit_however_often() {
    let limiter = limiter();
    let first = acquire(&limiter, Some("k")).expect("the first");
    assert_eq!(acquire(&limiter, Some("k")), Some(first.clone()));
    assert_eq!(remaining(&limiter, "job"), 1);
    assert!(
        now(limiter.caller("me").release(&first))
            .expect("ours")
            .was_held
    );
    assert_eq!(remaining(&limiter, "job"), 2);
    let other = with(&[("job", 1), ("calls", 1)], |check| {
        now(limiter.caller("me").acquire(check, Some("k"))).map(|_| ())
    });
    assert!(matches!(other, Err(HoldError::Conflict(_))), "{other:?}");
    assert_eq!(remaining(&limiter, "calls"), 5);
}

/// The texts are the same in the same order, but the domain differs.
#[test]
fn a_key_stands_for_the_domains_of_a_request_too() {
    let job =
        |key: &str| format!("  - {{ key: {key}, concurrency: {{ limit: 2, timeout: 60s }} }}\n");
    let domains = [
        ("d", job("a") + &job("p")),
        ("a", job("k")),
        ("v", job("p")),
    ];
    let sources = domains.map(|(domain, jobs)| Source {
        name: format!("{domain}.yaml"),
        text: format!("domain: {domain}\ndescriptors:\n{jobs}"),
    });
    let rules = match load(&sources, &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    };
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let limiter = Limiter::new(rules, store, LimiterOptions::default());
    let acquire = |descriptors: [((&str, &str), Option<&str>); 2]| {
        let mut check = Check::new("d");
        for (entry, domain) in descriptors {
            check.push([entry]).domain = domain;
        }
        now(limiter.caller("me").acquire(&check, Some("key")))
            .map(|acquired| acquired.permit.is_some())
    };
    let first = [(("a", "k"), None), (("p", "q"), Some("v"))];
    let other = [(("k", "v"), Some("a")), (("p", "q"), None)];
    assert_eq!(acquire(first), Ok(true));
    assert_eq!(acquire(first), Ok(true));
    let other = acquire(other);
    let said = Err(HoldError::Conflict("use another key for another request"));
    assert_eq!(other, said);
}

/// Rates and permits are taken together; a request without a concurrency limit holds nothing.
#[test]
fn rates_and_permits_are_taken_together() {
    let limiter = limiter_of(
        &RULES.replace("domain: d", "domain: d\nevaluation: path"),
        1,
    );
    let entries = [("job", "v"), ("user", "v")];
    let check = Check::new("d").descriptor(entries).hits(2);
    let first = now(limiter.caller("me").acquire(&check, None)).expect("allowed");
    assert!(first.decision.allowed() && first.permit.is_some());
    // Two of three calls are gone; the permit of the denied one is not.
    let denied = now(limiter.caller("me").acquire(&check, None)).expect("denied");
    assert!(!denied.decision.allowed() && denied.permit.is_none());
    assert_eq!(remaining(&limiter, "job"), 1);
    let nothing = with(&[("calls", 1)], |check| {
        now(limiter.caller("me").acquire(check, None))
    });
    let nothing = nothing.expect("allowed");
    assert!(nothing.decision.allowed() && nothing.permit.is_none());
}

#[test]
fn a_commit_gives_back_what_was_not_needed() {
    let limiter = limiter();
    let token = reserved(&limiter, 60);
    assert_eq!(remaining(&limiter, "user"), 40);
    assert_eq!(
        now(limiter.caller("me").commit(&token, 61)),
        Err(HoldError::TooMuch(60))
    );
    for is_repeat in [false, true, true] {
        let settled = now(limiter.caller("me").commit(&token, 25)).expect("it is ours");
        assert_eq!(
            (settled.given_back, settled.limits, settled.is_repeat),
            (35, 1, is_repeat)
        );
        assert_eq!(remaining(&limiter, "user"), 75);
    }
    for other in [
        now(limiter.caller("me").commit(&token, 24)),
        now(limiter.caller("me").cancel(&token)),
    ] {
        assert!(matches!(other, Err(HoldError::Conflict(_))), "{other:?}");
    }
    assert_eq!(remaining(&limiter, "user"), 75);
}

#[test]
fn all_of_it_is_committed_or_cancelled_once() {
    let limiter = limiter();
    let token = reserved(&limiter, 60);
    assert!(
        !now(limiter.caller("me").commit(&token, 60))
            .expect("ours")
            .is_repeat
    );
    assert!(now(limiter.caller("me").cancel(&token)).is_err());
    assert_eq!(remaining(&limiter, "user"), 40);
    let token = reserved(&limiter, 40);
    assert_eq!(reserve(&limiter, 1, None), Ok((None, false)), "denied");
    for _ in 0..2 {
        assert_eq!(
            now(limiter.caller("me").cancel(&token))
                .expect("ours")
                .given_back,
            40
        );
        assert_eq!(remaining(&limiter, "user"), 40);
    }
}

/// A call costs one, no matter how many tokens it takes.
#[test]
fn a_descriptor_with_hits_of_its_own_costs_those() {
    let limiter = limiter();
    let reserve = || {
        with(&[("user", 50), ("calls", 1)], |check| {
            let reserve = Reserve {
                hits: 50,
                fixed: &[false, true],
                ttl: Micros::from_secs(60),
                key: None,
            };
            let reserved =
                now(limiter.caller("me").reserve(check, &reserve)).expect("there is room");
            reserved.reservation.expect("allowed").token
        })
    };
    let settled = now(limiter.caller("me").commit(&reserve(), 0)).expect("ours");
    assert_eq!((settled.given_back, settled.limits), (50, 1));
    assert_eq!(
        (remaining(&limiter, "user"), remaining(&limiter, "calls")),
        (100, 4)
    );
    assert!(now(limiter.caller("me").cancel(&reserve())).is_ok());
    assert_eq!(
        (remaining(&limiter, "user"), remaining(&limiter, "calls")),
        (100, 4)
    );
}

#[test]
fn a_key_reserves_once_and_only_for_one_request() {
    let limiter = limiter();
    let (first, _) = reserve(&limiter, 30, Some("k")).expect("reserved");
    assert_eq!(reserve(&limiter, 30, Some("k")), Ok((first, true)));
    assert_eq!(remaining(&limiter, "user"), 70);
    let other = reserve(&limiter, 31, Some("k"));
    assert!(matches!(other, Err(HoldError::Conflict(_))), "{other:?}");
    assert_eq!(remaining(&limiter, "user"), 70);
}

/// Reserves five hits of two descriptors under one key; true if that was done before. Those that `fixed` tells are fixed.
fn reserve_fixed(limiter: &Limiter<MemoryStore>, fixed: &[bool]) -> Result<bool, HoldError> {
    let reserve = Reserve {
        hits: 5,
        fixed,
        ttl: Micros::from_secs(60),
        key: Some("k"),
    };
    with(&[("user", 5), ("calls", 5)], |check| {
        let reserved = now(limiter.caller("me").reserve(check, &reserve))?;
        Ok(reserved.is_repeat)
    })
}

/// A commit gives back less of the other one.
#[test]
fn a_key_tells_apart_hits_that_are_fixed() {
    let limiter = limiter();
    let reserve = |fixed: &[bool]| reserve_fixed(&limiter, fixed);
    assert_eq!(reserve(&[]), Ok(false));
    assert_eq!(reserve(&[false, false]), Ok(true), "nothing is fixed");
    let said = Err(HoldError::Conflict("use another key for another request"));
    for fixed in [&[true][..], &[false, true], &[true, true]] {
        assert_eq!(reserve(fixed), said, "{fixed:?}");
    }
    assert_eq!(remaining(&limiter, "user"), 95);
}

#[test]
fn a_key_reserves_once_with_hits_that_are_fixed() {
    let limiter = limiter();
    let reserve = |fixed: &[bool]| reserve_fixed(&limiter, fixed);
    assert_eq!(reserve(&[true]), Ok(false));
    assert_eq!(reserve(&[true, false]), Ok(true), "the same");
    let other = reserve(&[false, true]);
    assert!(matches!(other, Err(HoldError::Conflict(_))), "{other:?}");
}

#[test]
fn a_reservation_that_is_late_stays_charged() {
    let limiter = limiter();
    let token = with(&[("user", 10)], |check| {
        let reserve = Reserve {
            hits: 10,
            fixed: &[],
            ttl: Micros::ZERO,
            key: None,
        };
        now(limiter.caller("me").reserve(check, &reserve))
            .expect("reserved")
            .reservation
    });
    let token = token.expect("allowed").token;
    assert_eq!(
        now(limiter.caller("me").commit(&token, 0)),
        Err(HoldError::Expired)
    );
    assert_eq!(
        now(limiter.caller("me").cancel(&token)),
        Err(HoldError::Expired)
    );
    assert_eq!(remaining(&limiter, "user"), 90);
}

#[test]
fn tokens_are_of_one_kind_one_caller_and_one_seed() {
    let limiter = limiter();
    let (permit, reservation) = (
        acquire(&limiter, None).expect("a permit"),
        reserved(&limiter, 10),
    );
    assert_eq!(
        now(limiter.caller("you").release(&permit)),
        Err(HoldError::Foreign)
    );
    assert_eq!(
        now(limiter.caller("").renew(&permit)),
        Err(HoldError::Foreign)
    );
    assert_eq!(
        now(limiter.caller("you").commit(&reservation, 0)),
        Err(HoldError::Foreign)
    );
    let mixed = [
        now(limiter.caller("me").release(&reservation)).map(|_| ()),
        now(limiter.caller("me").cancel(&permit)).map(|_| ()),
    ];
    for wrong in mixed {
        assert!(matches!(wrong, Err(HoldError::WrongKind(_))), "{wrong:?}");
    }
    let other = limiter_of(RULES, 2);
    assert_eq!(
        now(other.caller("me").release(&permit)),
        Err(HoldError::Malformed)
    );
    assert_eq!(
        now(other.caller("me").cancel(&reservation)),
        Err(HoldError::Malformed)
    );
    assert_eq!(
        now(limiter.caller("me").cancel("x")),
        Err(HoldError::Malformed)
    );
    assert_eq!(
        (remaining(&limiter, "job"), remaining(&limiter, "user")),
        (1, 90)
    );
}

/// Holds under rules that are gone give nothing back; a changed limit with the same counter is
/// still the same rule.
#[test]
fn rules_may_change_in_between() {
    let limiter = limiter();
    let (raised, gone) = (reserved(&limiter, 10), reserved(&limiter, 20));
    let permit = acquire(&limiter, None).expect("a permit");
    limiter.replace_rules(rules(&RULES.replace(": 100,", ": 200,")));
    let settled = now(limiter.caller("me").cancel(&raised)).expect("ours");
    assert_eq!((settled.limits, settled.limits_gone), (1, 0));
    assert_eq!(remaining(&limiter, "user"), 180);
    limiter.replace_rules(rules("domain: d\ndescriptors:\n  - key: other\n"));
    let settled = now(limiter.caller("me").cancel(&gone)).expect("ours");
    assert_eq!((settled.limits, settled.limits_gone), (0, 1));
    assert!(
        !now(limiter.caller("me").release(&permit))
            .expect("ours")
            .was_held
    );
    assert_eq!(
        now(limiter.caller("me").renew(&permit)),
        Err(HoldError::NotHeld)
    );
}

/// Though another rule has the same limit.
#[test]
fn a_rule_that_is_gone_is_not_taken_for_another() {
    let text = |keys: &[&str]| {
        let rule = |key: &&str| {
            let limit = "{ window: 10000d, limit: 100, algorithm: fixed_window }";
            format!("  - {{ key: {key}, rate_limit: {limit} }}\n")
        };
        let all: String = keys.iter().map(rule).collect();
        format!("domain: d\ndescriptors:\n{all}")
    };
    let limiter = limiter_of(&text(&["user", "twin"]), 1);
    let token = reserved(&limiter, 10);
    limiter.replace_rules(rules(&text(&["twin"])));
    let settled = now(limiter.caller("me").cancel(&token)).expect("ours");
    assert_eq!((settled.limits, settled.limits_gone), (0, 1));
}

#[test]
fn a_refund_gives_back_once_a_key() {
    let limiter = limiter();
    with(&[("user", 50)], |check| {
        assert!(limiter.check_now(check).allowed())
    });
    with(&[("user", 20)], |check| {
        for left_after in [70, 90] {
            let decision = now(limiter.caller("me").refund(check, None)).expect("given back");
            assert_eq!(left(&decision, 0), left_after);
        }
        assert!(limiter.check_now(check).allowed());
        for _ in 0..2 {
            let decision = now(limiter.caller("me").refund(check, Some("k"))).expect("given back");
            assert_eq!(left(&decision, 0), 90);
        }
    });
    assert_eq!(remaining(&limiter, "user"), 90);
}

#[test]
fn a_peek_looks_at_permits_too() {
    let limiter = limiter();
    let would = || {
        with(&[("job", 1), ("user", 7)], |check| {
            now(limiter.peek(check)).1
        })
    };
    assert!(would());
    let permits = [acquire(&limiter, None), acquire(&limiter, None)];
    assert!(!would());
    let token = permits[0].as_deref().expect("held");
    assert!(now(limiter.caller("me").release(token)).is_ok());
    assert!(would());
    assert_eq!(limiter.store().stats().counters, 1, "a peek makes none");
}

/// It ends when the calendar says so, which a node tells the store.
#[test]
fn what_was_reserved_of_a_month_is_given_back_to_it() {
    let limiter = limiter();
    let token = with(&[("month", 60)], |check| {
        let reserve = Reserve {
            hits: 60,
            fixed: &[],
            ttl: Micros::from_secs(60),
            key: None,
        };
        let reserved = now(limiter.caller("me").reserve(check, &reserve));
        reserved.expect("there is room").reservation
    });
    let token = token.expect("allowed").token;
    assert_eq!(remaining(&limiter, "month"), 40);
    let settled = now(limiter.caller("me").commit(&token, 25)).expect("it is ours");
    assert_eq!((settled.given_back, settled.limits), (35, 1));
    assert_eq!(remaining(&limiter, "month"), 75);
}

fn debt_cut(limiter: &Limiter<MemoryStore>) -> u64 {
    let snapshot = limiter.snapshot();
    snapshot.stats().map(|stats| stats.counts().debt_cut).sum()
}

#[test]
fn a_budget_is_charged_what_was_used_beyond_the_reservation() {
    let limiter = limiter();
    let reserve = |hits: u64| {
        let reserved = with(
            &[("budget", i64::try_from(hits).expect("small"))],
            |check| {
                let reserve = Reserve {
                    hits,
                    fixed: &[],
                    ttl: Micros::from_secs(60),
                    key: None,
                };
                now(limiter.caller("me").reserve(check, &reserve))
            },
        );
        let reserved = reserved.expect("it is carried out").reservation;
        reserved.expect("allowed").token
    };
    let token = reserve(10);
    let settled = now(limiter.caller("me").commit(&token, 35)).expect("ours");
    assert_eq!((settled.given_back, settled.limits), (0, 1));
    assert_eq!((remaining(&limiter, "budget"), debt_cut(&limiter)), (65, 0));
    let token = reserve(10);
    let settled = now(limiter.caller("me").commit(&token, 1_000)).expect("ours");
    assert_eq!((settled.given_back, settled.limits), (0, 1));
    assert!((880..=885).contains(&debt_cut(&limiter)), "50 are owed");
}

#[test]
fn hits_beyond_the_largest_debt_are_counted_as_cut() {
    let limiter = limiter();
    with(&[("budget", 90)], |check| {
        assert!(limiter.check_now(check).allowed());
        assert_eq!(debt_cut(&limiter), 0);
        assert!(limiter.check_now(check).allowed());
    });
    assert!((25..=30).contains(&debt_cut(&limiter)), "150 of 180");
}

#[test]
fn a_budget_is_charged_once_a_key() {
    let limiter = limiter();
    with(&[("budget", 30)], |check| {
        for is_repeat in [false, true] {
            let charged = now(limiter.caller("me").charge(check, "k")).expect("charged");
            assert_eq!(
                (charged.decision.allowed(), charged.is_repeat),
                (true, is_repeat)
            );
            assert_eq!(remaining(&limiter, "budget"), 70);
        }
        let again = now(limiter.caller("me").charge(check, "other")).expect("charged");
        assert!(!again.is_repeat);
    });
    assert_eq!(remaining(&limiter, "budget"), 40);
}

fn admit(limiter: &Limiter<MemoryStore>, check: &Check<'_>, receipt: ReceiptMode) -> Admitted {
    admit_at(limiter, check, limiter.clock().now(), receipt)
}

fn admit_at(
    limiter: &Limiter<MemoryStore>,
    check: &Check<'_>,
    now: Timestamp,
    receipt: ReceiptMode,
) -> Admitted {
    match limiter.admit(check, now, receipt) {
        Answer::Decided(admitted) => admitted,
        Answer::Pending(_) => panic!("the memory store decides at once"),
    }
}

#[test]
fn what_was_admitted_is_given_back_by_its_receipt() {
    let limiter = limiter();
    with(&[("user", 60)], |check| {
        assert!(
            admit(&limiter, check, ReceiptMode::Dropped)
                .receipt
                .is_none()
        );
        let denied = admit(&limiter, check, ReceiptMode::Kept);
        assert!(!denied.decision.allowed() && denied.receipt.is_none());
    });
    with(&[("user", 30)], |check| {
        let admitted = admit(&limiter, check, ReceiptMode::Kept);
        assert_eq!(remaining(&limiter, "user"), 10);
        let receipt = admitted.receipt.expect("it is kept");
        assert!(receipt.give_back(&limiter).is_none());
    });
    assert_eq!(remaining(&limiter, "user"), 40);
}

#[test]
fn what_was_taken_of_a_window_that_has_ended_is_not_given_back() {
    let limiter = limiter();
    with(&[("user", 30)], |check| {
        let before = admit_at(&limiter, check, BEFORE, ReceiptMode::Kept);
        assert!(limiter.check_now(check).allowed());
        let receipt = before.receipt.expect("it is kept");
        assert!(receipt.give_back(&limiter).is_none());
    });
    assert_eq!(remaining(&limiter, "user"), 70);
}

#[test]
fn a_receipt_has_nothing_of_a_limit_that_only_watches_and_was_over() {
    let limiter = limiter_of(
        "
domain: d
descriptors:
  - key: user
    shadow_mode: true
    rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window }
",
        1,
    );
    with(&[("user", 60)], |check| {
        assert!(limiter.check_now(check).allowed());
        let admitted = admit(&limiter, check, ReceiptMode::Kept);
        assert_eq!(admitted.decision.shadowed().len(), 1);
        let receipt = admitted.receipt.expect("it is kept");
        assert!(receipt.give_back(&limiter).is_none());
    });
    assert_eq!(remaining(&limiter, "user"), 40);
}

#[test]
fn slots_are_held_until_they_are_released() {
    let limiter = limiter();
    with(&[("job", 1)], |check| {
        let held = [(); 2].map(|()| admit(&limiter, check, ReceiptMode::Dropped).slots);
        assert_eq!(remaining(&limiter, "job"), 0);
        let denied = admit(&limiter, check, ReceiptMode::Dropped);
        assert!(!denied.decision.allowed() && denied.slots.is_none());
        for (slots, left) in held.into_iter().zip(1..) {
            let slots = slots.expect("a slot");
            assert_eq!(slots.expires_after(), Micros::from_secs(60));
            assert_eq!(now(slots.renew(&limiter)), Ok(()));
            assert!(slots.release(&limiter).is_none());
            assert_eq!(now(slots.renew(&limiter)), Err(HoldError::NotHeld));
            assert_eq!(remaining(&limiter, "job"), left);
        }
    });
    with(&[("user", 1)], |check| {
        assert!(admit(&limiter, check, ReceiptMode::Dropped).slots.is_none());
    });
}

#[test]
fn a_bill_is_paid_by_what_was_used() {
    let limiter = Arc::new(limiter());
    let bill = |budgets, key| {
        with(&[(key, 1)], |check| {
            let mut check = check.clone();
            check.budgets = budgets;
            admit(&limiter, &check, ReceiptMode::Dropped).bill
        })
    };
    assert!(bill(BudgetUse::Look, "user").is_none());
    assert!(bill(BudgetUse::Charge, "budget").is_none());
    assert_eq!(remaining(&limiter, "budget"), 99);
    let look = bill(BudgetUse::Look, "budget").expect("a bill");
    assert_eq!(remaining(&limiter, "budget"), 99, "it only looked");
    assert!(look.pay(&limiter, 9).is_none());
    assert_eq!(remaining(&limiter, "budget"), 90);
    for (hits, left) in [(5, 85), (20, 65), (40, 25)] {
        let reserved = bill(BudgetUse::Reserve(20), "budget").expect("a bill");
        assert!(reserved.pay(&limiter, hits).is_none());
        assert_eq!(remaining(&limiter, "budget"), left, "{hits}");
    }
    let dropped = bill(BudgetUse::Reserve(15), "budget");
    drop(dropped.expect("a bill"));
    assert_eq!(remaining(&limiter, "budget"), 10);
    assert_eq!(debt_cut(&limiter), 0);
    let large = bill(BudgetUse::Look, "budget").expect("a bill");
    assert!(large.pay(&limiter, 100).is_none());
    assert!((35..=40).contains(&debt_cut(&limiter)), "50 are owed");
    // Over, it takes nothing, and costs what it is used for all the same.
    let over = bill(BudgetUse::Reserve(20), "budget").expect("a bill");
    assert!(over.pay(&limiter, 0).is_none());
    assert_eq!(remaining(&limiter, "budget"), 0);
}

/// Reserves 20 hits of a budget, with what else is asked for. Returns if it is allowed, and its bill.
fn reserving(
    limiter: &Limiter<MemoryStore>,
    others: &[(&str, i64)],
    now: Timestamp,
) -> (bool, Bill) {
    let keys = [others, &[("spend", 1)]].concat();
    with(&keys, |check| {
        let mut check = check.clone();
        check.budgets = BudgetUse::Reserve(20);
        let admitted = admit_at(limiter, &check, now, ReceiptMode::Dropped);
        let bill = admitted.bill.expect("it has a budget");
        (admitted.decision.allowed(), bill)
    })
}

fn spend(limiter: &Limiter<MemoryStore>, hits: i64) {
    with(&[("spend", hits)], |check| {
        assert!(limiter.check_now(check).allowed())
    });
}

#[test]
fn a_bill_gives_back_what_still_counts() {
    let limiter = Arc::new(limiter());
    let (is_allowed, bill) = reserving(&limiter, &[], BEFORE);
    assert!(is_allowed);
    spend(&limiter, 50);
    assert!(bill.pay(&limiter, 5).is_none());
    assert_eq!(remaining(&limiter, "spend"), 50, "that window has ended");
}

#[test]
fn a_denied_request_has_reserved_nothing() {
    let limiter = Arc::new(limiter());
    spend(&limiter, 50);
    let (is_allowed, bill) = reserving(&limiter, &[("calls", 6)], limiter.clock().now());
    assert!(!is_allowed);
    assert!(bill.pay(&limiter, 0).is_none());
    assert_eq!(remaining(&limiter, "spend"), 50);
}

#[test]
fn a_bill_gives_back_what_an_overdrawn_budget_still_counts() {
    for algorithm in [
        "fixed_window",
        "sliding_window, consistency: synced",
        "sliding_window",
        "sliding_log",
    ] {
        let budget = format!(
            "
domain: d
descriptors:
  - key: budget
    rate_limit: {{ window: 10000d, limit: 100, post_paid: true, algorithm: {algorithm} }}
"
        );
        let limiter = Arc::new(limiter_of(&budget, 1));
        let reserve = || {
            let mut check = Check::new("d").descriptor([("budget", "v")]);
            check.budgets = BudgetUse::Reserve(60);
            let admitted = admit(&limiter, &check, ReceiptMode::Dropped);
            assert!(admitted.decision.allowed(), "{algorithm}");
            admitted.bill.expect("a bill")
        };
        for used in [60, 10] {
            assert!(reserve().pay(&limiter, used).is_none());
        }
        assert_eq!(remaining(&limiter, "budget"), 30, "{algorithm}");
    }
}
