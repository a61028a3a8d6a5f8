//! The same budgets in a store that answers too late or not at all: nobody gets back what was never taken.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use proptest::prelude::*;
use ratekeeper_core::{Limit, Mode};
use ratekeeper_limiter::{
    Admitted, BudgetUse, Clock, Fallback, FallbackConfig, Limiter, PendingAdmission, ReceiptMode,
    UsageMeter,
};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{
    Answer, Charge, Post, Request, Step, Store, StoreError, StoreSlot, Verdicts,
};

use super::{BUDGETS, LIMIT, check, limiter_with, rules, store};

type Reply = Result<Verdicts, StoreError>;

/// The store's answers to one request: the second one is late.
#[derive(Debug)]
struct Replies(VecDeque<Reply>);

impl Future for Replies {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Reply> {
        self.0.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The condition of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    /// It answers in time.
    Well,
    /// It carries requests out, and its answers come too late.
    Slow,
    /// It cannot be reached.
    Away,
}

/// A store as Redis is one: with exact counters of all nodes, synced ones of this node, and such a health.
#[derive(Debug)]
struct Remote {
    exact: Arc<MemoryStore>,
    synced: MemoryStore,
    /// The limit of all its counters.
    limit: Limit,
    health: Mutex<Health>,
}

impl Store for Remote {
    type Ticket = Replies;

    fn decide(&self, request: &Request<'_>) -> Answer<Replies> {
        let is_synced = |step: &Step| !step.sync.is_zero();
        if request.steps.iter().all(is_synced) {
            return Answer::Decided(self.synced.decide_now(request));
        }
        if request.steps.iter().any(is_synced) {
            return Answer::Decided(self.look(request));
        }
        let decide = || Ok(self.exact.decide_now(request));
        let replies = match *self.health.lock() {
            Health::Well => vec![decide()],
            Health::Slow => vec![Err(StoreError::Timeout), decide()],
            Health::Away => vec![Err(StoreError::Unavailable)],
        };
        Answer::Pending(Replies(replies.into()))
    }

    fn post(&self, post: &Post) -> Option<Replies> {
        // What is owed is charged in full.
        let steps = [Step {
            limit: self.limit,
            charge: Charge::Always,
            ..post.step
        }];
        let request = Request::new(&steps, Mode::default(), Clock::new().now());
        Some(Replies([Ok(self.exact.decide_now(&request))].into()))
    }

    fn late(ticket: Replies) -> Option<Replies> {
        Some(ticket)
    }

    // Else nothing would be synced.
    fn leases(&self, _: StoreSlot) -> bool {
        true
    }
}

impl Remote {
    /// Looks at counters of both kinds.
    fn look(&self, request: &Request<'_>) -> Verdicts {
        let mut verdicts = self.exact.decide_now(request);
        let synced = self.synced.decide_now(request);
        for (number, step) in request.steps.iter().enumerate() {
            assert_eq!(step.hits, 0, "it is no look");
            if !step.sync.is_zero() {
                verdicts.outcomes[number] = synced.outcomes[number];
            }
        }
        verdicts
    }
}

/// A way to answer without the store: the failure mode, and the factor of a limit on this node alone.
type Alone<'a> = (&'a str, f64);

/// A node that has its exact counters in `exact`.
fn node(budget: &str, alone: Alone<'_>, exact: &Arc<MemoryStore>) -> Arc<Limiter<Remote>> {
    metered(budget, alone, exact, &Arc::default())
}

/// The same, with a meter of calls.
fn metered(
    budget: &str,
    (mode, local_factor): Alone<'_>,
    exact: &Arc<MemoryStore>,
    meter: &Arc<UsageMeter>,
) -> Arc<Limiter<Remote>> {
    let rules = rules(budget, &format!("    on_store_failure: {mode}"));
    let limit = rules.rules()[0].limited().copied().expect("a limit");
    let memory = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let fallback = Fallback::new(FallbackConfig {
        memory,
        local_factor,
    });
    let remote = Remote {
        exact: Arc::clone(exact),
        synced: store(),
        limit,
        health: Mutex::new(Health::Well),
    };
    let limiter = limiter_with(rules, remote).with_fallback(fallback.expect("the least store"));
    Arc::new(limiter.with_meter(Arc::clone(meter)))
}

