//! Writes tenants' calls to the database, for billing.

use crate::background::{Finishing, Stopped};
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Limiter, UsageMeter};
use ratekeeper_quota::{CallRow, CallerRow, FORGOTTEN_MAX, QuotaStore, UsageRow};
use ratekeeper_server::MaintenanceTask;
use ratekeeper_stores::Stores;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

/// The time between two writes, and so the most that a crash may lose.
const EVERY: Duration = Duration::from_secs(10);

/// The longest the last write may hold up the end.
const LAST_MAX: Duration = Duration::from_secs(5);

/// The time after which a last write that failed is tried again.
const LAST_AGAIN: Duration = Duration::from_millis(100);

/// The warning of a last write that failed.
const LAST_LOST: &str =
    "the last usage for billing was not saved: the quota database does not answer";

/// The writes after which old rows are looked for again: about an hour's.
const FORGETS_EVERY: u32 = 360;

/// The minutes for which usage is kept: 400 days.
const KEPT_MINUTES: u64 = 400 * 24 * 60;

/// Writes what a meter counted, until it is told to finish.
pub(super) struct Writer(Finishing);

impl Writer {
    /// The meter's minutes are those of the limiter's clock, which may be ahead of the wall for long.
    pub(super) fn start(
        task: Arc<MaintenanceTask>,
        store: QuotaStore,
        (meter, limiter): (Arc<UsageMeter>, Arc<Limiter<Stores>>),
    ) -> Self {
        // A restarted node is another one: what it counts in a minute adds to what it counted before. Work that is begun
        // again goes on as the same, since it writes what the same meter has.
        let node = ratekeeper_store::HashKey::random().to_bytes();
        let node = hex::encode(&node[..8]);
        Self(Finishing::start(task, move |stopped| {
            let counted = (Arc::clone(&meter), Arc::clone(&limiter));
            keep_writing(store.clone(), counted, node.clone(), stopped)
        }))
    }

    /// Writes one last time.
    pub(super) async fn finish(self) {
        if timeout(LAST_MAX, self.0.finish()).await.is_err() {
            warn!("{LAST_LOST}");
        }
    }
}

async fn keep_writing(
    store: QuotaStore,
    (meter, limiter): (Arc<UsageMeter>, Arc<Limiter<Stores>>),
    node: String,
    mut stopped: Stopped,
) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_failing, mut last) = (false, false);
    // Of the write before the last one.
    let mut was_failing = false;
    let mut forgetting = Forgetting::default();
    loop {
        if !last {
            last = tokio::select! {
                _ = ticks.tick() => false,
                _ = stopped.changed() => true,
            };
            was_failing = is_failing;
        }
        let now = limiter.clock().now();
        match write(&store, &meter, &node, now).await {
            Ok(()) if std::mem::take(&mut is_failing) => {
                info!("usage for billing is saved again")
            }
            Ok(()) => {}
            // It has not answered for a while, and nobody is there: no use to wait for it at the end.
            Err(error) if last && was_failing && error.is_refusal() => {
                warn!("{LAST_LOST}");
                return;
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    warn!(%error, "usage for billing cannot be saved; the last five minutes, and three hours of totals, are kept");
                }
            }
        }
        if last {
            if !is_failing {
                return;
            }
            // A busy database may take it yet: who finishes has a limit for all tries.
            sleep(LAST_AGAIN).await;
            continue;
        }
        if !is_failing {
            // What is cut off is rolled back; the next turn deletes it.
            last = tokio::select! {
                () = forgetting.turn(&store, now) => false,
                _ = stopped.changed() => true,
            };
        }
    }
}

/// Deletes what is too old: after the first write, and then each hour; where there is much, a part after each write.
#[derive(Debug, Default)]
struct Forgetting {
    /// The writes until then.
    wait: u32,
    /// True while it fails, which is logged once.
    is_failing: bool,
}

impl Forgetting {
    async fn turn(&mut self, store: &QuotaStore, now: Timestamp) {
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        let minute = now.as_micros() / 60_000_000;
        let forgotten = store.forget_usage(minute.saturating_sub(KEPT_MINUTES));
        let forgotten = forgotten.await;
        let was_failing = std::mem::replace(&mut self.is_failing, forgotten.is_err());
        self.wait = match forgotten {
            Ok(FORGOTTEN_MAX..) => 0,
            _ => FORGETS_EVERY - 1,
        };
        match forgotten {
            Ok(_) if was_failing => info!("old usage for billing is deleted again"),
            Err(error) if !was_failing => {
                warn!(%error, "old usage for billing cannot be deleted; it is tried again every hour");
            }
            _ => {}
        }
    }
}

pub(super) async fn write(
    store: &QuotaStore,
    meter: &UsageMeter,
    node: &str,
    now: Timestamp,
) -> Result<(), ratekeeper_quota::QuotaError> {
    let rows = meter.counts().into_iter().map(|count| UsageRow {
        minute: count.minute,
        domain: count.domain.to_string(),
        tenant: count.tenant,
        rule: count.rule.to_string(),
        node: node.to_owned(),
        allowed: count.allowed,
        denied: count.denied,
    });
    let rows: Vec<_> = rows.collect();
    // First, since it has the names of those whose usage is read.
    write_calls(store, meter, node).await?;
    store.write_usage(&rows).await?;
    meter.forget_before(now);
    Ok(())
}

async fn write_calls(
    store: &QuotaStore,
    meter: &UsageMeter,
    node: &str,
) -> Result<(), ratekeeper_quota::QuotaError> {
    let (calls, names) = (meter.calls(), meter.take_names());
    let rows = calls.iter().map(|count| CallRow {
        hour: count.hour,
        domain: count.domain.to_string(),
        tenant: count.tenant,
        node: node.to_owned(),
        allowed: count.allowed,
        denied: count.denied,
    });
    let callers = names.iter().map(|name| CallerRow {
        domain: name.domain.to_string(),
        tenant: name.tenant,
        shown: name.shown.to_string(),
        hour: name.hour,
    });
    let (rows, callers): (Vec<_>, Vec<_>) = (rows.collect(), callers.collect());
    match store.write_calls(&rows, &callers).await {
        Ok(()) => meter.written(&calls),
        Err(error) => {
            meter.put_back(names);
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_quota::{DatabaseAddress, UsageFilter};
    use ratekeeper_rules::TenantKey;

    #[tokio::test]
    async fn old_usage_goes_with_the_first_write_and_then_each_hour() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let address = DatabaseAddress::sqlite(&folder.path().join("quotas.db"));
        let store = QuotaStore::new(address, TenantKey::from_bytes([7; 16]));
        let store = store.expect("the address is right");
        let row = |minute| UsageRow {
            minute,
            domain: "d".to_owned(),
            tenant: None,
            rule: String::new(),
            node: "n".to_owned(),
            allowed: 1,
            denied: 0,
        };
        let all = UsageFilter {
            until: u64::MAX,
            ..UsageFilter::default()
        };
        let now = Timestamp::from_secs((KEPT_MINUTES + 10) * 60);
        let mut forgetting = Forgetting::default();
        for turn in 0..=FORGETS_EVERY {
            store
                .write_usage(&[row(1), row(20)])
                .await
                .expect("it is written");
            forgetting.turn(&store, now).await;
            let left = store.usage(&all, 10).await.expect("it answers").len();
            let is_time = turn % FORGETS_EVERY == 0;
            assert_eq!(left, if is_time { 1 } else { 2 }, "{turn}");
        }
    }
}
