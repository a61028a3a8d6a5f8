//! The counters that regions count together: which of them are due to be posted, and what others know and have said.
//!
//! ```text
//!  asked for --> due: looked at, and posted to each region --> told back: posted again until then, while its window lasts
//! ```

use std::collections::HashMap;

use ratekeeper_core::region::counted::CountedSums;
use ratekeeper_core::{Micros, RegionId};
use ratekeeper_store::{CounterKey, LoanCounter, LoanDemand, LoanState};

use super::due::{COUNTERS_MAX, Due, TOLD, split_first};
use super::later;

/// The time after which a hit that was asked for is counted, or never will be.
const SETTLED: Micros = Micros::from_secs(1);

/// The time after which a counter that nobody asks for, and that all others know, is forgotten.
const IDLE: Micros = Micros::from_secs(60);

/// A total in a window.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct WindowTotal {
    pub(super) window: u64,
    pub(super) total: u64,
}

/// The counters that were asked for here of late.
#[derive(Debug)]
pub(super) struct Totals {
    /// The places of the regions that are told.
    others: Vec<usize>,
    /// The regions, by their places.
    ids: Vec<RegionId>,
    all: HashMap<CounterKey, Posted>,
    /// The last time at which a counter found no place.
    left_out: Option<Micros>,
    /// The last time at which room was made.
    swept_at: Option<Micros>,
    /// The last time at which a counter was left over for longer than its interval.
    behind: Option<Micros>,
}

/// A counter, and what other regions know of it.
#[derive(Debug)]
struct Posted {
    counter: LoanCounter,
    terms: u64,
    /// The time of the last demand, of the last look, and of the next one.
    used_at: Micros,
    looked_at: Option<Micros>,
    next_at: Micros,
    /// The total at the last look, and the time until its window ends.
    own: WindowTotal,
    ends_at: Micros,
    peers: Vec<Peer>,
}

/// The totals that another region knows, and has said last.
#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    knows: WindowTotal,
    said: Option<(WindowTotal, Micros)>,
}

impl Totals {
    /// Nothing is posted yet, to the regions at the places `others` of all.
    pub(super) fn new(others: Vec<usize>, ids: Vec<RegionId>) -> Self {
        Self {
            others,
            ids,
            all: HashMap::new(),
            left_out: None,
            swept_at: None,
            behind: None,
        }
    }

    /// Records what was asked for.
    pub(super) fn record(&mut self, demand: &LoanDemand, now: Micros) {
        let key = demand.counter.key;
        if self.all.len() >= COUNTERS_MAX && !self.all.contains_key(&key) {
            self.make_room(now);
            if self.all.len() >= COUNTERS_MAX {
                self.left_out = Some(now);
                return;
            }
        }
        let regions = self.ids.len();
        let posted = self.all.entry(key).or_insert_with(|| Posted {
            counter: demand.counter,
            terms: demand.terms,
            used_at: now,
            looked_at: None,
            next_at: now,
            own: WindowTotal::default(),
            ends_at: now,
            peers: vec![Peer::default(); regions],
        });
        if posted.terms != demand.terms {
            // Other rules: what others know is of another limit.
            posted.peers = vec![Peer::default(); regions];
        }
        (posted.counter, posted.terms, posted.used_at) = (demand.counter, demand.terms, now);
    }

    /// Forgets what all others know, once at a time: that reads all counters.
    fn make_room(&mut self, now: Micros) {
        if self.swept_at.replace(now) != Some(now) {
            let others = &self.others;
            self.all
                .retain(|_, it| it.is_fresh() || it.is_due_to_any(others, now));
        }
    }

    /// The counters to look at now, those first that are due for longest, of which a region that `is_reachable` does not know everything.
    pub(super) fn due(
        &mut self,
        is_reachable: impl Fn(usize) -> bool,
        now: Micros,
    ) -> Vec<CounterKey> {
        let others = &self.others;
        self.all.retain(|_, it| {
            now < later(it.used_at, IDLE) || it.is_fresh() || it.is_due_to_any(others, now)
        });
        let reached: Vec<usize> = others
            .iter()
            .copied()
            .filter(|at| is_reachable(*at))
            .collect();
        let mut due = Vec::new();
        for (key, it) in &mut self.all {
            if it.next_at > now {
                continue;
            }
            if it.is_fresh() || it.is_due_to_any(&reached, now) {
                due.push((it.next_at, *key));
            } else {
                // It is due from when there is something to say.
                it.next_at = now;
            }
        }
        let keys = self.first_of(due, now);
        for key in &keys {
            if let Some(posted) = self.all.get_mut(key) {
                posted.next_at = later(now, posted.interval());
            }
        }
        keys
    }

    /// Makes all counters due now.
    pub(super) fn hurry(&mut self, now: Micros) {
        for posted in self.all.values_mut() {
            posted.next_at = now.min(posted.next_at);
        }
    }

    /// True if regions that `is_reachable` know everything.
    pub(super) fn is_known(&self, is_reachable: impl Fn(usize) -> bool, now: Micros) -> bool {
        let others = self.others.iter().copied();
        let reached: Vec<usize> = others.filter(|at| is_reachable(*at)).collect();
        let mut all = self.all.values();
        all.all(|it| !it.is_due_to_any(&reached, now))
    }

