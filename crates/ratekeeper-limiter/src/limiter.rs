//! The limiter: rules, a store, and what ties them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{OwnCounters, Profile, RuleSet, ShedderKind, TenantIndex};
use ratekeeper_store::{HashKey, Step, Store, StoreSlot};

use crate::compiled::StoreSlots;
use crate::decision::Answered;
use crate::fallback::{Fallback, Owed, OwedCounts};
use crate::growth::GrowthWatch;
use crate::identity::Namer;
use crate::posting::Posting;
use crate::slots::RuleSlots;
use crate::snapshot::Before;
use crate::switch::{RuleSwitch, SwitchError, Switches};
use crate::token::Sealer;
use crate::top::TopKeys;
use crate::totals::Totals;
use crate::usage::UsageMeter;
use crate::{Clock, Modes, Snapshot};

/// The settings of a limiter besides its rules and its store.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LimiterOptions {
    /// The profile of limits that come with a request; by default the same as the rules'.
    pub profile: Profile,
    /// The modes that apply to every rule.
    pub modes: Modes,
    /// The key of the hash that names counters; None takes that of the store, if its nodes share
    /// one, else makes a new one. Counters that are to be found again after a restart need the key
    /// they were named with. Who has it can settle each other's permits and reservations, so limiters
    /// that do not share their counters must not share it.
    pub hash_key: Option<HashKey>,
    /// The key of the hashes that show secrets ([`Snapshot::fingerprint`]) and tell tenants apart
    /// ([`Snapshot::tenant_hash`]); None takes that which names counters. Limiters that do not share their counters may
    /// share it.
    pub fingerprint_key: Option<HashKey>,
    /// The time at which the clock begins at the earliest: that at which counters were saved which go on here.
    pub clock_from: Timestamp,
}

/// Decides requests by rules, with counters in a store.
#[derive(Debug)]
pub struct Limiter<S> {
    snapshot: ArcSwap<Snapshot>,
    store: S,
    clock: Clock,
    /// The parts that the rules in force are made of. Held while a snapshot is made from the one before.
    sources: Mutex<Sources>,
    /// The last count of the sources' unknown, for who must not wait for them.
    unknown_quotas: AtomicUsize,
    /// [`None`] for a store that always answers.
    fallback: Option<Fallback>,
    /// Posts to the store that are under way.
    posting: Posting,
    /// [`None`] if tenants' calls are not counted.
    meter: Option<Arc<UsageMeter>>,
    /// [`None`] if unusual growth is not watched for.
    growth: Option<Box<GrowthWatch>>,
    options: LimiterOptions,
    totals: Totals,
    top: TopKeys,
    /// The generator of ids that cannot be guessed.
    ids: Sealer,
    ids_made: AtomicU64,
    /// Counters that were forgotten with the hash key that they were named by.
    forgotten: AtomicU64,
}

/// The rules of files and the tenants of a quota store, which come and change independently.
#[derive(Debug)]
struct Sources {
    /// The rules, with the tenants that were in force last.
    rules: Arc<RuleSet>,
    tenants: Option<TenantIndex>,
    /// The number of the tenants' plans and limits that mean nothing under the rules.
    unknown: usize,
}

