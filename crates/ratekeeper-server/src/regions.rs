//! Limits that regions share: what this node asks other regions for, and what it lends them; and what it posts to them of
//! limits that they count together.
//!
//! ```text
//!  requests --> counted in the region's store, under the share that it keeps
//!                  |  demand, a few times a second              link
//!                  v                                        (bounded, batched)
//!               RegionLoans --- ask: what is held and lacking ---> another region's node
//!                  ^     `----- change of the share, by its store <--- answer
//! ```
//!
//! Any node of a region may do all of this: a change of a share is written to the region's store only if what it was
//! computed from is still there. What may be lent, and what is held, is decided by [`ratekeeper_core::region::loans`];
//! this only moves its messages. No request waits here.

mod change;
mod counters;
mod counting;
mod demand;
mod due;
mod explained;
mod kept;
mod lending;
mod peer;
mod signals;
mod taken;
mod totals;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;
use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::region::loans::LoanRegions;
use ratekeeper_core::{Limit, Micros, Region, Regions, Whole};
use ratekeeper_limiter::{Limiter, Snapshot};
use ratekeeper_store::{CounterKey, HeardRegions, LoanCounter, StoreSlot, boot_time};
use ratekeeper_stores::Stores;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::maintenance_task::MaintenanceTask;
use counters::Counters;
pub use peer::{PeerLink, PeerRegion, ToRegion};
use taken::Taken;
use totals::Totals;

/// The time between two looks at what is needed.
const LOOK: Duration = Duration::from_millis(100);

/// Counters that are looked at, and asks that are answered, at the same time.
pub(crate) const TOGETHER: usize = 32;

/// The time for which an answer to another region waits for the store: less than that for which its link may be silent.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The least time for which loans are kept in the store.
const KEPT: u64 = 24 * 3_600_000_000;

/// The loans of this node's region with others.
pub struct RegionLoans {
    limiter: Arc<Limiter<Stores>>,
    regions: Arc<Regions>,
    /// The same, in the order of the loans of a counter.
    places: LoanRegions,
    /// In the order of all regions; the own one is not used.
    peers: Vec<PeerRegion>,
    /// The limits that are lent, or counted together, by their terms, and the rules they were made from.
    lent: Mutex<Lent>,
    counters: Mutex<Counters>,
    totals: Mutex<Totals>,
    /// The counters of which totals of other regions were kept, and those that were lent to them.
    taken: Mutex<Taken>,
    lent_to: Mutex<Taken>,
    heard: Arc<HeardRegions>,
    /// Links of others that were refused.
    links_refused: AtomicU64,
    task: Arc<MaintenanceTask>,
}

#[derive(Default)]
struct Lent {
    /// The rules that the limits are of.
    snapshot: Option<Arc<Snapshot>>,
    limits: HashMap<u64, LentHere>,
}

/// A limit that is lent, as this region owns it, or that is counted together.
#[derive(Clone, Copy)]
struct LentHere {
    owns: Limit,
    whole: Whole,
    counted: Option<Counted>,
    store: StoreSlot,
}

/// The time `span` after `at`.
fn later(at: Micros, span: Micros) -> Micros {
    Micros::new(at.get().saturating_add(span.get()))
}

impl LentHere {
    const fn counter(&self, key: CounterKey) -> LoanCounter {
        LoanCounter {
            key,
            owns: self.owns,
            whole: self.whole,
            counted: self.counted,
            store: self.store,
        }
    }
}

impl fmt::Debug for RegionLoans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regions = &self.regions;
        f.debug_struct("RegionLoans")
            .field("regions", regions)
            .finish_non_exhaustive()
    }
}

impl RegionLoans {
    /// The loans between `regions`. Links are made by [`Self::peers`].
    #[must_use]
    pub fn new(limiter: Arc<Limiter<Stores>>, regions: Arc<Regions>) -> Arc<Self> {
        let peers = regions.all().iter();
        let peers = peers.map(|region| PeerRegion::new(&region.name));
        let heard = Arc::new(HeardRegions::new(Arc::clone(&regions), boot_time()));
        limiter.store().hear_of(&heard);
        let (all, own) = (regions.all(), regions.own_place());
        let others = (0..all.len()).filter(|at| *at != own && !all[*at].is_retired);
        let ids = all.iter().map(Region::id);
        Arc::new(Self {
            limiter,
            peers: peers.collect(),
            lent: Mutex::default(),
            counters: Mutex::new(Counters::new(all.len())),
            totals: Mutex::new(Totals::new(others.collect(), ids.collect())),
            taken: Mutex::new(Taken::new(all.len())),
            lent_to: Mutex::new(Taken::new(all.len())),
            heard,
            places: LoanRegions::of(all),
            regions,
            links_refused: AtomicU64::new(0),
            task: Arc::new(MaintenanceTask::new("regions")),
        })
    }

    /// The regions that share limits.
    #[must_use]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// The regions in the order of their names; links carry what they have to say.
    #[must_use]
    pub fn peers(&self) -> &[PeerRegion] {
        &self.peers
    }

    /// The state of the work on loans and of links, for who does it.
    #[must_use]
    pub const fn task(&self) -> &Arc<MaintenanceTask> {
        &self.task
    }

    /// The time until which what another region has just sent is answered: its link is taken for broken if that takes longer.
    pub(crate) fn answer_until() -> Instant {
        Instant::now() + ANSWER_TIME
    }

    /// Looks after the loans until no one else has them. May be called again after a panic ended it.
    pub async fn run(this: Weak<Self>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let Some(loans) = this.upgrade() else {
                return;
            };
            loans.look().await;
        }
    }

    /// Asks for what is lacking, and posts what was counted.
    async fn look(&self) {
        self.renew_limits();
        self.record_demands();
        self.post_due().await;
        let due = self.counters.lock().due(boot_time());
        let looks = stream::iter(due.into_iter().map(|key| self.look_at(key)));
        looks.for_each_concurrent(TOGETHER, |look| look).await;
    }

    /// Takes in what was asked for.
    fn record_demands(&self) {
        let demands = self.limiter.store().loan_demands();
        let now = boot_time();
        let (counted, demands): (Vec<_>, Vec<_>) = demands
            .into_iter()
            .partition(|demand| demand.counter.counted.is_some());
        {
            let mut totals = self.totals.lock();
            counted.iter().for_each(|demand| totals.record(demand, now));
        }
        self.counters.lock().record(demands, now);
    }

    /// Counts a link of another region that was refused.
    pub(crate) fn refuse_link(&self) {
        self.links_refused.fetch_add(1, Ordering::Relaxed);
    }

    fn limit(&self, terms: u64) -> Option<LentHere> {
        self.lent.lock().limits.get(&terms).copied()
    }

    /// Reads the limits that are lent, if rules were loaded since.
    fn renew_limits(&self) {
        let snapshot = self.limiter.snapshot();
        let mut lent = self.lent.lock();
        let is_same = |read: &Arc<Snapshot>| Arc::ptr_eq(read, &snapshot);
        if lent.snapshot.as_ref().is_some_and(is_same) {
            return;
        }
        lent.snapshot = Some(Arc::clone(&snapshot));
        let limits = snapshot.lent().map(|it| {
            let here = LentHere {
                owns: it.owns,
                whole: it.whole,
                counted: it.counted,
                store: it.store,
            };
            (it.terms, here)
        });
        lent.limits = limits.collect();
    }
}
