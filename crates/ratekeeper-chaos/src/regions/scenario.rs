//! The scenarios: traffic, and what happens to a region meanwhile.

use std::time::{Duration, Instant};

use super::callers::Callers;
use super::traffic::Traffic;
use super::world::World;

/// The settings of the campaign.
#[derive(Clone, Copy, Debug)]
pub struct RegionPlan {
    /// Whole seconds.
    pub(super) window: Duration,
    /// The hits of a window in all regions.
    pub(super) limit: u64,
    /// The time of a scenario.
    pub(super) lasting: Duration,
    /// The time for which loans last.
    pub(super) loan_time: Duration,
    /// The time that a caller waits for an answer beyond the second that a node waits for its Redis.
    pub(super) patience: Duration,
    /// The part of what one counter would have admitted that `bounded` may lose where nothing is cut off or dead.
    pub(super) lost_max: f64,
    /// True if few are asked for: a machine that is slow and busy.
    pub(super) is_test: bool,
}

impl RegionPlan {
    /// All scenarios, two minutes each.
    pub const FULL: Self = Self {
        window: Duration::from_secs(6),
        limit: 600,
        lasting: Duration::from_secs(120),
        loan_time: Duration::from_secs(60),
        patience: Duration::from_secs(1),
        lost_max: 0.02,
        is_test: false,
    };

    /// All scenarios, in about three minutes.
    pub const SHORT: Self = Self {
        window: Duration::from_secs(3),
        limit: 300,
        lasting: Duration::from_secs(24),
        loan_time: Duration::from_secs(10),
        // Random arrivals vary more where a window has fewer.
        lost_max: 0.05,
        ..Self::FULL
    };

    /// A few scenarios, for tests: goals of time do not apply.
    pub const TEST: Self = Self {
        limit: 120,
        lasting: Duration::from_secs(30),
        patience: Duration::from_secs(10),
        is_test: true,
        ..Self::SHORT
    };

    pub(super) fn has(&self, scenario: &Scenario) -> bool {
        !self.is_test || scenario.is_tested
    }

    /// The time at which something happens.
    pub(super) fn strikes_at(&self) -> Duration {
        self.lasting.mul_f64(0.25)
    }

    /// The time at which it is over: half of a scenario later.
    pub(super) fn heals_at(&self) -> Duration {
        self.lasting.mul_f64(0.8)
    }
}

/// An event that a region goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Nothing,
    /// It is cut off from the others, for half of the time.
    Partition(usize),
    /// It dies, nodes and Redis and callers, and does not come back.
    Death(usize),
    /// Its Redis is killed, a replica takes over, and the server that was killed is back as its replica.
    Failover(usize),
}

/// A scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) traffic: Traffic,
    pub(super) event: Event,
    /// Seconds by which the clock of each region's Redis is ahead.
    pub(super) clocks: [i64; 3],
    /// True if no region needs more than it owns: nothing may be sent.
    pub(super) is_quiet: bool,
    pub(super) is_tested: bool,
    /// The name of its plot in the manual.
    pub(super) plot: Option<&'static str>,
}

/// Nine tenths of what is asked for by one region: less than the limit in all, and more.
const BELOW: Traffic = Traffic::Still([0.04, 0.72, 0.04]);
const ABOVE: Traffic = Traffic::Still([0.075, 1.35, 0.075]);

const SCENARIO: Scenario = Scenario {
    name: "",
    traffic: BELOW,
    event: Event::Nothing,
    clocks: [0; 3],
    is_quiet: false,
    is_tested: false,
    plot: None,
};

/// All of them.
pub(super) static SCENARIOS: [Scenario; 11] = [
    Scenario {
        name: "even, 0.5 of the limit",
        traffic: Traffic::Still([0.5 / 3.0; 3]),
        is_quiet: true,
        ..SCENARIO
    },
    Scenario {
        name: "90/5/5, 0.8 of the limit",
        is_tested: true,
        ..SCENARIO
    },
    Scenario {
        name: "90/5/5, 1.5 of the limit",
        traffic: ABOVE,
        ..SCENARIO
    },
    Scenario {
        name: "peak goes round, 0.8 of the limit",
        traffic: Traffic::Round(0.8),
        plot: Some("regions-round.svg"),
        ..SCENARIO
    },
    Scenario {
        name: "flash crowd",
        traffic: Traffic::Flash(0.1, 0.5),
        ..SCENARIO
    },
    Scenario {
        name: "the busy region cut off",
        event: Event::Partition(1),
        plot: Some("regions-partition.svg"),
        ..SCENARIO
    },
    Scenario {
        name: "the busy region cut off, 1.5 of the limit",
        traffic: ABOVE,
        event: Event::Partition(1),
        is_tested: true,
        ..SCENARIO
    },
    Scenario {
        name: "a region dies",
        event: Event::Death(2),
        ..SCENARIO
    },
    Scenario {
        name: "a region dies, 1.5 of the limit",
        traffic: ABOVE,
        event: Event::Death(2),
        ..SCENARIO
    },
    Scenario {
        name: "failover, clocks 1 s apart",
        event: Event::Failover(1),
        clocks: [1, 0, -1],
        ..SCENARIO
    },
    Scenario {
        name: "failover, clocks 1 s apart, 1.5 of the limit",
        traffic: ABOVE,
        event: Event::Failover(1),
        clocks: [1, 0, -1],
        ..SCENARIO
    },
];

/// The times at which something happened and was over, since the scenario began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    pub(super) began: Instant,
    pub(super) struck: Duration,
    pub(super) healed: Duration,
}

impl Scenario {
    /// Returns true if all regions together ask for more than the limit at some time. Elsewhere nothing can exceed it.
    pub(super) fn is_above_the_limit(&self) -> bool {
        let all = |percent: i32| self.traffic.at(f64::from(percent) / 100.0);
        (0..100).any(|percent| all(percent).iter().sum::<f64>() > 1.0)
    }

    /// Lets the time of the plan pass, and what happens in it happen.
    pub(super) fn go_through(
        &self,
        world: &mut World,
        plan: &RegionPlan,
        callers: &Callers,
    ) -> Events {
        let began = callers.began();
        let until = |at: Duration| {
            let at = began + at;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        };
        until(plan.strikes_at());
        let struck = began.elapsed();
        match self.event {
            Event::Nothing => {}
            Event::Partition(region) => world.cut(region, true),
            Event::Death(region) => {
                callers.leave(region);
                world.kill(region);
            }
            Event::Failover(region) => world.fail_over(region),
        }
        until(plan.heals_at());
        if let Event::Partition(region) = self.event {
            world.cut(region, false);
        }
        let healed = began.elapsed();
        until(plan.lasting);
        Events {
            began,
            struck,
            healed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::discriminant;

    use super::*;

    /// A build that admits everything exceeds nothing if less is asked for than the limit.
    #[test]
    fn each_event_happens_above_the_limit_too() {
        let mut kinds: Vec<(Event, bool)> = Vec::new();
        for scenario in &SCENARIOS {
            let is_above = scenario.is_above_the_limit();
            let of_kind = |(event, _): &&mut (Event, bool)| {
                discriminant(event) == discriminant(&scenario.event)
            };
            match kinds.iter_mut().find(of_kind) {
                Some((_, found)) => *found |= is_above,
                None => kinds.push((scenario.event, is_above)),
            }
        }
        assert!(kinds.iter().all(|(_, is_above)| *is_above), "{kinds:?}");
        let mut tested = SCENARIOS.iter().filter(|it| it.is_tested);
        assert!(tested.any(Scenario::is_above_the_limit));
    }
}
