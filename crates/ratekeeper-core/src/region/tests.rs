use proptest::prelude::*;

use super::*;
use crate::Algorithm;

fn regions(own: &str, weights: &[(&str, u32)]) -> Regions {
    let all = weights
        .iter()
        .map(|(name, weight)| ((*name).into(), *weight));
    Regions::try_new(own, 1, all).expect("valid regions")
}

fn limit(change: impl FnOnce(&mut LimitSpec)) -> Limit {
    let mut spec = LimitSpec::new(Algorithm::FixedWindow, 600, Micros::from_secs(60));
    change(&mut spec);
    Limit::try_new(spec).expect("a valid limit")
}

#[test]
fn the_rest_goes_to_the_largest_fractions_and_then_by_name() {
    let all = [("us", 1), ("eu", 2), ("ap", 1)];
    assert_eq!(regions("eu", &all).shares(601), [150, 301, 150]);
    assert_eq!(regions("eu", &all).share(601), 301);
    let equal = [("ap", 1), ("eu", 1), ("us", 1)];
    assert_eq!(regions("us", &equal).shares(100), [34, 33, 33]);
    assert_eq!(regions("us", &equal).shares(2), [1, 1, 0]);
}

#[test]
fn places_are_in_the_order_of_names() {
    for (place, own) in ["ap", "eu", "us"].into_iter().enumerate() {
        let regions = regions(own, &[("us", 1), ("eu", 2), ("ap", 1)]);
        assert_eq!(regions.own_place(), place);
        assert_eq!(&*regions.all()[place].name, own);
        let time = Micros::from_secs(7);
        assert_eq!(regions.with_loan_time(time).loan_time(), time);
    }
}

#[test]
fn a_region_of_weight_0_gets_nothing() {
    let all = [("ap", 0), ("eu", 3), ("us", 1)];
    assert_eq!(regions("ap", &all).shares(2), [0, 2, 0]);
    assert_eq!(regions("ap", &all).shares(7), [0, 5, 2]);
    let none = limit(|_| ()).shared(&regions("ap", &all));
    assert_eq!(none.expect("others have weights").capacity(), 0);
    let bucket = limit(|spec| {
        spec.algorithm = Algorithm::TokenBucket;
        spec.burst = Some(1_000);
    });
    let none = bucket.shared(&regions("ap", &all));
    assert_eq!(none.expect("a bucket of nothing").capacity(), 0);
}

#[test]
fn the_share_of_a_retired_region_goes_to_the_others() {
    let all = [("ap", 1), ("eu", 2), ("us", 1)];
    let retired = regions("eu", &all).retire("ap").expect("it is another one");
    assert_eq!(retired.version(), 2);
    assert_eq!(retired.shares(600), [0, 400, 200]);
    let whole = limit(|_| ());
    assert_eq!(whole.shared(&retired).expect("of all others").quota(), 400);
    for (name, fault) in [
        ("ap", RegionsError::RetiredAlready("ap".into())),
        ("eu", RegionsError::Own("eu".into())),
    ] {
        assert_eq!(retired.retire(name), Err(fault), "{name}");
    }
    assert!(matches!(
        retired.retire("xx"),
        Err(RegionsError::Unknown { .. })
    ));
    let own = regions("eu", &all).without("eu");
    assert_eq!(own, Err(RegionsError::Retired("eu".into())));
    let alone = regions("eu", &[("ap", 1), ("eu", 0)]);
    assert_eq!(alone.retire("ap"), Err(RegionsError::NoWeight));
}

proptest! {
    /// So regions may learn of it in any order.
    #[test]
    fn no_region_owns_less_once_another_is_retired(
        amount in 0..=crate::MAX_COUNT,
        weights in proptest::collection::vec(1..=WEIGHT_MAX, 2..=REGIONS_MAX),
    ) {
        let all = weights.iter().enumerate().map(|(at, weight)| (format!("r{at:02}").into(), *weight));
        let before = Regions::try_new("r01", 1, all).expect("valid regions");
        let after = before.retire("r00").expect("it is another one");
        let shares = after.shares(amount);
        prop_assert_eq!(shares.iter().sum::<u64>(), amount);
        prop_assert_eq!(shares[0], 0);
        let grown = before.shares(amount).into_iter().zip(shares).skip(1);
        for (before, after) in grown {
            prop_assert!(before <= after, "{} {}", before, after);
        }
    }

    #[test]
    fn shares_sum_to_the_amount_and_are_nowhere_a_hit_away(
        amount in 0..=crate::MAX_COUNT,
        weights in proptest::collection::vec(0..=WEIGHT_MAX, 2..=REGIONS_MAX),
    ) {
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        prop_assume!(sum > 0);
        let all = weights.iter().enumerate().map(|(at, weight)| (format!("r{at:02}").into(), *weight));
        let regions = Regions::try_new("r01", 1, all).expect("valid regions");
        let shares = regions.shares(amount);
        prop_assert_eq!(shares.iter().sum::<u64>(), amount);
        for (share, weight) in shares.iter().zip(&weights) {
            let exact = u128::from(amount) * u128::from(*weight);
            prop_assert!((u128::from(*share) * sum).abs_diff(exact) < sum);
        }
    }
}

