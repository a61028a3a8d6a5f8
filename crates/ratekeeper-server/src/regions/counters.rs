//! The counters that this node looks after: for how much it asks, and of whom. No promise depends on this.

use std::collections::HashMap;

use ratekeeper_core::region::loans::{Asking, AskingTimes, LoanKind, LoanTerms, lack};
use ratekeeper_core::{Micros, RegionId};
use ratekeeper_store::{CounterKey, LoanCounter, LoanDemand, LoanState};

use super::demand::{Demand, Needs};
use super::due::{COUNTERS_MAX, Due, TOLD, split_first};
use super::kept::{Lending, PeerStanding, SentAsk, Standing};
use super::later;

const SECOND: u64 = 1_000_000;

/// An ask to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) peer: usize,
    pub(super) now: u64,
    pub(super) next: u64,
    /// The hits to hold less of the peer.
    pub(super) release: u64,
    /// The hits that the peer should give back.
    pub(super) recall: u64,
    /// The hits that the peer asked back, for which this is made.
    recalled: u64,
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
    asking: Option<Asking>,
    out: Option<SentAsk>,
    /// The hits that it could spare, when it last answered.
    spare: Option<(u64, Micros)>,
    /// The hits that it wants back.
    recalled: u64,
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
        let tracked = has_room.then(|| {
            self.all.entry(counter.key).or_insert_with(|| Tracked {
                counter,
                terms,
                demand: Demand::new(now),
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

    /// The asks that are due, of a counter with these loans. `shares` is what each region owns: taken to be spare where it
    /// has not told yet.
    pub(super) fn wanted(
        &mut self,
        key: CounterKey,
        (state, standing): (&LoanState, &Standing),
        ((own, shares), lending): ((usize, &[u64]), &Lending<'_>),
        is_reachable: impl Fn(usize) -> bool,
        now: Micros,
    ) -> Vec<Wanted> {
        let Some(tracked) = self.all.get_mut(&key) else {
            return Vec::new();
        };
        tracked.demand.count(state, (lending, standing.now));
        let peers = standing.peers.iter();
        tracked.amounts = peers.map(|it| (it.lent, it.held)).collect();
        let needs = tracked.demand.needs(state, lending);
        let is_lent = |it: &PeerStanding| it.is_lent || it.renews || it.lent > 0 || it.held > 0;
        let has_loans = standing.peers.iter().any(is_lent);
        let whole: u64 = shares.iter().sum();
        let share_next = standing.next;
        let lacks_now = match lending.kind {
            LoanKind::Windows => needs.now.saturating_sub(standing.now).min(whole),
            // What they hold they hold from now on.
            LoanKind::Log | LoanKind::Bucket => 0,
        };
        let lacks_next = lack(needs.next, share_next).min(whole);
        let recall = standing.owns.min(needs.next).saturating_sub(share_next);
        tracked.is_content = !has_loans && lacks_now == 0 && lacks_next == 0;
        let times = times(lending.terms.window);
        for (asked, share) in tracked.peers.iter_mut().zip(shares) {
            asked
                .asking
                .get_or_insert_with(|| Asking::new(*share, &times));
        }
        let others: Vec<usize> = (0..shares.len())
            .filter(|peer| *peer != own && is_reachable(*peer))
            .collect();
        let spare = |asked: &Asked| asked.asking.map_or(0, |it| it.spare).min(whole) + 1;
        let sum: u64 = others.iter().map(|peer| spare(&tracked.peers[*peer])).sum();
        let mut wanted = Vec::new();
        for peer in others {
            let loan = &standing.peers[peer];
            let asked = &mut tracked.peers[peer];
            let part = spare(asked);
            let renews = loan.renews;
            let recall = if loan.is_lent { recall } else { 0 };
            let recalled = std::mem::take(&mut asked.recalled);
            let may = asked
                .asking
                .as_mut()
                .is_some_and(|asking| asking.may_ask(now, lacks_now > 0, &times));
            let lacks = lacks_now > 0 || lacks_next > 0;
            if !may || !(lacks || renews || recall > 0 || recalled > 0) {
                asked.recalled = recalled;
                continue;
            }
            let gives_back = renews && !lacks;
            let unneeded = share_next.saturating_sub(needs.next.max(standing.owns));
            let in_part = |hits: u64| {
                let part = u128::from(hits) * u128::from(part);
                u64::try_from(part.div_ceil(u128::from(sum.max(1)))).unwrap_or(hits)
            };
            wanted.push(Wanted {
                peer,
                // Not of a region that wants hits back.
                now: if recalled > 0 { 0 } else { in_part(lacks_now) },
                next: if recalled > 0 { 0 } else { in_part(lacks_next) },
                release: recalled.max(if gives_back { unneeded } else { 0 }),
                recall,
                recalled,
            });
        }
        wanted
    }

    /// Records that an ask was sent.
    pub(super) fn sent(&mut self, key: CounterKey, peer: usize, ask: SentAsk, now: Micros) {
        if let Some(asked) = self.asked(key, peer) {
            asked.out = Some(ask);
            if let Some(asking) = &mut asked.asking {
                asking.sent(ask.number(), now);
            }
        }
    }

    /// Records that an ask could not be sent: as if it had been answered with nothing.
    pub(super) fn unsent(
        &mut self,
        key: CounterKey,
        wanted: &Wanted,
        terms: &LoanTerms,
        now: Micros,
    ) {
        let Some(asked) = self.asked(key, wanted.peer) else {
            return;
        };
        asked.recalled = asked.recalled.max(wanted.recalled);
        if let Some(asking) = &mut asked.asking {
            asking.answered(now, asking.spare, false, &times(terms.window));
        }
    }

    /// Takes out the ask of that number, and the time at which it was sent, if its answer is still waited for.
    pub(super) fn take_ask(
        &mut self,
        key: CounterKey,
        peer: usize,
        number: u64,
    ) -> Option<(LoanCounter, u64, (SentAsk, Micros))> {
        let (counter, terms) = self.counter(key)?;
        let asked = self.asked(key, peer)?;
        let sent = asked.asking?.sent_at(number)?;
        let ask = asked.out.take_if(|ask| ask.number() == number)?;
        Some((counter, terms, (ask, sent)))
    }

    /// Records an answer, and whether it gave something.
    pub(super) fn heard(
        &mut self,
        key: CounterKey,
        peer: usize,
        (spare, is_more): (u64, bool),
        terms: &LoanTerms,
        now: Micros,
    ) {
        let times = times(terms.window);
        let asking = self.asked(key, peer).and_then(|it| it.asking.as_mut());
        if let Some(asking) = asking {
            asking.answered(now, spare, is_more, &times);
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
            tracked.peers[peer].recalled = hits;
        }
    }

    /// The needs of this region, for a lender.
    pub(super) fn needs(&self, key: CounterKey, state: &LoanState, lending: &Lending<'_>) -> Needs {
        let none = Demand::new(Micros::ZERO);
        let demand = self.all.get(&key).map_or(&none, |it| &it.demand);
        demand.needs(state, lending)
    }

    /// The regions whose loans are over, with the numbers of their latest asks: this node has seen hits lent to them for a
    /// time, and no other ask, for so long that they hold nothing of them any more.
    pub(super) fn over(
        &mut self,
        key: CounterKey,
        standing: &Standing,
        lending: &Lending<'_>,
        now: Micros,
    ) -> Vec<(RegionId, u64)> {
        let Some(tracked) = self.all.get_mut(&key) else {
            return Vec::new();
        };
        let loans = standing.peers.iter().filter_map(|it| it.timed);
        let timed = loans.map(|loan| {
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
        times(self.counter.owns.window()).interval
    }

    /// True if it stays within its region's share, and has no loans, as far as this node knows.
    fn needs_nothing(&self) -> bool {
        let is_asking = |it: &Asked| it.out.is_some() || it.recalled > 0;
        let owns = &self.counter.owns;
        self.is_content
            && !self.peers.iter().any(is_asking)
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

fn times(window: Micros) -> AskingTimes {
    let window = window.get();
    AskingTimes {
        interval: Micros::new((window / 50).clamp(SECOND / 10, SECOND)),
        backoff_max: Micros::new((window / 2).clamp(SECOND, 10 * SECOND)),
        soon: Micros::new((window / 8).clamp(SECOND / 4, 5 * SECOND)),
        timeout: Micros::from_secs(1),
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