/// Resolves a future whose store has its answers ready.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the answers are there"),
    }
}

fn turn(limiter: &Limiter<Remote>, health: Health) {
    *limiter.store().health.lock() = health;
}

/// Waits until the store has what is owed, and late answers were heard.
fn settle(limiter: &Limiter<Remote>) {
    turn(limiter, Health::Well);
    while limiter.flush_owed() {
        std::thread::yield_now();
    }
}

/// The hits left of the counter that a request sees which makes such use of its budget.
fn seen(limiter: &Arc<Limiter<Remote>>, budgets: BudgetUse) -> u64 {
    let admitted = admit(limiter, budgets);
    let binding = admitted.decision.answers()[0].binding;
    binding.expect("a limit").answered.remaining
}

fn ask(
    limiter: &Arc<Limiter<Remote>>,
    budgets: BudgetUse,
) -> Answer<PendingAdmission<Replies>, Admitted> {
    let mut check = check(1);
    check.budgets = budgets;
    limiter.admit(&check, limiter.clock().now(), ReceiptMode::Kept)
}

fn admit(limiter: &Arc<Limiter<Remote>>, budgets: BudgetUse) -> Admitted {
    match ask(limiter, budgets) {
        Answer::Decided(admitted) => admitted,
        Answer::Pending(mut pending) => {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(answer) = pending.poll(&mut context) else {
                panic!("the answer is there");
            };
            pending.conclude(limiter, answer)
        }
    }
}

/// A call that is let in, and refused afterwards, as for overload: what it took is given back.
fn refuse(limiter: &Arc<Limiter<Remote>>, budgets: BudgetUse) {
    let receipt = admit(limiter, budgets).receipt;
    if let Some(back) = receipt.and_then(|receipt| receipt.give_back(limiter)) {
        now(back).expect("the store is well");
    }
}

/// A call: the hits that it reserves, and those that it uses; the health of the store when it comes, and when it pays.
#[derive(Clone, Copy, Debug)]
struct Call {
    hits: u64,
    used: u64,
    health: [Health; 2],
}

impl Call {
    const fn well(hits: u64, used: u64) -> Self {
        let health = [Health::Well; 2];
        Self { hits, used, health }
    }

    /// Makes the call; returns true if it was let in, and has paid.
    fn make(self, limiter: &Arc<Limiter<Remote>>) -> bool {
        self.make_with(limiter, BudgetUse::Reserve(self.hits))
    }

    fn make_with(self, limiter: &Arc<Limiter<Remote>>, budgets: BudgetUse) -> bool {
        turn(limiter, self.health[0]);
        let admitted = admit(limiter, budgets);
        turn(limiter, self.health[1]);
        let is_allowed = admitted.decision.allowed();
        let bill = admitted.bill.expect("a budget");
        if is_allowed && let Some(paying) = bill.pay(limiter, self.used) {
            now(paying);
        }
        is_allowed
    }

    /// The most that it may cost: without an answer in time, nothing is known to give back.
    fn cost_max(&self) -> u64 {
        match self.health {
            [Health::Well, Health::Well] => self.used,
            [Health::Slow, _] => self.hits + self.used,
            _ => self.hits.max(self.used),
        }
    }
}

/// In the end the store has charged what was used, whatever its health: here, and on another node that makes as many calls.
/// It has charged no more than those without an answer in time may have cost.
fn check_charges(
    budget: &str,
    alone: Alone<'_>,
    calls: &[(Call, u64)],
) -> Result<(), TestCaseError> {
    let exact = Arc::new(store());
    let [limiter, other] = [(); 2].map(|()| node(budget, alone, &exact));
    let (mut least, mut most) = (0, 0);
    for (call, elsewhere) in calls {
        if call.health[0] != Health::Away || *elsewhere > 0 {
            settle(&limiter);
        }
        if *elsewhere > 0 && Call::well(*elsewhere, *elsewhere).make(&other) {
            least += elsewhere;
            most += elsewhere;
        }
        if call.make(&limiter) {
            least += call.used;
            most += call.cost_max();
        }
    }
    settle(&limiter);
    let left = seen(&limiter, BudgetUse::Reserve(0));
    let bounds = LIMIT.saturating_sub(most)..=LIMIT.saturating_sub(least);
    prop_assert!(bounds.contains(&left), "{} of {:?}", left, bounds);
    Ok(())
}

