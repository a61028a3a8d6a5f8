//! The counters that this node looks after: for how much it asks, and of whom. No promise depends on this.

use std::collections::HashMap;

use ratekeeper_core::region::loans::{
    AskingTimes, LoanAsking, LoanKind, LoanLook, LoanNeeds, LoanStanding, LoanTerms, PeerLook,
    WantedLoan,
};
use ratekeeper_core::{Micros, RegionId};
use ratekeeper_store::{CounterKey, LoanCounter, LoanDemand, LoanState};

use super::demand::Demand;
use super::due::{COUNTERS_MAX, Due, TOLD, split_first};
use super::kept::{Lending, SentAsk};
use super::later;

const SECOND: u64 = 1_000_000;

/// A counter as a look has found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) lending: &'a Lending<'a>,
    pub(super) state: &'a LoanState,
    pub(super) standing: &'a LoanStanding,
}

/// The counters that were asked for here of late, and those that others have borrowed or asked back.
#[derive(Debug)]
pub(super) struct Counters {
    regions: usize,
    all: HashMap<CounterKey, Tracked>,
    /// The last time at which a counter found no place.
    left_out: Option<Micros>,
    /// The last time at which room was made.
    swept_at: Option<Micros>,
    /// The last time at which a counter was left over for longer than its interval.
    behind: Option<Micros>,
    /// The last time at which the loans of a counter could not be read.
    unread: Option<Micros>,
}

#[derive(Debug)]
struct Tracked {
    counter: LoanCounter,
    terms: u64,
    demand: Demand,
    asking: LoanAsking,
    peers: Vec<Asked>,
    /// The time of the next look, and of the last demand.
    next_at: Micros,
    used_at: Micros,
    /// The hits lent to and borrowed from each region, as of the last look.
    amounts: Vec<(u64, u64)>,
    /// True if it had neither loans nor a lack of hits at the last look.
    is_content: bool,
    /// The loans for a time that were there at the last look.
    timed: Vec<Timed>,
}

/// Hits that are lent for a time.
#[derive(Clone, Copy, Debug)]
struct Timed {
    /// The region, and the number of its latest ask.
    loan: (RegionId, u64),
    /// The time since which that is known.
    since: Micros,
}

/// The asks of one region.
#[derive(Clone, Copy, Default, Debug)]
struct Asked {
    out: Option<SentAsk>,
    /// The hits that it could spare, when it last answered.
    spare: Option<(u64, Micros)>,
}

impl Counters {
    pub(super) fn new(regions: usize) -> Self {
        Self {
            regions,
            all: HashMap::new(),
            left_out: None,
            swept_at: None,
            behind: None,
            unread: None,
        }
    }

    /// Records what was asked for.
    pub(super) fn record(&mut self, demands: Vec<LoanDemand>, now: Micros) {
        for demand in demands {
            let Some(tracked) = self.track((demand.counter, demand.terms), now) else {
                continue;
            };
            tracked.demand.record(demand.hits);
            tracked.used_at = now;
        }
    }

    fn track(&mut self, (counter, terms): (LoanCounter, u64), now: Micros) -> Option<&mut Tracked> {
        let has_room = self.has_room(counter.key, now);
        if !has_room {
            self.left_out = Some(now);
        }
        let regions = self.regions;
        let asking = || LoanAsking::new(regions, AskingTimes::of(counter.owns.window()));
        let tracked = has_room.then(|| {
            self.all.entry(counter.key).or_insert_with(|| Tracked {
                counter,
                terms,
                demand: Demand::new(now),
                asking: asking(),
                peers: vec![Asked::default(); regions],
                next_at: now,
                used_at: now,
                amounts: vec![(0, 0); regions],
                is_content: true,
                timed: Vec::new(),
            })
        })?;
        if tracked.terms != terms {
            // Other rules: what was asked before is void.
            (tracked.counter, tracked.terms) = (counter, terms);
            tracked.asking = asking();
            tracked.peers = vec![Asked::default(); regions];
            tracked.timed.clear();
        }
        Some(tracked)
    }

    /// True if there is a place for a counter. It may be that of one which needs nothing.
    fn has_room(&mut self, key: CounterKey, now: Micros) -> bool {
        if self.all.len() < COUNTERS_MAX || self.all.contains_key(&key) {
            return true;
        }
        // Once at a time, as that reads all counters.
        if self.swept_at.replace(now) != Some(now) {
            self.all.retain(|_, tracked| !tracked.needs_nothing());
        }
        self.all.len() < COUNTERS_MAX
    }

