//! Exports the audit trail, for as long as this node has the task.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use ratekeeper_quota::{ExportClaim, QuotaStatus, QuotaStore, with_causes};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::pause::Pause;
use crate::record::Record;
use crate::target::Sink;
use crate::{ExportError, ExportStatus, ExportTarget};

/// The longest time for all records that are sent at once, less than a claim lasts.
const SEND_MAX: Duration = match cfg!(test) {
    false => Duration::from_secs(20),
    true => Duration::from_millis(500),
};

/// The time for which a claim keeps other nodes away.
const LEASE: Duration = Duration::from_secs(30);

/// The time after which a claim is renewed, and after which nodes without it look for it.
const LOOKS_EVERY: Duration = Duration::from_secs(10);

/// The time after which the trail is read again if it has fewer rows than there are changes.
const LOOKS_AGAIN: Duration = Duration::from_millis(200);

/// The rows that are in memory at once.
const BATCH: u64 = 100;

/// The longest that the end waits until other nodes may have the task.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// Exports the audit trail to one target, until it is told to finish.
#[derive(Debug)]
pub struct Exporter {
    status: ExportStatus,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Begins to export what `store` has and `target` has not. `quotas` tells when there is more.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    #[must_use]
    pub fn start(store: QuotaStore, quotas: QuotaStatus, target: ExportTarget) -> Self {
        let (stop, stopped) = oneshot::channel();
        let status = ExportStatus::new(target.to_string(), quotas.clone());
        let export = Export {
            claim: ExportClaim {
                target: target.to_string(),
                holder: format!("{:016x}", fastrand::u64(..)),
                lease: LEASE,
            },
            store,
            quotas,
            target,
            sink: None,
            behind: None,
            held: None,
            status: status.clone(),
        };
        Self {
            status,
            stop,
            task: tokio::spawn(export.keep(stopped)),
        }
    }

    /// The state of the export, for operators.
    #[must_use]
    pub const fn export_status(&self) -> &ExportStatus {
        &self.status
    }

    /// Stops, and lets another node have the task.
    pub async fn finish(self) {
        drop(self.stop);
        // Otherwise it is free when the claim ends.
        let _ = timeout(RELEASE_MAX, self.task).await;
    }
}

/// The outcome of one turn.
enum Turn {
    /// Records were exported; there may be more.
    Exported,
    /// The target has all rows up to this one.
    UpToDate(u64),
    /// Another node exports.
    Elsewhere,
}

struct Export {
    store: QuotaStore,
    quotas: QuotaStatus,
    target: ExportTarget,
    claim: ExportClaim,
    sink: Option<Sink>,
    /// The last row that the target has, if it has lost later ones.
    behind: Option<u64>,
    /// The last row that the target has confirmed, and the time at which the claim was last renewed.
    held: Option<(u64, Instant)>,
    status: ExportStatus,
}

impl Export {
    async fn keep(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut pause = Pause::default();
        loop {
            let turn = tokio::select! {
                turn = self.guarded_turn() => turn,
                _ = &mut stopped => break,
            };
            let wait = match turn {
                Ok(turn) => {
                    pause = Pause::default();
                    self.until_next(turn)
                }
                Err(error) => {
                    self.failed(&error).await;
                    Wait::For(pause.next())
                }
            };
            tokio::select! {
                () = wait.over(&self.quotas) => {}
                _ = &mut stopped => break,
            }
        }
        if self.held.is_some() {
            // A turn that was cut short may have sent records that the next node sends again.
            let _ = self.store.release_export(&self.claim).await;
        }
    }

    fn until_next(&self, turn: Turn) -> Wait {
        if !matches!(turn, Turn::Elsewhere)
            && let Some(away) = self.status.answered()
        {
            info!(target = %self.target, away_s = away.as_secs(), "the audit trail is exported again");
        }
        match turn {
            Turn::Exported => Wait::For(Duration::ZERO),
            Turn::UpToDate(version) => Wait::Change(version),
            Turn::Elsewhere => {
                self.status.is_elsewhere();
                Wait::For(LOOKS_EVERY)
            }
        }
    }

    /// One turn. A panic in it is a failed one, after which all that a turn leaves behind is dropped.
    async fn guarded_turn(&mut self) -> Result<Turn, ExportError> {
        let turn = AssertUnwindSafe(self.turn()).catch_unwind().await;
        turn.unwrap_or(Err(ExportError::Panicked))
    }

    /// Exports the next rows, if this node has the task or can get it.
    async fn turn(&mut self) -> Result<Turn, ExportError> {
        let Some(position) = self.position().await? else {
            return Ok(Turn::Elsewhere);
        };
        self.status.holds(position);
        self.look_for_losses(position).await?;
        let rows = self
            .store
            .audit(self.behind.unwrap_or(position), BATCH)
            .await?;
        let records: Vec<Record> = rows.into_iter().map(Record::from).collect();
        if records.is_empty() {
            return Ok(Turn::UpToDate(position));
        }
        let mut confirmed = 0;
        let sent = timeout(SEND_MAX, self.send(&records, &mut confirmed)).await;
        let sent = match (sent, confirmed) {
            (Ok(sent), _) => sent,
            (Err(_), 0) => Err(ExportError::TooSlow(SEND_MAX)),
            // A target far away takes fewer records in the time, and gets the others next.
            (Err(_), _) => Ok(()),
        };
        if let Some(last) = records[..confirmed].last()
            && !self.confirm(last.version, position, confirmed).await?
        {
            return Ok(Turn::Elsewhere);
        }
        sent?;
        Ok(Turn::Exported)
    }

