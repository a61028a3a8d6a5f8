//! A limiter whose store answers later, as a test says: what it is asked, and what its answers mean.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_limiter::{
    Bill, BroughtLimit, BudgetUse, Check, Fallback, FallbackConfig, HashKey, HoldError, Limiter,
    LimiterOptions, OwnLimit, PendingAdmission, Receipt, ReceiptMode, Reserve, Waiting,
};
use ratekeeper_rules::{FailureMode, Options, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{
    Answer, Execution, Extra, Request, Step, Store, StoreError, StoreSlot, Verdicts,
};

/// A window whose next edge is decades away.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window }
  - key: queue
    rate_limit: { window: 10s, limit: 10, algorithm: leaky_bucket }
  - key: budget
    rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: gcra, max_debt: 50 }
";

const HASH_KEY: HashKey = HashKey::from_bytes([3; 16]);

type Reply = Result<Verdicts, StoreError>;

/// A ticket that a test answers.
#[derive(Clone, Debug, Default)]
struct Later(Arc<Mutex<Option<Reply>>>);

impl Later {
    fn answer(&self, reply: Reply) {
        *self.0.lock() = Some(reply);
    }
}

impl Future for Later {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        self.0.lock().take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A request to the store.
#[derive(Debug)]
struct Asked {
    steps: Vec<Step>,
    mode: Mode,
    now: Timestamp,
    extra: Option<Extra>,
    named_by: Option<HashKey>,
    later: Later,
}

#[derive(Debug)]
struct Slow {
    inner: MemoryStore,
    asked: Mutex<VecDeque<Asked>>,
}

impl Store for Slow {
    type Ticket = Later;

    fn decide(&self, request: &Request<'_>) -> Answer<Later> {
        let later = Later::default();
        self.asked.lock().push_back(Asked {
            steps: request.steps.to_vec(),
            mode: request.mode,
            now: request.now,
            extra: request.extra.copied(),
            named_by: request.named_by,
            later: later.clone(),
        });
        Answer::Pending(later)
    }

    fn late(ticket: Later) -> Option<Later> {
        Some(ticket)
    }

    fn leases(&self, _: StoreSlot) -> bool {
        true
    }
}

impl Slow {
    /// The next request that it was asked.
    fn next(&self) -> Asked {
        self.asked.lock().pop_front().expect("it was asked")
    }

    /// The verdicts on a request.
    fn verdicts(&self, asked: &Asked) -> Verdicts {
        self.inner.decide_now(&Request {
            extra: asked.extra.as_ref(),
            ..Request::new(&asked.steps, asked.mode, asked.now)
        })
    }
}

fn memory() -> MemoryConfig {
    MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    }
}

fn compiled(text: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    loaded.unwrap_or_else(|refused| panic!("{refused}")).rules
}

/// A limiter without failure modes of its own.
fn alone() -> Limiter<Slow> {
    let rules = compiled(RULES);
    let store = Slow {
        inner: MemoryStore::new(memory()).expect("the least store"),
        asked: Mutex::default(),
    };
    let mut options = LimiterOptions::default();
    options.hash_key = Some(HASH_KEY);
    Limiter::new(rules, store, options)
}

fn limiter() -> Arc<Limiter<Slow>> {
    let config = FallbackConfig {
        memory: memory(),
        local_factor: 1.0,
    };
    let fallback = Fallback::new(config).expect("the least store");
    Arc::new(alone().with_fallback(fallback))
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Resolves a future that asks the store once and reads its answer.
fn answered<T>(
    limiter: &Limiter<Slow>,
    future: impl Future<Output = T>,
    reply: impl FnOnce(&Asked) -> Reply,
) -> T {
    let mut future = pin!(future);
    assert!(poll(future.as_mut()).is_pending());
    let asked = limiter.store().next();
    asked.later.answer(reply(&asked));
    match poll(future.as_mut()) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it has the answer"),
    }
}

fn admit(limiter: &Limiter<Slow>, check: &Check<'_>) -> PendingAdmission<Later> {
    match limiter.admit(check, limiter.clock().now(), ReceiptMode::Kept) {
        Answer::Pending(pending) => pending,
        Answer::Decided(_) => panic!("the store answers later"),
    }
}

