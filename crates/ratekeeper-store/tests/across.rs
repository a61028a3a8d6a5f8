//! A request across several stores gets the answers of a single store.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::across::{self, Partition, Partitions, Rest};
use ratekeeper_store::{
    Answer, Charge, CounterKey, Execution, Extra, FullMode, MemoryConfig, MemoryStore, Once,
    Permit, PermitAct, Request, Step, StepOutcome, Store, StoreError, StoreSlot, Until, Verdicts,
};

const NOW: Timestamp = Timestamp::from_micros(1_789_000_123_456_789);

/// Stores that each keep the counters of some subjects.
#[derive(Clone)]
struct Spread(Arc<Stores>);

struct Stores {
    partitions: Vec<MemoryStore>,
    /// True if answers have to be awaited.
    is_far: bool,
    /// True if its callers also give back hits of a time.
    is_conforming: bool,
    /// Errors to return for the next requests instead of asking.
    faults: Mutex<VecDeque<Option<StoreError>>>,
    asked: AtomicU64,
    /// The number of an unavailable partition, 0 for none.
    away: AtomicU64,
    /// The number of a partition, and its answer that is known without asking it.
    known: Mutex<Option<(u8, Verdicts)>>,
    stranded: AtomicU64,
    rests: Mutex<Vec<Rest<Spread>>>,
}

/// An answer that is ready on the second poll.
struct Far(Option<Result<Verdicts, StoreError>>, bool);

impl Future for Far {
    type Output = Result<Verdicts, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.1 {
            self.1 = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.0.take().expect("a ticket is awaited once"))
    }
}

fn memory() -> MemoryStore {
    let config = MemoryConfig {
        memory_limit: 64 << 20,
        ..MemoryConfig::default()
    };
    MemoryStore::new(config).expect("a small store")
}

impl Spread {
    fn new(partitions: usize, is_far: bool) -> Self {
        Self::of(partitions, is_far, false)
    }

    /// Stores for the conformance suite.
    fn conforming(is_far: bool) -> Self {
        Self::of(4, is_far, true)
    }

    fn of(partitions: usize, is_far: bool, is_conforming: bool) -> Self {
        Self(Arc::new(Stores {
            is_conforming,
            partitions: (0..partitions).map(|_| memory()).collect(),
            is_far,
            faults: Mutex::default(),
            asked: AtomicU64::new(0),
            away: AtomicU64::new(0),
            known: Mutex::default(),
            stranded: AtomicU64::new(0),
            rests: Mutex::default(),
        }))
    }

    fn partition(&self, step: &Step) -> Partition {
        let number = step.key.subject % self.0.partitions.len() as u64;
        StoreSlot(u8::try_from(number).unwrap_or(0)).into()
    }

    /// Makes the next partitions return these instead.
    fn fail(&self, faults: &[Option<StoreError>]) {
        self.0.faults.lock().extend(faults);
    }

    fn stranded(&self) -> u64 {
        self.0.stranded.load(Ordering::Relaxed)
    }

    fn see_to_the_rest(&self) {
        let rests = std::mem::take(&mut *self.0.rests.lock());
        rests.into_iter().for_each(wait);
    }

    fn ask(&self, request: &Request<'_>) -> Result<Verdicts, StoreError> {
        let answer = match self.decide(request) {
            Answer::Decided(verdicts) => Ok(verdicts),
            Answer::Pending(ticket) => wait(ticket),
        };
        self.see_to_the_rest();
        answer
    }

    fn left(&self, step: Step) -> u64 {
        left(self, step)
    }
}

