//! The subject of a run: the limits, and what goes wrong.

use ratekeeper_core::lease::Terms;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

use crate::random::Random;

/// A protection of the protocol, each of which can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseGuard {
    /// Room is less what other nodes hold.
    Room,
    /// A deadline counts from before the call was sent, and is short by what clocks may drift.
    Margin,
    /// Spent hits are charged as of their report, not as of the beginning of their lease.
    Date,
    /// A lease whose end has passed is charged in full.
    ExpiryCharge,
    /// A call that comes after a later one changes nothing.
    Number,
    /// A lease of an earlier session is charged in full.
    Since,
    /// Hits that are spent while a call is on its way are part of what its answer holds.
    Snapshot,
    /// Hits that are put back after a call stay spent.
    Generation,
    /// A check that read its clock before hits were held does not spend them.
    NotBefore,
    /// A lease is spent only once the replica that may take over has it.
    Replicated,
    /// A counter outlives its leases, charged at their end.
    KeyLife,
    /// Hits that a node may still spend are not freed.
    OpenWord,
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
    /// One node spends its lease at its end, without any other trouble.
    LateReports,
}

/// The subject of a run.
#[derive(Clone, Debug)]
pub struct LeasePlan {
    /// The terms of the leases, under limits that nodes may have one after the other.
    pub terms: Vec<Terms>,
    pub(super) without: Option<LeaseGuard>,
    pub(super) nodes: usize,
    /// Chances in a thousand.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) slow: u64,
    pub(super) put_back: u64,
    pub(super) evicted: u64,
    pub(super) crashes: u64,
    pub(super) pauses: u64,
    /// A check closes a lease that was not used since the last one.
    pub(super) closes: u64,
    /// Nodes ask for as much as they can get.
    pub(super) is_greedy: bool,
    /// Leases are spent at their end.
    pub(super) reports_late: bool,
    /// Parts in a million, signed.
    pub(super) store_drift: i64,
    /// The store's clock goes back by so much, once.
    pub(super) step_back: u64,
    /// The store's clock goes forward by so much, once.
    pub(super) step_forward: u64,
    /// The number of times that the replica takes over.
    pub(super) failovers: u64,
    /// The number of times that a node admits hits without the store, and posts them.
    pub(super) posts: u64,
    /// The length of a run.
    pub(super) span: u64,
    /// Requests of all nodes together.
    pub(super) requests: u64,
}

impl LeasePlan {
    /// A run with the usual trouble.
    pub(super) fn random(
        random: &mut Random,
        algorithm: Algorithm,
        without: Option<LeaseGuard>,
    ) -> Self {
        let terms = leased(random, algorithm);
        let most = terms.iter().map(|it| it.limit().quota()).max().unwrap_or(1);
        Self {
            without,
            nodes: random.pick(&[1, 2, 2, 3, 4, 6, 8, 16]),
            lost: random.pick(&[0, 20, 200]),
            doubled: random.pick(&[0, 50, 300]),
            slow: random.pick(&[0, 20, 200]),
            put_back: random.pick(&[0, 100]),
            evicted: random.pick(&[0, 500]),
            crashes: random.pick(&[0, 0, 5]),
            pauses: random.pick(&[0, 5, 20]),
            closes: random.pick(&[1_000, 30]),
            is_greedy: random.happens(700),
            reports_late: false,
            store_drift: random.between(0, 1_001) as i64 - 500,
            step_back: 0,
            step_forward: 0,
            failovers: 0,
            posts: 0,
            span: terms[0].limit().window().get() * 4,
            requests: (most * random.between(3, 9)).min(1_500),
            terms,
        }
    }

    /// Adds `trouble`. A single limit is enough for it.
    pub(super) fn add(&mut self, trouble: LeaseTrouble, random: &mut Random) {
        if trouble == LeaseTrouble::Usual {
            return;
        }
        self.terms.truncate(1);
        let step = random.between(1, 3 * self.terms[0].limit().window().get());
        match trouble {
            LeaseTrouble::Usual => {}
            LeaseTrouble::ClockBack => self.step_back = step,
            LeaseTrouble::ClockForward => self.step_forward = step,
            LeaseTrouble::Failovers => self.failovers = random.between(1, 4),
            LeaseTrouble::Owed => self.posts = random.between(1, 20),
            LeaseTrouble::LateReports => self.be_quiet(),
        }
    }

    /// Leaves all trouble out, and leases open until they end.
    fn be_quiet(&mut self) {
        self.nodes = 1;
        (self.lost, self.doubled, self.slow, self.put_back) = (0, 0, 0, 0);
        (self.evicted, self.crashes, self.pauses, self.closes) = (0, 0, 0, 0);
        (self.is_greedy, self.reports_late) = (true, true);
    }

    pub(super) fn has(&self, guard: LeaseGuard) -> bool {
        self.without != Some(guard)
    }

    /// The limit that lets the most pass.
    pub(super) fn largest(&self) -> Limit {
        let limits = self.terms.iter().map(Terms::limit);
        let largest = limits.max_by_key(|limit| (limit.quota(), limit.capacity()));
        *largest.expect("there is a limit")
    }
}

/// Limits that can be leased: some windows leave groups too little time for that.
fn leased(random: &mut Random, algorithm: Algorithm) -> Vec<Terms> {
    loop {
        let limits = limits(random, algorithm);
        let ttl = Micros::from_millis(random.between(10, 120));
        let terms = limits.iter().map(|limit| Terms::try_new(limit, ttl));
        if let Ok(terms) = terms.collect() {
            return terms;
        }
    }
}

/// One limit, or two between which nodes change one after the other.
fn limits(random: &mut Random, algorithm: Algorithm) -> Vec<Limit> {
    let quota = random.between(64, 400);
    let window = Micros::from_millis(random.between(400, 2_000));
    let mut spec = LimitSpec::new(algorithm, quota, window);
    match algorithm {
        Algorithm::TokenBucket | Algorithm::Gcra => {
            spec.burst = Some(random.between(64, 2 * quota));
        }
        Algorithm::SlidingWindow if random.happens(400) => {
            spec.sub_windows = Some(random.pick(&[1, 2, 4, 8]));
        }
        _ => {}
    }
    let mut specs = vec![spec];
    if random.happens(300) {
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