    /// The counters to look at now, those first that are due for longest.
    pub(super) fn due(&mut self, now: Micros) -> Vec<CounterKey> {
        self.all.retain(|_, tracked| !tracked.is_over(now));
        let due = self.all.iter().filter(|(_, it)| it.next_at <= now);
        let due = due.map(|(key, it)| (it.next_at, *key));
        let (first, waiting) = split_first(due.collect());
        let is_late = |(since, key): &Due| {
            let tracked = self.all.get(key);
            tracked.is_some_and(|it| later(*since, it.interval()) < now)
        };
        if waiting.iter().any(is_late) {
            self.behind = Some(now);
        }
        let first = first.into_iter().map(|(_, key)| key);
        let keys: Vec<_> = first.collect();
        for key in &keys {
            if let Some(tracked) = self.all.get_mut(key) {
                tracked.next_at = later(now, tracked.interval());
                let memory = memory(tracked.counter.owns.window());
                tracked.demand.measure(now, memory);
            }
        }
        keys
    }

    /// Records that the loans of a counter could not be read.
    pub(super) const fn unread(&mut self, now: Micros) {
        self.unread = Some(now);
    }

    /// A fault if there were too many counters of late, or one whose loans cannot be read.
    pub(super) fn fault(&self, now: Micros) -> Option<String> {
        let is_of_late = |at: Option<Micros>| at.is_some_and(|at| now < later(at, TOLD));
        if is_of_late(self.unread) {
            let what = "loans between regions were written by a build that this one does not read, or for other regions: \
                        their counters borrow and lend nothing";
            return Some(what.to_owned());
        }
        if is_of_late(self.left_out) {
            return Some(format!(
                "more than {COUNTERS_MAX} counters lack hits of their region's share, or are lent: this node does not \
                 borrow for the rest"
            ));
        }
        is_of_late(self.behind).then(|| {
            "counters that regions lend are looked at less often than they should be: too many are in use".to_owned()
        })
    }

    pub(super) fn counter(&self, key: CounterKey) -> Option<(LoanCounter, u64)> {
        let tracked = self.all.get(&key)?;
        Some((tracked.counter, tracked.terms))
    }

    pub(super) fn forget(&mut self, key: CounterKey) {
        self.all.remove(&key);
    }

    /// The asks that are due, of a counter that was found so.
    pub(super) fn wanted(
        &mut self,
        key: CounterKey,
        found: &Found<'_>,
        regions: &[PeerLook],
        now: Micros,
    ) -> Vec<WantedLoan> {
        let Some(tracked) = self.all.get_mut(&key) else {
            return Vec::new();
        };
        let (lending, standing) = (found.lending, found.standing);
        let counted = (lending, standing.now);
        tracked.demand.count(found.state, counted);
        let peers = standing.peers.iter();
        tracked.amounts = peers.map(|it| (it.lent, it.held)).collect();
        let look = LoanLook {
            needs: tracked.demand.needs(found.state, lending),
            standing,
            has_windows: lending.kind == LoanKind::Windows,
            regions,
        };
        tracked.is_content = look.is_content();
        tracked.asking.wanted(&look, now)
    }

    /// Records that an ask was sent.
    pub(super) fn sent(&mut self, key: CounterKey, peer: usize, ask: SentAsk, now: Micros) {
        if let Some(tracked) = self.all.get_mut(&key) {
            tracked.peers[peer].out = Some(ask);
            tracked.asking.sent(peer, ask.number(), now);
        }
    }

    /// Records that an ask could not be sent: as if it had been answered with nothing.
    pub(super) fn unsent(&mut self, key: CounterKey, wanted: &WantedLoan, now: Micros) {
        if let Some(tracked) = self.all.get_mut(&key) {
            tracked.asking.unsent(wanted, now);
        }
    }

    /// Takes out the ask of that number, and the time at which it was sent, if its answer is still waited for.
    pub(super) fn take_ask(
        &mut self,
        key: CounterKey,
        peer: usize,
        number: u64,
    ) -> Option<(LoanCounter, u64, (SentAsk, Micros))> {
        let tracked = self.all.get_mut(&key)?;
        let sent = tracked.asking.sent_at(peer, number)?;
        let out = &mut tracked.peers.get_mut(peer)?.out;
        let ask = out.take_if(|ask| ask.number() == number)?;
        Some((tracked.counter, tracked.terms, (ask, sent)))
    }

    /// Records an answer: what `peer` could spare, and whether it gave something.
    pub(super) fn heard(&mut self, key: CounterKey, peer: usize, answer: (u64, bool), now: Micros) {
        if let Some(tracked) = self.all.get_mut(&key) {
            tracked.asking.answered(peer, answer, now);
        }
    }