impl Partitions for Spread {
    type Ticket = Far;

    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<Far> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(Some(fault)) = self.0.faults.lock().pop_front() {
            return Answer::Pending(Far(Some(Err(fault)), false));
        }
        let verdicts = self.0.partitions[usize::from(partition.store.0)].decide_now(request);
        let has_time = request.extra.is_some_and(|extra| extra.taken_at.is_some());
        if has_time && !self.0.is_conforming {
            let is_plain =
                |step: &Step| step.shadow && !step.quota_mode && step.charge == Charge::IfAllowed;
            let are_plain = request.steps.iter().all(is_plain);
            assert!(
                verdicts.allowed && are_plain,
                "nothing denies what comes back"
            );
        }
        match self.0.is_far {
            true => Answer::Pending(Far(Some(Ok(verdicts)), false)),
            false => Answer::Decided(verdicts),
        }
    }

    fn away(&self, partition: Partition) -> Option<StoreError> {
        let away = self.0.away.load(Ordering::Relaxed);
        (away != 0 && u64::from(partition.store.0) == away).then_some(StoreError::Unavailable)
    }

    fn recall(&self, partition: Partition, _: &Request<'_>) -> Option<Verdicts> {
        let known = self.0.known.lock();
        let known = known.as_ref().filter(|(at, _)| *at == partition.store.0);
        known.map(|(_, verdicts)| verdicts.clone())
    }

    /// The answer can no longer come.
    fn late(_: Far) -> Option<Far> {
        Some(Far(Some(Err(StoreError::Lost)), false))
    }

    fn detach(&self, rest: Rest<Self>) {
        self.0.rests.lock().push(rest);
    }

    fn stranded(&self, _: Partition, hits: u64) {
        self.0.stranded.fetch_add(hits, Ordering::Relaxed);
    }
}

impl Store for Spread {
    type Ticket = across::Ticket<Self>;

    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        let answer = across::decide(self, request, |step| self.partition(step));
        if !self.0.is_far {
            assert!(
                matches!(answer, Answer::Decided(_)) || self.0.asked.load(Ordering::Relaxed) > 0
            );
        }
        answer
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        across::give_back(self, request, taken, |step| self.partition(step));
    }
}

fn wait<F: Future + Unpin>(mut future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut context) {
            return output;
        }
    }
}

mod near {
    // As far ones, but for who waits.
    ratekeeper_testkit::conformance!(histories: 50; || super::Spread::conforming(false));
}

mod far {
    ratekeeper_testkit::conformance!(|| super::Spread::conforming(true));
}

fn limit(algorithm: Algorithm, quota: u64) -> Limit {
    let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(3_600));
    Limit::try_new(spec).expect("a valid limit")
}

/// The counter with that number in the partition with that number.
fn step(limit: &Limit, number: u64) -> Step {
    Step::new(
        CounterKey {
            subject: number,
            identity: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        },
        *limit,
    )
}

fn request<'a>(steps: &'a [Step]) -> Request<'a> {
    Request::new(steps, Mode::default(), NOW)
}

fn left<S: Store>(store: &S, step: Step) -> u64 {
    let looks = [Step { hits: 0, ..step }];
    match ratekeeper_testkit::conformance::decide(store, &request(&looks)).outcomes[0] {
        StepOutcome::Counted(outcome) => outcome.remaining,
        other => panic!("{other:?}"),
    }
}

/// Asks for `steps` under an id, always the same.
fn ask_once(store: &Spread, steps: &[Step], permit: Option<Permit>) -> Verdicts {
    let once = Once {
        id: 7,
        until: Until::After(Micros::from_secs(60)),
        content: 1,
    };
    let extra = Extra {
        once: Some(once),
        permit,
        ..Extra::default()
    };
    let request = Request {
        extra: Some(&extra),
        ..request(steps)
    };
    store.ask(&request).expect("it answers")
}

/// A generated step: its counter, cost and flags.
#[derive(Clone, Debug)]
struct Drawn {
    counter: usize,
    hits: i64,
    flags: [bool; 2],
    descriptor: u16,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let hits = prop_oneof![4 => 1..4_i64, 1 => Just(0), 1 => -2..0_i64];
    let flags = [0.2, 0.35].map(prop::bool::weighted);
    (0..12_usize, hits, flags, 0..3_u16).prop_map(|(counter, hits, flags, descriptor)| Drawn {
        counter,
        hits,
        flags,
        descriptor,
    })
}

