//! The bound of a budget: in any window at most the algorithm's own is charged, plus what the requests cost that were under
//! way when nothing was left. Held against a list of timestamps.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Ask, Limit, LimitSpec, Moment, State, Timestamp};
use ratekeeper_testkit::model::history::{Gap, gaps, specs, starts};

/// A request that asks, works, and pays.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// The time before it asks.
    gap: Gap,
    /// Its cost, in thousandths of the limit's capacity.
    cost: u64,
    /// The number of later requests that ask before it pays.
    lasts: usize,
}

/// A charge, as a list of timestamps has it.
#[derive(Clone, Copy, Debug)]
struct Paid {
    at: Timestamp,
    hits: u64,
    /// True if nothing was left while it was under way, or after it paid.
    is_late: bool,
}

/// A request under way.
struct Open {
    hits: u64,
    ends: usize,
    is_late: bool,
}

fn work() -> impl Strategy<Value = Work> {
    let cost = prop_oneof![4 => 1..=100_u64, 2 => 100..=1_500_u64, 1 => 1_500..=20_000_u64];
    (gaps(), cost, 0..6_usize).prop_map(|(gap, cost, lasts)| Work { gap, cost, lasts })
}

/// Plays the requests; returns what was charged, in order.
fn play(limit: &Limit, start: Timestamp, works: &[Work]) -> Vec<Paid> {
    let (mut now, mut last) = (start, None);
    let mut state = State::new(limit.shape());
    let (mut open, mut paid): (Vec<Open>, Vec<Paid>) = (Vec::new(), Vec::new());
    let most = u128::from(limit.capacity());
    for (number, work) in works.iter().enumerate() {
        now = work.gap.after(now, limit, last.as_ref());
        let due = |request: &mut Open| request.ends <= number;
        for request in open.extract_if(.., due).collect::<Vec<_>>() {
            pay(limit, &mut state, now, request, &mut open, &mut paid);
        }
        let look = limit.step(&mut state, 0, &Moment::at(now));
        if look.fits() {
            let hits = (most * u128::from(work.cost) / 1_000).clamp(1, 1 << 40);
            open.push(Open {
                hits: u64::try_from(hits).expect("it is clamped"),
                ends: number + work.lasts,
                is_late: false,
            });
        }
        last = Some(look);
    }
    while let Some(request) = open.pop() {
        pay(limit, &mut state, now, request, &mut open, &mut paid);
    }
    paid
}

fn pay(
    limit: &Limit,
    state: &mut State,
    now: Timestamp,
    request: Open,
    open: &mut [Open],
    paid: &mut Vec<Paid>,
) {
    let at = Moment::at(now);
    let hits = i64::try_from(request.hits).expect("it is clamped");
    limit.step(state, hits, &at);
    let is_left = limit.test(state.as_ref(), Ask::hits(0), &at).fits();
    if !is_left {
        // Whoever is under way now will pay although nothing is left.
        open.iter_mut().for_each(|other| other.is_late = true);
    }
    paid.push(Paid {
        at: now,
        hits: request.hits,
        is_late: request.is_late || !is_left,
    });
}

fn check(spec: LimitSpec, start: Timestamp, works: &[Work]) {
    let spec = LimitSpec {
        post_paid: true,
        sub_windows: None,
        ..spec
    };
    let Ok(limit) = Limit::try_new(spec) else {
        return;
    };
    let paid = play(&limit, start, works);
    let own = u128::from(limit.most_in_any_window().expect("a rate"));
    for (number, end) in paid.iter().enumerate() {
        let inside = paid[..=number].iter().rev();
        let inside = inside.take_while(|it| end.at.since(it.at) < limit.window());
        let (mut all, mut late) = (0_u128, 0_u128);
        for it in inside {
            all += u128::from(it.hits);
            late += if it.is_late { u128::from(it.hits) } else { 0 };
        }
        assert!(
            all <= own + late,
            "{all} of {own} and {late}: {spec:?} {paid:?}"
        );
    }
}

macro_rules! budgets_hold {
    ($($name:ident $algorithm:ident,)*) => {
        proptest! {
            $(
                #[test]
                fn $name(
                    spec in specs(Algorithm::$algorithm),
                    start in starts(),
                    works in prop::collection::vec(work(), 1..60),
                ) {
                    check(spec, start, &works);
                }
            )*
        }
    };
}

budgets_hold! {
    fixed_window FixedWindow,
    sliding_window SlidingWindow,
    sliding_log SlidingLog,
    token_bucket TokenBucket,
    gcra Gcra,
}
