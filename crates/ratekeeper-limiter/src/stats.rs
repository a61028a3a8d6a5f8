//! Counts of decisions: plain atomics, striped so that threads do not share cache lines.

use std::array;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use ratekeeper_rules::Rule;

use crate::identity::stable_hash;

/// Upper bounds of the buckets of remaining / capacity; everything is below the last.
pub const REMAINING_BOUNDS: [f64; 7] = [0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0];

/// The most values of one rule that metrics tell apart; the others are counted as `other`.
const DETAILS_MAX: usize = 1_000;

/// The most bytes of such a value that are shown.
const DETAIL_BYTES_MAX: usize = 128;

/// Copies of each count, so that threads do not share cache lines; a thread always uses the
/// same one.
pub const STRIPES: usize = 8;

/// The answer of one rule to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleAnswer {
    Allowed,
    Denied,
    /// It would have denied, but is in shadow mode.
    ShadowDenied,
}

/// The counts of one rule since it was first loaded.
#[derive(Debug)]
pub struct RuleStats {
    /// The rule's id.
    pub rule: Arc<str>,
    /// Its domain.
    pub domain: Arc<str>,
    counts: Striped,
    details: RwLock<HashMap<Box<str>, Arc<Striped>>>,
    /// Counts of the values beyond the first thousand.
    other: Striped,
}

/// Counts of a rule, or of one of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleCounts {
    /// Answers that let the request pass.
    pub allowed: u64,
    /// Answers that denied it.
    pub denied: u64,
    /// Answers that would have denied it, were they enforced.
    pub shadow_denied: u64,
    /// Answers without counting: the store had no room.
    pub uncounted: u64,
    /// Counted answers that let the request pass and left less than a fifth of the limit.
    pub near: u64,
    /// Hits beyond the largest debt of a post-paid bucket, which were not charged.
    pub debt_cut: u64,
    /// Answers by remaining / capacity, one count for each of [`REMAINING_BOUNDS`].
    pub remaining: [u64; REMAINING_BOUNDS.len()],
    /// The sum of remaining / capacity, in millionths.
    pub remaining_sum_ppm: u64,
}

impl RuleCounts {
    /// The number of answers.
    #[must_use]
    pub const fn answers(&self) -> u64 {
        self.allowed + self.denied + self.shadow_denied
    }

    /// The counts since they were `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |count: fn(&Self) -> u64| count(self).saturating_sub(count(before));
        Self {
            allowed: since(|it| it.allowed),
            denied: since(|it| it.denied),
            shadow_denied: since(|it| it.shadow_denied),
            uncounted: since(|it| it.uncounted),
            near: since(|it| it.near),
            debt_cut: since(|it| it.debt_cut),
            remaining: array::from_fn(|n| self.remaining[n].saturating_sub(before.remaining[n])),
            remaining_sum_ppm: since(|it| it.remaining_sum_ppm),
        }
    }
}

impl RuleStats {
    pub(crate) fn new(rule: &Rule) -> Self {
        Self {
            rule: rule.id.clone(),
            domain: rule.domain.clone(),
            counts: Striped::default(),
            details: RwLock::default(),
            other: Striped::default(),
        }
    }

    /// All counts up to now; concurrent ones may be missing.
    #[must_use]
    pub fn counts(&self) -> RuleCounts {
        self.counts.sum()
    }

    /// Counts by value, for rules with `detailed_metric` or `value_to_metric`: at most a
    /// thousand values, then `other`. Long values are cut and end in a fingerprint.
    #[must_use]
    pub fn details(&self) -> Vec<(Box<str>, RuleCounts)> {
        let details = self.details.read();
        let told = details
            .iter()
            .map(|(value, counts)| (value.clone(), counts.sum()));
        let other = (details.len() >= DETAILS_MAX).then(|| ("other".into(), self.other.sum()));
        told.chain(other).collect()
    }

    pub(crate) fn record(&self, answer: RuleAnswer, remaining: u64, capacity: u64) {
        self.counts.record(answer, remaining, capacity);
    }

    /// Counts hits that a charge left out, as the debt of its bucket is as large as it may be.
    #[cold]
    pub(crate) fn record_cut(&self, hits: u64) {
        let stripe = self.counts.mine();
        stripe.debt_cut.fetch_add(hits, Ordering::Relaxed);
    }