fn steps(limits: &[Limit], drawn: &[Drawn]) -> Vec<Step> {
    let mut steps: Vec<_> = drawn
        .iter()
        .map(|drawn| Step {
            hits: drawn.hits,
            charge: if drawn.counter % 4 == 3 {
                Charge::Always
            } else {
                Charge::IfAllowed
            },
            shadow: drawn.flags[0],
            quota_mode: drawn.flags[1],
            descriptor: drawn.descriptor,
            ..step(&limits[drawn.counter], drawn.counter as u64)
        })
        .collect();
    steps.sort_by_key(|step| step.descriptor);
    steps
}

proptest! {
    /// Allowed and denied requests are answered as by one store, and afterwards every counter is as
    /// if that store had decided.
    #[test]
    fn several_stores_are_one(
        requests in prop::collection::vec(prop::collection::vec(drawn(), 1..6), 1..20),
        (idle, far) in any::<(bool, bool)>(),
    ) {
        // Without the two algorithms that cannot give back completely once others are behind.
        let algorithms = [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog,
            Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::FixedWindow];
        let limits: Vec<Limit> = (0..12).map(|n| limit(algorithms[n % 6], 2 + n as u64 % 5)).collect();
        let (one, several) = (memory(), Spread::new(3, far));
        for drawn in &requests {
            let steps = steps(&limits, drawn);
            let mode = Mode { idle_quota: idle, ..Mode::default() };
            let request = Request { mode, ..request(&steps) };
            let (expected, found) = (one.decide_now(&request), several.ask(&request));
            prop_assert_eq!(Ok(expected), found);
            for (number, limit) in (0..).zip(&limits) {
                let step = step(limit, number);
                prop_assert_eq!(left(&one, step), several.left(step), "counter {}", number);
            }
        }
        prop_assert_eq!(several.stranded(), 0);
    }
}

#[test]
fn a_place_that_fails_leaves_its_own_steps_unanswered() {
    let (wide, store) = (limit(Algorithm::FixedWindow, 10), Spread::new(3, true));
    let always = Step {
        charge: Charge::Always,
        ..step(&wide, 2)
    };
    let steps = [step(&wide, 0), step(&wide, 1), always];
    let timeout = Some(StoreError::Timeout);
    let request = request(&steps);
    store.fail(&[None, timeout]);
    let taken = store.ask(&request).unwrap();
    assert!(taken.allowed && taken.fault() == timeout);
    assert_eq!(
        taken.outcomes[1],
        StepOutcome::Unanswered(StoreError::Timeout)
    );
    assert_eq!(steps.map(|step| store.left(step)), [9, 10, 9]);
    // Denied after all: unconditional charges stay.
    store.give_back(&request, &taken);
    store.see_to_the_rest();
    assert_eq!(steps.map(|step| store.left(step)), [10, 10, 9]);
    assert_eq!(store.stranded(), 1, "the second may have taken its part");
    // The partition that has charged its part is also unreachable when the hits are to come back.
    store.fail(&[None, timeout, None, Some(StoreError::Unavailable)]);
    let taken = store.ask(&request).unwrap();
    store.give_back(&request, &taken);
    store.see_to_the_rest();
    assert_eq!(steps.map(|step| store.left(step)), [9, 10, 8]);
    assert_eq!(store.stranded(), 3);
    store.fail(&[timeout, timeout, timeout]);
    assert_eq!(store.ask(&request), Err(StoreError::Timeout));
}

