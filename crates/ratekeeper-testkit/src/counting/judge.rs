//! The bounds that a world is held to.

use std::collections::BTreeMap;

use ratekeeper_core::region::counted::Silent;

use super::CountingTotals;
use super::plan::{Apart, CountingPlan, Parted, WAY_MAX};
use super::world::{GATHERED, LOOK, PING, STEP};

/// The hits that were admitted, by window and region, each with its time.
#[derive(Debug)]
pub(super) struct Judge {
    windows: BTreeMap<u64, Vec<Vec<u64>>>,
    /// The times at which each region was asked.
    asked: Vec<Vec<u64>>,
    /// The first hit that was denied too early.
    early: Option<String>,
}

impl Judge {
    pub(super) fn new(regions: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            asked: vec![Vec::new(); regions],
            early: None,
        }
    }

    pub(super) fn asked(&mut self, region: usize, time: u64) {
        self.asked[region].push(time);
    }

    /// A hit is denied only once the limit is used up, by the hits of all regions and what silent ones are taken to have used beyond
    /// those: `more`.
    pub(super) fn denied(&mut self, plan: &CountingPlan, region: usize, window: u64, more: u64) {
        let hits = self.windows.get(&window).into_iter().flatten();
        let used = more + hits.map(|hits| hits.len() as u64).sum::<u64>();
        if plan.change.is_some() && used < plan.limit {
            let limit = plan.limit;
            let told = || format!("window {window}: region {region} denies at {used} of {limit}");
            self.early.get_or_insert_with(told);
        }
    }

    pub(super) fn admitted(&mut self, region: usize, window: u64, time: u64) {
        let none = || vec![Vec::new(); self.asked.len()];
        self.windows.entry(window).or_insert_with(none)[region].push(time);
    }

    /// Holds all windows to their bounds.
    pub(super) fn judged(&self, plan: &CountingPlan) -> Result<CountingTotals, String> {
        let mut totals = CountingTotals::default();
        for (window, hits) in &self.windows {
            let all: u64 = hits.iter().map(|hits| hits.len() as u64).sum();
            totals.windows += 1;
            totals.admitted += all;
            totals.full += u64::from(all >= plan.limit);
            totals.exceeded += u64::from(all > plan.limit);
            let most = plan.regions() as u64 * plan.limit;
            if all > most {
                return Err(format!("window {window}: {all} of {most} at most"));
            }
            self.each_hit(plan, *window, hits)
                .map_err(|broken| format!("window {window}: {broken}"))?;
            if let Some(most) = while_apart(plan, hits) {
                totals.apart += 1;
                if all > most {
                    return Err(format!("window {window}, apart: {all} of {most} at most"));
                }
            }
        }
        match &self.early {
            Some(early) => Err(early.clone()),
            None => Ok(totals),
        }
    }

    /// At each hit, no more than the limit was admitted, and what others admitted that this region cannot know of.
    fn each_hit(&self, plan: &CountingPlan, window: u64, hits: &[Vec<u64>]) -> Result<(), String> {
        for (region, own) in hits.iter().enumerate() {
            for (before, time) in own.iter().enumerate() {
                let mut known = before as u64 + 1;
                let others = hits.iter().enumerate();
                for (other, times) in others.filter(|(other, _)| *other != region) {
                    // What was not told of a window that the other one has left is not told any more.
                    let left = plan.window_end(other, window).min(*time);
                    let since = self.told_until(plan, region, other, left);
                    known += times.partition_point(|at| *at <= since) as u64;
                }
                if known > plan.limit {
                    return Err(format!(
                        "region {region} admits at {time} what makes {known} of {}",
                        plan.limit
                    ));
                }
            }
        }
        Ok(())
    }

    /// The time until which all that a region had admitted is known to another one.
    fn told_until(&self, plan: &CountingPlan, one: usize, other: usize, time: u64) -> u64 {
        let within = told_within(plan);
        match plan.apart(one, other) {
            Some(apart) if time >= apart.from && !self.is_told(plan, one, &apart, time) => {
                apart.from.saturating_sub(within)
            }
            _ => time.saturating_sub(within),
        }
    }

    /// True if a region knows again what the other one had admitted that it was apart from. A node that has restarted tells that once it is
    /// asked itself, or posted to.
    fn is_told(&self, plan: &CountingPlan, one: usize, apart: &Apart, time: u64) -> bool {
        let within = told_within(plan);
        let linked = apart.to.saturating_add(apart.remade);
        if plan.change.is_none() {
            return time >= linked.saturating_add(within);
        }
        let asked = &self.asked[one];
        let first = asked.get(asked.partition_point(|at| *at < linked));
        first.is_some_and(|first| time >= first + within + WAY_MAX)
    }
}

/// The time in which a hit is told: until it is due, looked at, gathered, and on its way.
fn told_within(plan: &CountingPlan) -> u64 {
    plan.interval() + LOOK + GATHERED + WAY_MAX + 2 * STEP
}

/// The most that passes in a window if regions take the shares of silent ones as used, and are apart in groups meanwhile.
fn while_apart(plan: &CountingPlan, hits: &[Vec<u64>]) -> Option<u64> {
    let outage = plan.outage.as_ref()?;
    let is_in_groups = matches!(outage.parted, Parted::Groups(_));
    let after = plan.counted.silent_after()?;
    if !is_in_groups || plan.counted.silent != Silent::Share {
        return None;
    }
    let times = || hits.iter().flatten();
    let (first, last) = (times().min()?, times().max()?);
    (*last >= outage.from && *first <= outage.to).then_some(())?;
    // Windows that begin later are held to shares from the beginning.
    let found_out = after.get() / 1_000 + PING + WAY_MAX + LOOK;
    let span = match *first >= outage.from + found_out {
        true => told_within(plan),
        false => told_within(plan) + found_out,
    };
    let more = hits.iter().map(|times| most_within(times, span));
    Some(plan.limit + more.sum::<u64>())
}

/// The most hits within a span.
fn most_within(times: &[u64], span: u64) -> u64 {
    let from = times.iter().enumerate();
    let counts = from.map(|(at, time)| times[at..].partition_point(|it| *it <= time + span));
    counts.max().unwrap_or(0) as u64
}