    /// As many as are looked at together, of counters with the times since which they are due.
    fn first_of(&mut self, due: Vec<Due>, now: Micros) -> Vec<CounterKey> {
        let (first, waiting) = split_first(due);
        let is_late = |(since, key): &Due| {
            let posted = self.all.get(key);
            posted.is_some_and(|posted| later(*since, posted.interval()) < now)
        };
        if waiting.iter().any(is_late) {
            self.behind = Some(now);
        }
        first.into_iter().map(|(_, key)| key).collect()
    }

    pub(super) fn counter(&self, key: CounterKey) -> Option<(LoanCounter, u64)> {
        let posted = self.all.get(&key)?;
        Some((posted.counter, posted.terms))
    }

    pub(super) fn forget(&mut self, key: CounterKey) {
        self.all.remove(&key);
    }

    /// Takes in a look that was begun at `begun`; returns what is to be posted, and to whom.
    pub(super) fn looked(
        &mut self,
        key: CounterKey,
        state: &LoanState,
        (begun, now): (Micros, Micros),
    ) -> Option<(WindowTotal, Vec<usize>)> {
        let posted = self.all.get_mut(&key)?;
        let is_fresh = posted.is_fresh();
        posted.looked_at = posted.looked_at.max(Some(begun));
        posted.own = WindowTotal {
            window: state.window,
            // A limit that was lowered may be exceeded.
            total: state.count.min(posted.counter.whole.quota),
        };
        posted.ends_at = later(now, state.left);
        let lost = posted.forget_lost(&self.ids, state);
        let own = posted.own;
        if own.total == 0 {
            return None;
        }
        let others = self.others.iter().copied();
        let to = others
            .filter(|place| is_fresh || lost.contains(place) || !posted.peers[*place].has(own));
        Some((own, to.collect()))
    }

    /// Records that the region at `place` knows a total.
    pub(super) fn known(&mut self, key: CounterKey, place: usize, total: WindowTotal) {
        if let Some(peer) = self.peer(key, place)
            && !peer.has(total)
        {
            peer.knows = total;
        }
    }

    /// Records what the region at `place` has said.
    pub(super) fn said(&mut self, key: CounterKey, place: usize, total: WindowTotal, now: Micros) {
        if let Some(peer) = self.peer(key, place) {
            peer.said = Some((total, now));
        }
    }

    /// True if the region at `place` has not said that before.
    pub(super) fn is_news(&self, key: CounterKey, place: usize, total: WindowTotal) -> bool {
        let peer = self.all.get(&key).and_then(|it| it.peers.get(place));
        let said = peer.and_then(|peer| peer.said);
        said.is_none_or(|(said, _)| said != total)
    }

    /// The time at which each region last said what it has counted in `window`; empty if this node does not post the counter.
    pub(super) fn heard(&self, key: CounterKey, window: u64) -> Vec<Option<Micros>> {
        let peers = self.all.get(&key).map(|posted| &posted.peers);
        let peers = peers.into_iter().flatten();
        let heard = peers.map(|peer| {
            let (said, at) = peer.said?;
            (said.window == window).then_some(at)
        });
        heard.collect()
    }

    /// The counters that are posted.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// A fault if there were too many counters of late.
    pub(super) fn fault(&self, now: Micros) -> Option<String> {
        let is_of_late = |at: Option<Micros>| at.is_some_and(|at| now < later(at, TOLD));
        if is_of_late(self.left_out) {
            return Some(format!(
                "more than {COUNTERS_MAX} counters are counted together with other regions: this node does not post the rest"
            ));
        }
        is_of_late(self.behind).then(|| {
            "counters that are counted together with other regions are posted less often than their interval: too many are \
             in use"
                .to_owned()
        })
    }

    fn peer(&mut self, key: CounterKey, place: usize) -> Option<&mut Peer> {
        self.all.get_mut(&key)?.peers.get_mut(place)
    }
}

impl Posted {
    /// True if hits may have been counted since the last look.
    fn is_fresh(&self) -> bool {
        let looked_at = self.looked_at;
        looked_at.is_none_or(|looked_at| looked_at <= later(self.used_at, SETTLED))
    }

    fn interval(&self) -> Micros {
        let counted = self.counter.counted;
        counted.map_or(SETTLED, |counted| counted.interval)
    }

    /// Forgets what regions have said that the store has lost, so that it is news again. Returns their places.
    fn forget_lost(&mut self, ids: &[RegionId], state: &LoanState) -> Vec<usize> {
        let Some(sums) = CountedSums::decode(&state.loans) else {
            return Vec::new();
        };
        let mut lost = Vec::new();
        for (place, (peer, id)) in self.peers.iter_mut().zip(ids).enumerate() {
            let Some((said, _)) = peer.said else {
                continue;
            };
            let kept = sums.posted(*id, said.window);
            if said.window >= state.window && kept < said.total {
                peer.said = None;
                lost.push(place);
            }
        }
        lost
    }

    /// True if one of these regions does not know what was counted in a window that is not over.
    fn is_due_to_any(&self, places: &[usize], now: Micros) -> bool {
        let is_over = now >= self.ends_at || self.own.total == 0;
        !is_over && places.iter().any(|place| !self.peers[*place].has(self.own))
    }
}

impl Peer {
    const fn has(&self, total: WindowTotal) -> bool {
        let knows = self.knows;
        knows.window > total.window || knows.window == total.window && knows.total >= total.total
    }
}

#[cfg(test)]
mod tests;
