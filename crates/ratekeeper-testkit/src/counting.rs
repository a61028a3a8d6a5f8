//! Limits that regions count together, simulated: regions whose demand moves, over links that are late, repeat messages and
//! break, with clocks that differ. A seed makes a world; one in which more passes than the bound of
//! [`ratekeeper_core::region::counted`] names its seed.
//!
//! Each protection can be [left out](CountingGuard), and then some world breaks.

mod judge;
mod node;
mod plan;
mod world;

use crate::random::Random;
pub use plan::CountingGuard;
use plan::CountingPlan;
use world::World;

/// One simulated world of regions that count a limit together.
#[derive(Clone, Copy, Debug)]
pub struct CountingSimulation {
    /// The number that all of it is drawn from.
    pub seed: u64,
    /// The trouble that regions have.
    pub trouble: CountingTrouble,
    /// The protection that is left out, if any.
    pub without: Option<CountingGuard>,
}

/// The trouble that the regions of a world have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountingTrouble {
    /// Clocks are apart, and callers ask all at once.
    Clocks,
    /// Regions are cut off from each other for a while.
    Cut,
    /// A region is added while windows are in use, and another one may leave. All nodes restart with the new regions, and those of one
    /// region are linked to those of another one while both have the same.
    Change,
}

/// The events of a world, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CountingTotals {
    /// Hits that were admitted.
    pub admitted: u64,
    /// Totals that were posted.
    pub posts: u64,
    /// Windows of all worlds, those that more passed in than the limit, and those that were used up.
    pub windows: u64,
    /// Windows in which more passed than the limit.
    pub exceeded: u64,
    /// Windows in which at least the limit passed.
    pub full: u64,
    /// Windows that were held to the bound for regions that take the share of a silent one as used, while some were cut off.
    pub apart: u64,
}

impl CountingSimulation {
    /// Plays it.
    ///
    /// # Errors
    /// The bound that is broken.
    pub fn run(self) -> Result<CountingTotals, String> {
        let mut random = Random::new(self.seed);
        let plan = CountingPlan::random(&mut random, self.trouble, self.without);
        let told = format!("{self:?}: {plan:?}");
        let played = World::new(plan, random).run();
        played.map_err(|broken| format!("{broken}\n{told}"))
    }
}

impl std::ops::AddAssign for CountingTotals {
    fn add_assign(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.posts += other.posts;
        self.windows += other.windows;
        self.exceeded += other.exceeded;
        self.full += other.full;
        self.apart += other.apart;
    }
}
