use std::collections::VecDeque;
use std::sync::Arc;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Mode};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, CounterKey, Execution, Extra, HashKey, Request};

use super::*;
use crate::fallback::{Fallback, FallbackConfig};
use crate::{Check, LimiterOptions, ReceiptMode};

const MINUTE: Micros = Micros::from_secs(60);

const NOW: Timestamp = Timestamp::from_secs(1_200_000_000);

/// Long after the machine was started.
const BOOT: Micros = Micros::from_secs(1_000);

type Reply = Result<Verdicts, StoreError>;

/// A ticket whose answer a test chooses, once it wants to.
#[derive(Clone, Default)]
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

/// The steps of a request and what it is besides, with its ticket.
type Asked = (Vec<Step>, Option<Extra>, Later);

/// A store that answers when a test says so, and keeps what it was asked.
#[derive(Default)]
struct Slow {
    asked: Mutex<VecDeque<Asked>>,
    posted: Mutex<VecDeque<(Post, Later)>>,
    stranded: Mutex<i64>,
    is_away: std::sync::atomic::AtomicBool,
}

impl Store for Slow {
    type Ticket = Later;

    fn decide(&self, request: &Request<'_>) -> Answer<Later> {
        let later = Later::default();
        let asked = (
            request.steps.to_vec(),
            request.extra.copied(),
            later.clone(),
        );
        self.asked.lock().push_back(asked);
        Answer::Pending(later)
    }

    fn post(&self, post: &Post) -> Option<Later> {
        let later = Later::default();
        self.posted.lock().push_back((*post, later.clone()));
        Some(later)
    }

    fn late(ticket: Later) -> Option<Later> {
        Some(ticket)
    }

    fn away(&self) -> Option<StoreError> {
        let is_away = self.is_away.load(std::sync::atomic::Ordering::Relaxed);
        is_away.then_some(StoreError::Unavailable)
    }

    fn strand(&self, step: &Step) {
        *self.stranded.lock() += step.hits;
    }
}

impl Slow {
    fn stranded(&self) -> i64 {
        std::mem::take(&mut *self.stranded.lock())
    }
}

fn limiter() -> Limiter<Slow> {
    limiter_of(RuleSet::default())
}

fn limiter_of(rules: RuleSet) -> Limiter<Slow> {
    let memory = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let fallback = Fallback::new(FallbackConfig {
        memory,
        local_factor: 1.0,
    });
    let options = LimiterOptions {
        hash_key: Some(HashKey::from_bytes([7; 16])),
        ..LimiterOptions::default()
    };
    let limiter = Limiter::new(rules, Slow::default(), options);
    limiter.with_fallback(fallback.expect("the least store"))
}

fn step(algorithm: Algorithm, hits: i64) -> Step {
    let spec = LimitSpec::new(algorithm, 10, MINUTE);
    let key = CounterKey {
        subject: 1,
        identity: 1,
    };
    Step {
        hits,
        ..Step::new(key, Limit::try_new(spec).expect("a valid limit"))
    }
}

fn passed(limiter: &Limiter<Slow>) -> Passed {
    Passed {
        now: NOW,
        boot: BOOT,
        named_by: limiter.hash_key(),
    }
}

/// The answer of a store that has decided these steps.
fn decided(steps: &[Step]) -> Verdicts {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    store.decide_now(&Request::new(steps, Mode::default(), NOW))
}

fn after(seconds: u64) -> Micros {
    Micros::new(BOOT.get() + Micros::from_secs(seconds).get())
}

/// A post of hits that passed at [`BOOT`], not sent yet.
fn unsent(limiter: &Limiter<Slow>) -> Sent {
    let owed = limiter.fallback().expect("there is one").owed();
    let step = step(Algorithm::FixedWindow, 3);
    owed.add(&step, None, StoreError::Unavailable, &passed(limiter));
    Sent {
        debt: owed.take(1).pop().expect("it is owed"),
        id: limiter.new_id(),
        first: BOOT,
        ticket: None,
        again: BOOT,
        is_unknown: false,
    }
}

