use proptest::prelude::*;

use super::*;
use crate::{Algorithm, Ask, LimitSpec, Moment, State, Timestamp, Verdict};

const fn id(number: u64) -> RegionId {
    RegionId::from_bits(number)
}

const fn post(region: u64, window: u64, total: u64) -> RegionPost {
    RegionPost {
        region: id(region),
        window,
        total,
    }
}

#[test]
fn the_largest_total_of_each_region_counts() {
    let mut sums = CountedSums::default();
    assert!(sums.take(post(0, 100, 30), 100));
    assert!(sums.take(post(2, 100, 40), 100));
    assert!(sums.take(post(0, 100, 20), 100), "late, which is no fault");
    assert_eq!(sums.sum(100), 70);
    assert!(sums.take(post(0, 100, 50), 100));
    assert_eq!(sums.sum(100), 90);
    assert_eq!((sums.posted(id(0), 100), sums.posted(id(1), 100)), (50, 0));
}

/// A region whose clock is ahead posts for the next window before the one that is counted here is over.
#[test]
fn a_post_for_the_next_window_takes_nothing_from_this_one() {
    let mut sums = CountedSums::default();
    assert!(sums.take(post(0, 100, 50), 100));
    assert!(sums.take(post(0, 101, 5), 100));
    assert_eq!((sums.sum(100), sums.sum(101)), (50, 5));
    assert!(sums.take(post(2, 101, 7), 101));
    assert_eq!((sums.sum(100), sums.sum(101)), (0, 12));
}

#[test]
fn posts_of_other_windows_change_nothing() {
    let mut sums = CountedSums::default();
    assert!(sums.take(post(0, 100, 50), 100));
    let before = sums.clone();
    for window in [0, 99, 102, u64::MAX] {
        assert!(!sums.take(post(0, window, 500), 100), "{window}");
        assert_eq!(sums, before);
    }
    assert!(!sums.take(post(0, 0, 1), u64::MAX));
    assert!(sums.take(post(0, u64::MAX, 1), u64::MAX));
}

#[test]
fn regions_are_bounded() {
    let mut sums = CountedSums::default();
    let most = ENTRIES_MAX as u64;
    for region in 0..2 * most {
        let is_taken = sums.take(post(region, 100, 1), 100);
        assert_eq!(is_taken, region < most);
    }
    assert!(sums.take(post(3, 100, 9), 100), "one that is there already");
    assert_eq!(sums.encode().len(), 2 + ENTRY * ENTRIES_MAX);
}

#[test]
fn a_silent_region_has_used_its_share_or_more() {
    let mut sums = CountedSums::default();
    assert!(sums.take(post(0, 100, 50), 100));
    assert!(sums.take(post(2, 100, 300), 100));
    let silent = |region| SilentRegion {
        region: id(region),
        share: 200,
    };
    assert_eq!(sums.used(100, &[]), 350);
    assert_eq!(sums.used(100, &[silent(0)]), 500);
    assert_eq!(sums.used(100, &[silent(2)]), 350, "it has posted more");
    assert_eq!(sums.used(100, &[silent(1)]), 550);
    assert_eq!(sums.used(101, &[silent(0), silent(1), silent(2)]), 600);
}

#[test]
fn a_region_is_silent_after_three_intervals() {
    let counted = |silent| Counted {
        interval: Micros::from_secs(2),
        silent,
    };
    assert_eq!(counted(Silent::Alone).silent_after(), None);
    assert_eq!(
        counted(Silent::Share).silent_after(),
        Some(Micros::from_secs(6))
    );
}

#[test]
fn something_else_is_not_read() {
    let mut sums = CountedSums::default();
    assert!(sums.take(post(0x0102, 5, 7), 5));
    let bytes = sums.encode();
    let (head, region) = ([3, 1], [2, 1, 0, 0, 0, 0, 0]);
    let numbers = [5, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes, [&head[..], &region, &numbers].concat());
    for cut in 1..bytes.len() {
        assert_eq!(CountedSums::decode(&bytes[..cut]), None, "{cut}");
    }
    let longer = [&*bytes, &[0]].concat();
    assert_eq!(CountedSums::decode(&longer), None);
    for kind in [0, 1, 2, 4, b'1'] {
        let other = [&[kind], &bytes[1..]].concat();
        assert_eq!(CountedSums::decode(&other), None, "{kind}");
    }
    assert_eq!(CountedSums::decode(&[]), Some(CountedSums::default()));
}