    pub(crate) fn record_uncounted(&self, answer: RuleAnswer) {
        let stripe = self.counts.mine();
        stripe.answer(answer);
        stripe.uncounted.fetch_add(1, Ordering::Relaxed);
        if answer == RuleAnswer::Allowed {
            stripe.uncounted_allowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn record_detail(
        &self,
        detail: &str,
        answer: RuleAnswer,
        remaining: u64,
        capacity: u64,
    ) {
        match self.detail(&shortened(detail)) {
            Some(counts) => counts.record(answer, remaining, capacity),
            None => self.other.record(answer, remaining, capacity),
        }
    }

    /// The counts of a value; None once a thousand others have theirs. A value that is known, or one too
    /// many, is found without waiting for other threads.
    fn detail(&self, detail: &str) -> Option<Arc<Striped>> {
        let details = self.details.read();
        if let Some(counts) = details.get(detail) {
            return Some(counts.clone());
        }
        if details.len() >= DETAILS_MAX {
            return None;
        }
        drop(details);
        let mut details = self.details.write();
        if details.len() >= DETAILS_MAX && !details.contains_key(detail) {
            return None;
        }
        Some(details.entry(detail.into()).or_default().clone())
    }
}

#[derive(Debug, Default)]
struct Striped([Stripe; STRIPES]);

/// The counts of the threads that share a stripe; as large as the lines that a processor
/// fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    denied: AtomicU64,
    shadow_denied: AtomicU64,
    uncounted: AtomicU64,
    uncounted_allowed: AtomicU64,
    near: AtomicU64,
    debt_cut: AtomicU64,
    /// Allowed and counted requests by the share that remained: their total needs no count of its own.
    allowed: Buckets,
    refused: Buckets,
    remaining_sum_ppm: AtomicU64,
}

type Buckets = [AtomicU64; REMAINING_BOUNDS.len()];

impl Stripe {
    /// Counts an answer and returns the buckets that it belongs to.
    fn answer(&self, answer: RuleAnswer) -> &Buckets {
        let refusals = match answer {
            RuleAnswer::Allowed => return &self.allowed,
            RuleAnswer::Denied => &self.denied,
            RuleAnswer::ShadowDenied => &self.shadow_denied,
        };
        refusals.fetch_add(1, Ordering::Relaxed);
        &self.refused
    }
}

impl Striped {
    fn mine(&self) -> &Stripe {
        &self.0[stripe_of_thread()]
    }

    // Relaxed throughout: counts of different kinds need not agree with each other.
    fn record(&self, answer: RuleAnswer, remaining: u64, capacity: u64) {
        let stripe = self.mine();
        let buckets = stripe.answer(answer);
        #[allow(clippy::cast_precision_loss, reason = "a share of 1, for a histogram")]
        let share = if capacity == 0 {
            0.0
        } else {
            remaining as f64 / capacity as f64
        };
        // From above, where most counters are.
        let below = REMAINING_BOUNDS.iter().rposition(|bound| share > *bound);
        let bucket = below.map_or(0, |below| (below + 1).min(REMAINING_BOUNDS.len() - 1));
        buckets[bucket].fetch_add(1, Ordering::Relaxed);
        if answer == RuleAnswer::Allowed && remaining.saturating_mul(5) < capacity {
            stripe.near.fetch_add(1, Ordering::Relaxed);
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 10^6"
        )]
        let ppm = (share * 1e6) as u64;
        stripe.remaining_sum_ppm.fetch_add(ppm, Ordering::Relaxed);
    }

    fn sum(&self) -> RuleCounts {
        let mut sum = RuleCounts::default();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for stripe in &self.0 {
            sum.denied += load(&stripe.denied);
            sum.shadow_denied += load(&stripe.shadow_denied);
            sum.uncounted += load(&stripe.uncounted);
            sum.near += load(&stripe.near);
            sum.debt_cut += load(&stripe.debt_cut);
            sum.allowed += load(&stripe.uncounted_allowed);
            sum.remaining_sum_ppm += load(&stripe.remaining_sum_ppm);
            let buckets = stripe.allowed.iter().zip(&stripe.refused);
            for (sum_of_bucket, (allowed, refused)) in sum.remaining.iter_mut().zip(buckets) {
                let allowed = load(allowed);
                *sum_of_bucket += allowed + load(refused);
                sum.allowed += allowed;
            }
        }
        sum
    }
}