/// Sends a post, which the store answers so after the seconds given; then it is looked at again.
fn follow(limiter: &Limiter<Slow>, reply: Reply, seconds: u64) -> Option<Sent> {
    let sent = limiter.follow(unsent(limiter), BOOT).expect("it is sent");
    let (_, later) = limiter.store().posted.lock().pop_front().expect("it was");
    later.answer(reply);
    limiter.follow(sent, after(seconds))
}

#[test]
fn a_post_is_sent_again_under_its_id_until_it_is_taken() {
    let limiter = limiter();
    let posted = || limiter.store().posted.lock().pop_front();
    let sent = limiter.follow(unsent(&limiter), after(2)).expect("sent");
    let (first, later) = posted().expect("sent");
    assert_eq!((first.step.hits, first.age), (3, Micros::from_secs(2)));
    let sent = limiter.follow(sent, after(3)).expect("it has no answer");
    assert!(posted().is_none());
    later.answer(Err(StoreError::Unavailable));
    let sent = limiter.follow(sent, after(3)).expect("it is sent again");
    let early = Micros::new(after(3).get() + AGAIN.get() - 1);
    let sent = limiter.follow(sent, early).expect("a moment later");
    assert!(posted().is_none());
    let again = Micros::new(after(3).get() + AGAIN.get());
    let sent = limiter.follow(sent, again).expect("sent");
    let (second, later) = posted().expect("sent again");
    assert_eq!(second.id, first.id);
    later.answer(Ok(decided(&[])));
    assert!(limiter.follow(sent, again).is_none());
    assert_eq!((limiter.owed().posted, limiter.owed().dropped), (3, 0));
}

#[test]
fn a_post_that_is_not_taken_in_time_is_given_up() {
    let counts = |reply, seconds| {
        let limiter = limiter();
        let sent = follow(&limiter, reply, 1).expect("it is tried again");
        let is_tried = limiter.follow(sent, after(seconds)).is_some();
        let owed = limiter.owed();
        (is_tried, owed.dropped, owed.expired, owed.unknown)
    };
    // A window of a minute has ended by then.
    assert_eq!(counts(Err(StoreError::Unavailable), 59), (true, 0, 0, 0));
    assert_eq!(counts(Err(StoreError::Unavailable), 60), (false, 3, 3, 0));
    assert_eq!(counts(Err(StoreError::Lost), 60), (false, 0, 0, 3));
    let limiter = limiter();
    assert!(follow(&limiter, Err(StoreError::Corrupt), 1).is_none());
    assert_eq!((limiter.owed().dropped, limiter.owed().expired), (3, 0));
}

/// A bucket of ten hits a second that takes half a minute to fill.
#[test]
fn hits_are_posted_to_a_bucket_that_is_not_refilled_yet() {
    let limiter = limiter();
    let spec = LimitSpec {
        burst: Some(300),
        ..LimitSpec::new(Algorithm::Gcra, 10, Micros::from_secs(1))
    };
    let limit = Limit::try_new(spec).expect("a valid limit");
    for (seconds, is_posted) in [(29, true), (30, false)] {
        let mut sent = unsent(&limiter);
        sent.debt.step.limit = limit;
        let is_sent = limiter.follow(sent, after(seconds)).is_some();
        assert_eq!(is_sent, is_posted, "{seconds} s");
    }
    assert_eq!(limiter.owed().expired, 3);
}

#[test]
fn hits_that_still_count_are_posted_for_a_minute() {
    for (seconds, is_tried) in [(59, true), (60, false)] {
        let limiter = limiter();
        let mut sent = follow(&limiter, Err(StoreError::Unavailable), 1).expect("again");
        sent.debt.latest = after(30);
        let kept = limiter.follow(sent, after(seconds));
        assert_eq!(kept.is_some(), is_tried, "{seconds}");
        let dropped = if is_tried { 0 } else { 3 };
        let owed = limiter.owed();
        assert_eq!((owed.dropped, owed.expired), (dropped, 0));
    }
}

/// A request that the failure modes answered, whose own answer is still to come.
fn late(limiter: &Limiter<Slow>, steps: &[Step], allowed: bool) -> Later {
    let later = Later::default();
    let owed = steps.iter().map(|step| if allowed { step.hits } else { 0 });
    let owed = owed.collect();
    limiter.expect_late(later.clone(), steps, owed, allowed, passed(limiter));
    later
}

