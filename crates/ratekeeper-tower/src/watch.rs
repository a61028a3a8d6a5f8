//! The counts and the log of a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::Request;
use ratekeeper_http::Refused;
use ratekeeper_http::answer::Denial;
use tracing::{info, warn};

use crate::usage::{UsageCounts, UsageTotals};
use crate::waiting_slots::WaitingSlots;

/// The most lines a second that are logged about refused requests, unless the layer has another setting. The next line
/// says how many were left out.
pub(crate) const LINES_PER_SECOND: u64 = 10;

/// The counts of a layer since it was made. The limiter counts decisions by rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LayerCounts {
    /// Denied requests: 429.
    pub denied: u64,
    /// Requests that would have been denied outside shadow mode.
    pub shadow_denied: u64,
    /// Requests that were delayed until their turn.
    pub waited: u64,
    /// Requests that are waiting now.
    pub waiting: u64,
    /// Requests refused because too many were waiting, or because the deciding service was away:
    /// 503.
    pub overloaded: u64,
    /// Malformed requests: 400.
    pub malformed: u64,
    /// Requests for which a domain had to be picked: the rules have several, and nothing determines
    /// one.
    pub unclear: u64,
    /// Requests answered without being counted in their store.
    pub degraded: u64,
    /// Responses whose usage was read.
    pub usage: UsageTotals,
}

/// The counts of a layer, and its log.
#[derive(Debug)]
pub(crate) struct Watch {
    denied: AtomicU64,
    shadow_denied: AtomicU64,
    waited: AtomicU64,
    pub(crate) slots: Arc<WaitingSlots>,
    overloaded: AtomicU64,
    malformed: AtomicU64,
    unclear: AtomicU64,
    degraded: AtomicU64,
    pub(crate) usage: Arc<UsageCounts>,
    gate: Gate,
}

impl Watch {
    /// Logs at most `lines_max` lines a second.
    pub(crate) fn new(lines_max: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            denied: zero(),
            shadow_denied: zero(),
            waited: zero(),
            slots: Arc::default(),
            overloaded: zero(),
            malformed: zero(),
            unclear: zero(),
            degraded: zero(),
            usage: Arc::default(),
            gate: Gate::new(lines_max),
        }
    }

    pub(crate) fn counts(&self) -> LayerCounts {
        // Relaxed, here and below: the counts are independent.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LayerCounts {
            denied: of(&self.denied),
            shadow_denied: of(&self.shadow_denied),
            waited: of(&self.waited),
            waiting: self.slots.taken(),
            overloaded: of(&self.overloaded),
            malformed: of(&self.malformed),
            unclear: of(&self.unclear),
            degraded: of(&self.degraded),
            usage: self.usage.totals(),
        }
    }

    pub(crate) fn count_denied(&self, is_enforced: bool) {
        let count = if is_enforced {
            &self.denied
        } else {
            &self.shadow_denied
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn log_denied<B>(&self, denial: &Denial, is_enforced: bool, request: &Request<B>) {
        if let Some(left_out) = self.gate.pass() {
            let id = request.headers().get("x-request-id");
            info!(
                request_id = id.and_then(|id| id.to_str().ok()),
                rule = denial.rule(),
                scope = denial.status.scope,
                method = request.method().as_str(),
                path = request.uri().path(),
                retry_after_s = denial.retry_after_secs(),
                enforced = is_enforced,
                left_out,
                "request over its limit"
            );
        }
    }

    pub(crate) fn waited(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn overloaded(&self, why: &'static str) {
        self.overloaded.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.gate.pass() {
            warn!(left_out, "request refused: {why}");
        }
    }

    pub(crate) fn malformed(&self, malformed: &Refused) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.gate.pass() {
            info!(left_out, "request refused: {malformed}");
        }
    }

    pub(crate) fn unclear(&self, chosen: Option<&str>) {
        self.unclear.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.gate.pass() {
            warn!(
                left_out,
                chosen, "the rules have several domains; set auth.domain"
            );
        }
    }

    pub(crate) fn degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets a limited number of log lines through each second.
#[derive(Debug)]
struct Gate {
    lines_max: u64,
    since: Instant,
    /// The current second, and the number of lines in it.
    second: AtomicU64,
    came: AtomicU64,
    left_out: AtomicU64,
}

impl Gate {
    fn new(lines_max: u64) -> Self {
        Self {
            lines_max,
            since: Instant::now(),
            second: AtomicU64::new(0),
            came: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Returns the number of lines left out since the last one, if this one may be logged.
    fn pass(&self) -> Option<u64> {
        let second = self.since.elapsed().as_secs();
        // Two threads at the turn of a second may let a line or two more through, which does no
        // harm.
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.came.store(0, Ordering::Relaxed);
        }
        if self.came.fetch_add(1, Ordering::Relaxed) < self.lines_max {
            Some(self.left_out.swap(0, Ordering::Relaxed))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}
