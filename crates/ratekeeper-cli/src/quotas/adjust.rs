//! Takes the steps of policies by which limits of tenants follow their usage.

use crate::background::Background;
use ratekeeper_limiter::{Clock, Limiter};
use ratekeeper_quota::{AdjustRound, AdjustStep, Follower, QuotaStore};
use ratekeeper_rules::AdjustMode;
use ratekeeper_server::MaintenanceTask;
use ratekeeper_stores::Stores;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two looks at tenants' calls, which nodes write as often.
const EVERY: Duration = Duration::from_secs(10);

/// The looks of which one is also at all tenants whose limits are raised, and at limits over a day or longer, for which there
/// are many calls to add up.
const ALL_EVERY: u64 = 6;

/// The steps that this node has taken, or would have in shadow mode.
#[derive(Debug, Default)]
pub(super) struct StepCounts {
    raised: AtomicU64,
    lowered: AtomicU64,
    shadow_raised: AtomicU64,
    shadow_lowered: AtomicU64,
}

impl StepCounts {
    fn of(&self, step: &AdjustStep) -> &AtomicU64 {
        match (step.mode, step.to > step.from) {
            (AdjustMode::On, true) => &self.raised,
            (AdjustMode::On, false) => &self.lowered,
            (_, true) => &self.shadow_raised,
            (_, false) => &self.shadow_lowered,
        }
    }

    /// Mode, direction and number of each kind of step.
    pub(super) fn all(&self) -> [(&'static str, &'static str, u64); 4] {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("on", "up", count(&self.raised)),
            ("on", "down", count(&self.lowered)),
            ("shadow", "up", count(&self.shadow_raised)),
            ("shadow", "down", count(&self.shadow_lowered)),
        ]
    }
}

/// Looks at tenants' calls until the result is dropped.
pub(super) fn start(
    task: Arc<MaintenanceTask>,
    store: QuotaStore,
    limiter: Arc<Limiter<Stores>>,
    follower: Arc<Follower>,
    counts: Arc<StepCounts>,
) -> Background {
    Background::start(task, move || {
        let (limiter, follower) = (Arc::clone(&limiter), Arc::clone(&follower));
        keep_looking(store.clone(), limiter, follower, Arc::clone(&counts))
    })
}

async fn keep_looking(
    store: QuotaStore,
    limiter: Arc<Limiter<Stores>>,
    follower: Arc<Follower>,
    counts: Arc<StepCounts>,
) {
    let clock = Clock::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    for turn in 0_u64.. {
        ticks.tick().await;
        clock.reanchor();
        let round = match turn % ALL_EVERY {
            0 => AdjustRound::All,
            _ => AdjustRound::Busy,
        };
        let snapshot = limiter.snapshot();
        let rules = snapshot.rules();
        let mut failed = None;
        let mut is_changed = false;
        for domain in rules.domains().filter(|domain| domain.adjust().is_some()) {
            match store.adjust(domain.name(), rules, round, clock.now()).await {
                Ok(steps) => {
                    is_changed |= steps.iter().any(|step| step.mode == AdjustMode::On);
                    steps.iter().for_each(|step| tell(step, &counts));
                }
                Err(error) => failed = Some(error),
            }
        }
        if is_changed {
            follower.look();
        }
        let was_failing = std::mem::replace(&mut is_failing, failed.is_some());
        if let Some(error) = failed.filter(|_| !was_failing) {
            warn!(%error, "limits of tenants are not adjusted: the quota database does not answer");
        }
    }
}

fn tell(step: &AdjustStep, counts: &StepCounts) {
    if step.from != step.to {
        counts.of(step).fetch_add(1, Ordering::Relaxed);
    }
    let mode = step.mode.name();
    let (from, to, limit) = (step.from, step.to, step.limit);
    let (domain, tenant) = (&step.tenant.domain, &step.tenant.shown);
    info!(
        mode,
        domain, tenant, from, to, limit, "a tenant's limit follows its usage"
    );
}
