//! What a layer counts and logs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ratekeeper_http::Refused;
use ratekeeper_http::answer::Denial;
use tracing::{info, warn};

/// So many lines a second are logged about denials; how many were left out is said in the next one.
const LINES_PER_SECOND: u64 = 10;

/// What a layer has counted since it was made. What limits allowed and denied, their limiter counts, by rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Requests that were denied: 429.
    pub denied: u64,
    /// Requests that would have been denied, had the layer not only watched.
    pub shadow_denied: u64,
    /// Requests that were held back until it was their turn.
    pub waited: u64,
    /// Requests that are held back now.
    pub waiting: u64,
    /// Requests that were refused because too many were held back, or because the service that decides was away: 503.
    pub overloaded: u64,
    /// Requests that made no sense: 400.
    pub malformed: u64,
    /// Requests for which a domain was chosen: the rules have several, and nothing says which is meant.
    pub unclear: u64,
    /// Requests that were answered without being counted where they belong.
    pub degraded: u64,
}

/// The counts of a layer, and its log.
#[derive(Debug)]
pub(crate) struct Watch {
    denied: AtomicU64,
    shadow_denied: AtomicU64,
    waited: AtomicU64,
    pub(crate) waiting: AtomicU64,
    overloaded: AtomicU64,
    malformed: AtomicU64,
    unclear: AtomicU64,
    degraded: AtomicU64,
    gate: Gate,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            denied: zero(),
            shadow_denied: zero(),
            waited: zero(),
            waiting: zero(),
            overloaded: zero(),
            malformed: zero(),
            unclear: zero(),
            degraded: zero(),
            gate: Gate::new(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        // Relaxed, here and below: each is a count of its own.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            denied: of(&self.denied),
            shadow_denied: of(&self.shadow_denied),
            waited: of(&self.waited),
            waiting: of(&self.waiting),
            overloaded: of(&self.overloaded),
            malformed: of(&self.malformed),
            unclear: of(&self.unclear),
            degraded: of(&self.degraded),
        }
    }

    pub(crate) fn denied(&self, denial: &Denial, is_enforced: bool) {
        let count = if is_enforced {
            &self.denied
        } else {
            &self.shadow_denied
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.gate.pass() {
            info!(
                rule = denial.rule(),
                scope = denial.scope(),
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
                chosen, "the rules have several domains, and nothing says which is meant"
            );
        }
    }

    pub(crate) fn degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets so many lines of a log through each second.
#[derive(Debug)]
struct Gate {
    since: Instant,
    /// The second, and how many came in it.
    second: AtomicU64,
    came: AtomicU64,
    left_out: AtomicU64,
}

impl Gate {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            second: AtomicU64::new(0),
            came: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// How many lines were left out since the last one, if this one may go.
    fn pass(&self) -> Option<u64> {
        let second = self.since.elapsed().as_secs();
        // Two threads at the turn of a second may let a line or two more through, which does no harm.
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.came.store(0, Ordering::Relaxed);
        }
        if self.came.fetch_add(1, Ordering::Relaxed) < LINES_PER_SECOND {
            Some(self.left_out.swap(0, Ordering::Relaxed))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}