fn hear(limiter: &Limiter<Slow>) -> Round {
    let mut round = std::mem::take(&mut *limiter.posting().0.lock());
    limiter.hear_late(&mut round, BOOT);
    round
}

#[test]
fn a_refund_that_is_answered_late_is_not_owed() {
    let limiter = limiter();
    let steps = [step(Algorithm::FixedWindow, -2)];
    let later = Later::default();
    let owed = std::iter::once(0).collect();
    limiter.expect_late(later.clone(), &steps, owed, true, passed(&limiter));
    later.answer(Ok(decided(&steps)));
    hear(&limiter);
    assert_eq!(limiter.owed().owed, 0);
}

#[test]
fn what_passed_is_owed_unless_the_late_answer_has_charged_it() {
    let steps = [step(Algorithm::FixedWindow, 2)];
    let full = [step(Algorithm::FixedWindow, 11)];
    let always = [Step {
        charge: Charge::Always,
        ..full[0]
    }];
    for (steps, reply, owed, unknown) in [
        (steps, Ok(decided(&steps)), 0, 0),
        (steps, Ok(decided(&full)), 2, 0),
        (always, Ok(decided(&full)), 0, 0),
        // Another limit has let it pass.
        (
            steps,
            Ok(Verdicts {
                allowed: true,
                ..decided(&full)
            }),
            2,
            0,
        ),
        (steps, Err(StoreError::Unavailable), 2, 0),
        (steps, Err(StoreError::Lost), 0, 2),
    ] {
        let limiter = limiter();
        let later = late(&limiter, &steps, true);
        assert!(limiter.flush_owed(), "an answer is awaited");
        later.answer(reply.clone());
        let round = hear(&limiter);
        assert_eq!((round.late.len(), round.returns.len()), (0, 0));
        let counts = limiter.owed();
        assert_eq!((counts.owed, counts.unknown), (owed, unknown), "{reply:?}");
        assert_eq!(limiter.store().stranded(), 0);
    }
}

/// A limiter of a rate limit with that failure mode, and of permits.
fn admitting(on_store_failure: &str) -> Limiter<Slow> {
    let text = format!(
        "
domain: d
descriptors:
  - key: user
    on_store_failure: {on_store_failure}
    rate_limit: {{ unit: minute, requests_per_unit: 10, algorithm: fixed_window }}
  - key: job
    concurrency: {{ limit: 2, timeout: 60s }}
"
    );
    let source = Source {
        name: "d.yaml".to_owned(),
        text,
    };
    let loaded = load(&[source], &Options::default());
    limiter_of(loaded.unwrap_or_else(|refused| panic!("{refused}")).rules)
}

/// Admits a request that the store does not answer in time; true if the failure mode does. Returns the steps that the store
/// was asked, and its ticket.
fn admitted_in_vain(limiter: &Limiter<Slow>, check: &Check<'_>) -> (bool, Vec<Step>, Later) {
    let Answer::Pending(mut admission) = limiter.admit(check, NOW, ReceiptMode::Dropped) else {
        panic!("the store answers later");
    };
    let (steps, _, later) = limiter.store().asked.lock().pop_front().expect("asked");
    later.answer(Err(StoreError::Timeout));
    let Poll::Ready(answer) = admission.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("there is an answer");
    };
    let admitted = admission.conclude(limiter, answer);
    (admitted.decision.allowed(), steps, later)
}

#[test]
fn an_admission_is_settled_by_its_late_answer() {
    let check = Check::new("d").descriptor([("user", "a")]).hits(2);
    for (mode, charged, owed, returns) in [
        ("allow", true, 0, 0),
        ("allow", false, 2, 0),
        ("deny", true, 0, 1),
        ("deny", false, 0, 0),
    ] {
        let limiter = admitting(mode);
        let (allowed, steps, later) = admitted_in_vain(&limiter, &check);
        assert_eq!(allowed, mode == "allow");
        later.answer(Ok(Verdicts {
            allowed: charged,
            ..decided(&steps)
        }));
        let round = hear(&limiter);
        assert_eq!(
            (round.late.len(), round.returns.len()),
            (0, returns),
            "{mode}"
        );
        let counts = limiter.owed();
        assert_eq!((counts.owed, counts.unknown), (owed, 0), "{mode} {charged}");
        assert_eq!(limiter.store().stranded(), 0, "{mode} {charged}");
    }
}

