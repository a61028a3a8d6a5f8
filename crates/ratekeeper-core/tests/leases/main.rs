//! Leases, simulated: nodes that spend what a store has granted, over a network that loses, repeats and delays
//! messages, with crashes, pauses, clocks that drift and limits that change. A seed makes a run; a
//! run that breaks a promise names its seed.

mod node;
mod plan;
mod random;
mod store;
mod world;

use plan::{Guard, Plan};
use random::Random;
use ratekeeper_core::Algorithm;
use world::World;

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
];

/// Runs of each algorithm; RATEKEEPER_LEASE_RUNS says otherwise.
const RUNS: u64 = 500;

fn run(seed: u64, algorithm: Algorithm, without: Option<Guard>) -> Result<World, String> {
    let mut random = Random::new(seed);
    let plan = Plan::random(&mut random, algorithm, without);
    play(seed, plan, random)
}

fn play(seed: u64, plan: Plan, random: Random) -> Result<World, String> {
    let mut world = World::new(plan.clone(), random);
    let outcome = world.run().and_then(|()| world.check());
    outcome
        .map(|()| world)
        .map_err(|broken| format!("{broken}\nseed {seed}: {plan:?}"))
}

#[test]
fn no_more_is_admitted_than_the_limit() {
    let runs = std::env::var("RATEKEEPER_LEASE_RUNS").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    for algorithm in ALGORITHMS {
        let (mut by_lease, mut returned, mut all) = (0, 0, 0);
        for seed in 0..runs {
            match run(seed, algorithm, None) {
                Ok(world) => {
                    by_lease += world.by_lease;
                    returned += world.returned;
                    all += world.admitted.iter().map(|(_, hits)| hits).sum::<u64>();
                }
                Err(broken) => panic!("{}: {broken}", algorithm.name()),
            }
        }
        println!(
            "{}: {all} admitted, {by_lease} from leases, {returned} given back",
            algorithm.name()
        );
        assert!(
            by_lease > all / 20,
            "{}: {by_lease} of {all} from leases",
            algorithm.name()
        );
    }
}

#[test]
fn a_clock_that_goes_back_costs_no_more_than_another_window() {
    for algorithm in ALGORITHMS {
        for seed in 0..RUNS / 4 {
            let mut random = Random::new(seed);
            let mut plan = Plan::random(&mut random, algorithm, None);
            plan.limits.truncate(1);
            plan.terms.truncate(1);
            plan.step_back = random.within(1, 3 * plan.limits[0].window().get());
            if let Err(broken) = play(seed, plan, random) {
                panic!("{}: {broken}", algorithm.name());
            }
        }
    }
}

/// Each guard, and limits that need it.
const GUARDS: [(Guard, Algorithm); 15] = [
    (Guard::AtomicGrant, Algorithm::FixedWindow),
    (Guard::OneAnswer, Algorithm::FixedWindow),
    (Guard::IdempotentGrant, Algorithm::FixedWindow),
    (Guard::SendTime, Algorithm::FixedWindow),
    (Guard::SendTime, Algorithm::TokenBucket),
    (Guard::NotBefore, Algorithm::FixedWindow),
    (Guard::WindowEnd, Algorithm::FixedWindow),
    (Guard::SingleReturn, Algorithm::FixedWindow),
    (Guard::Until, Algorithm::FixedWindow),
    (Guard::OldestReturn, Algorithm::SlidingWindow),
    (Guard::Lead, Algorithm::SlidingWindow),
    (Guard::OwnPart, Algorithm::SlidingWindow),
    (Guard::Generation, Algorithm::FixedWindow),
    (Guard::SmallerBurst, Algorithm::TokenBucket),
    (Guard::Burn, Algorithm::Gcra),
];

/// The most runs in which a promise is looked for that breaks.
const TRIES: u64 = 1_000;

#[test]
fn every_guard_is_needed() {
    let mut unneeded = Vec::new();
    for (guard, algorithm) in GUARDS {
        let broken = |seed| Some((seed, run(seed, algorithm, Some(guard)).err()?));
        match (0..TRIES).find_map(broken) {
            Some((seed, broken)) => {
                let what = broken.lines().next().unwrap_or_default();
                println!("without {guard:?}, seed {seed}: {what}");
            }
            None => unneeded.push((guard, algorithm)),
        }
    }
    assert_eq!(unneeded, [], "nothing breaks without them");
}