#[test]
fn all_that_a_limit_has_is_shared() {
    let (eu, us) = (
        regions("eu", &[("eu", 2), ("us", 1)]),
        regions("us", &[("eu", 2), ("us", 1)]),
    );
    for algorithm in Algorithm::ALL {
        let whole = limit(|spec| spec.algorithm = algorithm);
        let parts = [&eu, &us].map(|regions| whole.shared(regions).expect("600 in two regions"));
        assert_eq!(parts.map(|part| part.quota()), [400, 200], "{algorithm:?}");
        let shape = |limit: &Limit| (limit.algorithm(), limit.window(), limit.shape());
        assert_eq!(
            parts.map(|part| shape(&part)),
            [shape(&whole); 2],
            "{algorithm:?}"
        );
    }
    let bucket = limit(|spec| {
        (spec.algorithm, spec.burst) = (Algorithm::TokenBucket, Some(91));
        (spec.post_paid, spec.max_debt) = (true, Some(31));
    });
    let parts = [&eu, &us].map(|regions| bucket.shared(regions).expect("91 in two regions"));
    assert_eq!(parts.map(|part| part.capacity()), [61, 30]);
    assert_eq!(parts.map(|part| part.max_debt()), [Some(21), Some(10)]);
    assert!(parts.iter().all(Limit::is_post_paid));
    let strict = limit(|spec| (spec.algorithm, spec.strict) = (Algorithm::SlidingWindow, true));
    assert!(strict.shared(&eu).expect("600 in two regions").is_strict());
    let cut =
        limit(|spec| (spec.algorithm, spec.sub_windows) = (Algorithm::SlidingWindow, Some(12)));
    assert_eq!(
        cut.shared(&eu).expect("600 in two regions").sub_windows(),
        12
    );
    let calendar = limit(|spec| spec.calendar = true);
    assert!(
        calendar
            .shared(&eu)
            .expect("600 in two regions")
            .is_calendar()
    );
    let impatient = limit(|spec| spec.algorithm = Algorithm::LeakyBucket).without_delay();
    let delay = impatient
        .shared(&eu)
        .expect("600 in two regions")
        .delay_max();
    assert_eq!(delay, Micros::ZERO);
}

#[test]
fn a_limit_that_leaves_a_region_without_is_refused() {
    let three = regions("ap", &[("ap", 1), ("eu", 1), ("us", 1)]);
    let too_small = |amount, region: &str| {
        Err(Unshareable::TooSmall {
            amount,
            region: region.into(),
        })
    };
    assert_eq!(
        limit(|spec| spec.quota = 2).shared(&three),
        too_small(2, "us")
    );
    assert_eq!(
        limit(|spec| spec.quota = 3)
            .shared(&three)
            .map(|part| part.quota()),
        Ok(1)
    );
    let blocked = limit(|spec| spec.quota = 0);
    assert_eq!(blocked.shared(&three), Ok(blocked));
    let burst = limit(|spec| (spec.algorithm, spec.burst) = (Algorithm::Gcra, Some(1)));
    assert_eq!(burst.shared(&three), too_small(1, "eu"));
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let refused = |own: &str, version, all: &[(&str, u32)]| {
        let all = all.iter().map(|(name, weight)| ((*name).into(), *weight));
        Regions::try_new(own, version, all)
            .expect_err("cannot be")
            .to_string()
    };
    let two = [("eu", 1), ("us", 1)];
    assert_eq!(
        refused("ap", 1, &two),
        "`ap` is none of them: there are eu, us"
    );
    assert!(refused("eu", 0, &two).contains("starts at 1"));
    assert!(refused("eu", 1, &two[..1]).contains("at least two"));
    assert!(refused("eu", 1, &[("eu", 1), ("eu", 2)]).contains("twice"));
    assert!(refused("eu", 1, &[("eu", 0), ("us", 0)]).contains("all weights are 0"));
    assert!(refused("eu", 1, &[("eu", WEIGHT_MAX + 1), ("us", 1)]).contains("too large"));
    for name in ["", "EU", "e u", "eu\n", "ä", &"e".repeat(33)] {
        assert!(
            refused("us", 1, &[(name, 1), ("us", 1)]).contains("not the name"),
            "{name}"
        );
    }
    let many: Vec<_> = (0..17).map(|at| format!("r{at}")).collect();
    let many: Vec<_> = many.iter().map(|name| (&**name, 1)).collect();
    assert!(refused("r0", 1, &many).contains("at most 16"));
}

#[test]
fn regions_that_differ_have_another_hash() {
    let of = |own: &str, all: &[(&str, u32)]| {
        let all = all.iter().map(|(name, weight)| ((*name).into(), *weight));
        Regions::try_new(own, 1, all).expect("valid regions")
    };
    let both = of("eu", &[("eu", 1), ("us", 2)]);
    assert_eq!(both.hash(), of("us", &[("us", 2), ("eu", 1)]).hash());
    let others = [
        of("eu", &[("eu", 2), ("us", 1)]),
        of("eu", &[("eu", 1), ("us", 2), ("ap", 0)]),
        of("eu", &[("eu", 1), ("us2", 2)]),
        both.retire("us").expect("one is left"),
    ];
    for other in others {
        assert_ne!(other.hash(), both.hash(), "{other:?}");
    }
}

/// Totals are kept under these numbers, so no build may make others.
#[test]
fn a_region_has_a_number_by_its_name_alone() {
    let numbers = ["eu", "us", "eu-west-1"].map(|name| RegionId::of(name).get());
    assert_eq!(
        numbers,
        [
            4_009_952_011_702_987,
            1_193_003_224_325_855,
            8_693_346_526_457_387
        ]
    );
    for name in ["a", "b", "aa", "ab", "ba", &"z".repeat(REGION_NAME_MAX)] {
        assert!(RegionId::of(name).get() <= MAX_COUNT);
    }
    let of = |own: &str, all: &[&str]| {
        let all = all.iter().map(|name| ((*name).into(), 1));
        let regions = Regions::try_new(own, 1, all).expect("valid regions");
        regions.own().id()
    };
    assert_eq!(of("eu", &["eu", "us"]), of("eu", &["ap", "eu", "us"]));
    assert_ne!(of("eu", &["eu", "us"]), of("us", &["eu", "us"]));
}