#[test]
fn possibly_stranded_hits_are_reported() {
    let (wide, none) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let always = Step {
        charge: Charge::Always,
        ..step(&wide, 3)
    };
    let lost = Some(StoreError::Timeout);
    for (is_far, fault, second, stranded) in [
        // The answer came too late, and the others deny.
        (true, lost, &none, 2),
        // The others allow: its hits were granted.
        (true, lost, &wide, 0),
        // It was told of the denial, and takes nothing.
        (false, lost, &none, 0),
        // It was not reached.
        (true, Some(StoreError::Unavailable), &none, 0),
    ] {
        let store = Spread::new(4, is_far);
        let two = Step {
            hits: 2,
            ..step(&wide, 2)
        };
        // Beside hits that are charged whatever comes, and hits that it gives back.
        let [charged, back] =
            [(4, Charge::Always), (-1, Charge::IfAllowed)].map(|(hits, charge)| Step {
                hits,
                charge,
                ..step(&wide, 6)
            });
        let steps = [step(&wide, 0), step(second, 1), two, charged, back, always];
        store.fail(&[None, None, fault]);
        store.ask(&request(&steps)).unwrap();
        assert_eq!(store.stranded(), stranded, "{is_far} {fault:?}");
    }
}

#[test]
fn only_a_request_with_one_place_may_be_awaited_once_more() {
    let wide = limit(Algorithm::FixedWindow, 10);
    let steps = [step(&wide, 0), step(&wide, 1)];
    let timeout = Some(StoreError::Timeout);
    for (asked, late) in [(1, Some(StoreError::Lost)), (2, None)] {
        let store = Spread::new(2, true);
        store.fail(&[timeout, timeout]);
        let Answer::Pending(mut ticket) = store.decide(&request(&steps[..asked])) else {
            panic!("nothing is near");
        };
        assert_eq!(wait(&mut ticket), Err(StoreError::Timeout));
        let error = ticket
            .late()
            .map(|late| wait(late).expect_err("it is lost"));
        assert_eq!(error, late, "{asked}");
    }
}

/// The caller of an answer that is given at once looks for no fault, and has nothing to await.
#[test]
fn an_answer_is_at_hand_only_if_nothing_is_missing_or_to_come_back() {
    let (wide, none) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let store = Spread::new(2, false);
    let steps = [step(&wide, 0), step(&wide, 1)];
    let is_decided = || matches!(store.decide(&request(&steps)), Answer::Decided(_));
    assert!(is_decided());
    store.0.away.store(1, Ordering::Relaxed);
    assert!(!is_decided());
    store.0.away.store(0, Ordering::Relaxed);
    // The hit that the second place denies does not come back from the first.
    store.fail(&[None, None, Some(StoreError::Timeout)]);
    let steps = [step(&wide, 0), step(&none, 1)];
    assert!(!store.ask(&request(&steps)).unwrap().allowed);
    assert_eq!(store.stranded(), 1);
}

#[test]
fn a_place_that_is_away_is_not_asked() {
    let wide = limit(Algorithm::FixedWindow, 10);
    for is_far in [false, true] {
        let store = Spread::new(2, is_far);
        let mut steps = [step(&wide, 0), step(&wide, 1)];
        store.0.away.store(1, Ordering::Relaxed);
        let asked = || store.0.asked.load(Ordering::Relaxed);
        let verdicts = store.ask(&request(&steps)).unwrap();
        assert!(verdicts.allowed && !verdicts.outcomes[1].is_answered());
        assert_eq!(asked(), 1);
        // It will deny, so the other takes nothing that would have to come back.
        steps[1].full_mode = FullMode::Deny;
        assert!(!store.ask(&request(&steps)).unwrap().allowed);
        assert_eq!((store.left(steps[0]), asked()), (9, 3));
    }
}

/// Hits that were taken first and then given back might deny others meanwhile.
#[test]
fn a_denial_that_is_known_beforehand_has_nothing_taken_elsewhere() {
    let (wide, none) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    for is_far in [false, true] {
        let store = Spread::new(2, is_far);
        let steps = [step(&wide, 0), step(&none, 1)];
        let denial = store.ask(&request(&steps[1..])).expect("it answers");
        assert!(!denial.allowed);
        *store.0.known.lock() = Some((1, denial));
        store.0.asked.store(0, Ordering::Relaxed);
        let verdicts = store.ask(&request(&steps)).expect("it answers");
        assert!(!verdicts.allowed);
        // Neither the one that is known to deny, nor a second time to have something given back.
        assert_eq!(store.0.asked.load(Ordering::Relaxed), 1);
        assert_eq!(store.left(steps[0]), 10);
    }
}