    /// Records that the target has so many more rows, up to `last`; false if another node has the task by now. `position` is
    /// the one before.
    async fn confirm(
        &mut self,
        last: u64,
        position: u64,
        records: usize,
    ) -> Result<bool, ExportError> {
        self.behind = Some(last).filter(|last| *last < position);
        if last > position {
            if !self.store.confirm_export(&self.claim, last).await? {
                self.held = None;
                return Ok(false);
            }
            self.held = Some((last, Instant::now()));
        }
        self.status.exported_to(last.max(position), records as u64);
        Ok(true)
    }

    /// Asks a target that may have lost rows for the last one that it has, to go on after it. A row of another trail says
    /// nothing.
    async fn look_for_losses(&mut self, position: u64) -> Result<(), ExportError> {
        let mut sink = self.open().await?;
        let last = timeout(SEND_MAX, sink.last()).await;
        let last = last.unwrap_or(Err(ExportError::TooSlow(SEND_MAX)))?;
        self.sink = Some(sink);
        let Some((last, hash)) = last.filter(|(last, _)| (1..position).contains(last)) else {
            return Ok(());
        };
        let rows = self.store.audit(last - 1, 1).await?;
        if rows.first().is_some_and(|row| row.hash == hash) {
            let lost = position - last;
            warn!(target = %self.target, lost, "the target has lost changes; they are exported again");
            self.behind = Some(last);
        }
        Ok(())
    }

    /// The last row that the target has; [`None`] while another node exports.
    async fn position(&mut self) -> Result<Option<u64>, ExportError> {
        if let Some((position, renewed)) = self.held
            && renewed.elapsed() < LOOKS_EVERY
        {
            return Ok(Some(position));
        }
        let claimed = self.store.claim_export(&self.claim).await?;
        self.held = claimed.map(|position| (position, Instant::now()));
        Ok(claimed)
    }

    /// The connection, to be put back only if it works: after an error, or if we are cut short, the next try
    /// reconnects.
    async fn open(&mut self) -> Result<Sink, ExportError> {
        match self.sink.take() {
            Some(sink) => Ok(sink),
            None => Sink::open(&self.target).await,
        }
    }

    async fn send(&mut self, records: &[Record], confirmed: &mut usize) -> Result<(), ExportError> {
        let mut sink = self.open().await?;
        sink.send(records, confirmed).await?;
        self.sink = Some(sink);
        Ok(())
    }

    /// Says so, and lets another node try, which may reach the target.
    async fn failed(&mut self, error: &ExportError) {
        let why = with_causes(error);
        if self.status.failed(why.clone()) {
            warn!(
                target = %self.target, %why,
                "the audit trail cannot be exported; changes wait in the database"
            );
        }
        (self.sink, self.behind) = (None, None);
        if self.held.take().is_some() {
            // Otherwise it is free when the claim ends.
            let _ = self.store.release_export(&self.claim).await;
        }
    }
}

/// The reason to wait before the next turn.
enum Wait {
    For(Duration),
    /// Until there is a change after this one, or the claim has to be renewed.
    Change(u64),
}

impl Wait {
    async fn over(self, quotas: &QuotaStatus) {
        match self {
            Self::For(time) => sleep(time).await,
            // There should be more than the trail has: it is looked at again, but not at once.
            Self::Change(version) if quotas.version() > version => sleep(LOOKS_AGAIN).await,
            Self::Change(version) => {
                let changed = quotas.reached(version.saturating_add(1));
                // Either may come first.
                let _ = timeout(LOOKS_EVERY, changed).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use ratekeeper_quota::{DatabaseAddress, Editor, FleetToken};
    use ratekeeper_rules::TenantKey;

    use super::*;
    use crate::target::FaultyTarget;

    /// A database in `folder` with so many changes.
    async fn changed(folder: &tempfile::TempDir, changes: u64) -> QuotaStore {
        let address = DatabaseAddress::sqlite(&folder.path().join("quotas.db"));
        let store = QuotaStore::new(address, TenantKey::from_bytes([7; 16]));
        let store = store.expect("the address is right");
        for number in 0..changes {
            let token = FleetToken {
                name: format!("ops-{number}").into(),
                role: "admin".into(),
                sha256: format!("{number:064}").into(),
                created_at: 1_800_000_000,
            };
            let made = store.create_token(&token, &Editor::default()).await;
            made.expect("it can be made");
        }
        store
    }

    async fn eventually(what: &str, is_so: impl Fn() -> bool) {
        let looked = async {
            while !is_so() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = timeout(Duration::from_secs(60), looked).await;
        assert!(in_time.is_ok(), "waited in vain until {what}");
    }

    #[tokio::test]
    async fn a_panic_is_a_failed_attempt_and_others_follow() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let store = changed(&folder, 1).await;
        let target = ExportTarget::faulty(FaultyTarget::Broken);
        let exporter = Exporter::start(store, QuotaStatus::default(), target);
        let status = exporter.export_status().clone();
        eventually("it has failed again", || status.failures() >= 2).await;
        let faults = status.faults();
        assert!(faults[0].contains("please report this bug"), "{faults:?}");
        assert!(!status.is_active());
        exporter.finish().await;
    }

    #[tokio::test]
    async fn a_target_that_takes_a_few_records_in_its_time_gets_all_of_them() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let store = changed(&folder, 8).await;
        let taken = Arc::new(Mutex::new(Vec::new()));
        let target = ExportTarget::faulty(FaultyTarget::Slow(Arc::clone(&taken)));
        let exporter = Exporter::start(store, QuotaStatus::default(), target);
        let status = exporter.export_status().clone();
        eventually("all are exported", || status.exported() == 8).await;
        assert_eq!(*taken.lock(), (1..=8).collect::<Vec<_>>());
        assert_eq!(status.failures(), 0);
        exporter.finish().await;
    }
}
