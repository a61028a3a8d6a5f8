//! The subject of a world: the limit, its regions, their traffic, and what goes wrong.

mod troubles;

pub(super) use ratekeeper_core::region::loans::LoanKind as Kind;
use ratekeeper_core::region::loans::LoanTerms;
use ratekeeper_core::{Algorithm, LimitSpec, Micros, Regions};

use crate::random::Random;

/// A protection of the protocol, each of which can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegionGuard {
    /// Of a window in use, and of a log, only what the counter has left is lent.
    Room,
    /// Loans name the hits of each window.
    WindowNumbers,
    /// Hits that were lent in earlier windows stay lent.
    KeptPieces,
    /// A renewal adds only windows that are not lent to others and have not begun.
    Renewals,
    /// Hits of a log that a loan was for count for a window after its end.
    Tail,
    /// A lender waits for a log's window more before it takes a loan back.
    LogWindow,
    /// The time of a loan counts from the sending of the ask.
    FromSending,
    /// Only the answer to the latest ask counts.
    LatestAnswer,
    /// An ask that comes after a later one changes nothing.
    OldAsks,
    /// An ask that comes after its loan was taken back brings nothing back.
    LateAsks,
    /// Asks and answers leave once the replica that may take over has them.
    Replicated,
    /// After a step back of the store's clock, loans whose end it told are over.
    Generation,
    /// After a start without any other node, loans are over, as no node saw the clock meanwhile.
    ColdStart,
    /// A region's share grows once all have reported that theirs has shrunk.
    ShrunkFirst,
    /// A region reports that once it has not lent more than it owns.
    Overlent,
    /// It reports that once hits under its old share have left.
    OldHits,
    /// The hits in a bucket stay the same when its share changes.
    Level,
    /// Tokens that come to a bucket have left another one.
    Tokens,
    /// Tokens of an answer come back if the borrower says that it never took it.
    Taken,
    /// Tokens come back no more once the loan that they went along with is over.
    OverTokens,
    /// Hits that nodes hold in leases count as used.
    Leased,
}

/// The kind of trouble that a world has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionTrouble {
    /// All kinds of it, for all kinds of limits.
    Usual,
    /// Short loans, messages that are seconds late, and clocks that step back while no node is there, for logs and buckets.
    Timing,
    /// A busy region is cut off while it holds loans of a log, and others become busy.
    Shift,
    /// Weights change while loans stand.
    Weights,
    /// Buckets: answers to a busy region are lost, and then it is silent until its loans are over and all buckets are full.
    Silence,
}

/// A piece of traffic: its end, and requests a second in each region, in thousandths.
pub(super) type Traffic = (u64, Vec<u64>);

/// A fault at a time.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// These ordered pairs no longer hear each other, or do again.
    Cut(Vec<(usize, usize)>),
    Heal(Vec<(usize, usize)>),
    Die(usize),
    Return(usize),
    /// The region's replica has all up to here.
    Replicate(usize),
    /// The replica takes over; requests are answered again after a while.
    FailOver(usize),
    Up(usize),
    /// All nodes of a region restart: one after the other, or all at once.
    Restart(usize),
    ColdStart(usize),
    /// The store's clock steps, and nodes see it.
    Step(usize, i64),
    /// A region learns of new weights.
    Learn(usize),
    /// It steps back while no node is there.
    StepUnseen(usize, i64),
}

/// The subject of a world. Times are in microseconds.
#[derive(Clone, Debug)]
pub(super) struct RegionPlan {
    pub(super) kind: Kind,
    pub(super) without: Option<RegionGuard>,
    /// False if shares are fixed.
    pub(super) lends: bool,
    pub(super) limit: u64,
    pub(super) burst: u64,
    /// The most hits of a request.
    pub(super) hits: u64,
    pub(super) window: u64,
    /// The nodes of a region: the one that asks others sees its own part of the traffic, and what all of them use.
    pub(super) nodes: u64,
    /// The time over which traffic is averaged.
    pub(super) memory: u64,
    pub(super) shares: Vec<u64>,
    /// The shares by new weights, if they change.
    pub(super) new_shares: Option<Vec<u64>>,
    /// The hundredths of its own share that a region never lends.
    pub(super) floor: u64,
    pub(super) terms: LoanTerms,
    pub(super) timeout: u64,
    /// Chances in a thousand.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) late: u64,
    /// True if the replica has each hit before it is admitted.
    pub(super) keeps_hits: bool,
    /// The time of nodes' leases; 0 if they have none.
    pub(super) lease: u64,
    /// The time from one region to another, one way.
    pub(super) delays: Vec<Vec<u64>>,
    pub(super) offsets: Vec<i64>,
    pub(super) drifts: Vec<(i64, i64)>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) faults: Vec<(u64, Fault)>,
    /// True if a store's clock steps: logs and buckets are then checked by their shares alone, as each is as wrong as its
    /// clock, with one region too.
    pub(super) steps: bool,
    pub(super) span: u64,
}

