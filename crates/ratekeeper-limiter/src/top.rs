//! The keys with the most denied and allowed requests of late, in fixed memory.
//!
//! Threads count into stripes by the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, "Efficient Computation of
//! Frequent and Top-k Elements in Data Streams", 2005). Once a second the stripes are emptied into two rings of slots:
//!
//! ```text
//! stripes (1 s) --> minute: 12 slots of 5 s
//!               `-> hour:   12 slots of 5 min
//! ```
//!
//! Counts of denied requests are exact while no thread denies more than 64 keys in a second and no slot sees more than
//! 128. Beyond that, a key that takes over another's place inherits its count, which [`TopKey::error`] tells; one new key
//! in eight gets a place, and stands for all eight. One allowed request in 64 is counted, as 64.

mod cases;
mod ring;
mod sketch;

use std::cell::{Cell, LazyCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ratekeeper_core::Timestamp;
use ratekeeper_rules::Rule;

use crate::stats::{STRIPES, shortened, stripe_of_thread};
use crate::{Decision, RequestDescriptors, Scope};
pub use cases::{CASES_MAX, DenialCase};
use cases::{Cases, CasesOfSecond};
use ring::Ring;
use sketch::Sketch;

/// Allowed requests of a thread for each one that is counted.
pub const ALLOWED_SAMPLE: u32 = 64;

/// A key, and how often it was denied or allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopKey {
    /// The domain of the rule.
    pub domain: Arc<str>,
    /// The id of the rule that decided.
    pub rule: Arc<str>,
    /// The entries that the rule matched, without secrets; long ones end in a fingerprint.
    pub key: Arc<str>,
    /// The entry of `key` that names the tenant, or the first one of the descriptor if none does; none if it is behind
    /// the entries that the rule matched.
    pub subject: Option<Arc<str>>,
    /// Requests. Of allowed ones an estimate.
    pub count: u64,
    /// The most by which `count` may be off because there were too many keys; 0 if none had to make room.
    pub error: u64,
    /// The start of the requests: since then the key was counted at least once in every window, to the second.
    pub since: Timestamp,
}

/// The time that is looked back on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopWindow {
    /// The last 60 to 65 seconds.
    Minute,
    /// The last 60 to 65 minutes.
    Hour,
}

/// The requests that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopDecision {
    /// Denied ones.
    Denied,
    /// Allowed ones.
    Allowed,
    /// Those that a limit would have denied, were it enforced. They are among the allowed or the denied ones too.
    Shadowed,
}

/// Finds the keys that are denied and allowed most, and keeps the [cases](DenialCase) of all that are denied.
#[derive(Debug, Default)]
pub struct TopKeys {
    stripes: [Stripe; STRIPES],
    cases: Mutex<Cases>,
    rings: Mutex<Rings>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(Mutex<Counted>);

/// The keys that threads have counted in this second.
#[derive(Debug, Default)]
struct Counted {
    keys: ByDecision<Sketch>,
    cases: CasesOfSecond,
}

/// One of a kind for each decision.
#[derive(Debug, Default)]
struct ByDecision<T> {
    denied: T,
    allowed: T,
    shadowed: T,
}

#[derive(Debug)]
struct Rings {
    minute: ByDecision<Ring>,
    hour: ByDecision<Ring>,
}

impl Default for Rings {
    fn default() -> Self {
        let all = |seconds| ByDecision {
            denied: Ring::new(seconds),
            allowed: Ring::new(seconds),
            shadowed: Ring::new(seconds),
        };
        Self {
            minute: all(5),
            hour: all(300),
        }
    }
}

impl<T> ByDecision<T> {
    const fn of(&mut self, decision: TopDecision) -> &mut T {
        match decision {
            TopDecision::Denied => &mut self.denied,
            TopDecision::Allowed => &mut self.allowed,
            TopDecision::Shadowed => &mut self.shadowed,
        }
    }
}

impl TopDecision {
    /// All kinds.
    const ALL: [Self; 3] = [Self::Denied, Self::Allowed, Self::Shadowed];
}

impl TopKeys {
    /// Returns true if a decided request is to be counted: every denied one, and a sample of the allowed ones.
    #[inline]
    pub fn wants(&self, decision: &Decision) -> bool {
        !decision.allowed() || is_sampled()
    }

    /// Counts a request that is [wanted](Self::wants), for its most restrictive limit. Returns true if it is the first
    /// denial of its key that this thread and those beside it count in this second.
    #[cold]
    pub fn count(&self, decision: &Decision, mut descriptors: RequestDescriptors<'_>) -> bool {
        let number = decision.binding_descriptor();
        let Some(descriptor) = number.and_then(|number| descriptors.nth(number)) else {
            return false;
        };
        let binding = decision.binding();
        let Some(rule) = binding.and_then(|binding| decision.rule(binding)) else {
            return false;
        };
        let mut hasher = self.hasher.build_hasher();
        for entry in descriptor.entries {
            for text in [entry.key, entry.value] {
                hasher.write(text.as_bytes());
                hasher.write_u8(0xff);
            }
        }
        let scope = || (decision.snapshot()).scope(descriptor.domain, descriptor.entries);
        let kind = match decision.allowed() {
            true => TopDecision::Allowed,
            false => TopDecision::Denied,
        };
        self.add(rule, kind, hasher, scope)
    }

