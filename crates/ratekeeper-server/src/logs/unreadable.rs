//! Requests that get no decision for what they carry: messages that are too large or broken, keys and values that are
//! too long, costs that no limit could hold.
//!
//! Clients of an API can cause them, by what they send through a proxy that forwards it. An error would lift every
//! limit, because proxies let a request pass when its decision fails. So they are denied, counted and logged.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::RefusalLog;

/// The answer to a request that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnUnreadable {
    /// It is over its limit.
    #[default]
    Deny,
    /// It may pass.
    Allow,
    /// An error, as envoyproxy/ratelimit has it: the proxy decides what that means.
    Error,
}

/// The reason a request cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Defect {
    /// The bytes are no message.
    Malformed,
    /// The message is too large, or there is no room to read it.
    TooLarge,
    /// A key or a value is too long, a cost too high, or there is too much of something.
    OutOfBounds,
}

impl Defect {
    const ALL: [Self; 3] = [Self::Malformed, Self::TooLarge, Self::OutOfBounds];

    const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::OutOfBounds => "out_of_bounds",
        }
    }
}

/// The protocols, by their names in logs and metrics.
const PROTOCOLS: [&str; 4] = ["rls", "json", "v1", "auth"];

/// The answer to unreadable requests, and their number.
#[derive(Debug, Default)]
pub(crate) struct UnreadableRequests {
    answer: OnUnreadable,
    counts: [[AtomicU64; Defect::ALL.len()]; PROTOCOLS.len()],
    log: RefusalLog,
}

impl UnreadableRequests {
    pub(crate) fn new(answer: OnUnreadable) -> Self {
        Self {
            answer,
            ..Self::default()
        }
    }

    /// Counts and logs a request, and returns true if it may pass; none if it gets an error. `why` is ours: nothing of
    /// the request is in it.
    #[cold]
    pub(crate) fn judge(&self, protocol: &'static str, defect: Defect, why: &str) -> Option<bool> {
        let answer = match self.answer {
            OnUnreadable::Deny => Some(false),
            OnUnreadable::Allow => Some(true),
            OnUnreadable::Error => None,
        };
        let words = match answer {
            Some(true) => "allowed",
            Some(false) => "denied",
            None => "an error",
        };
        self.record(protocol, defect, why, words);
        answer
    }

    /// Counts and logs a request that is refused with an error in any case.
    #[cold]
    pub(crate) fn refuse(&self, protocol: &'static str, defect: Defect, why: &str) {
        self.record(protocol, defect, why, "an error");
    }

    fn record(&self, protocol: &'static str, defect: Defect, why: &str, answer: &str) {
        let row = PROTOCOLS.iter().position(|known| *known == protocol);
        if let Some(row) = row {
            // Relaxed: an independent count.
            self.counts[row][defect as usize].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(silenced) = self.log.may_say() {
            let reason = defect.name();
            tracing::warn!(
                protocol,
                reason,
                why,
                answer,
                silenced,
                "a request cannot be read"
            );
        }
    }

    /// The counts by protocol and reason.
    pub(crate) fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let rows = PROTOCOLS.into_iter().zip(&self.counts);
        rows.flat_map(|(protocol, row)| {
            let defects = Defect::ALL.into_iter().zip(row);
            defects.map(move |(defect, count)| {
                (protocol, defect.name(), count.load(Ordering::Relaxed))
            })
        })
        .collect()
    }
}
