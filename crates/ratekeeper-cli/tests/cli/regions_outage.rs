//! Regions that count a limit together while the Redis of one of them fails.

use crate::regions_count::{LIMIT, rules, wait_for_totals, wait_until_heard};
use crate::regions_lend::{AP, EU, NAMES, US, World, number_after};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;

/// The hits that a region says it has counted itself.
fn own_count(world: &World, region: usize, value: &str) -> usize {
    let told = world.regions[region].explained(value);
    number_after(&told, &format!("{} counted ", NAMES[region]))
}

/// The hits that the region has lost itself pass again, as in one that shares nothing. What others had told is told again, and
/// counts.
#[test]
fn a_redis_that_has_lost_everything_is_told_again_what_others_have_counted() {
    let mut world = World::start(|_| rules(""));
    wait_until_heard(&world);
    let (lost, kept) = (50, 90);
    assert_eq!(world.regions[EU].ask("a", lost), lost);
    assert_eq!(world.regions[US].ask("a", kept), kept);
    wait_for_totals(&world, "a", [0, lost, kept]);
    world.servers[EU].restart();
    let mut again = 0;
    eventually("the region is told again", || {
        again += world.regions[EU].ask("a", 1);
        let told = world.regions[EU].explained("a");
        told.contains(&format!(", us {kept}"))
    });
    // Until then it admitted no more than it was asked for.
    assert!(again < LIMIT - kept, "{again}");
    again += world.regions[EU].ask("a", LIMIT);
    assert_eq!(again, LIMIT - kept);
    assert_eq!(own_count(&world, EU, "a"), again);
    wait_for_totals(&world, "a", [0, again, kept]);
    for region in [AP, US, EU] {
        assert_eq!(world.regions[region].ask("a", 10), 0);
    }
}

/// A region whose Redis hangs answers as its rule says, and the others go on without it. Both ends of its links are alive meanwhile.
#[test]
fn a_region_whose_redis_hangs_denies_and_counts_on_once_it_is_back() {
    let mut world = World::start(|_| rules(""));
    wait_until_heard(&world);
    let mut admitted = [
        0,
        world.regions[EU].ask("a", 30),
        world.regions[US].ask("a", 50),
    ];
    assert_eq!(admitted, [0, 30, 50]);
    wait_for_totals(&world, "a", admitted);
    world.servers[EU].process().pause();
    // Some of these are counted once it is back, and given back, as they were denied.
    assert_eq!(world.regions[EU].ask("a", 6), 0);
    admitted[US] += world.regions[US].ask("a", 60);
    admitted[AP] += world.regions[AP].ask("a", 40);
    assert_eq!(admitted, [40, 30, 110]);
    for region in [AP, US] {
        eventually("a region goes on being told by those that are well", || {
            let told = world.regions[region].explained("a");
            [AP, US].iter().all(|at| {
                let counted = format!("{} {}", NAMES[*at], admitted[*at]);
                let own = format!("{} counted {}", NAMES[*at], admitted[*at]);
                told.contains(&counted) || told.contains(&own)
            })
        });
    }
    let told = world.regions[EU].explained("a");
    assert_contains(&told, "what regions have counted cannot be read now");
    eventually("the region says that its Redis is away", || {
        world.regions[EU].readiness().contains("store")
    });
    world.wait_for_links();
    world.servers[EU].process().resume();
    let mut denied = 6;
    eventually("the region counts again", || {
        let passed = world.regions[EU].ask("a", 1);
        admitted[EU] += passed;
        denied += 1 - passed;
        passed > 0
    });
    wait_until_heard(&world);
    eventually("the region is told what it has missed", || {
        let told = world.regions[EU].explained("a");
        told.contains(", ap 40") && told.contains(", us 110")
    });
    admitted[EU] += world.regions[EU].ask("a", LIMIT);
    assert_eq!(own_count(&world, EU, "a"), LIMIT - 40 - 110);
    assert!(admitted.iter().sum::<usize>() <= LIMIT, "{admitted:?}");
    // What was not given back yet is no more than was denied.
    assert!(
        admitted.iter().sum::<usize>() >= LIMIT - denied,
        "{admitted:?}"
    );
    wait_for_totals(&world, "a", [40, LIMIT - 40 - 110, 110]);
    for region in [AP, US, EU] {
        assert_eq!(world.regions[region].ask("a", 10), 0);
    }
}