/// They are given back, or end at their deadline.
#[test]
fn no_answer_is_awaited_about_permits() {
    let limiter = admitting("allow");
    let check = Check::new("d").descriptor([("job", "a")]);
    assert!(admitted_in_vain(&limiter, &check).0);
    assert_eq!(limiter.posting().0.lock().late.len(), 0);
}

#[test]
fn what_was_charged_for_a_denied_request_is_given_back_but_for_turns() {
    let limiter = limiter();
    let bucket = |identity| Step {
        key: CounterKey {
            subject: 1,
            identity,
        },
        ..step(Algorithm::LeakyBucket, 1)
    };
    let peek = Step {
        hits: 0,
        ..bucket(4)
    };
    let steps = [step(Algorithm::FixedWindow, 2), bucket(2), peek];
    late(&limiter, &steps, false).answer(Ok(decided(&steps)));
    let mut round = hear(&limiter);
    assert_eq!(limiter.store().stranded(), 1, "the turn");
    assert_eq!(round.returns.len(), 1);
    limiter.give_back_charges(&mut round, BOOT);
    let (asked, extra, later) = limiter.store().asked.lock().pop_front().expect("sent");
    assert_eq!(
        (asked.len(), asked[0].hits, asked[0].key),
        (1, -2, steps[0].key)
    );
    let extra = extra.expect("it is carried out once");
    assert_eq!((extra.taken_at, extra.once.is_some()), (Some(NOW), true));
    limiter.give_back_charges(&mut round, after(1));
    assert!(limiter.store().asked.lock().is_empty(), "it is under way");
    later.answer(Ok(decided(&[])));
    limiter.give_back_charges(&mut round, after(1));
    assert_eq!((round.returns.len(), limiter.store().stranded()), (0, 0));
    // One that the store denied too has charged nothing.
    late(&limiter, &steps, false).answer(Ok(Verdicts {
        allowed: false,
        ..decided(&steps)
    }));
    assert_eq!(hear(&limiter).returns.len(), 0);
    assert_eq!(limiter.owed().owed, 0);
}

/// A step that reserves so many hits of a budget of ten.
fn reserving(hits: i64) -> Step {
    let spec = LimitSpec {
        post_paid: true,
        ..LimitSpec::new(Algorithm::SlidingLog, 10, MINUTE)
    };
    Step {
        hits,
        limit: Limit::try_new(spec).expect("a valid limit").reserving(),
        ..step(Algorithm::SlidingLog, hits)
    }
}

#[test]
fn what_the_store_cut_off_a_late_reservation_is_not_given_back() {
    let limiter = limiter();
    let steps = [reserving(12)];
    late(&limiter, &steps, false).answer(Ok(decided(&steps)));
    let mut round = hear(&limiter);
    limiter.give_back_charges(&mut round, BOOT);
    let (asked, ..) = limiter.store().asked.lock().pop_front().expect("sent");
    assert_eq!(asked[0].hits, -10);
}

#[test]
fn what_the_store_cut_off_a_late_reservation_is_owed_if_it_passed() {
    let limiter = limiter();
    let steps = [reserving(12)];
    late(&limiter, &steps, true).answer(Ok(decided(&steps)));
    assert_eq!(hear(&limiter).returns.len(), 0);
    assert_eq!(limiter.owed().owed, 2);
}

