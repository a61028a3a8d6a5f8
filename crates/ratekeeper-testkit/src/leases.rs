//! Leases, simulated: nodes that spend what a store holds for them, over a network that loses, repeats and delays
//! messages, with crashes, pauses, clocks that drift, limits that change, failovers, posts, and requests that are counted
//! exactly between them. A seed makes a run; a run that admits more than its limit names its seed.
//!
//! The store is a [`ModelStore`], made of core's rules, or any other [`LeaseStore`], such as the script in a real Redis.
//! Each protection of the protocol can be [left out](LeaseGuard), and then some run admits too much.

mod check;
mod node;
mod plan;
mod store;
mod traffic;
mod world;

use ratekeeper_core::Algorithm;

use crate::random::Random;
pub use plan::{LeaseGuard, LeasePlan, LeaseTrouble};
pub use store::{LeaseStore, ModelStore};
use world::World;

/// The algorithms whose limits are leased.
pub const LEASED_ALGORITHMS: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
];

/// A run of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSimulation {
    /// The number that all of it is drawn from.
    pub seed: u64,
    /// The algorithm of its limits.
    pub algorithm: Algorithm,
    /// The trouble that it has.
    pub trouble: LeaseTrouble,
    /// The protection that is left out, if any.
    pub without: Option<LeaseGuard>,
}

/// The hits of a run, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeaseTotals {
    /// Hits that were admitted.
    pub admitted: u64,
    /// Hits of them that came from leases.
    pub from_leases: u64,
    /// Calls for leases that were carried out.
    pub calls: u64,
}

impl LeaseSimulation {
    /// Plays it with the model of a store.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn run_model(self) -> Result<LeaseTotals, String> {
        self.run(|_| ModelStore::default())
    }

    /// Plays it with a store.
    ///
    /// # Errors
    /// The promise that it breaks.
    pub fn run<S: LeaseStore>(
        self,
        store: impl FnOnce(&LeasePlan) -> S,
    ) -> Result<LeaseTotals, String> {
        let mut random = Random::new(self.seed);
        let mut plan = LeasePlan::random(&mut random, self.algorithm, self.without);
        plan.add(self.trouble, &mut random);
        let mut world = World::new(plan.clone(), random, store(&plan));
        world.run();
        match world.excess() {
            0 => Ok(world.totals),
            hits => Err(format!("{hits} hits too many\n{self:?}: {plan:?}")),
        }
    }
}

impl std::ops::AddAssign for LeaseTotals {
    fn add_assign(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.from_leases += other.from_leases;
        self.calls += other.calls;
    }
}
