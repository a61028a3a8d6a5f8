//! Two limits of one counter, as on two nodes while a change is rolled out, or before and after one
//! and back: together they admit no more than a limit with the larger burst and the faster rate. No
//! denial writes, what is told is exact, and no charge gives a faster limit anything back.

use crate::waiting::assert_wait;
use proptest::prelude::*;
use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, Micros, Moment, Outcome, State, Timestamp, Verdict,
};
use ratekeeper_testkit::model::history::{Gap, Hits, gaps, starts, takes};

const BUCKETS: [Algorithm; 3] = [
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::LeakyBucket,
];

/// The use that a node makes of the counter.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// Hits are taken if they fit.
    Exact,
    /// Denied hits are counted too.
    Forced,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    node: usize,
    kind: Use,
    gap: Gap,
    hits: Hits,
    /// True if the clock goes back by the gap.
    back: bool,
}

fn turns(back: f64) -> impl Strategy<Value = Vec<Turn>> {
    let kind = prop_oneof![6 => Just(Use::Exact), 1 => Just(Use::Forced)];
    let turn = (
        0..2_usize,
        kind,
        gaps(),
        takes(),
        prop::bool::weighted(back),
    );
    let turn = turn.prop_map(|(node, kind, gap, hits, back)| Turn {
        node,
        kind,
        gap,
        hits,
        back,
    });
    prop::collection::vec(turn, 1..60)
}

/// Two limits that share counters: one algorithm and window, any rates and bursts.
fn pairs() -> impl Strategy<Value = [Limit; 2]> {
    let window = prop::sample::select(vec![1_000_000, 7_919_000, 60_000_000, 86_400_000_000]);
    let quota = || prop_oneof![4 => 1..100_u64, 1 => Just(60_u64), 1 => Just(300_000_u64)];
    let burst = || prop_oneof![4 => 1..100_u64, 1 => Just(60_u64), 1 => Just(2_000_u64)];
    let algorithm = prop::sample::select(&BUCKETS[..]);
    (algorithm, window, [quota(), quota()], [burst(), burst()]).prop_map(
        |(algorithm, window, quotas, bursts)| {
            [0, 1].map(|node| {
                let spec = LimitSpec::new(algorithm, quotas[node], Micros::new(window));
                Limit::try_new(LimitSpec {
                    burst: Some(bursts[node]),
                    ..spec
                })
                .expect("a valid limit")
            })
        },
    )
}

/// A counter under both limits, and what it let pass.
struct World {
    limits: [Limit; 2],
    state: State,
    now: Timestamp,
    /// The sum of all steps forward.
    gone_by: u64,
    steps_back: u64,
    last: Option<Outcome>,
    passed: Vec<Passed>,
    /// The end of the last turn of a leaky bucket.
    turn_ends: u64,
}

struct Passed {
    gone_by: u64,
    steps_back: u64,
    hits: u64,
}

impl World {
    fn new(limits: [Limit; 2], start: Timestamp) -> Self {
        Self {
            limits,
            state: State::new(limits[0].shape()),
            now: start,
            gone_by: 0,
            steps_back: 0,
            last: None,
            passed: Vec::new(),
            turn_ends: 0,
        }
    }

    fn take(&mut self, turn: &Turn) {
        let limit = self.limits[turn.node];
        self.advance(turn, &limit);
        let at = Moment::at(self.now);
        let hits = turn.hits.number(&limit, self.last.as_ref());
        let before = self.state.clone();
        let is_ahead = limit.is_ahead(before.as_ref(), self.now);
        match turn.kind {
            Use::Forced => limit.charge(self.state.as_mut(), hits, &at).expect("words"),
            Use::Exact => {
                let outcome = limit.step(&mut self.state, hits, &at);
                self.last = Some(outcome);
                match outcome.verdict {
                    Verdict::Fits => self.admit(&limit, outcome, hits),
                    Verdict::Later => self.denied(&limit, hits, outcome.retry_after),
                    Verdict::Never => {}
                }
                assert!(outcome.fits() || is_ahead || self.state == before);
            }
        }
        if !is_ahead {
            self.assert_nothing_came_back(&limit, &before, &at);
        }
    }

    fn advance(&mut self, turn: &Turn, limit: &Limit) {
        let before = self.now;
        self.now = match turn.back {
            true => turn.gap.before(before, limit, self.last.as_ref()),
            false => turn.gap.after(before, limit, self.last.as_ref()),
        };
        self.gone_by += self.now.since(before).get();
        self.steps_back += u64::from(self.now < before);
    }

    fn admit(&mut self, limit: &Limit, outcome: Outcome, hits: i64) {
        let hits = hits.unsigned_abs();
        self.passed(hits);
        if limit.algorithm() == Algorithm::LeakyBucket && hits > 0 && self.steps_back == 0 {
            let begins = self.now.as_micros() + outcome.delay.get();
            assert!(begins >= self.turn_ends, "a turn before {}", self.turn_ends);
            // A span is told rounded up, once a turn; the turns themselves are not.
            self.turn_ends = begins + limit.span(hits).get() - 1;
        }
    }

