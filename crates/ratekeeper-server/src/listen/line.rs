//! The state that the requests of one connection share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::bounds::ServerBounds;
use super::drain::Drain;
use super::peer::Peer;
use super::service::{IsBlind, Protocol};

/// One connection, as its requests see it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) peer: Peer,
    pub(super) protocol: Protocol,
    pub(super) bounds: ServerBounds,
    pub(super) drain: Arc<Drain>,
    pub(super) is_blind: IsBlind,
    /// The requests so far in the upper half, those under way in the lower: one counter to
    /// maintain.
    requests: AtomicU64,
    /// The number of the request that gives two lengths for its body; 0 for none.
    framed_twice: AtomicU32,
    has_switched: AtomicBool,
    is_http2: AtomicBool,
    /// For the request that is being polled.
    taken_bytes: AtomicU64,
    taking: AtomicU8,
}

/// The client's progress in taking the answer of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taking {
    /// The bytes it was handed since the last look.
    pub(super) bytes: u64,
    /// True if it has not asked for more since.
    pub(super) is_stalled: bool,
    /// True if the answer was polled at all.
    was_asked: bool,
}

impl Taking {
    /// Adds what happened later.
    pub(super) fn go_on(&mut self, later: Self) {
        self.bytes += later.bytes;
        if later.was_asked {
            self.is_stalled = later.is_stalled;
        }
    }
}

/// The states of a request's answer: not polled, handed a piece, or asked for more.
const UNSEEN: u8 = 0;
const HANDED: u8 = 1;
const ASKED: u8 = 2;

/// One more request, under way.
const BEGUN: u64 = (1 << 32) + 1;

/// The requests of a connection at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Requests(u64);

impl Requests {
    /// Returns true if there was none yet.
    pub(super) const fn are_none(self) -> bool {
        self.0 == 0
    }

    /// The number of the next request, counted from 1.
    pub(super) const fn next(self) -> u32 {
        ((self.0 >> 32) as u32).wrapping_add(1)
    }

    /// Returns true if none is under way.
    pub(super) const fn are_done(self) -> bool {
        self.0 & u32::MAX as u64 == 0
    }
}

impl Line {
    pub(super) fn new(
        peer: Peer,
        protocol: Protocol,
        bounds: ServerBounds,
        drain: Arc<Drain>,
        is_blind: IsBlind,
    ) -> Self {
        Self {
            peer,
            protocol,
            bounds,
            drain,
            is_blind,
            requests: AtomicU64::new(0),
            framed_twice: AtomicU32::new(0),
            has_switched: AtomicBool::new(false),
            is_http2: AtomicBool::new(protocol == Protocol::Http2),
            taken_bytes: AtomicU64::new(0),
            taking: AtomicU8::new(UNSEEN),
        }
    }

    /// Records that the request of this number, counted from 1, gives two lengths for its body.
    pub(super) fn mark_framed_twice(&self, number: u32) {
        // Relaxed: the task that reads a request is also the one that looks.
        self.framed_twice.store(number, Ordering::Relaxed);
    }

    /// The number of that request, if there is one.
    pub(super) fn framed_twice(&self) -> Option<u32> {
        Some(self.framed_twice.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }

    /// Records that the answer about to be written switches to another protocol.
    pub(super) fn mark_switch(&self) {
        // Relaxed: the task that answers is also the one that writes.
        self.has_switched.store(true, Ordering::Relaxed);
    }

    /// Returns true if requests have their own streams.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// Records that requests come over HTTP/2.
    pub(super) fn mark_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
    }

    /// Returns true if what follows is no longer HTTP.
    pub(super) fn has_switched(&self) -> bool {
        self.has_switched.load(Ordering::Relaxed)
    }

    /// Begins a poll of a request, for [`Self::taking`] to tell about.
    pub(super) fn begin_taking(&self) {
        // Relaxed, here and below: one task polls all requests of a connection.
        self.taken_bytes.store(0, Ordering::Relaxed);
        self.taking.store(UNSEEN, Ordering::Relaxed);
    }

    /// Tells what the client has taken of an answer while its request was polled.
    pub(super) fn taking(&self) -> Taking {
        let state = self.taking.load(Ordering::Relaxed);
        Taking {
            bytes: self.taken_bytes.load(Ordering::Relaxed),
            is_stalled: state == HANDED,
            was_asked: state != UNSEEN,
        }
    }

    /// Records that the client was handed a piece of an answer.
    pub(super) fn record_handed(&self, bytes: usize) {
        let before = self.taken_bytes.load(Ordering::Relaxed);
        self.taken_bytes
            .store(before + bytes as u64, Ordering::Relaxed);
        self.taking.store(HANDED, Ordering::Relaxed);
    }

    /// Records that the client would take more than there is.
    pub(super) fn mark_asked(&self) {
        self.taking.store(ASKED, Ordering::Relaxed);
    }

    /// Differs from the last time if there were any in between.
    pub(super) fn requests(&self) -> Requests {
        // Relaxed: what begins meanwhile is seen the next time.
        Requests(self.requests.load(Ordering::Relaxed))
    }
}

/// A request from its head to the end of its answer.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Line>);

impl UnderWay {
    pub(super) fn begin(line: &Arc<Line>) -> Self {
        line.requests.fetch_add(BEGUN, Ordering::Relaxed);
        Self(Arc::clone(line))
    }

    pub(super) fn line(&self) -> &Line {
        &self.0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::PeerAddress;

    #[test]
    fn requests_are_counted_and_end() {
        let peer = Peer::unnamed(PeerAddress::Unix, true);
        let drain = Arc::new(Drain::new());
        let line = Arc::new(Line::new(
            peer,
            Protocol::Http2,
            ServerBounds::default(),
            drain,
            |_| false,
        ));
        let before = line.requests();
        assert!(before.are_done());
        let first = UnderWay::begin(&line);
        let second = UnderWay::begin(&line);
        drop(first);
        assert!(!line.requests().are_done());
        drop(second);
        let after = line.requests();
        assert!(after.are_done());
        assert_ne!(before, after);
    }
}
