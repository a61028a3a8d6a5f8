//! The time for which a request keeps its slot at an upstream, and its permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_tower::{Ending, Hold, InFlight, LoadSign, Passage, UsageReading};
use tokio::time::sleep;

use super::progress::Progress;
use crate::routes::Route;
use crate::upstream::RequestSlot;

/// The grace of a route without any answer yet.
const GRACE_AT_FIRST: Duration = Duration::from_secs(1);

/// A request's slot at its upstream, and the share of its permits that goes with it.
#[derive(Debug)]
pub(crate) struct SlotAndPermits {
    _slot: RequestSlot,
    /// None for a request without permits.
    _hold: Option<Hold>,
}

impl SlotAndPermits {
    pub(crate) const fn new(slot: RequestSlot, hold: Option<Hold>) -> Self {
        Self {
            _slot: slot,
            _hold: hold,
        }
    }
}

/// A request's slot, free once the upstream is [done](Self::done) with the request. If this is dropped before, the end of its
/// work cannot be seen: the slot is then kept for a grace, the time in which the route lately began 99 of 100 answers.
#[derive(Debug)]
pub(crate) struct HeldSlot(Option<Held>);

#[derive(Debug)]
struct Held {
    route: Arc<Route>,
    _alone: Option<SlotAndPermits>,
    /// Holds the slot also while the request's body is being sent.
    with_request: Option<Arc<Progress>>,
    /// The load that shedders count it in.
    load: Option<Load>,
    /// The time at which the slot was there.
    since: Instant,
    /// True once anything of the request may have been sent.
    is_sent: AtomicBool,
    /// For the one who goes on with the exchange when its client is gone; None if the exchange ends with its client.
    finish: Option<Finish>,
}

/// The means by which an exchange goes on when its client is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finish {
    /// True once anything of the request may have been sent.
    pub(crate) is_sent: Arc<AtomicBool>,
    /// Reads what the answer says that the request used; None if that is not read.
    pub(crate) usage: Option<UsageReading>,
}

#[derive(Debug)]
enum Load {
    Asked(Passage),
    Answered(#[allow(dead_code, reason = "it is held, and dropped")] InFlight),
}

impl HeldSlot {
    /// Holds `slot` since then, also while the body whose `progress` this is is being sent.
    pub(crate) fn new(
        route: &Arc<Route>,
        slot: SlotAndPermits,
        since: Instant,
        progress: Option<&Arc<Progress>>,
    ) -> Self {
        let alone = match progress {
            None => Some(slot),
            Some(progress) => {
                // A request has one upstream, and so one slot.
                let _ = progress.slot.set(slot);
                None
            }
        };
        Self(Some(Held {
            route: Arc::clone(route),
            _alone: alone,
            with_request: progress.map(Arc::clone),
            load: None,
            since,
            is_sent: AtomicBool::new(false),
            finish: None,
        }))
    }

    /// Holds the passage as well, and tells `finish` when the request is being sent.
    pub(crate) fn with(mut self, passage: Option<Passage>, finish: Option<Finish>) -> Self {
        if let Some(held) = &mut self.0 {
            held.load = passage.map(Load::Asked);
            held.finish = finish;
        }
        self
    }

    /// Records that the request is being sent.
    pub(crate) fn sent(&self) {
        if let Some(held) = &self.0 {
            // Relaxed, here and below: whoever drops the exchange has synchronised with its last poll.
            held.is_sent.store(true, Ordering::Relaxed);
            if let Some(finish) = &held.finish {
                finish.is_sent.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns true if the request is being sent, or was.
    pub(crate) fn is_sent(&self) -> bool {
        let held = self.0.as_ref();
        held.is_some_and(|held| held.is_sent.load(Ordering::Relaxed))
    }

    /// Records that the answer began at that time, or that there is none; the sign is for the shedders.
    pub(crate) fn answered(&mut self, sign: Option<LoadSign>, at: Option<Instant>) {
        let Some(held) = &mut self.0 else { return };
        let begun = match sign {
            // An upstream that is full refuses a request before it has all of it, and often before it has any.
            Some(LoadSign::RoundTrip(Ending::Dropped)) => Some(held.last_sent()),
            _ => held.begun(),
        };
        held.load = held.load.take().map(|load| match load {
            Load::Asked(mut passage) => {
                passage.begun(begun);
                Load::Answered(passage.answered(sign))
            }
            answered @ Load::Answered(_) => answered,
        });
        if let Some(at) = at {
            held.route
                .recent
                .record(at.saturating_duration_since(held.since));
        }
    }

    /// Records that the answer ends only when the client leaves: then the exchange ends with it.
    pub(crate) fn ends_with_client(&mut self) {
        if let Some(held) = &mut self.0 {
            held.finish = None;
        }
    }

    /// The route, if the exchange goes on although its client is gone, and what reads the usage then.
    pub(crate) fn goes_on(&self) -> Option<(&Arc<Route>, Option<&UsageReading>)> {
        let held = self.0.as_ref()?;
        let finish = held.finish.as_ref()?;
        Some((&held.route, finish.usage.as_ref()))
    }

    /// Frees the slot: the upstream is done.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl Held {
    /// The time at which the upstream had the whole request, and could begin with it; None while its body is on its way.
    fn begun(&self) -> Option<Instant> {
        let progress = self.with_request.as_ref();
        let is_whole = progress.is_none_or(|progress| progress.is_done());
        is_whole.then(|| self.last_sent())
    }

    /// The time since which nothing more of the request has gone to the upstream.
    fn last_sent(&self) -> Instant {
        let progress = self.with_request.as_ref();
        let last = progress.and_then(|progress| progress.last_frame());
        last.map_or(self.since, |last| self.since.max(last.into_std()))
    }

    /// Tells the shedders that the client has gone before its answer began.
    fn give_up(&mut self) {
        let begun = self.begun();
        if let Some(Load::Asked(passage)) = &mut self.load {
            passage.begun(begun);
            passage.given_up();
        }
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let Some(mut held) = self.0.take() else {
            return;
        };
        if held.is_sent.load(Ordering::Relaxed) {
            held.give_up();
            let upstream = &held.route.upstream;
            let grace = held.route.recent.p99().unwrap_or(GRACE_AT_FIRST);
            let grace = grace.min(upstream.response_timeout);
            let abandoned = upstream.abandoned.clone();
            abandoned.go_on(async move {
                sleep(grace).await;
                drop(held);
            });
        }
    }
}