impl Sources {
    /// Joins the rules and the tenants.
    fn join(&mut self) -> Arc<RuleSet> {
        if let Some(tenants) = &self.tenants {
            let joined = self.rules.with_tenants(tenants);
            self.rules = Arc::new(joined.rules);
            self.unknown = joined.unknown;
        }
        Arc::clone(&self.rules)
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter of `rules` with its counters in `store`.
    pub fn new(rules: RuleSet, store: S, options: LimiterOptions) -> Self {
        let shared = || store.hash_key();
        let hash_key = options.hash_key.or_else(shared);
        let namer = Namer::new(hash_key.unwrap_or_else(HashKey::random));
        let namer = namer.with_fingerprints(options.fingerprint_key);
        let places = StoreSlots(&store);
        let rules = Arc::new(rules);
        let snapshot = Snapshot::new(
            Arc::clone(&rules),
            Switches::default(),
            options.modes,
            namer,
            &places,
            Before::Saved(RuleSlots::default()),
        );
        let sources = Sources {
            rules,
            tenants: None,
            unknown: 0,
        };
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            store,
            clock: Clock::not_before(options.clock_from),
            sources: Mutex::new(sources),
            unknown_quotas: AtomicUsize::new(0),
            fallback: None,
            posting: Posting::default(),
            meter: None,
            growth: None,
            options,
            totals: Totals::default(),
            top: TopKeys::default(),
            ids: Sealer::new(HashKey::random()),
            ids_made: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Gives each rule the slot in the store that it had when the store's counters were saved.
    #[must_use]
    pub fn with_slots(self, saved: RuleSlots) -> Self {
        let before = self.snapshot.load_full();
        let (rules, switches) = (before.shared_rules(), before.switches().clone());
        self.put(rules, switches, before.namer, Before::Saved(saved));
        self
    }

    /// Gives the limiter a fallback that decides while its store cannot answer. Without one, rules whose
    /// failure mode is `local` let everything pass meanwhile.
    #[must_use]
    pub fn with_fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = Some(fallback);
        let before = self.snapshot.load_full();
        if self.store.hash_key().is_none() {
            // What passes before the store tells the key is owed under the names that it gives then.
            let (rules, switches) = (before.shared_rules(), before.switches().clone());
            let namer = before.namer.provisional();
            self.put(rules, switches, namer, Before::Snapshot(&before));
        }
        self
    }

    /// Counts the calls of tenants in `meter`, in domains that know tenants.
    #[must_use]
    pub fn with_meter(mut self, meter: Arc<UsageMeter>) -> Self {
        self.meter = Some(meter);
        self
    }

    pub(crate) fn meter(&self) -> Option<&UsageMeter> {
        self.meter.as_deref()
    }

    /// Watches requests for unusual growth. Whoever wants to hear of it [rolls](GrowthWatch::roll) the watch once a second.
    #[must_use]
    pub fn with_growth_watch(mut self) -> Self {
        self.growth = Some(Box::default());
        self
    }

    /// The watch for unusual growth, if there is one.
    #[must_use]
    #[inline]
    pub fn growth(&self) -> Option<&GrowthWatch> {
        self.growth.as_deref()
    }

    /// Drops a share of the expired state kept outside the store, posts to the store what is owed to it, and
    /// begins the next second of the [top keys](Self::top); to be called about once a second.
    pub fn maintain(&self) {
        let now = self.clock.now();
        self.top.roll(now);
        if let Some(fallback) = &self.fallback {
            fallback.maintain(now);
            if fallback.owed().owes() && self.store.away().is_none() {
                self.post_owed(now);
            }
        }
    }

    /// Counts of the hits that failure modes let pass, and that the store is to count afterwards.
    #[must_use]
    pub fn owed(&self) -> OwedCounts {
        let owed = self.fallback.as_ref().map(Fallback::owed);
        owed.map(Owed::counts).unwrap_or_default()
    }

    pub(crate) const fn posting(&self) -> &Posting {
        &self.posting
    }

    /// The place of the counters that this node keeps for itself, for [`RuleSet::changes_with`].
    #[must_use]
    pub fn own_counters(&self) -> OwnCounters {
        match self.store.own_slot() {
            Some(own) if own != StoreSlot::default() => OwnCounters::Apart,
            _ => OwnCounters::AmongOthers,
        }
    }

    /// Puts `rules` in force, all at once: a check sees the old ones or the new ones. Counters
    /// whose identity did not change keep their usage, rules of the same id their statistics, and tenants
    /// of a quota store theirs.
    pub fn replace_rules(&self, rules: RuleSet) {
        let mut sources = self.sources.lock();
        sources.rules = Arc::new(rules);
        self.put_joined(&mut sources);
    }

    /// Puts the tenants of a quota store in force, likewise. Returns the number of domains, plans and limits
    /// in it that mean nothing under the rules.
    pub fn replace_tenants(&self, tenants: TenantIndex) -> usize {
        let mut sources = self.sources.lock();
        sources.tenants = Some(tenants);
        self.put_joined(&mut sources);
        sources.unknown
    }

    /// The number of domains, plans and limits in a quota store that mean nothing under the rules in force.
    #[must_use]
    pub fn unknown_quotas(&self) -> usize {
        self.unknown_quotas.load(Ordering::Relaxed)
    }

    fn put_joined(&self, sources: &mut Sources) {
        let rules = sources.join();
        self.unknown_quotas
            .store(sources.unknown, Ordering::Relaxed);
        let before = self.snapshot.load();
        let switches = before.switches().clone();
        self.put(rules, switches, before.namer, Before::Snapshot(&before));
    }

    /// Puts the switch of the rule or the load shedder with the id `rule` into a position, or takes it away; the next
    /// check sees it. Answers all switches as they are now.
    ///
    /// A switch stays when rules are replaced, even while no rule has its id, and can be taken away then.
    ///
    /// # Errors
    /// No rule has the id, or too many are switched.
    pub fn switch(&self, rule: &str, to: Option<RuleSwitch>) -> Result<Switches, SwitchError> {
        let _alone = self.sources.lock();
        let before = self.snapshot.load();
        let mut switches = before.switches().clone();
        let rules = before.rules().rules();
        let has_rule = || rules.iter().any(|known| *known.id == *rule);
        let has_shedder = || {
            let kind = ShedderKind::ALL.into_iter().find(|kind| kind.id() == rule);
            let shed = before.rules().shed();
            kind.is_some_and(|kind| shed.is_some_and(|shed| shed.mode(kind).is_some()))
        };
        if switches.get(rule).is_none() && !has_rule() && !has_shedder() {
            return Err(SwitchError::UnknownRule(rule.into()));
        }
        switches.set(rule, to)?;
        let rules = before.shared_rules();
        let (namer, before) = (before.namer, Before::Snapshot(&before));
        self.put(rules, switches.clone(), namer, before);
        Ok(switches)
    }

    /// Puts the switches kept from an earlier run in force, in place of all others. Rules that are not
    /// there now are switched when they come.
    pub fn restore_switches(&self, switches: Switches) {
        let _alone = self.sources.lock();
        let before = self.snapshot.load();
        let (rules, namer) = (before.shared_rules(), before.namer);
        self.put(rules, switches, namer, Before::Snapshot(&before));
    }

    /// Names counters by `hash_key` from now on, so that nodes with one store find each other's. Hits
    /// counted and permits granted under the old names are not found again, and those in this node's memory are
    /// [forgotten](Self::forgotten): until their windows end they would take the room of others. That takes seconds for a full
    /// memory, in which requests are decided.
    pub fn adopt_hash_key(&self, hash_key: HashKey) {
        // Usually the key is unchanged, which is found without taking the lock.
        if self.hash_key() == hash_key {
            return;
        }
        let alone = self.sources.lock();
        let before = self.snapshot.load();
        if before.namer.hash_key() == hash_key {
            return;
        }
        let (rules, switches) = (before.shared_rules(), before.switches().clone());
        let namer = Namer::new(hash_key).with_fingerprints(self.options.fingerprint_key);
        self.put(rules, switches, namer, Before::Snapshot(&before));
        // Those who put rules in force need not wait.
        drop(alone);
        // After the key: what requests count by the former one meanwhile would stay, unseen and untold. Of those by the new key
        // some are forgotten too, and told of: either way a limit begins anew twice within that time.
        let forgotten = self.store.forget_own();
        self.forgotten.fetch_add(forgotten, Ordering::Relaxed);
    }

    /// The number of counters in this node's memory that were forgotten because the store told another hash key than they were
    /// named by.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn put(&self, rules: Arc<RuleSet>, switches: Switches, namer: Namer, before: Before<'_>) {
        let (places, modes) = (StoreSlots(&self.store), self.options.modes);
        let after = Snapshot::new(rules, switches, modes, namer, &places, before);
        self.snapshot.store(Arc::new(after));
    }