/// The receipt of a request that the store allows.
fn receipt(limiter: &Limiter<Slow>, key: &str, hits: i64) -> Receipt {
    let check = Check::new("d").descriptor([(key, "v")]).hits(hits);
    let pending = admit(limiter, &check);
    let asked = limiter.store().next();
    let admitted = pending.conclude(limiter, Ok(limiter.store().verdicts(&asked)));
    admitted.receipt.expect("it is kept")
}

/// The steps of a request that makes such use of the budget, as the store is asked for them, and its bill.
fn billed(limiter: &Limiter<Slow>, budgets: BudgetUse) -> (Vec<Step>, Bill) {
    let mut check = Check::new("d").descriptor([("budget", "v")]);
    check.budgets = budgets;
    let pending = admit(limiter, &check);
    let asked = limiter.store().next();
    let admitted = pending.conclude(limiter, Ok(limiter.store().verdicts(&asked)));
    (asked.steps, admitted.bill.expect("it has a budget"))
}

/// The bill of a request that reserves 20 hits of the budget.
fn bill(limiter: &Limiter<Slow>) -> Bill {
    billed(limiter, BudgetUse::Reserve(20)).1
}

/// The steps by which a bill of so many hits is paid.
fn paid(limiter: &Arc<Limiter<Slow>>, bill: Bill, hits: u64) -> Vec<Step> {
    let paying = bill.pay(limiter, hits).expect("the store is slow");
    let mut paying = pin!(paying);
    assert!(poll(paying.as_mut()).is_pending());
    let asked = limiter.store().next();
    asked.later.answer(Ok(limiter.store().verdicts(&asked)));
    assert!(poll(paying.as_mut()).is_ready());
    asked.steps
}

/// Rules with a budget of 100 hits and that consistency.
fn consistent(consistency: &str) -> RuleSet {
    let limit = format!(
        "window: 10000d, limit: 100, post_paid: true, algorithm: fixed_window, consistency: {consistency}"
    );
    compiled(&format!(
        "domain: d\ndescriptors: [ {{ key: budget, rate_limit: {{ {limit} }} }} ]\n"
    ))
}

const RELOADS: [(&str, &str); 4] = [
    ("exact", "exact"),
    ("exact", "synced"),
    ("synced", "exact"),
    ("synced", "synced"),
];

#[test]
fn an_answer_must_be_heard_where_a_turn_or_reserved_hits_may_be_taken() {
    let limiter = limiter();
    for (key, hits, budgets, expected) in [
        ("user", 1, BudgetUse::Reserve(20), false),
        ("queue", 1, BudgetUse::Charge, true),
        ("queue", 0, BudgetUse::Charge, false),
        ("budget", 1, BudgetUse::Reserve(20), true),
        ("budget", 1, BudgetUse::Look, false),
        ("budget", 1, BudgetUse::Charge, false),
    ] {
        let mut check = Check::new("d").descriptor([(key, "v")]).hits(hits);
        check.waiting = Waiting::Can;
        check.budgets = budgets;
        let heard = admit(&limiter, &check).must_be_heard();
        assert_eq!(heard, expected, "{key} {hits} {budgets:?}");
    }
}

#[test]
fn what_is_given_back_is_named_by_the_hash_key() {
    let limiter = limiter();
    let ticket = receipt(&limiter, "user", 3).give_back(&limiter);
    assert!(ticket.is_some());
    let asked = limiter.store().next();
    assert_eq!(asked.steps[0].hits, -3);
    assert_eq!(asked.named_by, Some(HASH_KEY));
}

#[test]
fn a_request_that_took_nothing_gives_nothing_back() {
    let limiter = limiter();
    assert!(receipt(&limiter, "user", 0).give_back(&limiter).is_none());
    assert!(limiter.store().asked.lock().is_empty());
}

