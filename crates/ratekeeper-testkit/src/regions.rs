//! Loans between regions, simulated: regions that share a limit and lend their shares, over links that lose, repeat and
//! delay messages, with partitions, deaths, restarts, failovers, and clocks that differ, drift and step. A seed makes a
//! world; one in which more passes than the limit, or in which shares sum to more, names its seed.
//!
//! Regions ask as nodes of the service do, by the same functions of core: for how much, of whom, and how often. Only links
//! are simpler here: none tells that a region is away.
//!
//! Each protection of the protocol can be [left out](RegionGuard), and then some world breaks. Requests are counted
//! by the region's store one by one, or taken from a lease that a node has, whose hits count as used.

mod clock;
mod counter;
mod events;
mod judge;
mod plan;
mod policy;
mod region;
mod scenario;
mod world;

use crate::random::Random;
use plan::RegionPlan;
pub use plan::{RegionGuard, RegionTrouble};
pub use scenario::{RegionOutcome, RegionScenario, RegionTraffic};
use world::World;

/// One simulated world of regions.
#[derive(Clone, Copy, Debug)]
pub struct RegionSimulation {
    /// The number that all of it is drawn from.
    pub seed: u64,
    /// The trouble that it has.
    pub trouble: RegionTrouble,
    /// The protection that is left out, if any.
    pub without: Option<RegionGuard>,
}

/// The events of a world, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegionTotals {
    /// Hits that were admitted.
    pub admitted: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Worlds in which a region lent something.
    pub lending: u64,
    /// Worlds in which hits passed again that a failover had forgotten: the store had counted them one by one.
    pub forgotten: u64,
    /// The most by which a log exceeded its limit, in thousandths of it: hits that its groups did not count.
    pub uncounted: u64,
}

impl RegionSimulation {
    /// Plays it.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn run(self) -> Result<RegionTotals, String> {
        let mut random = Random::new(self.seed);
        let plan = RegionPlan::random(&mut random, self.trouble, self.without);
        let told = format!("{self:?}: {plan:?}");
        let mut world = World::new(plan, random);
        world.run();
        world.judged().map_err(|broken| format!("{broken}\n{told}"))
    }
}

impl std::ops::AddAssign for RegionTotals {
    fn add_assign(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.messages += other.messages;
        self.lending += other.lending;
        self.forgotten += other.forgotten;
        self.uncounted = self.uncounted.max(other.uncounted);
    }
}
