//! A region on the other end of a link.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::Micros;
use ratekeeper_proto::ratekeeper::v1::{LoanAsk, RegionTotal};
use ratekeeper_store::boot_time;
use tokio::sync::MutexGuard;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::{info, warn};

/// Asks and totals that may wait for a link.
const WAITING_MAX: usize = 4_096;

/// The most links that nodes of one region may have to this node: one of each of theirs.
const LINKS_MAX: usize = 256;

/// The time without a link after which that is a fault.
const SILENT: Duration = Duration::from_secs(5);

/// The most characters that are kept of the reason why there is no link.
const WHY_MAX: usize = 256;

/// The time for which a disagreement is told after it was seen.
const TOLD: Duration = Duration::from_mins(1);

/// The most limits of which a disagreement is remembered.
const SEEN_MAX: usize = 8;

/// A part of a message to another region.
#[derive(Clone, Debug)]
pub enum ToRegion {
    /// An ask for what this region lacks.
    Ask(LoanAsk),
    /// Totals that this region has counted.
    Total(RegionTotal),
}

/// Another region, as this node's link to it sees it.
#[derive(Debug)]
pub struct PeerRegion {
    name: Box<str>,
    parts: Sender<ToRegion>,
    /// Held by the link.
    waiting: tokio::sync::Mutex<Receiver<ToRegion>>,
    has_link: AtomicBool,
    is_connected: AtomicBool,
    /// Asks to it, and its own that were answered, and refused.
    sent: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    /// Totals posted to it, and its own that were kept, and refused.
    posted: AtomicU64,
    kept: AtomicU64,
    totals_refused: AtomicU64,
    /// Links of its nodes to this one.
    links: AtomicUsize,
    /// The last round trip, in microseconds; 0 before there was one.
    round_trip: AtomicU64,
    state: Mutex<PeerState>,
}

#[derive(Debug)]
struct PeerState {
    /// The time at which the link was made or broke.
    since: Micros,
    why: String,
    disagreed: Seen,
    apart: Seen,
}

/// The limits, by their terms, of which something was seen, with the last time; a few of them.
#[derive(Default, Debug)]
struct Seen(Vec<(u64, Micros)>);

impl Seen {
    fn record(&mut self, terms: u64, now: Micros) {
        self.clear(terms);
        if self.0.len() >= SEEN_MAX {
            self.0.remove(0);
        }
        self.0.push((terms, now));
    }

    fn clear(&mut self, terms: u64) {
        self.0.retain(|(seen, _)| *seen != terms);
    }

    fn is_of_late(&self, now: Micros) -> bool {
        let since = |at: Micros| Duration::from_micros(now.get().saturating_sub(at.get()));
        self.0.iter().any(|(_, at)| since(*at) < TOLD)
    }
}

/// The end of a link that a client holds: it takes out what is to be said, and says how the connection does.
#[derive(Debug)]
pub struct PeerLink<'a> {
    peer: &'a PeerRegion,
    parts: MutexGuard<'a, Receiver<ToRegion>>,
    gathered: Vec<ToRegion>,
}