fn posts() -> impl Strategy<Value = Vec<RegionPost>> {
    let post = (0..4_u64, 98..104_u64, 0..1_000_u64);
    let post = post.prop_map(|(region, window, total)| self::post(region, window, total));
    proptest::collection::vec(post, 0..40)
}

proptest! {
    /// Lost, repeated and reordered posts: what counts is the largest total that came.
    #[test]
    fn the_order_of_posts_means_nothing(posts in posts(), turn in 0..40_usize) {
        let mut one = CountedSums::default();
        let mut other = CountedSums::default();
        posts.iter().for_each(|post| { one.take(*post, 100); });
        let turn = turn.min(posts.len());
        let turned = posts[turn..].iter().chain(&posts[..turn]).chain(&posts);
        turned.rev().for_each(|post| { other.take(*post, 100); });
        for window in 97..105 {
            for region in (0..4).map(id) {
                let largest = posts.iter().filter(|it| it.region == region && it.window == window);
                let largest = largest.map(|it| it.total).max().unwrap_or(0);
                let counts = if (100..=101).contains(&window) { largest } else { 0 };
                prop_assert_eq!(one.posted(region, window), counts);
                prop_assert_eq!(other.posted(region, window), counts);
            }
            prop_assert_eq!(one.sum(window), one.used(window, &[]));
        }
    }

    /// The sum of a window never falls while it is counted, so that a denial stays one.
    #[test]
    fn sums_only_grow(posts in posts()) {
        let mut sums = CountedSums::default();
        for post in posts {
            let before = sums.sum(100);
            sums.take(post, 100);
            prop_assert!(sums.sum(100) >= before);
        }
    }

    #[test]
    fn totals_are_read_as_they_were_written(posts in posts()) {
        let mut sums = CountedSums::default();
        posts.iter().for_each(|post| { sums.take(*post, post.window.max(100)); });
        prop_assert_eq!(CountedSums::decode(&sums.encode()), Some(sums));
    }

    #[test]
    fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(sums) = CountedSums::decode(&bytes) {
            let _ = sums.used(u64::MAX, &[SilentRegion { region: id(0), share: u64::MAX }]);
            let _ = sums.encode();
        }
    }
}

#[test]
fn hits_of_others_leave_less_room_and_the_same_capacity() {
    let spec = LimitSpec::new(Algorithm::FixedWindow, 600, Micros::from_secs(60));
    let limit = Limit::try_new(spec).expect("a valid limit");
    let at = Moment::at(Timestamp::from_secs(1_700_000_050));
    let ask = |elsewhere: u64, own: i64, hits: i64| {
        let mut state = State::new(limit.shape());
        limit.step(&mut state, own, &at);
        let limit = limit.beside(elsewhere);
        assert_eq!((limit.capacity(), limit.ceiling()), (600, 600));
        let told = limit.test(state.as_ref(), Ask::hits(hits), &at);
        (told.verdict, told.remaining, told.retry_after)
    };
    let (none, end) = (Micros::ZERO, Micros::from_secs(50));
    assert_eq!(ask(590, 0, 10), (Verdict::Fits, 0, none));
    assert_eq!(ask(590, 0, 20), (Verdict::Later, 10, end));
    assert_eq!(ask(u64::MAX, 0, 600), (Verdict::Later, 0, end));
    assert_eq!(ask(590, 0, 601), (Verdict::Never, 10, none));
    assert_eq!(ask(600, 0, 0), (Verdict::Fits, 0, end));
    assert_eq!(ask(600, 1, 0), (Verdict::Later, 0, end), "overdrawn");
    // No more comes back than was used here.
    assert_eq!(ask(590, 5, -100), (Verdict::Fits, 10, none));
    let bucket = LimitSpec::new(Algorithm::Gcra, 600, Micros::from_secs(60));
    let bucket = Limit::try_new(bucket).expect("a valid limit");
    assert_eq!(bucket.beside(600), bucket);
}
