use proptest::prelude::*;

use super::*;
use crate::{Algorithm, Ask, Micros, Moment, State, Verdict};

fn whole(algorithm: Algorithm, quota: u64, window: u64, burst: Option<u64>) -> Limit {
    let spec = LimitSpec::new(algorithm, quota, Micros::new(window));
    Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit")
}

/// A region's bucket, and the share that it is under.
struct Region {
    whole: Limit,
    share: u64,
    state: State,
}

impl Region {
    fn new(whole: Limit, share: u64) -> Self {
        Self {
            whole,
            share,
            state: State::new(whole.shape()),
        }
    }

    fn limit(&self, share: u64) -> Limit {
        self.whole.holding(share, Whole::of(&self.whole))
    }

    fn take(&mut self, hits: i64, at: Timestamp) -> crate::Outcome {
        self.limit(self.share)
            .step(&mut self.state, hits, &Moment::at(at))
    }

    fn level(&self, at: Timestamp) -> u64 {
        let ask = Ask { taken: 0, hits: 0 };
        let limit = self.limit(self.share);
        limit
            .test(self.state.as_ref(), ask, &Moment::at(at))
            .remaining
    }

    fn words(&mut self) -> StateMut<'_> {
        match &mut self.state {
            State::Words(words) => StateMut::Words(words),
            State::Heap(heap) => StateMut::Heap(heap),
        }
    }

    fn resize(&mut self, share: u64, tokens: i64, at: Timestamp) {
        let (from, to) = (self.limit(self.share), self.limit(share));
        from.resize(&to, self.words(), tokens, at);
        self.share = share;
    }

    fn lower(&mut self, share: u64, end: Timestamp) {
        let (from, to) = (self.limit(self.share), self.limit(share));
        from.lower(&to, self.words(), end);
        self.share = share;
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + micros)
}

const SECOND: u64 = 1_000_000;

#[test]
fn a_limit_is_held_in_parts_of_quota_and_burst() {
    let bucket = whole(Algorithm::Gcra, 600, 60 * SECOND, Some(100));
    let parts = Whole::of(&bucket);
    let part = bucket.holding(200, parts);
    assert_eq!((part.quota(), part.capacity()), (200, 33));
    assert_eq!(bucket.holding(600, parts), bucket);
    // Too little for a burst of one hit.
    assert_eq!(bucket.holding(5, parts).capacity(), 0);
    assert_eq!(bucket.holding(0, parts).quota(), 0);
    let log = whole(Algorithm::SlidingWindow, 600, SECOND, None);
    assert_eq!(log.holding(20, Whole::of(&log)).capacity(), 20);
}

#[test]
fn large_and_slow_buckets_have_no_exact_parts() {
    let exact =
        |quota, window, burst| whole(Algorithm::Gcra, quota, window, burst).has_exact_parts();
    assert!(exact(600, 60 * SECOND, None));
    assert!(exact(600, 60 * SECOND, Some(1_000_000)));
    assert!(!exact(600, 60 * SECOND, Some(50_000_000_000)));
    assert!(!exact(1 << 41, 86_400 * SECOND, Some(10)));
    assert!(!exact(1 << 30, 60 * SECOND, Some(1 << 24)));
    assert!(whole(Algorithm::SlidingWindow, MAX_COUNT, SECOND, None).has_exact_parts());
}

#[test]
fn the_level_of_a_bucket_stays_when_its_share_changes() {
    let bucket = whole(Algorithm::TokenBucket, 600, 60 * SECOND, None);
    let mut region = Region::new(bucket, 200);
    assert!(region.take(150, at(0)).fits());
    region.resize(500, 0, at(0));
    assert_eq!(region.level(at(0)), 50);
    // Seven more come, and at the new rate.
    region.resize(500, -7, at(0));
    assert_eq!((region.level(at(0)), region.level(at(SECOND))), (57, 65));
    region.resize(60, 20, at(0));
    assert_eq!((region.level(at(0)), region.level(at(SECOND))), (37, 38));
    // What is above a smaller capacity is lost.
    region.resize(12, 0, at(0));
    assert_eq!(region.level(at(0)), 12);
    region.resize(300, 0, at(0));
    assert_eq!(region.level(at(0)), 12);
}