    /// The rules in force, with their statistics.
    #[must_use]
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// The store that keeps the counters.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The clock that every check reads once.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The key of the hash that names counters.
    #[must_use]
    pub fn hash_key(&self) -> HashKey {
        self.snapshot.load().namer.hash_key()
    }

    /// Writes permits and reservations.
    pub(crate) fn sealer(&self) -> Sealer {
        self.snapshot.load().sealer
    }

    /// Counts of requests, independent of their rules.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The keys that are denied and allowed most. Edges [count](TopKeys::count) decisions there.
    #[must_use]
    pub const fn top(&self) -> &TopKeys {
        &self.top
    }

    pub(crate) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub(crate) const fn profile(&self) -> Profile {
        self.options.profile
    }

    /// Returns 128 unique bits that cannot be guessed.
    pub(crate) fn new_id(&self) -> u128 {
        // Relaxed: each number is given out once, in any order.
        let number = self.ids_made.fetch_add(1, Ordering::Relaxed);
        self.ids.hash("id", &[&number.to_be_bytes()])
    }

    /// Tells the fallback what a limit answered, if there is one.
    #[inline]
    pub(crate) fn observe(&self, step: &Step, answered: &Answered, now: Timestamp) {
        if let Some(fallback) = &self.fallback {
            fallback.observe(step, answered, now);
        }
    }

    pub(crate) const fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }
}
