//! A region: its store, and its nodes, which post what it counts.

use ratekeeper_core::Micros;
use ratekeeper_core::RegionId;
use ratekeeper_core::region::counted::{CountedSums, Hearing, RegionPost, SilentRegion};

use super::plan::{CountingGuard, CountingPlan, START};

/// The time in which a hit that was asked for is counted.
const SETTLED: u64 = 1_000;

/// A total in a window.
pub(super) type Total = (u64, u64);

/// The answer to who asks for a hit, in the window that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// It is admitted.
    Yes(u64),
    /// It is denied, as silent regions are taken to have used so much more than they posted.
    No(u64, u64),
}

/// The store of a region, and its nodes.
#[derive(Debug)]
pub(super) struct RegionSide {
    at: usize,
    /// The window that is counted, and its hits.
    own: Total,
    sums: CountedSums,
    pub(super) nodes: Vec<NodeSide>,
}

/// A node: what it posts, and whom it has heard.
#[derive(Debug)]
pub(super) struct NodeSide {
    used_at: Option<u64>,
    looked_at: Option<u64>,
    next_at: u64,
    read: Total,
    knows: Vec<Total>,
    hearing: Vec<Hearing>,
}

impl RegionSide {
    pub(super) fn new(at: usize, plan: &CountingPlan) -> Self {
        let nodes = (0..plan.nodes).map(|_| NodeSide::new(plan, 0));
        Self {
            at,
            own: (0, 0),
            sums: CountedSums::default(),
            nodes: nodes.collect(),
        }
    }

    /// Its nodes forget everything.
    pub(super) fn restart(&mut self, plan: &CountingPlan, time: u64) {
        let nodes = (0..plan.nodes).map(|_| NodeSide::new(plan, time));
        self.nodes = nodes.collect();
    }

    /// The window that is counted, and the hits in it.
    pub(super) fn own(&mut self, plan: &CountingPlan, time: u64) -> Total {
        let window = (START + time + plan.ahead[self.at]) / plan.window;
        if window > self.own.0 {
            self.own = (window, 0);
        }
        self.own
    }

    /// Asks for a hit.
    pub(super) fn take(&mut self, plan: &CountingPlan, node: usize, time: u64) -> Told {
        let (window, count) = self.own(plan, time);
        self.nodes[node].used_at = Some(time);
        let used = self.used(plan, node, time);
        if count + 1 > plan.limit.saturating_sub(used) {
            return Told::No(window, used.saturating_sub(self.sums.sum(window)));
        }
        self.own.1 += 1;
        Told::Yes(window)
    }

    /// The hits that others are taken to have used of the window that is counted.
    fn used(&self, plan: &CountingPlan, node: usize, time: u64) -> u64 {
        let window = self.own.0;
        let silent = self.nodes[node].silent(plan, self.at, time);
        if plan.has(CountingGuard::Larger) {
            return self.sums.used(window, &silent);
        }
        let posted = |region| self.sums.posted(region, window);
        let forgotten: u64 = silent.iter().map(|it| posted(it.region)).sum();
        let shares: u64 = silent.iter().map(|it| it.share).sum();
        self.sums.sum(window) - forgotten + shares
    }

    /// Keeps a total of another region; returns what this one has counted, and whether it was kept.
    pub(super) fn keep(
        &mut self,
        plan: &CountingPlan,
        place: usize,
        (window, total): Total,
        time: u64,
    ) -> (Total, bool) {
        let own = self.own(plan, time);
        let window = match plan.has(CountingGuard::WindowNumber) {
            true => window,
            false => own.0,
        };
        let post = RegionPost {
            region: plan.set_of(self.at, time).ids[place],
            window,
            total,
        };
        if window > own.0 && !plan.has(CountingGuard::InAdvance) {
            return (own, false);
        }
        let is_forgotten = |other: &RegionPost| {
            let is_same = other.region == post.region && other.window == post.window;
            let is_later = post.window > other.window;
            !plan.has(CountingGuard::Maximum) && is_same
                || !plan.has(CountingGuard::BothWindows) && is_later
        };
        self.forget(plan, own.0, is_forgotten);
        (own, self.sums.take(post, own.0))
    }

    fn forget(&mut self, plan: &CountingPlan, own: u64, is_it: impl Fn(&RegionPost) -> bool) {
        let mut left = CountedSums::default();
        let all = plan.sets.iter().flat_map(|set| set.ids.iter().copied());
        for region in all.collect::<Vec<RegionId>>() {
            for window in [own, own + 1] {
                let total = self.sums.posted(region, window);
                let post = RegionPost {
                    region,
                    window,
                    total,
                };
                if total > 0 && !is_it(&post) {
                    left.take(post, own);
                }
            }
        }
        self.sums = left;
    }
}

impl NodeSide {
    fn new(plan: &CountingPlan, time: u64) -> Self {
        Self {
            used_at: None,
            looked_at: None,
            next_at: 0,
            read: (0, 0),
            knows: vec![(0, 0); plan.regions()],
            hearing: vec![Hearing::new(Micros::from_millis(time)); plan.regions()],
        }
    }

    pub(super) fn hear(&mut self, place: usize, time: u64) {
        self.hearing[place].hear(Micros::from_millis(time));
    }

    fn silent(&self, plan: &CountingPlan, own: usize, time: u64) -> Vec<SilentRegion> {
        let Some(after) = plan.counted.silent_after() else {
            return Vec::new();
        };
        let now = Micros::from_millis(time);
        let is_silent = |place: usize| self.hearing[place].is_silent(after, now);
        let set = plan.set_of(own, time);
        let places = (0..plan.regions()).filter(|place| *place != own && set.has[*place]);
        let silent = places.filter(|place| plan.has(CountingGuard::Silence) && is_silent(*place));
        let silent = silent.map(|place| SilentRegion {
            region: set.ids[place],
            share: set.shares[place],
        });
        silent.collect()
    }

    fn is_fresh(&self, plan: &CountingPlan) -> bool {
        let settled = match plan.has(CountingGuard::Fresh) {
            true => SETTLED,
            false => return self.used_at.is_some() && self.looked_at.is_none(),
        };
        self.used_at.is_some_and(|used| {
            let looked = self.looked_at;
            looked.is_none_or(|looked| looked <= used + settled)
        })
    }

    fn lacks(&self, place: usize) -> bool {
        self.knows[place] < self.read
    }

    /// The regions to tell, if a look is due: of those to which there is a link.
    pub(super) fn due(&mut self, plan: &CountingPlan, linked: &[usize], time: u64) -> bool {
        let lacks = linked.iter().any(|place| self.lacks(*place));
        let is_due = self.next_at <= time && (self.is_fresh(plan) || lacks);
        if is_due {
            self.next_at = time + plan.interval();
        }
        is_due
    }

    /// Takes in a look; returns the regions to tell.
    pub(super) fn looked(
        &mut self,
        plan: &CountingPlan,
        (own, linked): (Total, &[usize]),
        time: u64,
    ) -> Vec<usize> {
        let is_fresh = self.is_fresh(plan);
        (self.looked_at, self.read) = (Some(time), own);
        let to = linked.iter().copied();
        to.filter(|place| own.1 > 0 && (is_fresh || self.lacks(*place)))
            .collect()
    }

    pub(super) fn known(&mut self, place: usize, total: Total) {
        self.knows[place] = self.knows[place].max(total);
    }
}
