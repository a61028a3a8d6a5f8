use ratekeeper_core::{Algorithm, Limit, LimitSpec, Mode, Timestamp};
use ratekeeper_store::Step;

use super::*;
use crate::script::{Group, GroupNote, Item, decode_and_keep};
use crate::server_address::ServerAddress;

const MAX: Duration = Duration::from_secs(1);

fn nothing() -> Limit {
    let spec = LimitSpec::new(Algorithm::FixedWindow, 0, Micros::from_secs(3_600));
    Limit::try_new(spec).expect("a valid limit")
}

fn step(limit: &Limit, number: u64) -> Step {
    Step::new(
        CounterKey {
            subject: number,
            identity: number,
        },
        *limit,
    )
}

/// The known state of the counters of `request` after Redis has denied it.
fn denial(request: &Request<'_>) -> DeniedCounters {
    let groups = [Group::new(request)];
    let mut items = vec![Item::Int(1_000_000)];
    items.extend(request.steps.iter().map(|_| Item::Null));
    items.push(Item::Int(0));
    let mut kept = None;
    decode_and_keep(&groups, items, |_, _| {}, |_, known| kept = Some(known))
        .expect("an answer of the script");
    match kept {
        Some(GroupNote::Denied(known)) => known,
        _ => panic!("it was denied"),
    }
}

fn shard() -> Arc<Shard> {
    Arc::new(Shard::new(ServerAddress::default()))
}

#[test]
fn a_denial_is_repeated_for_as_long_as_is_set() {
    let (denied, sent) = (Denied::new(MAX), Instant::now());
    let limit = nothing();
    let steps = [step(&limit, 1)];
    let request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
    let known = denial(&request);
    denied.keep(
        &shard(),
        signature(&request),
        known,
        (sent, denied.returns()),
    );
    let almost = sent + MAX - Duration::from_micros(1);
    assert!(denied.answer(&request, sent).is_some());
    assert!(denied.answer(&request, almost).is_some());
    assert!(denied.answer(&request, sent + MAX).is_none());
    assert!(denied.answer(&request, sent).is_none(), "it is forgotten");
    assert_eq!(denied.answered(), 2);
}

/// A refund to any of its counters voids a denial.
#[test]
fn what_is_given_back_to_any_counter_is_seen_at_once() {
    let (denied, now) = (Denied::new(MAX), Instant::now());
    let limit = nothing();
    let steps = [step(&limit, 1), step(&limit, 2)];
    let request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
    for (number, forgets) in [(1, true), (2, true), (3, false)] {
        let known = denial(&request);
        denied.keep(
            &shard(),
            signature(&request),
            known,
            (now, denied.returns()),
        );
        denied.forget(step(&limit, number).key);
        let answer = denied.answer(&request, now);
        assert_eq!(answer.is_none(), forgets, "{number}");
    }
}

#[test]
fn a_denial_that_comes_after_what_was_given_back_is_not_kept() {
    let (denied, now) = (Denied::new(MAX), Instant::now());
    let limit = nothing();
    let steps = [step(&limit, 1), step(&limit, 2)];
    let request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
    let before = denied.returns();
    denied.forget(steps[1].key);
    denied.keep(
        &shard(),
        signature(&request),
        denial(&request),
        (now, before),
    );
    assert!(denied.answer(&request, now).is_none());
    let after = denied.returns();
    denied.keep(
        &shard(),
        signature(&request),
        denial(&request),
        (now, after),
    );
    assert!(denied.answer(&request, now).is_some());
}

/// Keeps the denial of `steps`, sent at that time.
fn keep(denied: &Denied, shard: &Arc<Shard>, steps: &[Step], sent: Instant) {
    let request = Request::new(steps, Mode::default(), Timestamp::EPOCH);
    let asked = (sent, denied.returns());
    denied.keep(shard, signature(&request), denial(&request), asked);
}

fn is_answered(denied: &Denied, steps: &[Step], now: Instant) -> bool {
    let request = Request::new(steps, Mode::default(), Timestamp::EPOCH);
    denied.answer(&request, now).is_some()
}

/// As with `generic_key: api` before an address, or a limit of all callers before one of each.
#[test]
fn denials_of_one_subject_have_as_much_room_as_those_of_many() {
    const CALLERS: u64 = 4_000;
    let (limit, shard, now) = (nothing(), shard(), Instant::now());
    let of_caller = |identity| {
        let key = CounterKey {
            subject: 7,
            identity,
        };
        Step::new(key, limit)
    };
    for shared in [&[][..], &[step(&limit, 1)]] {
        let denied = Denied::new(MAX);
        let steps = |caller| [shared, &[of_caller(caller)]].concat();
        (0..CALLERS).for_each(|caller| keep(&denied, &shard, &steps(caller), now));
        let answered = (0..CALLERS).filter(|caller| is_answered(&denied, &steps(*caller), now));
        assert_eq!(answered.count() as u64, CALLERS);
    }
}

#[test]
fn denials_that_are_over_make_room_for_others() {
    let (denied, limit, shard) = (Denied::new(MAX), nothing(), shard());
    let first = Instant::now();
    let most = (PARTS * DENIALS_MAX) as u64;
    // Callers that never come back fill every part.
    (0..2 * most).for_each(|caller| keep(&denied, &shard, &[step(&limit, caller)], first));
    assert_eq!(denied.kept.load(Ordering::Relaxed) as u64, most);
    let later = first + MAX;
    let others = 2 * most..2 * most + most / 2;
    let steps = |caller| [step(&limit, caller)];
    { others.clone() }.for_each(|caller| keep(&denied, &shard, &steps(caller), later));
    let answered = { others }.filter(|caller| is_answered(&denied, &steps(*caller), later));
    assert_eq!(answered.count() as u64, most / 2);
    assert_eq!(denied.kept.load(Ordering::Relaxed) as u64, most);
}
