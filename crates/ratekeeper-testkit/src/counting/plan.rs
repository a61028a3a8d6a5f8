//! The subject of a world: the limit, its regions, their demand, and a time in which some are cut off.

use ratekeeper_core::region::counted::{Counted, Silent};
use ratekeeper_core::{Micros, RegionId, Regions};

use super::CountingTrouble;
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
    /// A total is kept for a region by its number, and not by its place among those that there are.
    Identity,
}

/// The subject of a world. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct CountingPlan {
    pub(super) without: Option<CountingGuard>,
    pub(super) limit: u64,
    pub(super) window: u64,
    pub(super) counted: Counted,
    /// The regions before a change, and after it.
    pub(super) sets: [RegionSet; 2],
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
    pub(super) change: Option<Change>,
}

/// The regions that share the limit.
#[derive(Clone, Debug)]
pub(super) struct RegionSet {
    pub(super) has: Vec<bool>,
    pub(super) shares: Vec<u64>,
    /// The regions that totals are kept for.
    pub(super) ids: Vec<RegionId>,
}

/// A change of the regions.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The time at which the nodes of each region restart; those of a new region start, and those of one that leaves end.
    at: Vec<u64>,
    joins: usize,
    leaves: Option<usize>,
    /// The time that a link needs after that, by who asks and who is asked.
    remade: Vec<Vec<u64>>,
}

/// The time in which two regions are apart, and in which links are made again after that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) remade: u64,
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

/// The longest time in which all nodes have restarted.
const RESTARTS_MAX: u64 = 10_000;