    /// Records what `peer` could spare when it answered.
    pub(super) fn told(&mut self, key: CounterKey, peer: usize, spare: (u64, Micros)) {
        if let Some(asked) = self.asked(key, peer) {
            asked.spare = Some(spare);
        }
    }

    /// The hits that each region could spare when it last answered, with the time; empty if this node does not look after the counter.
    pub(super) fn spares(&self, key: CounterKey) -> Vec<Option<(u64, Micros)>> {
        let peers = self.all.get(&key).map(|tracked| &tracked.peers);
        let peers = peers.into_iter().flatten();
        peers.map(|asked| asked.spare).collect()
    }

    /// Records that `peer` wants hits back.
    pub(super) fn recall(&mut self, counter: (LoanCounter, u64), peer: usize, hits: u64) {
        let now = ratekeeper_store::boot_time();
        if let Some(tracked) = self.track(counter, now) {
            tracked.asking.recall(peer, hits);
        }
    }

    /// The needs of this region, for a lender.
    pub(super) fn needs(
        &self,
        key: CounterKey,
        state: &LoanState,
        lending: &Lending<'_>,
    ) -> LoanNeeds {
        let none = Demand::new(Micros::ZERO);
        let demand = self.all.get(&key).map_or(&none, |it| &it.demand);
        demand.needs(state, lending)
    }

    /// Those of `lent`, the regions to which hits are lent for a time, with the numbers of their latest asks, whose loans are
    /// over: this node has seen the loan, and no other ask, for so long that they hold nothing of it any more.
    pub(super) fn over(
        &mut self,
        key: CounterKey,
        lent: Vec<(RegionId, u64)>,
        lending: &Lending<'_>,
        now: Micros,
    ) -> Vec<(RegionId, u64)> {
        let Some(tracked) = self.all.get_mut(&key) else {
            return Vec::new();
        };
        let timed = lent.into_iter().map(|loan| {
            let seen = tracked.timed.iter().find(|it| it.loan == loan);
            let since = seen.map_or(now, |it| it.since);
            Timed { loan, since }
        });
        tracked.timed = timed.collect();
        let wait = longest(lending);
        let over = tracked.timed.iter();
        let over = over.filter(|it| later(it.since, wait) <= now);
        over.map(|it| it.loan).collect()
    }

    /// The counters that are looked after.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The hits lent to, and borrowed from, each region.
    pub(super) fn amounts(&self) -> Vec<(u64, u64)> {
        let none = vec![(0, 0); self.regions];
        self.all.values().fold(none, |mut sums, tracked| {
            for (sum, amount) in sums.iter_mut().zip(&tracked.amounts) {
                sum.0 += amount.0;
                sum.1 += amount.1;
            }
            sums
        })
    }

    fn asked(&mut self, key: CounterKey, peer: usize) -> Option<&mut Asked> {
        self.all.get_mut(&key)?.peers.get_mut(peer)
    }
}

impl Tracked {
    /// The time between two looks.
    fn interval(&self) -> Micros {
        AskingTimes::of(self.counter.owns.window()).interval
    }

    /// True if it stays within its region's share, and has no loans, as far as this node knows.
    fn needs_nothing(&self) -> bool {
        let owns = &self.counter.owns;
        self.is_content
            && self.peers.iter().all(|it| it.out.is_none())
            && !self.asking.is_recalled()
            && self.demand.expected(owns.window()) <= owns.quota()
    }

    /// True if it was not asked for in a while: what is borrowed ends by itself.
    fn is_over(&self, now: Micros) -> bool {
        let window = self.counter.owns.window().get();
        let kept = window.saturating_mul(2).max(60 * SECOND);
        now.get().saturating_sub(self.used_at.get()) > kept && !self.demand.is_there()
            || now.get().saturating_sub(self.used_at.get()) > 8 * kept
    }
}

/// The time for which a borrower can hold hits, with the margin; those of a log count for a window more, and those of windows
/// until the next one ends at least.
pub(super) fn longest(lending: &Lending<'_>) -> Micros {
    let terms: &LoanTerms = &lending.terms;
    let held = later(terms.time, terms.margin);
    match lending.kind {
        LoanKind::Log => later(held, terms.window),
        LoanKind::Windows => later(later(held, terms.window), terms.window),
        LoanKind::Bucket => held,
    }
}

/// The time over which demand is averaged.
fn memory(window: Micros) -> Micros {
    Micros::new((window.get() / 2).clamp(2 * SECOND, 10 * SECOND))
}

#[cfg(test)]
mod tests;