/// A second.
pub(super) const SECOND: u64 = 1_000_000;

/// The time of a world.
const SPAN: u64 = 12 * SECOND;

impl RegionPlan {
    pub(super) fn has(&self, guard: RegionGuard) -> bool {
        self.without != Some(guard)
    }

    /// The number of regions.
    pub(super) fn regions(&self) -> usize {
        self.shares.len()
    }

    /// The limit as an operator writes it.
    pub(super) const fn spec(&self) -> LimitSpec {
        let window = Micros::new(self.window);
        match self.kind {
            Kind::Windows => LimitSpec::new(Algorithm::FixedWindow, self.limit, window),
            Kind::Log => LimitSpec::new(Algorithm::SlidingWindow, self.limit, window),
            Kind::Bucket => LimitSpec {
                burst: Some(self.burst),
                ..LimitSpec::new(Algorithm::TokenBucket, self.limit, window)
            },
        }
    }

    pub(super) fn random(
        random: &mut Random,
        trouble: RegionTrouble,
        without: Option<RegionGuard>,
    ) -> Self {
        if trouble == RegionTrouble::Shift {
            let mut plan = Self::random(random, RegionTrouble::Usual, without);
            plan.shift(random);
            return plan;
        }
        if trouble == RegionTrouble::Weights {
            let mut plan = Self::random(random, RegionTrouble::Usual, without);
            plan.change_weights(random);
            return plan;
        }
        if trouble == RegionTrouble::Silence {
            let mut plan = Self::random(random, RegionTrouble::Usual, without);
            plan.fall_silent(random);
            return plan;
        }
        let is_timing = trouble == RegionTrouble::Timing;
        let regions = random.pick(&[2, 2, 3, 3, 4, 5]);
        let count = usize::try_from(regions).unwrap_or(2);
        let kind = match is_timing {
            true => random.pick(&[Kind::Log, Kind::Bucket]),
            false => random.pick(&[Kind::Windows, Kind::Log, Kind::Bucket]),
        };
        let limits = if is_timing {
            &[60, 150][..]
        } else {
            &[regions, 10, 23, 60, 150, 300]
        };
        let limit = random.pick(limits).max(regions);
        let windows = if is_timing {
            &[500, 1_000][..]
        } else {
            &[500, 1_000, 2_000, 5_000]
        };
        let window = random.pick(windows) * 1_000;
        let time = match is_timing {
            true => random.within(500_000, 1_200_000),
            false => random.within(800_000, 5_000_000),
        };
        let burst = random.pick(&[limit, limit, 32.max(limit / 2), limit * 2]);
        let mut plan = Self {
            kind,
            without,
            lends: true,
            limit,
            burst: if kind == Kind::Bucket { burst } else { limit },
            hits: random.pick(&[1, 1, 7]),
            window,
            nodes: 1,
            memory: SECOND / 2,
            shares: shares(random, limit, count),
            new_shares: None,
            floor: random.pick(&[0, 10, 50]),
            terms: LoanTerms {
                window: Micros::new(window),
                time: Micros::new(time),
                margin: Micros::new(time / 10),
            },
            timeout: if is_timing {
                6 * SECOND
            } else {
                random.pick(&[400_000, SECOND])
            },
            lost: if is_timing {
                50
            } else {
                random.pick(&[0, 50, 300])
            },
            doubled: random.pick(&[0, 200]),
            late: if is_timing { 300 } else { 20 },
            keeps_hits: random.happens(500),
            lease: 0,
            delays: delays(random, count),
            offsets: Vec::new(),
            drifts: Vec::new(),
            traffic: Vec::new(),
            faults: Vec::new(),
            steps: false,
            span: SPAN,
        };
        let apart = random.pick(&[0, 500_000]);
        for _ in 0..count {
            plan.offsets.push(signed(random, apart));
            plan.drifts.push((signed(random, 200), signed(random, 200)));
        }
        plan.traffic = traffic(random, &plan);
        plan.add_faults(random);
        if is_timing && random.happens(500) {
            let region = plan.any_region(random);
            let at = random.within(2 * SECOND, 8 * SECOND);
            plan.faults
                .push((at, Fault::StepUnseen(region, -3_000_000)));
            plan.steps = true;
        }
        // When a clock steps, hits of a lease pass again, with one region too.
        if plan.kind != Kind::Bucket && !plan.steps && random.happens(500) {
            plan.lease = plan.terms.time.get() / 40;
        }
        plan
    }