#[test]
fn a_dropped_request_leaves_nothing_taken() {
    let (wide, none) = (limit(Algorithm::Gcra, 10), limit(Algorithm::Gcra, 0));
    let store = Spread::new(2, true);
    for (second, rest) in [(&wide, 9), (&none, 10)] {
        let steps = [step(&wide, 0), step(second, 1)];
        let Answer::Pending(ticket) = store.decide(&request(&steps)) else {
            panic!("nothing is near");
        };
        drop(ticket);
        store.see_to_the_rest();
        assert_eq!(store.left(steps[0]), rest);
        let back = [Step {
            hits: -1,
            ..steps[0]
        }];
        store.ask(&request(&back)).unwrap();
    }
}

#[test]
fn others_may_be_denied_meanwhile_and_never_allowed_more() {
    let (one, none) = (
        limit(Algorithm::FixedWindow, 1),
        limit(Algorithm::FixedWindow, 0),
    );
    let store = Spread::new(2, true);
    let steps = [step(&one, 0), step(&none, 1)];
    let Answer::Pending(ticket) = store.decide(&request(&steps)) else {
        panic!("nothing is near");
    };
    assert!(
        !store.ask(&request(&steps[..1])).unwrap().allowed,
        "it is taken for now"
    );
    assert!(!wait(ticket).unwrap().allowed);
    store.see_to_the_rest();
    assert!(store.ask(&request(&steps[..1])).unwrap().allowed);
    assert!(!store.ask(&request(&steps[..1])).unwrap().allowed);
}

#[test]
fn a_denial_at_hand_spares_the_others() {
    let (wide, none) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let store = Spread::new(2, false);
    let always = Step {
        charge: Charge::Always,
        ..step(&wide, 3)
    };
    let steps = [step(&none, 0), step(&wide, 1), always];
    for left in [9, 8] {
        let asked = store.0.asked.load(Ordering::Relaxed);
        assert!(!store.ask(&request(&steps)).unwrap().allowed);
        assert_eq!(
            store.0.asked.load(Ordering::Relaxed),
            asked + 2,
            "nothing had to come back"
        );
        assert_eq!((store.left(steps[1]), store.left(always)), (10, left));
    }
}

#[test]
fn a_request_whose_rules_have_changed_is_no_repeat_anywhere() {
    let wide = limit(Algorithm::FixedWindow, 10);
    for far in [false, true] {
        let store = Spread::new(3, far);
        let once = Once {
            id: 7,
            until: Until::After(Micros::from_secs(60)),
            content: 1,
        };
        let extra = Extra {
            once: Some(once),
            ..Extra::default()
        };
        let ask = |steps: &[Step]| {
            let request = Request {
                extra: Some(&extra),
                ..request(steps)
            };
            store.ask(&request).unwrap()
        };
        let steps = [0, 1, 2, 3].map(|number| step(&wide, number));
        assert_eq!(ask(&steps[..2]).execution, Execution::Now);
        assert_eq!(ask(&steps[..2]).execution, Execution::Before);
        // The same number of steps, with one of them elsewhere.
        for other in [
            [steps[0], steps[2]],
            [steps[3], steps[1]],
            [steps[1], steps[2]],
        ] {
            assert_eq!(ask(&other).execution, Execution::Conflict);
        }
        // Other counters of the same subjects, each with a bit more or less in its name.
        for bit in 0..16 {
            let mut other = [steps[0], steps[1]];
            other[1].key.identity ^= 1 << bit;
            assert_eq!(ask(&other).execution, Execution::Conflict, "bit {bit}");
        }
        assert_eq!(steps.map(|step| store.left(step)), [9, 9, 10, 10]);
    }
}