/// A value as metrics show it: long ones end in a fingerprint, so that two stay two.
pub(crate) fn shortened(value: &str) -> Cow<'_, str> {
    if value.len() <= DETAIL_BYTES_MAX {
        return value.into();
    }
    let end = (0..=DETAIL_BYTES_MAX)
        .rev()
        .find(|end| value.is_char_boundary(*end));
    let shown = value.get(..end.unwrap_or(0)).unwrap_or_default();
    format!("{shown}…{:016x}", stable_hash("", value)).into()
}

/// The stripe of this thread, below [`STRIPES`]: threads take turns.
#[must_use]
#[inline]
pub fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_land_in_the_bucket_of_their_share() {
        let striped = Striped::default();
        striped.record(RuleAnswer::Allowed, 100, 100);
        striped.record(RuleAnswer::Allowed, 5, 100);
        striped.record(RuleAnswer::Denied, 0, 100);
        striped.record(RuleAnswer::ShadowDenied, 0, 0);
        let sum = striped.sum();
        striped.record(RuleAnswer::Allowed, 20, 100);
        striped.record(RuleAnswer::Allowed, 19, 100);
        assert_eq!(striped.sum().near, 2, "of 5 and of 19 left");
        assert_eq!((sum.allowed, sum.denied, sum.shadow_denied), (2, 1, 1));
        assert_eq!(sum.remaining, [2, 1, 0, 0, 0, 0, 1]);
        assert_eq!(sum.remaining_sum_ppm, 1_050_000);
    }

    #[test]
    fn counts_since_a_time_leave_out_those_before() {
        let striped = Striped::default();
        striped.record(RuleAnswer::Allowed, 5, 100);
        striped.record(RuleAnswer::Denied, 0, 100);
        let before = striped.sum();
        striped.record(RuleAnswer::Allowed, 100, 100);
        striped.record(RuleAnswer::Allowed, 5, 100);
        striped.record(RuleAnswer::ShadowDenied, 0, 100);
        let since = striped.sum().since(&before);
        let expected = RuleCounts {
            allowed: 2,
            shadow_denied: 1,
            near: 1,
            remaining: [1, 1, 0, 0, 0, 0, 1],
            remaining_sum_ppm: 1_050_000,
            ..RuleCounts::default()
        };
        assert_eq!(since, expected);
        assert_eq!((before.answers(), since.answers()), (2, 3));
    }

    /// As of a limit that was lowered meanwhile.
    #[test]
    fn more_than_all_counts_as_all() {
        let striped = Striped::default();
        striped.record(RuleAnswer::Allowed, 200, 100);
        assert_eq!(striped.sum().remaining, [0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn answers_without_counting_are_counted_apart() {
        let stats = RuleStats {
            rule: "r".into(),
            domain: "d".into(),
            counts: Striped::default(),
            details: RwLock::default(),
            other: Striped::default(),
        };
        stats.record_uncounted(RuleAnswer::Allowed);
        stats.record_uncounted(RuleAnswer::Allowed);
        stats.record_uncounted(RuleAnswer::Denied);
        stats.record_cut(7);
        let counts = stats.counts();
        assert_eq!((counts.allowed, counts.denied, counts.uncounted), (2, 1, 3));
        assert_eq!((counts.answers(), counts.debt_cut), (3, 7));
        assert_eq!(counts.remaining, [0; REMAINING_BOUNDS.len()]);
    }

    #[test]
    fn threads_take_turns_on_the_stripes() {
        let stripe = |_| std::thread::spawn(stripe_of_thread).join();
        let stripes = (0..STRIPES * STRIPES + 1).map(stripe);
        let stripes: Vec<_> = stripes.map(|it| it.expect("no panic")).collect();
        assert!(stripes.iter().all(|stripe| *stripe < STRIPES));
        // Other tests' threads may take some in between.
        let used: std::collections::HashSet<_> = stripes.into_iter().collect();
        assert!(used.len() > STRIPES / 2, "{used:?}");
    }
}