    fn any_region(&self, random: &mut Random) -> usize {
        usize::try_from(random.below(self.regions() as u64)).unwrap_or(0)
    }

    fn add_faults(&mut self, random: &mut Random) {
        for _ in 0..random.pick(&[0, 1, 2]) {
            self.add_partition(random);
        }
        if random.happens(150) {
            let region = self.any_region(random);
            let at = random.within(2 * SECOND, 8 * SECOND);
            self.faults.push((at, Fault::Die(region)));
            if random.happens(500) {
                let back = at + random.within(SECOND / 2, 4 * SECOND);
                self.faults.push((back, Fault::Return(region)));
            }
        }
        if random.happens(350) {
            let region = self.any_region(random);
            let at = random.within(2 * SECOND, 10 * SECOND);
            self.faults.push((at - SECOND, Fault::Replicate(region)));
            self.faults.push((at, Fault::FailOver(region)));
            let down = random.pick(&[0, 300_000, 1_500_000]);
            self.faults.push((at + down, Fault::Up(region)));
        }
        if random.happens(300) {
            let region = self.any_region(random);
            let is_cold = random.happens(500);
            for _ in 0..random.pick(&[1, 3]) {
                let at = random.within(SECOND, 10 * SECOND);
                let fault = if is_cold {
                    Fault::ColdStart(region)
                } else {
                    Fault::Restart(region)
                };
                self.faults.push((at, fault));
            }
        }
        if random.happens(350) {
            let region = self.any_region(random);
            for _ in 0..random.pick(&[1, 2]) {
                let step = random.pick(&[
                    -4_000_000, -1_000_000, -200_000, 200_000, 1_000_000, 4_000_000,
                ]);
                let at = random.within(SECOND, 10 * SECOND);
                self.faults.push((at, Fault::Step(region, step)));
            }
            self.steps = true;
        }
    }

    /// Cuts one region off from all others, or only their messages to it or its messages to them.
    fn add_partition(&mut self, random: &mut Random) {
        let (begin, length) = (
            random.within(SECOND, 9 * SECOND),
            random.pick(&[500_000, 2_000_000, 6_000_000]),
        );
        let one = self.any_region(random);
        let others = (0..self.regions()).filter(|other| *other != one);
        let mut pairs: Vec<_> = others.clone().map(|other| (one, other)).collect();
        if random.happens(700) {
            pairs.extend(others.map(|other| (other, one)));
        }
        self.faults.push((begin, Fault::Cut(pairs.clone())));
        self.faults.push((begin + length, Fault::Heal(pairs)));
    }
}

/// The shares by weights that are mostly equal.
fn shares(random: &mut Random, limit: u64, count: usize) -> Vec<u64> {
    let is_equal = random.happens(700);
    let weights: Vec<_> = (0..count)
        .map(|at| {
            let weight = if is_equal { 1 } else { random.pick(&[1, 2, 9]) };
            (format!("r{at}").into(), weight)
        })
        .collect();
    let regions = Regions::try_new("r0", 1, weights).expect("regions with names and weights");
    regions.shares(limit)
}

fn delays(random: &mut Random, count: usize) -> Vec<Vec<u64>> {
    let mut delays = vec![vec![0; count]; count];
    for one in 1..count {
        let (before, rest) = delays.split_at_mut(one);
        for (to_one, from_one) in before.iter_mut().zip(&mut rest[0]) {
            let delay = random.within(15_000, 125_000);
            to_one[one] = delay;
            *from_one = delay;
        }
    }
    delays
}

/// Pieces of 0.7 to 4 s, with a third of the limit to five times it, mostly in one region.
fn traffic(random: &mut Random, plan: &RegionPlan) -> Vec<Traffic> {
    let count = plan.regions();
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < plan.span {
        at += random.within(700_000, 4 * SECOND);
        let load =
            random.pick(&[300, 900, 1_100, 2_000, 5_000]) * plan.limit * SECOND / plan.window;
        // At most 120 a second, so that a world is played soon.
        let load = load.min(120_000);
        let mut parts = match random.below(10) {
            0..5 => vec![5; count],
            5..8 => (0..count).map(|_| random.within(1, 100)).collect(),
            _ => vec![0; count],
        };
        if parts.iter().all(|part| *part < 6) {
            parts[plan.any_region(random)] = 100;
        }
        let sum: u64 = parts.iter().sum();
        pieces.push((at, parts.iter().map(|part| load * part / sum).collect()));
    }
    pieces
}

/// A number from `-most` to `most`.
fn signed(random: &mut Random, most: i64) -> i64 {
    let span = most.unsigned_abs() * 2;
    random.within(0, span).cast_signed() - most
}
