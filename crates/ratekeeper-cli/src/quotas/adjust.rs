//! Takes the steps of policies by which limits of tenants follow their usage.

use crate::background::Background;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Clock, Limiter};
use ratekeeper_quota::{AdjustRound, AdjustStep, AdjustTimes, Follower, QuotaError, QuotaStore};
use ratekeeper_rules::{AdjustMode, TenantHash};
use ratekeeper_server::MaintenanceTask;
use ratekeeper_stores::Stores;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two looks at tenants' calls, which nodes write as often.
const EVERY: Duration = Duration::from_secs(10);

/// The looks of which one is also at all tenants whose limits are raised, and at limits over a day or longer, for which there
/// are many calls to add up.
const ALL_EVERY: u64 = 6;

/// The time between two lines of the log about steps of one tenant that are refused.
const TOLD_EVERY: Duration = Duration::from_secs(3_600);

/// The most tenants of whose refused steps the log tells in that time.
const TOLD_MAX: usize = 1_000;

/// The steps that this node has taken, or would have in shadow mode.
#[derive(Debug, Default)]
pub(super) struct StepCounts {
    raised: AtomicU64,
    lowered: AtomicU64,
    shadow_raised: AtomicU64,
    shadow_lowered: AtomicU64,
    refused: AtomicU64,
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

    /// The steps that could not be taken, each as often as it was tried.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
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
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    let mut refusals = Refusals::default();
    for turn in 0_u64.. {
        ticks.tick().await;
        let round = match turn % ALL_EVERY {
            0 => AdjustRound::All,
            _ => AdjustRound::Busy,
        };
        let (steps, failed) = look(&store, &limiter, round).await;
        let is_taken = |step: &AdjustStep| step.refused.is_none();
        let (taken, refused): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_taken);
        taken.iter().for_each(|step| tell(step, &counts));
        refused.iter().for_each(|step| refusals.tell(step, &counts));
        if taken.iter().any(|step| step.mode == AdjustMode::On) {
            follower.look();
        }
        let was_failing = std::mem::replace(&mut is_failing, failed.is_some());
        if let Some(error) = failed.filter(|_| !was_failing) {
            warn!(%error, "limits of tenants are not adjusted: the quota database does not answer");
        }
    }
}

/// Takes the steps that the policies of all domains ask for now. Returns them, and the last error.
async fn look(
    store: &QuotaStore,
    limiter: &Limiter<Stores>,
    round: AdjustRound,
) -> (Vec<AdjustStep>, Option<QuotaError>) {
    let snapshot = Arc::clone(&limiter.snapshot());
    let rules = snapshot.rules();
    let (mut all, mut failed) = (Vec::new(), None);
    for domain in rules.domains().filter(|domain| domain.adjust().is_some()) {
        let times = times(limiter.clock());
        match store.adjust(domain.name(), rules, round, times).await {
            Ok(steps) => all.extend(steps),
            Err(error) => failed = Some(error),
        }
    }
    (all, failed)
}