#[test]
fn the_part_of_the_next_token_stays_when_the_share_changes() {
    let bucket = whole(Algorithm::TokenBucket, 600, 60 * SECOND, None);
    let mut region = Region::new(bucket, 60);
    assert!(region.take(60, at(0)).fits());
    // Half of the second that it takes has passed: half of a token is there, at twice the rate too.
    region.resize(120, -60, at(SECOND / 2));
    region.take(60, at(SECOND / 2));
    let denied = region.take(1, at(SECOND / 2));
    assert_eq!(denied.verdict, Verdict::Later);
    assert_eq!(denied.retry_after, Micros::new(SECOND / 4 + 1));
}

#[test]
fn a_bucket_that_was_charged_since_a_loan_ended_is_not_lowered() {
    let bucket = whole(Algorithm::TokenBucket, 600, 60 * SECOND, None);
    let busy = || {
        let mut region = Region::new(bucket, 500);
        assert!(region.take(450, at(0)).fits());
        region
    };
    let mut region = busy();
    region.lower(100, at(SECOND));
    // Fifty are there of a hundred, and more at the lower rate.
    assert_eq!(
        (region.level(at(0)), region.level(at(6 * SECOND))),
        (50, 60)
    );
    let mut region = busy();
    region.share = 100;
    region.lower(100, at(0));
    assert_eq!(region.level(at(0)), 0);
}

/// The asks, loans and returns between regions.
#[derive(Clone, Debug)]
enum Act {
    Take(usize, u64),
    Pass(u64),
    /// From one to the other: thousandths of its share.
    Move(usize, u64),
    /// A region holds so many thousandths less, from now on, or since so many thousandths of a window.
    Lose(usize, u64, u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..2_usize, 1..40_u64).prop_map(|(at, hits)| Act::Take(at, hits)),
        4 => (0..400_u64).prop_map(Act::Pass),
        3 => (0..2_usize, 0..=1_000_u64).prop_map(|(at, part)| Act::Move(at, part)),
        1 => (0..2_usize, 0..=1_000_u64, 0..100_u64).prop_map(|(at, part, ago)| Act::Lose(at, part, ago)),
    ];
    proptest::collection::vec(act, 1..120)
}

proptest! {
    /// Two regions whose shares sum to the limit admit no more than one bucket of it, however shares and tokens move: in
    /// every span its burst, and what comes in that time.
    #[test]
    fn buckets_whose_shares_move_admit_no_more_than_one(
        quota in 2..2_000_u64,
        burst in proptest::option::of(1..3_000_u64),
        window in 1_000..2_000_000_u64,
        first in 0..=1_000_u64,
        acts in acts(),
    ) {
        let bucket = whole(Algorithm::TokenBucket, quota, window, burst);
        let share = quota * first / 1_000;
        let mut regions = [share, quota - share].map(|share| Region::new(bucket, share));
        // The level of one bucket, in parts of a hit that come in a microsecond.
        let (full, mut level) = (u128::from(bucket.capacity() * window), u128::from(bucket.capacity() * window));
        let mut now = 0;
        for act in acts {
            match act {
                Act::Take(region, hits) => {
                    if regions[region].take(hits.cast_signed(), at(now)).fits() {
                        let cost = u128::from(hits * window);
                        prop_assert!(cost <= level, "{hits} hits too many at {now}");
                        level -= cost;
                    }
                }
                Act::Pass(parts) => {
                    let span = window * parts / 1_000;
                    now += span;
                    level = full.min(level + u128::from(quota) * u128::from(span));
                }
                Act::Move(from, part) => {
                    let moves = regions[from].share * part / 1_000;
                    let level = regions[from].level(at(now));
                    let tokens = (level * moves).checked_div(regions[from].share).unwrap_or(0);
                    let (less, more) = (regions[from].share - moves, regions[1 - from].share + moves);
                    regions[from].resize(less, tokens.cast_signed(), at(now));
                    regions[1 - from].resize(more, -tokens.cast_signed(), at(now));
                }
                Act::Lose(region, part, ago) => {
                    let less = regions[region].share - regions[region].share * part / 1_000;
                    let since = now.saturating_sub(window * ago / 1_000);
                    // Nobody has what it lost.
                    regions[region].lower(less, at(since));
                }
            }
        }
    }
}