/// A repeat may come as soon as the answer is there; other callers need not wait for the hits of
/// those before them.
#[test]
fn only_an_idempotent_request_waits_until_its_hits_are_back() {
    let (wide, none) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let once = Once {
        id: 7,
        until: Until::After(Micros::from_secs(60)),
        content: 1,
    };
    for (once, in_background) in [(None, 1), (Some(once), 0)] {
        let store = Spread::new(2, true);
        let steps = [step(&wide, 0), step(&none, 1)];
        let extra = Extra {
            once,
            ..Extra::default()
        };
        let request = Request {
            extra: Some(&extra),
            ..request(&steps)
        };
        let Answer::Pending(ticket) = store.decide(&request) else {
            panic!("nothing is near");
        };
        assert!(!wait(ticket).unwrap().allowed);
        assert_eq!(store.0.rests.lock().len(), in_background, "{once:?}");
        store.see_to_the_rest();
        assert_eq!((store.left(steps[0]), store.stranded()), (10, 0));
    }
}

/// One permit stands for one hit.
#[test]
fn hits_on_a_concurrency_limit_come_back_if_one_permit_stands_for_them() {
    let (held, none) = (
        limit(Algorithm::Concurrency, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let (one, other) = (step(&held, 0), step(&held, 2));
    let two = Step { hits: 2, ..one };
    for (taking, left, stranded) in [
        (vec![one], 10, 0),
        (vec![one, other], 10, 0),
        (vec![two], 8, 2),
        (vec![one, one], 8, 2),
    ] {
        let store = Spread::new(2, true);
        let steps = [&taking[..], &[step(&none, 1)]].concat();
        assert!(!store.ask(&request(&steps)).unwrap().allowed);
        assert_eq!((store.left(one), store.stranded()), (left, stranded));
    }
}

#[test]
fn a_denied_request_is_forgotten_before_it_is_answered() {
    let (wide, one) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 1),
    );
    for far in [false, true] {
        let store = Spread::new(2, far);
        let steps = [step(&wide, 0), step(&one, 1)];
        assert!(store.ask(&request(&steps[1..])).unwrap().allowed);
        let once = Once {
            id: 7,
            until: Until::After(Micros::from_secs(60)),
            content: 1,
        };
        let extra = Extra {
            once: Some(once),
            ..Extra::default()
        };
        let request = Request {
            extra: Some(&extra),
            ..request(&steps)
        };
        for _ in 0..2 {
            let verdicts = store.ask(&request).unwrap();
            assert_eq!(
                (verdicts.allowed, verdicts.execution),
                (false, Execution::Now)
            );
        }
        assert_eq!(store.left(steps[0]), 10);
        let back = [Step {
            hits: -1,
            ..steps[1]
        }];
        store.ask(&self::request(&back)).unwrap();
        for execution in [Execution::Now, Execution::Before] {
            let verdicts = store.ask(&request).unwrap();
            assert_eq!((verdicts.allowed, verdicts.execution), (true, execution));
            assert_eq!(store.left(steps[0]), 9);
        }
    }
}

/// A store in which the counter of one an hour at the second place has taken two.
fn overdrawn(is_far: bool) -> (Spread, Step) {
    let store = Spread::new(2, is_far);
    let one = step(&limit(Algorithm::FixedWindow, 1), 1);
    let two = [Step {
        hits: 2,
        charge: Charge::Always,
        ..one
    }];
    assert!(!store.ask(&request(&two)).expect("it answers").allowed);
    (store, one)
}

fn look(step: Step) -> Step {
    Step { hits: 0, ..step }
}

