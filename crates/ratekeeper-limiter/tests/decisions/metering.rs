//! Calls of tenants, and the watch for growth: what counts as a call, and what does not.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{
    Admitted, BudgetUse, Check, Limiter, LimiterOptions, ReceiptMode, TICK_SECS, UsageMeter,
};
use ratekeeper_store::Answer;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

use crate::support::{START, rules};

const RULES: &str = "
domain: d
tenant: customer
evaluation: path
plans: [free]
tenants:
- { tenant: acme, plan: free }
descriptors:
  - key: customer
    rate_limit: { unit: hour, requests_per_unit: 3, algorithm: fixed_window }
    descriptors:
      - key: endpoint
        rate_limit: { unlimited: true }
  - key: budget
    descriptors:
      - key: customer
        rate_limit: { unit: hour, requests_per_unit: 10, burst: 10, algorithm: token_bucket, post_paid: true }
";

fn limiter() -> (Limiter<MemoryStore>, Arc<UsageMeter>) {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let meter = Arc::new(UsageMeter::default());
    let limiter = Limiter::new(rules(RULES), store, LimiterOptions::default());
    let limiter = limiter.with_meter(Arc::clone(&meter)).with_growth_watch();
    (limiter, meter)
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store decides at once"),
    }
}

/// Allowed and denied by rule, in the order of the rules' ids.
fn counts(meter: &UsageMeter) -> Vec<(String, u64, u64)> {
    let mut counts: Vec<_> = meter
        .counts()
        .into_iter()
        .map(|it| (it.rule.to_string(), it.allowed, it.denied))
        .collect();
    counts.sort_unstable();
    counts
}

/// Allowed and denied calls, whatever their rules.
fn calls(meter: &UsageMeter) -> Vec<(u64, u64)> {
    let calls = meter.calls();
    calls.iter().map(|it| (it.allowed, it.denied)).collect()
}

#[test]
fn calls_count_for_each_limit_that_answered_and_once_in_all() {
    let (limiter, meter) = limiter();
    let entries = [("customer", "acme"), ("endpoint", "orders")];
    let check = Check::new("d").descriptor(entries);
    let allowed: Vec<_> = (0..5)
        .map(|_| limiter.check_now(&check).allowed())
        .collect();
    assert_eq!(allowed, [true, true, true, false, false]);
    let of_customer = ("d.customer".to_owned(), 3, 2);
    let of_endpoint = ("d.customer.endpoint".to_owned(), 3, 0);
    assert_eq!(counts(&meter), [of_customer, of_endpoint]);
    assert_eq!(calls(&meter), [(3, 2)]);
    let names = meter.take_names();
    assert_eq!((names.len(), &*names[0].shown), (1, "acme"));
}

/// The budget has room for one more, whatever that costs, and then for none.
#[test]
fn of_a_budget_what_was_charged_counts_and_each_call() {
    let (limiter, meter) = limiter();
    let entries = [("budget", "tokens"), ("customer", "acme")];
    let check = Check::new("d").descriptor(entries).hits(25);
    assert!(limiter.check_now(&check).allowed());
    assert!(!limiter.check_now(&check).allowed());
    let charged = ("d.budget.customer".to_owned(), 50, 0);
    assert_eq!(counts(&meter), [charged]);
    assert_eq!(calls(&meter), [(1, 1)]);
}

fn admit(limiter: &Limiter<MemoryStore>, check: &Check<'_>) -> Admitted {
    let now = Timestamp::from_secs(START);
    match limiter.admit(check, now, ReceiptMode::Dropped) {
        Answer::Decided(admitted) => admitted,
        Answer::Pending(_) => panic!("the memory store decides at once"),
    }
}

/// The call counts when it is decided, and its hits when they are paid: years later here.
#[test]
fn of_a_budget_that_is_paid_later_what_was_used_counts() {
    for budgets in [BudgetUse::Look, BudgetUse::Reserve(4)] {
        let (limiter, meter) = limiter();
        let limiter = Arc::new(limiter);
        let entries = [("budget", "tokens"), ("customer", "acme")];
        let mut check = Check::new("d").descriptor(entries);
        check.budgets = budgets;
        let bill = || admit(&limiter, &check).bill.expect("it has a budget");
        let [unused, used] = [bill(), bill()];
        assert_eq!(calls(&meter), [(2, 0)], "{budgets:?}");
        let spent = |hits| ("d.budget.customer".to_owned(), hits, 0);
        assert_eq!(counts(&meter), [spent(0)], "{budgets:?}");
        assert!(unused.pay(&limiter, 0).is_none());
        assert_eq!(counts(&meter), [spent(0)], "no minute has more");
        assert!(used.pay(&limiter, 3).is_none());
        assert_eq!(counts(&meter), [spent(0), spent(3)], "{budgets:?}");
        assert_eq!(calls(&meter), [(2, 0)], "{budgets:?}");
    }
}

#[test]
fn a_budget_that_has_room_counts_no_call_that_another_limit_denies() {
    let (limiter, meter) = limiter();
    let entries = [("budget", "tokens"), ("customer", "acme")];
    let mut check = Check::new("d").descriptor(entries);
    check.budgets = BudgetUse::Reserve(4);
    check.push([("customer", "bob")]).hits = 4;
    assert!(!admit(&limiter, &check).decision.allowed());
    assert_eq!(counts(&meter), [("d.customer".to_owned(), 0, 1)]);
    assert_eq!(calls(&meter), [(0, 1)], "bob's alone");
}

#[test]
fn a_call_that_is_carried_out_once_counts_once() {
    let (limiter, meter) = limiter();
    let check = Check::new("d").descriptor([("customer", "acme")]);
    for is_repeat in [false, true] {
        let charged = now(limiter.caller("me").charge(&check, "key")).expect("carried out");
        assert_eq!(charged.is_repeat, is_repeat);
        assert_eq!(counts(&meter), [("d.customer".to_owned(), 1, 0)]);
        assert_eq!(calls(&meter), [(1, 0)]);
    }
}

#[test]
fn looks_and_refunds_are_no_calls() {
    let (limiter, meter) = limiter();
    let check = Check::new("d").descriptor([("customer", "acme")]);
    assert!(now(limiter.peek(&check)).1);
    assert!(limiter.explain_now(&check).allowed);
    let caller = limiter.caller("me");
    assert!(now(caller.refund(&check, None)).is_ok());
    assert_eq!(counts(&meter), []);
    assert_eq!(calls(&meter), []);
    assert_eq!(meter.take_names(), []);
    let growth = limiter.growth().expect("it is watched");
    growth.roll(Timestamp::from_secs(START));
    assert_eq!(growth.watched(), 0);
    assert!(limiter.check_now(&check).allowed());
    growth.roll(Timestamp::from_secs(START + TICK_SECS));
    assert_eq!(growth.watched(), 2, "the rule, and its caller");
}

/// One half of the name of a counter is that of the tenant, wherever the tenant stands.
#[test]
fn counters_of_one_tenant_have_its_name() {
    let (limiter, _) = limiter();
    let subjects = |entries: &[(&str, &str)]| {
        let check = Check::new("d").descriptor(entries.iter().copied());
        limiter.ask_at(&check, Timestamp::from_secs(START), |ruling| {
            let limits = ruling.limits().map(|(step, ..)| step.key.subject);
            limits.collect::<Vec<_>>()
        })
    };
    let acme = subjects(&[("customer", "acme")]);
    assert_eq!(acme.len(), 1);
    assert_eq!(subjects(&[("budget", "a"), ("customer", "acme")]), acme);
    assert_ne!(subjects(&[("budget", "a"), ("customer", "bob")]), acme);
}