/// While the store is away, a node lets calls in by its own share of the limit, and counts what they use.
fn check_share(
    budget: &str,
    (limit, factor): (u64, f64),
    calls: &[(Call, u64)],
) -> Result<(), TestCaseError> {
    let limiter = node(budget, ("local", factor), &Arc::new(store()));
    let mut spent = 0;
    for (call, _) in calls {
        let call = Call {
            health: [Health::Away; 2],
            ..*call
        };
        let is_allowed = call.make(&limiter);
        prop_assert_eq!(is_allowed, spent < limit);
        spent += if is_allowed { call.used } else { 0 };
        let left = seen(&limiter, BudgetUse::Reserve(0));
        prop_assert_eq!(left, limit.saturating_sub(spent));
    }
    Ok(())
}

/// Calls, each with the hits that another node uses before.
fn calls() -> impl Strategy<Value = Vec<(Call, u64)>> {
    let health = || prop_oneof![Just(Health::Well), Just(Health::Slow), Just(Health::Away)];
    let hits = prop_oneof![1..50_u64, 1..600_u64, 1..20_000_u64];
    let used = prop_oneof![0..50_u64, 0..600_u64, 0..2_000_u64];
    let call = (hits, used, [health(), health()]);
    let call = call.prop_map(|(hits, used, health)| Call { hits, used, health });
    let elsewhere = prop_oneof![4 => Just(0), 1 => 1..600_u64];
    prop::collection::vec((call, elsewhere), 1..20)
}

/// The shares of the limit that a node has alone, and their factors.
const SHARES: [(u64, f64); 3] = [(LIMIT, 1.0), (LIMIT / 2, 0.5), (LIMIT / 10, 0.1)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_used_is_charged_whatever_the_store_answers(
        calls in calls(),
        budget in prop::sample::select(&BUDGETS[..]),
        mode in prop::sample::select(&["local", "allow", "deny"][..]),
        (_, factor) in prop::sample::select(&SHARES[..]),
    ) {
        check_charges(budget, (mode, factor), &calls)?;
    }

    #[test]
    fn a_node_alone_counts_what_is_used(
        calls in calls(),
        budget in prop::sample::select(&BUDGETS[..]),
        share in prop::sample::select(&SHARES[..]),
    ) {
        check_share(budget, share, &calls)?;
    }

    /// Reservations go to the exact counter, looks and their charges to the synced one.
    #[test]
    fn each_counter_of_a_synced_budget_has_what_was_taken_of_it(calls in calls()) {
        let exact = Arc::new(store());
        let limiter = node("fixed_window, consistency: synced", ("local", 1.0), &exact);
        let (mut reserved, mut looked) = (0, 0);
        for (number, (call, _)) in calls.iter().enumerate() {
            let (budgets, spent) = match number % 2 {
                0 => (BudgetUse::Reserve(call.hits), &mut reserved),
                _ => (BudgetUse::Look, &mut looked),
            };
            refuse(&limiter, budgets);
            let is_allowed = Call::well(call.hits, call.used).make_with(&limiter, budgets);
            prop_assert_eq!(is_allowed, *spent < LIMIT);
            *spent += if is_allowed { call.used } else { 0 };
        }
        for (budgets, spent) in [(BudgetUse::Reserve(0), reserved), (BudgetUse::Look, looked)] {
            prop_assert_eq!(seen(&limiter, budgets), LIMIT.saturating_sub(spent), "{:?}", budgets);
        }
        let told = now(limiter.inspect(&check(0)));
        let told = told.descriptors[0].nodes[0].limits[0].remaining;
        prop_assert_eq!(told, Some(LIMIT.saturating_sub(reserved.max(looked))));
    }
}