    /// Counts likewise a request of which only the `scope` of that limit's descriptor is left, as `kind`: one that
    /// its limits allow may be denied because it cannot wait for its turn.
    #[cold]
    pub fn count_scope(&self, decision: &Decision, kind: TopDecision, scope: Scope) {
        let binding = decision.binding();
        if let Some(rule) = binding.and_then(|binding| decision.rule(binding)) {
            self.add_scope(rule, kind, scope);
        }
    }

    /// Counts a request for the limits that would have denied it, were they [enforced](Decision::shadowed); `scope`
    /// returns that of a descriptor.
    #[cold]
    pub fn count_shadowed(&self, decision: &Decision, scope: impl Fn(usize) -> Option<Scope>) {
        for over in decision.shadowed() {
            let rule = decision.snapshot().rule(over.source);
            if let (Some(rule), Some(scope)) = (rule, scope(usize::from(over.descriptor))) {
                self.add_scope(rule, TopDecision::Shadowed, scope);
            }
        }
    }

    fn add_scope(&self, rule: &Rule, kind: TopDecision, scope: Scope) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(scope.up_to(usize::MAX).as_bytes());
        self.add(rule, kind, hasher, || scope);
    }

    fn add(
        &self,
        rule: &Rule,
        kind: TopDecision,
        mut hasher: impl Hasher,
        scope: impl FnOnce() -> Scope,
    ) -> bool {
        hasher.write(rule.id.as_bytes());
        let hash = hasher.finish();
        let weight = match kind {
            TopDecision::Allowed => u64::from(ALLOWED_SAMPLE),
            TopDecision::Denied | TopDecision::Shadowed => 1,
        };
        let scope = LazyCell::new(scope);
        // In range by construction.
        let mut stripe = self.stripes[stripe_of_thread()].0.lock();
        let sketch = stripe.keys.of(kind);
        sketch.add(hash, weight, || named(rule, &scope));
        let is_shadow = match kind {
            TopDecision::Allowed => return false,
            TopDecision::Denied => false,
            TopDecision::Shadowed => true,
        };
        let cases = &mut stripe.cases;
        cases.add((hash, is_shadow), || DenialCase::new(rule, kind, &scope))
    }

    /// Closes the second that ends `now`, and makes room for the next; called about once a second.
    pub(crate) fn roll(&self, now: Timestamp) {
        let mut rings = self.rings.lock();
        for stripe in &self.stripes {
            let mut stripe = stripe.0.lock();
            for kind in TopDecision::ALL {
                let sketch = stripe.keys.of(kind);
                for mut key in sketch.drain() {
                    key.since = now;
                    rings.minute.of(kind).add(&key);
                    rings.hour.of(kind).add(&key);
                }
            }
        }
        let Rings { minute, hour } = &mut *rings;
        for ring in [minute, hour] {
            ring.denied.tick();
            ring.allowed.tick();
            ring.shadowed.tick();
        }
        drop(rings);
        self.gather(now).tidy(now);
    }

    /// Adds the denials of this second to the cases.
    fn gather(&self, now: Timestamp) -> MutexGuard<'_, Cases> {
        let mut cases = self.cases.lock();
        for stripe in &self.stripes {
            let seen = std::mem::take(&mut stripe.0.lock().cases);
            cases.add(seen, now);
        }
        cases
    }

    /// The tenants that were denied in the last hour, or would have been, by rule: those that `is_wanted` selects, the
    /// latest first. The denials of this moment are among them.
    #[must_use]
    pub fn cases(
        &self,
        now: Timestamp,
        is_wanted: impl Fn(&DenialCase) -> bool,
    ) -> Vec<DenialCase> {
        self.gather(now).list(now, is_wanted)
    }

    /// The keys of the rules that `is_wanted` selects by domain and id, the largest count first, at most `most`.
    #[must_use]
    pub fn top(
        &self,
        window: TopWindow,
        decision: TopDecision,
        most: usize,
        is_wanted: impl Fn(&str, &str) -> bool,
    ) -> Vec<TopKey> {
        let mut rings = self.rings.lock();
        let ring = match window {
            TopWindow::Minute => &mut rings.minute,
            TopWindow::Hour => &mut rings.hour,
        };
        let mut keys = ring.of(decision).sum();
        keys.retain(|key| is_wanted(&key.domain, &key.rule));
        keys.truncate(most);
        keys
    }

    /// The most that a key may have been counted that had to make room for others.
    #[must_use]
    pub fn dropped(&self, window: TopWindow, decision: TopDecision) -> u64 {
        let mut rings = self.rings.lock();
        let ring = match window {
            TopWindow::Minute => &mut rings.minute,
            TopWindow::Hour => &mut rings.hour,
        };
        ring.of(decision).dropped()
    }
}

fn named(rule: &Rule, scope: &Scope) -> TopKey {
    let depth = rule.path.len();
    TopKey {
        domain: rule.domain.clone(),
        rule: rule.id.clone(),
        key: shortened(scope.up_to(depth)).into(),
        subject: scope
            .has_subject_in(depth)
            .then(|| shortened(scope.subject()).into()),
        count: 0,
        error: 0,
        // Known when the second ends.
        since: Timestamp::default(),
    }
}

/// Returns true for one call in [`ALLOWED_SAMPLE`] of this thread.
#[inline]
fn is_sampled() -> bool {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    CALLS.with(|calls| {
        let number = calls.get();
        calls.set(number.wrapping_add(1));
        number.is_multiple_of(ALLOWED_SAMPLE)
    })
}
