//! The subject of a world: the limit, its regions, their demand, and a time in which some are cut off.

use ratekeeper_core::region::counted::{Counted, Silent};
use ratekeeper_core::{Micros, Regions};

use crate::random::Random;

/// A protection, each of which can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CountingGuard {
    /// The larger total of a region counts, not the last one.
    Maximum,
    /// A total counts in the window that it names.
    WindowNumber,
    /// A total for the next window is kept.
    InAdvance,
    /// A total for the next window takes nothing from the one that is counted.
    BothWindows,
    /// A hit that was asked for at the last look is posted by the next one.
    Fresh,
    /// A region that is silent counts with its share.
    Silence,
    /// It counts with what it posted, if that is more.
    Larger,
}

/// The subject of a world. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct CountingPlan {
    pub(super) without: Option<CountingGuard>,
    pub(super) limit: u64,
    pub(super) window: u64,
    pub(super) counted: Counted,
    /// The shares of the regions.
    pub(super) shares: Vec<u64>,
    pub(super) nodes: usize,
    /// The time by which each region's store is ahead of true time.
    pub(super) ahead: Vec<u64>,
    /// Requests a second in each region, in thousandths.
    pub(super) rates: Vec<u64>,
    /// The regions that ask for everything as soon as a window begins, and for nothing later.
    pub(super) bursts: Vec<bool>,
    /// The time from which on a region asks for nothing more.
    pub(super) quiet: Vec<u64>,
    /// The least time of a message on its way, by region and region.
    pub(super) ways: Vec<Vec<u64>>,
    /// The part of messages that come twice, in thousandths.
    pub(super) repeats: u64,
    pub(super) end: u64,
    pub(super) outage: Option<Outage>,
}

/// A time in which regions are cut off from each other.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) parted: Parted,
    /// The time that a link needs after that, by who asks and who is asked.
    pub(super) remade: Vec<Vec<u64>>,
}

/// The regions that are cut off.
#[derive(Clone, Debug)]
pub(super) enum Parted {
    /// These from all others.
    Groups(Vec<bool>),
    /// Two from each other; others hear both.
    Pair(usize, usize),
}

/// The time of all stores' clocks when a world begins, but for what they are ahead.
pub(super) const START: u64 = 1_000_000_000;

/// The most that a message is longer on its way than the least time.
pub(super) const JITTER: u64 = 50;

/// The longest time of a message on its way.
pub(super) const WAY_MAX: u64 = 200;

/// The longest time in which a link is made again.
const REMADE_MAX: u64 = 5_000;

impl CountingPlan {
    pub(super) fn random(
        random: &mut Random,
        is_cut: bool,
        without: Option<CountingGuard>,
    ) -> Self {
        let regions = usize::try_from(random.within(2, 5)).unwrap_or(2);
        let each = |make: &mut dyn FnMut() -> u64| (0..regions).map(|_| make()).collect::<Vec<_>>();
        let limit = random.within(30, 600);
        let window = random.within(if is_cut { 20_000 } else { 10_000 }, 40_000);
        let weights = each(&mut || random.within(1, 3));
        let named = weights.iter().enumerate().map(|(at, weight)| {
            let weight = u32::try_from(*weight).unwrap_or(1);
            (format!("r{at}").into(), weight)
        });
        let shares = Regions::try_new("r0", 1, named).map(|regions| regions.shares(limit));
        // What regions have counted meanwhile is told once links are there again, unless the window is over in one of them.
        let most = if is_cut { 500 } else { window * 9 / 10 };
        let is_alone = random.happens(if is_cut { 200 } else { 500 });
        // In all regions together, three times the limit.
        let mean = 3 * limit * 1_000_000 / window / regions as u64;
        let rates = each(&mut || match is_cut {
            true => mean,
            false => random.within(mean / 10, 2 * mean),
        });
        let bursts = each(&mut || u64::from(!is_cut && random.happens(300)));
        let ways = (0..regions).map(|_| each(&mut || random.within(5, WAY_MAX - JITTER)));
        let ways = ways.collect();
        let nodes = usize::try_from(random.within(1, 2)).unwrap_or(1);
        let outage = is_cut.then(|| Outage::random(random, regions, window));
        let quiet = each(&mut || match &outage {
            Some(outage) if random.happens(300) => random.within(outage.from, outage.to),
            _ => u64::MAX,
        });
        Self {
            without,
            limit,
            window,
            counted: Counted {
                interval: Micros::from_millis(random.within(1_000, 3_000)),
                silent: if is_alone {
                    Silent::Alone
                } else {
                    Silent::Share
                },
            },
            shares: shares.unwrap_or_default(),
            nodes,
            ahead: each(&mut || random.below(most)),
            rates,
            bursts: bursts.into_iter().map(|burst| burst > 0).collect(),
            quiet,
            ways,
            repeats: random.below(300),
            end: 6 * window,
            outage,
        }
    }

    pub(super) fn has(&self, guard: CountingGuard) -> bool {
        self.without != Some(guard)
    }

    pub(super) const fn regions(&self) -> usize {
        self.shares.len()
    }

    /// The time between two posts.
    pub(super) const fn interval(&self) -> u64 {
        self.counted.interval.get() / 1_000
    }

    /// The true time at which a window ends in a region.
    pub(super) fn window_end(&self, region: usize, window: u64) -> u64 {
        ((window + 1) * self.window).saturating_sub(START + self.ahead[region])
    }

    /// True if nothing passes between two regions.
    pub(super) fn is_cut(&self, one: usize, other: usize, time: u64) -> bool {
        let outage = self.outage.as_ref();
        outage.is_some_and(|it| it.parts(one, other) && (it.from..it.to).contains(&time))
    }

    /// True if a region has a link to another one.
    pub(super) fn has_link(&self, from: usize, to: usize, time: u64) -> bool {
        let outage = self.outage.as_ref().filter(|it| it.parts(from, to));
        outage.is_none_or(|it| time < it.from || time >= it.to + it.remade[from][to])
    }
}

impl Outage {
    fn random(random: &mut Random, regions: usize, window: u64) -> Self {
        let from = random.within(window, 3 * window);
        let parted = match regions > 2 && random.happens(200) {
            true => {
                let one = usize::try_from(random.below(regions as u64)).unwrap_or(0);
                Parted::Pair(one, (one + 1) % regions)
            }
            false => {
                let mut apart: Vec<bool> = (0..regions).map(|_| random.happens(500)).collect();
                // Neither none of them nor all.
                (apart[0], apart[regions - 1]) = (true, false);
                Parted::Groups(apart)
            }
        };
        let remade = (0..regions).map(|_| {
            let each = (0..regions).map(|_| random.below(REMADE_MAX));
            each.collect()
        });
        let remade = remade.collect();
        Self {
            from,
            to: from + random.within(5_000, 5 * window / 2),
            parted,
            remade,
        }
    }

    pub(super) fn parts(&self, one: usize, other: usize) -> bool {
        match &self.parted {
            Parted::Groups(apart) => apart[one] != apart[other],
            Parted::Pair(first, second) => {
                (one, other) == (*first, *second) || (other, one) == (*first, *second)
            }
        }
    }
}