/// A store that has started over has no records from before; one whose clock is past the end needs none.
#[test]
fn a_settlement_that_the_store_cannot_tell_is_forgotten_until_it_expires() {
    let limiter = limiter();
    let caller = limiter.caller("me");
    let check = Check::new("d").descriptor([("user", "v")]).hits(10);
    let ttl = Micros::from_secs(60);
    let reserve = Reserve {
        hits: 10,
        fixed: &[],
        ttl,
        key: None,
    };
    let reserving = caller.reserve(&check, &reserve);
    let mut taken_at = Timestamp::from_secs(0);
    let reserved = answered(&limiter, reserving, |asked| {
        let verdicts = limiter.store().verdicts(asked);
        taken_at = verdicts.at;
        Ok(verdicts)
    });
    let token = reserved.expect("carried out").reservation;
    let token = token.expect("allowed").token;
    for (at, expected) in [
        (taken_at, HoldError::Forgotten),
        (taken_at.after(ttl), HoldError::Expired),
    ] {
        let settled = answered(&limiter, caller.commit(&token, 4), |_| {
            Ok(Verdicts {
                allowed: false,
                outcomes: Default::default(),
                at,
                execution: Execution::Unknown,
            })
        });
        assert_eq!(settled, Err(expected));
    }
}

/// The answer to a charge is waited for, since the store may have charged it; what was to be given back is not.
#[test]
fn a_bill_that_times_out_waits_for_what_was_charged() {
    for (hits, is_awaited) in [(30, true), (5, false)] {
        let limiter = limiter();
        let paying = bill(&limiter)
            .pay(&limiter, hits)
            .expect("the store is slow");
        let mut paying = pin!(paying);
        assert!(poll(paying.as_mut()).is_pending());
        let asked = limiter.store().next();
        asked.later.answer(Err(StoreError::Timeout));
        assert!(poll(paying.as_mut()).is_ready());
        let counts = limiter.owed();
        assert_eq!((counts.owed, counts.unknown), (0, 0), "{hits}");
        assert_eq!(limiter.flush_owed(), is_awaited, "{hits}");
        // It comes after all.
        asked.later.answer(Ok(limiter.store().verdicts(&asked)));
        while limiter.flush_owed() {
            std::thread::yield_now();
        }
        let counts = limiter.owed();
        assert_eq!((counts.owed, counts.unknown), (0, 0), "{hits}");
    }
}

/// The rules that are in force when a counter is charged say where it is kept.
#[test]
fn a_bill_is_paid_as_the_rules_say_by_then() {
    let limiter = limiter();
    for (before, after) in RELOADS {
        limiter.replace_rules(consistent(before));
        let (looked, bill) = billed(&limiter, BudgetUse::Look);
        limiter.replace_rules(consistent(after));
        let paid = paid(&limiter, bill, 30);
        for (steps, consistency) in [(looked, before), (paid, after)] {
            let is_synced = !steps[0].sync.is_zero();
            assert_eq!(is_synced, consistency == "synced", "{before} to {after}");
        }
    }
}

/// The store took the hits, whatever the rules say: a node's own counter has none of them.
#[test]
fn what_was_reserved_is_settled_in_the_counter_that_it_was_taken_of() {
    let limiter = limiter();
    for (before, after) in RELOADS {
        for used in [5, 30] {
            limiter.replace_rules(consistent(before));
            let (reserved, bill) = billed(&limiter, BudgetUse::Reserve(20));
            limiter.replace_rules(consistent(after));
            let settled = paid(&limiter, bill, used);
            assert_eq!(reserved[0].key, settled[0].key);
            for step in [reserved[0], settled[0]] {
                assert!(step.sync.is_zero(), "{before} to {after}: {used}");
            }
        }
    }
}

#[test]
fn a_limit_of_the_request_has_its_own_answer_when_the_store_has_none() {
    let limiter = alone();
    let spec = LimitSpec::new(Algorithm::FixedWindow, 3, Micros::from_secs(60));
    let limit = Limit::try_new(spec).expect("a valid limit");
    for (on_store_failure, allowed) in [
        (FailureMode::Deny, false),
        (FailureMode::Allow, true),
        (FailureMode::Local, true),
    ] {
        let own = OwnLimit {
            limit,
            on_store_failure,
        };
        let mut check = Check::new("d");
        check.push([("kind", "own")]).limit = Some(BroughtLimit::Own(&own));
        let away = |_: &Asked| Err(StoreError::Unavailable);
        let decision = answered(&limiter, limiter.check(&check), away);
        assert_eq!(decision.allowed(), allowed, "{on_store_failure:?}");
    }
}