impl CountingPlan {
    pub(super) fn random(
        random: &mut Random,
        trouble: CountingTrouble,
        without: Option<CountingGuard>,
    ) -> Self {
        let is_cut = trouble != CountingTrouble::Clocks;
        let least = if trouble == CountingTrouble::Change {
            3
        } else {
            2
        };
        let regions = usize::try_from(random.within(least, 5)).unwrap_or(3);
        let each = |make: &mut dyn FnMut() -> u64| (0..regions).map(|_| make()).collect::<Vec<_>>();
        let limit = random.within(30, 600);
        let window = random.within(if is_cut { 20_000 } else { 10_000 }, 40_000);
        let weights = each(&mut || random.within(1, 3));
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
        let outage =
            (trouble == CountingTrouble::Cut).then(|| Outage::random(random, regions, window));
        let change =
            (trouble == CountingTrouble::Change).then(|| Change::random(random, regions, window));
        let sets = [false, true].map(|is_later| {
            let has = (0..regions).map(|at| {
                let change = change.as_ref();
                change.is_none_or(|change| change.has(at, is_later))
            });
            let is_named = without != Some(CountingGuard::Identity);
            RegionSet::new(has.collect(), &weights, limit, is_named)
        });
        let troubled = outage.as_ref().map(|it| (it.from, it.to));
        let troubled = troubled.or(change.as_ref().map(Change::span));
        let quiet = each(&mut || match troubled {
            Some((from, to)) if random.happens(300) => random.within(from, to),
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
            sets,
            nodes,
            ahead: each(&mut || random.below(most)),
            rates,
            bursts: bursts.into_iter().map(|burst| burst > 0).collect(),
            quiet,
            ways,
            repeats: random.below(300),
            end: 6 * window,
            outage,
            change,
        }
    }

    pub(super) fn has(&self, guard: CountingGuard) -> bool {
        self.without != Some(guard)
    }

    pub(super) const fn regions(&self) -> usize {
        self.rates.len()
    }

    /// The time between two posts.
    pub(super) const fn interval(&self) -> u64 {
        self.counted.interval.get() / 1_000
    }

    /// The true time at which a window ends in a region.
    pub(super) fn window_end(&self, region: usize, window: u64) -> u64 {
        ((window + 1) * self.window).saturating_sub(START + self.ahead[region])
    }

    /// The regions that the nodes of `region` know of.
    pub(super) fn set_of(&self, region: usize, time: u64) -> &RegionSet {
        let change = self.change.as_ref();
        let is_later = change.is_some_and(|change| time >= change.at[region]);
        &self.sets[usize::from(is_later)]
    }

    /// True if a region has nodes.
    pub(super) fn is_there(&self, region: usize, time: u64) -> bool {
        self.set_of(region, time).has[region]
    }

    /// True if the nodes of a region restart within the step of time that ends then.
    pub(super) fn restarts(&self, region: usize, time: u64, step: u64) -> bool {
        let at = self.change.as_ref().map(|change| change.at[region]);
        at.is_some_and(|at| (at..at + step).contains(&time))
    }

    /// True if nothing passes between two regions.
    pub(super) fn is_cut(&self, one: usize, other: usize, time: u64) -> bool {
        let apart = self.apart(one, other);
        apart.is_some_and(|it| (it.from..it.to).contains(&time))
    }

    /// True if a region has a link to another one.
    pub(super) fn has_link(&self, from: usize, to: usize, time: u64) -> bool {
        let remade = match (&self.outage, &self.change) {
            (Some(outage), _) => outage.remade[from][to],
            (None, Some(change)) => change.remade[from][to],
            (None, None) => 0,
        };
        let apart = self.apart(from, to);
        apart.is_none_or(|it| time < it.from || time >= it.to.saturating_add(remade))
    }

    /// The time in which two regions are apart.
    pub(super) fn apart(&self, one: usize, other: usize) -> Option<Apart> {
        let remade = |all: &Vec<Vec<u64>>| all[one][other].max(all[other][one]);
        if let Some(change) = &self.change {
            let is_either = |region| one == region || other == region;
            let (at, then) = (change.at[one], change.at[other]);
            return Some(Apart {
                from: match is_either(change.joins) {
                    true => 0,
                    false => at.min(then),
                },
                to: match change.leaves.is_some_and(is_either) {
                    true => u64::MAX,
                    false => at.max(then),
                },
                remade: remade(&change.remade),
            });
        }
        let outage = self.outage.as_ref().filter(|it| it.parts(one, other))?;
        Some(Apart {
            from: outage.from,
            to: outage.to,
            remade: remade(&outage.remade),
        })
    }
}

impl RegionSet {
    /// Some of the regions, each of a name that tells its place among all.
    fn new(has: Vec<bool>, weights: &[u64], limit: u64, is_named: bool) -> Self {
        let name = |at: usize| format!("r{at}");
        let there = || (0..has.len()).filter(|at| has[*at]);
        let named = there().map(|at| {
            let weight = u32::try_from(weights[at]).unwrap_or(1);
            (name(at).into(), weight)
        });
        let own = there().next().map(name).unwrap_or_default();
        let parts = Regions::try_new(&own, 1, named).map(|regions| regions.shares(limit));
        let mut parts = parts.unwrap_or_default().into_iter();
        let mut places = 0..;
        let shares = has.iter().map(|is_there| match is_there {
            true => parts.next().unwrap_or(0),
            false => 0,
        });
        let shares = shares.collect();
        let ids = (0..has.len()).map(|at| match (is_named, has[at]) {
            (true, _) => RegionId::of(&name(at)),
            (false, true) => RegionId::from_bits(places.next().unwrap_or(0)),
            (false, false) => RegionId::from_bits(u64::MAX),
        });
        let ids = ids.collect();
        Self { has, shares, ids }
    }
}

impl Change {
    fn random(random: &mut Random, regions: usize, window: u64) -> Self {
        let from = random.within(window, 3 * window);
        let span = random.below(RESTARTS_MAX);
        let one = |random: &mut Random| usize::try_from(random.below(regions as u64)).unwrap_or(0);
        let joins = one(random);
        // Two are there before, and after it.
        let leaves = Some(one(random)).filter(|it| *it != joins && regions > 3);
        let at = (0..regions).map(|_| from + random.below(span + 1));
        let at = at.collect();
        Self {
            at,
            joins,
            leaves,
            remade: remade(random, regions),
        }
    }

    /// True if a region is there before the change, or later.
    fn has(&self, region: usize, is_later: bool) -> bool {
        match is_later {
            true => self.leaves != Some(region),
            false => self.joins != region,
        }
    }

    /// The time in which nodes restart, and in which all is told again.
    fn span(&self) -> (u64, u64) {
        let from = self.at.iter().copied().min().unwrap_or(0);
        (from, from + 2 * RESTARTS_MAX)
    }
}

/// The times in which links are made again.
fn remade(random: &mut Random, regions: usize) -> Vec<Vec<u64>> {
    let all = (0..regions).map(|_| {
        let each = (0..regions).map(|_| random.below(REMADE_MAX));
        each.collect()
    });
    all.collect()
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
        let remade = remade(random, regions);
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