/// A place that has denied hits has no record of them.
#[test]
fn only_a_place_that_remembers_a_denied_request_is_told_to_forget_it() {
    let wide = step(&limit(Algorithm::FixedWindow, 10), 0);
    let asked = |look_at: [bool; 2], is_once: bool| {
        let (store, full) = overdrawn(true);
        store.0.asked.store(0, Ordering::Relaxed);
        let mut steps = [wide, full];
        for (step, is_look) in steps.iter_mut().zip(look_at) {
            *step = if is_look { look(*step) } else { *step };
        }
        let verdicts = match is_once {
            true => ask_once(&store, &steps, None),
            false => store.ask(&request(&steps)).expect("it answers"),
        };
        assert!(!verdicts.allowed);
        store.0.asked.load(Ordering::Relaxed)
    };
    assert_eq!(asked([false, false], true), 3, "the first one forgets");
    assert_eq!(asked([false, true], true), 4, "a look is remembered");
    assert_eq!(asked([true, false], true), 3, "also one that passes");
    assert_eq!(asked([true, false], false), 2, "nothing is to come back");
}

#[test]
fn a_denied_look_is_made_again_by_a_repeat() {
    let wide = step(&limit(Algorithm::FixedWindow, 10), 0);
    for is_far in [false, true] {
        let (store, full) = overdrawn(is_far);
        let steps = [wide, look(full)];
        assert!(!ask_once(&store, &steps, None).allowed);
        store.ask(&request(&[Step { hits: -2, ..full }])).unwrap();
        let repeat = ask_once(&store, &steps, None);
        assert_eq!((repeat.allowed, repeat.execution), (true, Execution::Now));
    }
}

#[test]
fn a_look_at_permits_is_made_again_by_a_repeat() {
    let (store, full) = overdrawn(true);
    let permits = step(&limit(Algorithm::Concurrency, 5), 0);
    let steps = [look(permits), full];
    for left in [5, 4] {
        let denied = ask_once(&store, &steps, None);
        assert!(!denied.allowed);
        let StepOutcome::Counted(seen) = denied.outcomes[0] else {
            panic!("it is counted");
        };
        assert_eq!(seen.remaining, left);
        assert!(store.ask(&request(&[permits])).unwrap().allowed);
    }
}

/// It was held before, and the request only looks at it.
#[test]
fn a_denied_request_leaves_a_permit_where_it_took_none() {
    let (held, none) = (
        limit(Algorithm::Concurrency, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let permit = Permit {
        id: 5,
        act: PermitAct::Acquire,
    };
    let store = Spread::new(2, true);
    let (taken, before) = (step(&held, 0), step(&held, 2));
    let extra = Extra {
        permit: Some(permit),
        ..Extra::default()
    };
    let request = Request {
        extra: Some(&extra),
        ..request(std::slice::from_ref(&before))
    };
    assert!(store.ask(&request).unwrap().allowed);
    let steps = [taken, Step { hits: 0, ..before }, step(&none, 1)];
    for is_once in [false, true] {
        let denied = match is_once {
            true => ask_once(&store, &steps, Some(permit)),
            false => store
                .ask(&Request {
                    steps: &steps,
                    ..request
                })
                .unwrap(),
        };
        assert!(!denied.allowed);
        assert_eq!((store.left(taken), store.left(before)), (10, 9));
    }
}

/// No place alone can tell that they deny.
#[test]
fn what_was_taken_beside_limits_in_quota_mode_comes_back() {
    let (wide, none) = (
        limit(Algorithm::FixedWindow, 10),
        limit(Algorithm::FixedWindow, 0),
    );
    let quota = |number, descriptor| Step {
        quota_mode: true,
        descriptor,
        ..step(&none, number)
    };
    for far in [false, true] {
        let store = Spread::new(2, far);
        let always = Step {
            charge: Charge::Always,
            ..step(&wide, 4)
        };
        let steps = [step(&wide, 0), always, quota(2, 1), quota(1, 2)];
        for left in [9, 8] {
            let denied = ask_once(&store, &steps, None);
            assert_eq!((denied.allowed, denied.execution), (false, Execution::Now));
            assert_eq!((store.left(steps[0]), store.left(always)), (10, left));
        }
    }
}
