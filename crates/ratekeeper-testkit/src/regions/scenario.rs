//! Regions under traffic that is not split like their shares: what loans are for.

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{LoanKind, LoanTerms};

use super::plan::{Fault, RegionPlan, SECOND, Traffic};
use super::world::World;
use crate::random::Random;

/// Traffic of three regions of equal weights, of a limit of 600 a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionTraffic {
    /// 80 % of the limit, nine tenths of it in one region.
    Skewed,
    /// The same, 150 % of the limit.
    SkewedOver,
    /// 80 % of the limit, whose peak goes round the regions in 20 minutes.
    Moving,
    /// 20 % of the limit, and for two minutes 70 % more in one region.
    FlashCrowd,
    /// As [`Skewed`](Self::Skewed), and the busy region is cut off for 10 minutes.
    CutOff,
}

/// A run of 20 minutes without any other trouble.
#[derive(Clone, Copy, Debug)]
pub struct RegionScenario {
    /// The number that the times of requests are drawn from.
    pub seed: u64,
    /// The traffic.
    pub traffic: RegionTraffic,
    /// True if regions lend; false if their shares are fixed.
    pub lends: bool,
    /// The kind of the limit.
    pub kind: LoanKind,
    /// The nodes of each region, of which each sees its own part of the traffic.
    pub nodes: u64,
}

/// The outcome of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionOutcome {
    /// Hits that one counter for all regions would have let pass.
    pub possible: u64,
    /// Hits that passed.
    pub passed: u64,
    /// Messages in 1,000 seconds.
    pub messages: u64,
}

impl RegionOutcome {
    /// Hits that were denied although one counter for all would have let them pass, in a thousand of those.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        let lost = self.possible.saturating_sub(self.passed);
        (1_000 * lost).div_ceil(self.possible)
    }
}

/// The hits of the limit in a minute.
const LIMIT: u64 = 600;

/// The length of a run.
const SPAN: u64 = 1_200 * SECOND;

impl RegionScenario {
    /// Plays it.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn run(self) -> Result<RegionOutcome, String> {
        let mut world = World::new(self.plan(), Random::new(self.seed));
        world.run();
        let totals = world.judged()?;
        Ok(RegionOutcome {
            possible: world.possible(),
            passed: totals.admitted,
            messages: totals.messages * 1_000 * SECOND / SPAN,
        })
    }

    fn plan(self) -> RegionPlan {
        let window = 60 * SECOND;
        let others = [(0, 1), (0, 2), (1, 0), (2, 0)].to_vec();
        let faults = match self.traffic {
            RegionTraffic::CutOff => vec![
                (300 * SECOND, Fault::Cut(others.clone())),
                (900 * SECOND, Fault::Heal(others)),
            ],
            _ => Vec::new(),
        };
        RegionPlan {
            kind: self.kind,
            without: None,
            lends: self.lends,
            limit: LIMIT,
            burst: LIMIT,
            hits: 1,
            window,
            nodes: self.nodes,
            memory: 10 * SECOND,
            shares: vec![LIMIT / 3; 3],
            new_shares: None,
            floor: 10,
            terms: LoanTerms {
                window: Micros::new(window),
                time: Micros::from_secs(600),
                margin: Micros::from_secs(60),
            },
            timeout: SECOND,
            lost: 0,
            doubled: 0,
            late: 0,
            keeps_hits: true,
            lease: 0,
            delays: vec![
                vec![0, 45_000, 40_000],
                vec![45_000, 0, 80_000],
                vec![40_000, 80_000, 0],
            ],
            offsets: vec![0; 3],
            drifts: vec![(0, 0); 3],
            traffic: self.traffic.pieces(),
            faults,
            steps: false,
            span: SPAN,
        }
    }
}

impl RegionTraffic {
    /// Requests a second in thousandths: the limit is 10 a second.
    fn pieces(self) -> Vec<Traffic> {
        let limit = LIMIT * 1_000 / 60;
        let parts = |parts: [u64; 3]| parts.map(|part| limit * part / 1_000).to_vec();
        match self {
            Self::Skewed | Self::CutOff => vec![(SPAN, parts([720, 40, 40]))],
            Self::SkewedOver => vec![(SPAN, parts([1_350, 75, 75]))],
            Self::FlashCrowd => vec![
                (600 * SECOND, parts([67, 67, 67])),
                (720 * SECOND, parts([67, 767, 67])),
                (SPAN, parts([67, 67, 67])),
            ],
            Self::Moving => {
                let step = 10 * SECOND;
                let piece = |number: u64| {
                    let peaks = [0, 400, 800].map(|peak| peak_at(number * 10, peak));
                    let sum: u64 = peaks.iter().sum();
                    (
                        (number + 1) * step,
                        parts(peaks.map(|peak| 800 * peak / sum)),
                    )
                };
                (0..SPAN / step).map(piece).collect()
            }
        }
    }
}

/// A triangle of 20 minutes with its peak at `peak`, of 0 to 600.
const fn peak_at(second: u64, peak: u64) -> u64 {
    let apart = (second + 1_200 - peak) % 1_200;
    apart.abs_diff(600)
}
