//! The asks that a look at a counter makes: for how many hits, and of whom. No proof depends on this.
//!
//! A region that needs more than its share asks all others for what it lacks, in proportion to what they could spare when
//! they last answered, and those that borrowed of it for its own. Once half of a loan's time has passed it renews the loan,
//! and gives back what it no longer needs.
//!
//! The service and the simulation in `ratekeeper-testkit` both ask by this.

use super::asking::{Asking, AskingTimes};
use super::demand::{LoanNeeds, lack};
use super::standing::LoanStanding;
use crate::Micros;

/// The asks of a node for one counter, of each other region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoanAsking {
    times: AskingTimes,
    peers: Vec<PeerAsking>,
}

/// The same, of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeerAsking {
    asking: Asking,
    /// The hits that it could spare, when it last answered.
    spare: Option<u64>,
    /// The hits that it wants back.
    recalled: u64,
}

/// The facts of one look at a counter.
#[derive(Clone, Copy, Debug)]
pub struct LoanLook<'a> {
    /// The hits that the region needs.
    pub needs: LoanNeeds,
    /// Its shares and loans.
    pub standing: &'a LoanStanding,
    /// True if hits are lent and held for each window by itself. Otherwise what is held is held from now on, so nothing is asked
    /// for now alone.
    pub has_windows: bool,
    /// All regions, in the order of their names.
    pub regions: &'a [PeerLook],
}

/// A region, as a node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLook {
    /// The hits that it owns: taken to be spare until it tells.
    pub owns: u64,
    /// True if it can be asked: it is another one, and the node has a link to it.
    pub is_reachable: bool,
}

/// An ask to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedLoan {
    /// The place of the region.
    pub peer: usize,
    /// The hits to ask for in this window.
    pub now: u64,
    /// The hits to ask for in each later one.
    pub next: u64,
    /// The hits to hold less of the region.
    pub release: u64,
    /// The hits that the region should give back.
    pub recall: u64,
    /// The hits that the region asked back, for which this is made.
    recalled: u64,
}

/// The hits that a region lacks, in this window and in each later one, of a limit that has so many in all.
#[derive(Clone, Copy)]
struct Lack {
    now: u64,
    next: u64,
    whole: u64,
}

impl LoanLook<'_> {
    fn lack(&self) -> Lack {
        let (needs, standing) = (self.needs, self.standing);
        let whole = self.regions.iter().map(|it| it.owns).sum();
        let now = match self.has_windows {
            true => needs.now.saturating_sub(standing.now).min(whole),
            false => 0,
        };
        let next = lack(needs.next, standing.next).min(whole);
        Lack { now, next, whole }
    }

    /// Returns true if the region has no loans, and lacks nothing.
    #[must_use]
    pub fn is_content(&self) -> bool {
        !self.standing.has_loans() && !self.lack().is_some()
    }

    /// The hits of its own that the region needs, and has lent.
    fn recall(&self) -> u64 {
        let needed = self.standing.owns.min(self.needs.next);
        needed.saturating_sub(self.standing.next)
    }

    /// The hits that the region holds, and does not need.
    fn unneeded(&self) -> u64 {
        let needed = self.standing.owns.max(self.needs.next);
        self.standing.next.saturating_sub(needed)
    }
}

impl Lack {
    const fn is_some(self) -> bool {
        self.now > 0 || self.next > 0
    }
}

impl LoanAsking {
    /// No asks yet, of any of `regions` regions.
    #[must_use]
    pub fn new(regions: usize, times: AskingTimes) -> Self {
        let peer = PeerAsking {
            asking: Asking::new(&times),
            spare: None,
            recalled: 0,
        };
        Self {
            times,
            peers: vec![peer; regions],
        }
    }

    /// The asks that are due. They are to be made at once, and [recorded](Self::sent).
    pub fn wanted(&mut self, look: &LoanLook<'_>, now: Micros) -> Vec<WantedLoan> {
        let lack = look.lack();
        let recall = look.recall();
        let mut unneeded = if lack.is_some() { 0 } else { look.unneeded() };
        let asked = look.regions.iter().enumerate();
        let asked = asked.filter(|(_, region)| region.is_reachable);
        let spare = |peer: &PeerAsking, owns: u64| peer.spare.unwrap_or(owns).min(lack.whole) + 1;
        let spares = asked
            .clone()
            .map(|(place, region)| spare(&self.peers[place], region.owns));
        let sum = spares.sum();
        let mut wanted = Vec::new();
        for (place, region) in asked {
            let (loan, peer) = (&look.standing.peers[place], &mut self.peers[place]);
            let part = |hits| part(hits, spare(peer, region.owns), sum);
            let (part_now, part_next) = (part(lack.now), part(lack.next));
            let recall = if loan.lent_next > 0 { recall } else { 0 };
            let may = peer.asking.may_ask(now, lack.now > 0, &self.times);
            let has_reason = lack.is_some() || loan.renews || recall > 0 || peer.recalled > 0;
            if !may || !has_reason {
                continue;
            }
            let recalled = std::mem::take(&mut peer.recalled);
            let given_back = if loan.renews { unneeded } else { 0 };
            let release = recalled.max(given_back.min(loan.held_next));
            // What one region gets back, no other does.
            unneeded = unneeded.saturating_sub(release.min(loan.held_next));
            wanted.push(WantedLoan {
                peer: place,
                // Not of a region that wants hits back.
                now: if recalled > 0 { 0 } else { part_now },
                next: if recalled > 0 { 0 } else { part_next },
                release,
                recall,
                recalled,
            });
        }
        wanted
    }

    /// Records that an ask of `peer` was sent.
    pub fn sent(&mut self, peer: usize, number: u64, now: Micros) {
        self.peers[peer].asking.sent(number, now);
    }

    /// Records that an ask could not be sent: as if it had been answered with nothing.
    pub fn unsent(&mut self, wanted: &WantedLoan, now: Micros) {
        let peer = &mut self.peers[wanted.peer];
        peer.recalled = peer.recalled.max(wanted.recalled);
        peer.asking.answered(now, false, &self.times);
    }

    /// The time at which the ask of that number was sent, if its answer is still waited for.
    #[must_use]
    pub fn sent_at(&self, peer: usize, number: u64) -> Option<Micros> {
        self.peers[peer].asking.sent_at(number)
    }

    /// Records an answer: what `peer` could spare, and whether it gave something.
    pub fn answered(&mut self, peer: usize, (spare, gained): (u64, bool), now: Micros) {
        let peer = &mut self.peers[peer];
        peer.spare = Some(spare);
        peer.asking.answered(now, gained, &self.times);
    }

    /// Records that `peer` wants hits back: the next ask of it gives them.
    pub fn recall(&mut self, peer: usize, hits: u64) {
        self.peers[peer].recalled = hits;
    }

    /// Returns true if a region wants hits back.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        self.peers.iter().any(|peer| peer.recalled > 0)
    }
}

/// `hits * part / sum`, rounded up.
fn part(hits: u64, part: u64, sum: u64) -> u64 {
    let part = u128::from(hits) * u128::from(part);
    u64::try_from(part.div_ceil(u128::from(sum.max(1)))).unwrap_or(hits)
}

#[cfg(test)]
mod tests;