impl PeerRegion {
    pub(super) fn new(name: &str) -> Self {
        let (parts, waiting) = channel(WAITING_MAX);
        Self {
            name: name.into(),
            parts,
            waiting: tokio::sync::Mutex::new(waiting),
            has_link: AtomicBool::new(false),
            is_connected: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            totals_refused: AtomicU64::new(0),
            links: AtomicUsize::new(0),
            round_trip: AtomicU64::new(0),
            state: Mutex::new(PeerState {
                since: boot_time(),
                why: "not connected yet".to_owned(),
                disagreed: Seen::default(),
                apart: Seen::default(),
            }),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The end of the link for a client, until it is dropped; [`None`] if one has it.
    pub fn link(&self) -> Option<PeerLink<'_>> {
        let parts = self.waiting.try_lock().ok()?;
        self.has_link.store(true, Ordering::Relaxed);
        Some(PeerLink {
            peer: self,
            parts,
            gathered: Vec::new(),
        })
    }

    /// Sends an ask; false if there is no link, or too much waits for it.
    pub(super) fn send(&self, ask: LoanAsk) -> bool {
        let is_sent = self.is_reachable() && self.parts.try_send(ToRegion::Ask(ask)).is_ok();
        self.sent.fetch_add(u64::from(is_sent), Ordering::Relaxed);
        is_sent
    }

    /// Posts a total; false if there is no link, or too much waits for it.
    pub(super) fn post(&self, total: RegionTotal) -> bool {
        let is_sent = self.is_reachable() && self.parts.try_send(ToRegion::Total(total)).is_ok();
        self.posted.fetch_add(u64::from(is_sent), Ordering::Relaxed);
        is_sent
    }

    pub(super) fn posted(&self) -> u64 {
        self.posted.load(Ordering::Relaxed)
    }

    /// Counts a total that it has posted, and whether that was kept or refused.
    pub(super) fn told(&self, is_kept: bool) {
        let count = match is_kept {
            true => &self.kept,
            false => &self.totals_refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Its totals that were kept, and refused.
    pub(super) fn totals_of_it(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.kept), read(&self.totals_refused))
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Counts an ask of it, and whether that was answered or refused.
    pub(super) fn asked(&self, is_answered: bool) {
        let count = match is_answered {
            true => &self.answered,
            false => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Its asks that were answered, and refused.
    pub(super) fn asks_of_it(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.answered), read(&self.refused))
    }

    /// Counts a link of one of its nodes to this one; false if there are too many.
    pub(crate) fn enter(&self) -> bool {
        let more = |links: usize| (links < LINKS_MAX).then_some(links + 1);
        let links = &self.links;
        // Relaxed: nothing is published by it.
        links
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Counts one less.
    pub(crate) fn leave(&self) {
        self.links.fetch_sub(1, Ordering::Relaxed);
    }

    /// Links of its nodes to this one.
    pub(super) fn links(&self) -> usize {
        self.links.load(Ordering::Relaxed)
    }

    /// The link of this node to it, and the seconds since it was made or broke.
    pub(super) fn link_state(&self) -> (&'static str, u64) {
        let state = match (self.has_link.load(Ordering::Relaxed), self.is_reachable()) {
            (false, _) => "none",
            (true, false) => "down",
            (true, true) => "up",
        };
        let since = self.state.lock().since;
        let micros = boot_time().get().saturating_sub(since.get());
        (state, micros / 1_000_000)
    }

    /// The last round trip to it; [`None`] before there was one.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Records that it does not lend, or count, the limit of these terms.
    pub(super) fn disagreed(&self, terms: u64) {
        self.state.lock().disagreed.record(terms, boot_time());
    }

    /// Records that it does; that says nothing of other limits.
    pub(super) fn agreed(&self, terms: u64) {
        let mut state = self.state.lock();
        state.disagreed.clear(terms);
        state.apart.clear(terms);
    }

    /// Records that its clock is more than a window of that limit away.
    pub(super) fn is_apart(&self, terms: u64) {
        self.state.lock().apart.record(terms, boot_time());
    }

    /// The reason why the two regions share nothing, for operators.
    pub(super) fn fault(&self) -> Option<String> {
        if !self.has_link.load(Ordering::Relaxed) {
            return Some(format!(
                "region {}: no `link` is set for it, so nothing is lent or posted",
                self.name
            ));
        }
        let state = self.state.lock();
        let since = |at: Micros| Duration::from_micros(boot_time().get().saturating_sub(at.get()));
        if !self.is_reachable() && since(state.since) >= SILENT {
            let seconds = since(state.since).as_secs();
            return Some(format!(
                "region {}: no link for {seconds} s: {}",
                self.name, state.why
            ));
        }
        if state.disagreed.is_of_late(boot_time()) {
            return Some(format!(
                "region {}: it lends or counts on other terms; rules, `regions` and store_hash_key have to be the same in all \
                 regions",
                self.name
            ));
        }
        state.apart.is_of_late(boot_time()).then(|| {
            format!(
                "region {}: the clock of its store is more than a window away from ours",
                self.name
            )
        })
    }
}

impl PeerLink<'_> {
    /// Waits for something to say, and then for more of them for as long as `gathered`. None are lost if this is given up while it
    /// waits.
    pub async fn next(&mut self, most: usize, gathered: Duration) -> Vec<ToRegion> {
        if self.gathered.is_empty() {
            self.parts.recv_many(&mut self.gathered, most).await;
        }
        tokio::time::sleep(gathered).await;
        while self.gathered.len() < most
            && let Ok(part) = self.parts.try_recv()
        {
            self.gathered.push(part);
        }
        std::mem::take(&mut self.gathered)
    }

    /// Records that there is a connection.
    pub fn connected(&mut self) {
        // What waited is out of date.
        self.gathered.clear();
        while self.parts.try_recv().is_ok() {}
        self.peer.state.lock().since = boot_time();
        self.peer.is_connected.store(true, Ordering::Relaxed);
        info!(region = &*self.peer.name, "there is a link to a region");
    }

    /// Records how long a message and its answer took.
    pub fn answered_in(&self, round_trip: Duration) {
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        self.peer.round_trip.store(micros.max(1), Ordering::Relaxed);
    }

    /// Records that there is none, and why: in part a text of the other side, of which the start is kept.
    pub fn failed(&self, why: &str) {
        let why: String = why.chars().take(WHY_MAX).collect();
        let mut state = self.peer.state.lock();
        if self.peer.is_connected.swap(false, Ordering::Relaxed) {
            state.since = boot_time();
            warn!(
                region = &*self.peer.name,
                why, "the link to a region is down"
            );
        }
        state.why = why;
    }
}

impl Drop for PeerLink<'_> {
    /// No link is up without a client. One that a panic ended has said nothing.
    fn drop(&mut self) {
        if self.peer.is_connected.swap(false, Ordering::Relaxed) {
            let mut state = self.peer.state.lock();
            state.since = boot_time();
            "its client ended".clone_into(&mut state.why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_whose_client_has_ended_is_down_and_may_be_taken_again() {
        let peer = PeerRegion::new("us");
        let mut link = peer.link().expect("nobody has it");
        assert!(peer.link().is_none(), "it is taken");
        link.connected();
        assert!(peer.is_reachable());
        drop(link);
        assert!(!peer.is_reachable());
        let mut link = peer.link().expect("nobody has it any more");
        link.connected();
        assert!(peer.is_reachable());
    }

    #[test]
    fn a_limit_that_regions_agree_on_does_not_hide_one_that_they_do_not() {
        let peer = PeerRegion::new("us");
        let link = peer.link();
        let says = |text: &str| peer.fault().is_some_and(|fault| fault.contains(text));
        peer.disagreed(1);
        peer.is_apart(2);
        peer.agreed(3);
        assert!(says("other terms"));
        peer.agreed(1);
        assert!(!says("other terms"));
        assert!(says("the clock of its store"));
        peer.agreed(2);
        assert_eq!(peer.fault(), None);
        drop(link);
    }

    #[test]
    fn a_few_disagreements_are_remembered_for_a_minute() {
        let mut seen = Seen::default();
        let at = Micros::from_secs;
        for terms in 0..100 {
            seen.record(terms, at(10));
        }
        assert_eq!(seen.0.len(), SEEN_MAX);
        seen.record(99, at(20));
        assert_eq!(seen.0.len(), SEEN_MAX);
        assert!(seen.is_of_late(at(79)));
        assert!(!seen.is_of_late(at(80)));
    }
}