/// The times of a look by the limiter's clock, which records the calls.
fn times(clock: &Clock) -> AdjustTimes {
    let recorded = clock.now();
    let wall = recorded.as_micros().saturating_sub(clock.ahead().get());
    AdjustTimes {
        wall: Timestamp::from_micros(wall),
        recorded,
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

/// The tenants whose refused steps were told of. They are refused again at each look.
#[derive(Default)]
struct Refusals {
    told: HashMap<(Box<str>, TenantHash), Instant>,
}

impl Refusals {
    fn tell(&mut self, step: &AdjustStep, counts: &StepCounts) {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        let Some(why) = &step.refused else {
            return;
        };
        let (domain, tenant) = (&*step.tenant.domain, &step.tenant.shown);
        if self.is_news((domain.into(), step.tenant.hash), Instant::now()) {
            let (plan, to) = (&*step.plan, step.to);
            warn!(
                domain, tenant, plan, to, %why,
                "a tenant's limit does not follow its usage: the rules refuse what the tenant would have"
            );
        }
    }

    fn is_news(&mut self, tenant: (Box<str>, TenantHash), now: Instant) -> bool {
        self.told
            .retain(|_, at| now.duration_since(*at) < TOLD_EVERY);
        let is_news = self.told.len() < TOLD_MAX && !self.told.contains_key(&tenant);
        if is_news {
            self.told.insert(tenant, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quotas::meter;
    use ratekeeper_core::Micros;
    use ratekeeper_limiter::{Check, LimiterOptions, UsageMeter};
    use ratekeeper_quota::{DatabaseAddress, Editor, Precondition, TenantId, TenantPut};
    use ratekeeper_rules::{
        Dated as _, Options, Source, TenantIndex, TenantKey, TenantPlan, TenantQuotas, load,
    };
    use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

    const RULES: &str = "
domain: d
tenant: customer
plans: [free, pro]
adjust: { plans: [pro], mode: on, raise_at: 80%, step: 50%, steps: 1, lower_after: 24h }
descriptors:
- key: customer
  rate_limit: { window: 12h, limit: 5 }
  plans: { pro: { window: 12h, limit: 10 } }
";

    /// A limiter whose clock goes on from the time of counters that were saved 50 minutes ahead.
    fn ahead(meter: &Arc<UsageMeter>) -> Limiter<Stores> {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let rules = load(&[source], &Options::default()).expect("they are valid");
        let mut options = LimiterOptions::default();
        options.clock_from = Clock::new().now().after(Micros::from_secs(3_000));
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let limiter = Limiter::new(rules.rules, store.into(), options);
        limiter.with_meter(Arc::clone(meter))
    }

    #[tokio::test]
    async fn calls_are_looked_at_by_the_clock_that_records_them() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let address = DatabaseAddress::sqlite(&folder.path().join("quotas.db"));
        let key = TenantKey::from_bytes([7; 16]);
        let tenant = TenantId::of_value("d", "acme", false, &key);
        let hash = tenant.hash;
        let meter = Arc::new(UsageMeter::default());
        let limiter = ahead(&meter);
        let mut tenants = TenantIndex::new(key.clone());
        let store = QuotaStore::new(address, key).expect("the address is right");

        let quotas = TenantQuotas {
            plans: vec![TenantPlan::new("pro")],
            ..TenantQuotas::default()
        };
        tenants.put("d", tenant.hash, &quotas);
        limiter.replace_tenants(tenants);
        let put = TenantPut::now(tenant, quotas);
        let (editor, snapshot) = (Editor::default(), Arc::clone(&limiter.snapshot()));
        let put = store.put(&put, Precondition::Any, &editor, snapshot.rules());
        put.await.expect("it is put");
        let check = Check::new("d").descriptor([("customer", "acme")]);
        for _ in 0..9 {
            assert!(limiter.check(&check).await.allowed());
        }
        let written = meter::write(&store, &meter, "n", limiter.clock().now());
        written.await.expect("they are written");

        let (steps, failed) = look(&store, &limiter, AdjustRound::All).await;
        assert!(failed.is_none(), "{failed:?}");
        let steps: Vec<_> = steps.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(steps, [(0, 1)]);
        // Other nodes read its term by clocks that are not ahead.
        let raised = store.get("d", hash).await.expect("it answers");
        let raised = raised.expect("it is there").quotas.overrides;
        assert!(raised[0].term().contains(Clock::new().now()));
    }

    #[test]
    fn a_refused_step_is_told_of_once_an_hour_and_of_so_many_tenants() {
        let mut refusals = Refusals::default();
        let tenant = |name: usize| {
            let hash = TenantKey::from_bytes([7; 16]).hash(&name.to_string());
            (Box::from("d"), hash)
        };
        let now = Instant::now();
        assert!(refusals.is_news(tenant(0), now));
        assert!(!refusals.is_news(tenant(0), now));
        let told = (0..2 * TOLD_MAX).filter(|name| refusals.is_news(tenant(*name), now));
        assert_eq!(told.count(), TOLD_MAX - 1);
        assert!(refusals.is_news(tenant(0), now + TOLD_EVERY));
    }
}