    fn passed(&mut self, hits: u64) {
        self.passed.push(Passed {
            gone_by: self.gone_by,
            steps_back: self.steps_back,
            hits,
        });
    }

    /// A denial is over after exactly the told wait, which is bounded.
    fn denied(&self, limit: &Limit, hits: i64, wait: Micros) {
        assert_wait(limit, &self.state, hits.max(1), self.now, wait);
        let all = self.limits.iter().map(|limit| limit.capacity()).max();
        let fill = |limit: &Limit| limit.span(limit.capacity()).get() + 1;
        let longest = self.limits.iter().map(fill).max().unwrap_or(0);
        let refill = (limit.span(1).get() * all.unwrap_or(0)).max(longest);
        let most = refill + if self.steps_back > 0 { fill(limit) } else { 0 };
        assert!(wait.get() <= most, "{wait:?} > {most}");
    }

    /// A limit that is at least as fast as the one that charged finds no more room than before. A
    /// faster one does not count a part of a slower hit that is longer than its own, and so may find
    /// that hit once it is whole.
    fn assert_nothing_came_back(&self, charged: &Limit, before: &State, at: &Moment) {
        for limit in self.limits {
            if limit.quota() < charged.quota() {
                continue;
            }
            let look = |state: &State| limit.test(state.as_ref(), Ask::hits(0), at);
            let (before, after) = (look(before), look(&self.state));
            let whole = u64::from(limit.quota() > charged.quota());
            assert!(after.remaining <= before.remaining + whole);
            let since = after.full_after.get() + limit.span(whole).get();
            assert!(since >= before.full_after.get());
        }
    }

    /// Of every stretch of the history no more passed than the larger burst and the faster rate
    /// admit; each step back of the clock may repeat a burst.
    fn assert_envelope(&self) {
        let of_both = |value: fn(&Limit) -> u64| {
            let most = self.limits.iter().map(value).max();
            u128::from(most.unwrap_or(0))
        };
        let (burst, quota) = (of_both(Limit::capacity), of_both(Limit::quota));
        let window = of_both(|limit| limit.window().get());
        for (first, from) in self.passed.iter().enumerate() {
            let mut hits = 0_u128;
            for to in self.passed.iter().skip(first) {
                hits += u128::from(to.hits);
                let steps_back = u128::from(to.steps_back - from.steps_back);
                let refilled = quota * u128::from(to.gone_by - from.gone_by);
                let most = burst * (1 + steps_back) * window + refilled;
                assert!(hits * window <= most, "{hits} passed");
            }
        }
    }
}

fn play(limits: [Limit; 2], start: Timestamp, turns: &[Turn]) {
    let mut world = World::new(limits, start);
    for turn in turns {
        world.take(turn);
        // Far from the end of time, which answers may not reach.
        if world.now.as_micros() > 1 << 52 {
            break;
        }
    }
    // A queue is bounded by its time: hits of a slower limit wait behind those of a faster one.
    if limits[0].algorithm() != Algorithm::LeakyBucket {
        world.assert_envelope();
    }
}

proptest! {
    #[test]
    fn admit_no_more_than_the_larger(
        limits in pairs(),
        start in starts(),
        turns in turns(0.0),
    ) {
        play(limits, start, &turns);
    }

    #[test]
    fn survive_clocks_that_go_back(
        limits in pairs(),
        start in starts(),
        turns in turns(0.2),
    ) {
        play(limits, start, &turns);
    }
}

/// A canary with 20 a day beside a node with 60 a day, in turn, and each asked until it denies.
#[test]
fn a_canary_gives_nothing_back() {
    for algorithm in BUCKETS {
        for (bursts, quotas) in [
            ([60, 20], [60, 20]),
            ([60, 20], [60, 60]),
            ([60, 60], [60, 20]),
        ] {
            let [high, low] = [0, 1].map(|node| {
                let spec = LimitSpec::new(algorithm, quotas[node], Micros::from_secs(86_400));
                let burst = Some(bursts[node]);
                Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit")
            });
            let mut state = State::new(high.shape());
            let at = Moment::at(Timestamp::from_secs(1_000_000_000));
            let mut passed = 0;
            for _ in 0..4 {
                passed += (0..70)
                    .filter(|_| high.step(&mut state, 1, &at).fits())
                    .count();
                passed += (0..3)
                    .filter(|_| low.step(&mut state, 1, &at).fits())
                    .count();
            }
            // A queue counts time: of three days, 60 turns of the faster limit take one.
            let waits = algorithm == Algorithm::LeakyBucket && bursts[1] == 60;
            assert_eq!(
                passed,
                if waits { 72 } else { 60 },
                "{algorithm:?} {bursts:?} {quotas:?}"
            );
        }
    }
}