/// The store took the 10 that were left, so no more than these come back.
#[test]
fn a_call_that_was_refused_for_a_slow_store_gives_back_what_that_took() {
    let limiter = node("sliding_window", ("deny", 1.0), &Arc::new(store()));
    assert!(Call::well(990, 990).make(&limiter));
    for _ in 0..3 {
        let refused = Call {
            health: [Health::Slow; 2],
            ..Call::well(1_000, 0)
        };
        assert!(!refused.make(&limiter));
        settle(&limiter);
        assert_eq!(seen(&limiter, BudgetUse::Reserve(0)), 10);
    }
}

#[test]
fn what_the_store_reserves_for_nobody_is_given_back() {
    for budget in BUDGETS {
        for health in [Health::Well, Health::Slow, Health::Away] {
            for hits in [300, 50_000] {
                let limiter = node(budget, ("allow", 1.0), &Arc::new(store()));
                assert!(Call::well(600, 600).make(&limiter));
                turn(&limiter, health);
                let Answer::Pending(pending) = ask(&limiter, BudgetUse::Reserve(hits)) else {
                    panic!("{budget}: it is asked elsewhere");
                };
                now(pending.abandon(Arc::clone(&limiter)));
                settle(&limiter);
                let left = seen(&limiter, BudgetUse::Reserve(0));
                assert_eq!(left, 400, "{budget}, {health:?}: {hits}");
            }
        }
    }
}

/// Nor is any other call whose client leaves while the store is asked.
#[test]
fn what_the_store_reserves_for_nobody_is_no_call() {
    for health in [Health::Well, Health::Slow, Health::Away] {
        let meter = Arc::default();
        let limiter = metered(BUDGETS[0], ("allow", 1.0), &Arc::new(store()), &meter);
        assert!(Call::well(600, 600).make(&limiter));
        let counted = || {
            let calls: Vec<_> = meter
                .calls()
                .iter()
                .map(|it| (it.allowed, it.denied))
                .collect();
            let snapshot = limiter.snapshot();
            let stats = snapshot.stats().next().expect("there is a rule");
            (calls, stats.counts())
        };
        let before = counted();
        assert_eq!(before.0, [(1, 0)]);
        turn(&limiter, health);
        let Answer::Pending(pending) = ask(&limiter, BudgetUse::Reserve(300)) else {
            panic!("it is asked elsewhere");
        };
        now(pending.abandon(Arc::clone(&limiter)));
        assert_eq!(counted(), before, "{health:?}");
    }
}

/// The node took all of a reservation of its own counter, and the store only what was left.
#[test]
fn a_call_that_the_node_let_in_alone_takes_nothing_of_others() {
    let exact = Arc::new(store());
    let [limiter, other] = [(); 2].map(|()| node("sliding_window", ("local", 1.0), &exact));
    assert!(Call::well(990, 990).make(&other));
    let call = Call {
        health: [Health::Slow, Health::Well],
        ..Call::well(1_000, 300)
    };
    assert!(call.make(&limiter));
    settle(&limiter);
    assert_eq!(seen(&limiter, BudgetUse::Reserve(0)), 0, "1,290 were used");
}

/// The store took what was left, and went away: a node alone has nothing of that to give back.
#[test]
fn a_node_alone_gives_back_nothing_that_the_store_took() {
    let limiter = node("fixed_window", ("local", 0.5), &Arc::new(store()));
    let spent = Call {
        health: [Health::Away; 2],
        ..Call::well(400, 400)
    };
    assert!(spent.make(&limiter));
    settle(&limiter);
    let call = Call {
        health: [Health::Well, Health::Away],
        ..Call::well(600, 0)
    };
    assert!(call.make(&limiter));
    assert_eq!(seen(&limiter, BudgetUse::Reserve(0)), 0, "of 500");
}
