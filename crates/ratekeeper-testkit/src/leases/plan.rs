//! The subject of a run: the limits, and what goes wrong.

use ratekeeper_core::lease::Terms;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

use crate::random::Random;

/// A protection of the protocol, each of which can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseGuard {
    /// Room is looked up and charged in one step.
    AtomicGrant,
    /// A node takes one answer to each of its requests.
    OneAnswer,
    /// The store carries a grant's id out once, and answers a repeat as before.
    IdempotentGrant,
    /// A deadline counts from before the request was sent.
    SendTime,
    /// A check that read its clock before a grant does not spend it.
    NotBefore,
    /// A lease ends with its (sub-)window.
    WindowEnd,
    /// A return is carried out once.
    SingleReturn,
    /// It is remembered until it would be too late anyway.
    Until,
    /// Given back to an equal-count log are the oldest groups.
    OldestReturn,
    /// Groups begin when the last hit can come that is charged with them.
    Lead,
    /// Given back to sub-windows is the one that was charged.
    OwnPart,
    /// Hits that are put back find the lease that they are from.
    Generation,
    /// The store counts a bucket that is smaller by what comes in during a lease.
    SmallerBurst,
    /// Nothing is given back to a bucket.
    Burn,
    /// A grant is spent only once the replica that may take over has it.
    Replicated,
    /// A post is carried out once.
    SinglePost,
}

/// The trouble of a run, besides lost, repeated and late messages, crashes, pauses, and clocks that drift.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseTrouble {
    /// None; limits may change.
    Usual,
    /// The store's clock goes back once.
    ClockBack,
    /// The store's clock goes forward once, while leases are held.
    ClockForward,
    /// A replica takes the store's place, and has only what had reached it.
    Failovers,
    /// Nodes admit hits by their failure mode, and post them.
    Owed,
}

/// The subject of a run.
#[derive(Clone, Debug)]
pub struct LeasePlan {
    /// The limits that nodes may have, one after the other.
    pub limits: Vec<Limit>,
    /// The terms of their leases, in the same order.
    pub terms: Vec<Terms>,
    pub(crate) without: Option<LeaseGuard>,
    pub(crate) nodes: usize,
    /// Chances in a thousand.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) slow: u64,
    pub(crate) crashes: u64,
    pub(crate) pauses: u64,
    /// Parts in a million, signed.
    pub(crate) store_drift: i64,
    /// The store's clock goes back by so much, once.
    pub(crate) step_back: u64,
    /// The store's clock goes forward by so much, once.
    pub(crate) step_forward: u64,
    /// The number of times that the replica takes over.
    pub(crate) failovers: u64,
    /// The number of times that a node admits hits without the store, and posts them.
    pub(crate) posts: u64,
    /// The length of a run.
    pub(crate) span: u64,
    /// Requests of all nodes together.
    pub(crate) requests: u64,
}

impl LeasePlan {
    /// A run with the usual trouble.
    pub(crate) fn random(
        random: &mut Random,
        algorithm: Algorithm,
        without: Option<LeaseGuard>,
    ) -> Self {
        let (window, limits, terms) = leased(random, algorithm);
        let mut plan = Self {
            limits,
            terms,
            without,
            nodes: random.pick(&[1, 2, 2, 3, 4, 6, 8, 16]),
            lost: random.pick(&[0, 20, 200]),
            doubled: random.pick(&[0, 50, 300]),
            slow: random.pick(&[0, 20, 200]),
            crashes: random.pick(&[0, 0, 5]),
            pauses: random.pick(&[0, 5, 20]),
            store_drift: random.between(0, 1_001) as i64 - 500,
            step_back: 0,
            step_forward: 0,
            failovers: 0,
            posts: 0,
            span: window * 1_000 * 4,
            requests: 0,
        };
        let most = plan.limits.iter().map(Limit::quota).max().unwrap_or(1);
        plan.requests = (most * random.between(3, 9)).min(900);
        plan
    }

    /// Adds `trouble`. A single limit is enough for it.
    pub(crate) fn add(&mut self, trouble: LeaseTrouble, random: &mut Random) {
        if trouble == LeaseTrouble::Usual {
            return;
        }
        self.limits.truncate(1);
        self.terms.truncate(1);
        match trouble {
            LeaseTrouble::Usual => {}
            LeaseTrouble::ClockBack => {
                self.step_back = random.between(1, 3 * self.limits[0].window().get());
            }
            LeaseTrouble::ClockForward => {
                self.step_forward = random.between(1, 3 * self.limits[0].window().get());
            }
            LeaseTrouble::Failovers => self.failovers = random.between(1, 4),
            LeaseTrouble::Owed => self.posts = random.between(1, 20),
        }
    }

    pub(crate) fn has(&self, guard: LeaseGuard) -> bool {
        self.without != Some(guard)
    }
}

/// A window in milliseconds, and limits that can be leased: some windows leave groups too little time for that.
fn leased(random: &mut Random, algorithm: Algorithm) -> (u64, Vec<Limit>, Vec<Terms>) {
    loop {
        let window = random.between(400, 2_000);
        let limits = limits(random, algorithm, window);
        let ttl = Micros::from_millis(random.between(10, 120));
        let terms = limits.iter().map(|limit| Terms::try_new(limit, ttl));
        if let Ok(terms) = terms.collect() {
            return (window, limits, terms);
        }
    }
}

/// One limit, or two between which nodes change one after the other.
fn limits(random: &mut Random, algorithm: Algorithm, window_ms: u64) -> Vec<Limit> {
    let quota = match random.between(0, 4) {
        0 => random.between(2, 24),
        1 => random.between(24, 40),
        _ => random.between(40, 400),
    };
    let mut spec = LimitSpec::new(algorithm, quota, Micros::from_millis(window_ms));
    match algorithm {
        Algorithm::TokenBucket | Algorithm::Gcra => {
            spec.quota = quota.max(20);
            spec.burst = Some(random.between(spec.quota.max(64), 2 * spec.quota.max(64)));
        }
        Algorithm::SlidingWindow if random.happens(400) => {
            spec.sub_windows = Some(random.pick(&[1, 2, 4, 8]));
        }
        _ => {}
    }
    let mut specs = vec![spec];
    // Nodes that change one after the other lower a bucket's burst and raise it again: each time what it owes beyond
    // the lower one is forgotten, leases or not.
    if spec.burst.is_none() && random.happens(300) {
        let mut other = spec;
        other.quota += 1 + quota / 3;
        specs.push(other);
        if random.happens(500) {
            specs.swap(0, 1);
        }
    }
    let limit = |spec| Limit::try_new(spec).expect("a valid limit");
    specs.into_iter().map(limit).collect()
}