#[test]
fn a_return_is_sent_for_a_minute_and_then_its_hits_are_stranded() {
    let steps = [step(Algorithm::FixedWindow, 2)];
    for (reply, seconds, stays, stranded) in [
        (Err(StoreError::Lost), 59, true, 0),
        (Err(StoreError::Lost), 60, false, -2),
        (Ok(Execution::Now), 1, false, 0),
        (Ok(Execution::Before), 1, false, 0),
        (Ok(Execution::Unknown), 1, false, -2),
    ] {
        let limiter = limiter();
        late(&limiter, &steps, false).answer(Ok(decided(&steps)));
        let mut round = hear(&limiter);
        limiter.give_back_charges(&mut round, BOOT);
        let (.., later) = limiter.store().asked.lock().pop_front().expect("sent");
        let reply = reply.map(|execution| Verdicts {
            execution,
            ..decided(&[])
        });
        later.answer(reply.clone());
        limiter.give_back_charges(&mut round, after(0));
        limiter.give_back_charges(&mut round, after(seconds));
        assert_eq!(round.returns.len(), usize::from(stays), "{reply:?}");
        assert_eq!(limiter.store().stranded(), stranded, "{reply:?}");
        let again = limiter.store().asked.lock().len();
        assert_eq!(again, usize::from(stays), "{reply:?}");
    }
}

#[test]
fn a_denied_request_that_the_store_may_have_charged_strands_its_rates() {
    let steps = [
        step(Algorithm::FixedWindow, 2),
        step(Algorithm::Concurrency, 1),
        step(Algorithm::FixedWindow, 0),
        Step {
            charge: Charge::Always,
            ..step(Algorithm::FixedWindow, 4)
        },
    ];
    for (why, stranded) in [(StoreError::Lost, 2), (StoreError::Unavailable, 0)] {
        let limiter = limiter();
        late(&limiter, &steps, false).answer(Err(why));
        assert_eq!(hear(&limiter).late.len(), 0);
        assert_eq!(limiter.store().stranded(), stranded, "{why:?}");
        let counts = limiter.owed();
        assert_eq!((counts.owed, counts.unknown), (0, 0));
    }
}

#[test]
fn a_bounded_number_of_returns_is_under_way() {
    let limiter = limiter();
    let steps = [step(Algorithm::FixedWindow, 2)];
    let charged = decided(&steps);
    for _ in 0..POSTS_MAX + 5 {
        late(&limiter, &steps, false).answer(Ok(charged.clone()));
    }
    let mut round = hear(&limiter);
    let asked = || limiter.store().asked.lock().len();
    for seconds in 0..2 {
        limiter.give_back_charges(&mut round, after(seconds));
        assert_eq!((round.returns.len(), asked()), (POSTS_MAX + 5, POSTS_MAX));
    }
    // Those that are settled make room.
    let settled = limiter
        .store()
        .asked
        .lock()
        .iter()
        .take(3)
        .cloned()
        .collect::<Vec<_>>();
    for (.., later) in settled {
        later.answer(Ok(decided(&[])));
    }
    limiter.give_back_charges(&mut round, after(2));
    assert_eq!(
        (round.returns.len(), asked()),
        (POSTS_MAX + 2, POSTS_MAX + 3)
    );
}

#[test]
fn an_answer_of_the_store_has_what_is_owed_posted() {
    let limiter = limiter();
    let owed = limiter.fallback().expect("there is one").owed();
    let passing = passed(&limiter);
    let step = step(Algorithm::TokenBucket, 3);
    let passing = Passed {
        boot: limiter.clock().boot(),
        ..passing
    };
    owed.add(&step, None, StoreError::Unavailable, &passing);
    let check = Check::new("d");
    let matched = limiter.matched(&check, NOW, crate::purpose::Purpose::Charge);
    limiter.resolve_answer(&matched, None, Ok(decided(&[])));
    assert_eq!(limiter.store().posted.lock().len(), 1);
}

#[test]
fn nothing_is_posted_to_a_store_that_is_away() {
    let limiter = limiter();
    let owed = limiter.fallback().expect("there is one").owed();
    let passing = Passed {
        boot: limiter.clock().boot(),
        ..passed(&limiter)
    };
    let step = step(Algorithm::TokenBucket, 3);
    assert!(!limiter.flush_owed(), "nothing is owed");
    owed.add(&step, None, StoreError::Unavailable, &passing);
    for is_away in [true, false] {
        let place = &limiter.store().is_away;
        place.store(is_away, std::sync::atomic::Ordering::Relaxed);
        assert!(limiter.flush_owed());
        let posted = limiter.store().posted.lock().len();
        assert_eq!(posted, usize::from(!is_away));
    }
}
