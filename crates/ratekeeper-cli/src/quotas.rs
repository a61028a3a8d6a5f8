//! The database with tenants' quotas: opened, followed, and reported on.

mod adjust;
mod chosen;
mod export_report;
mod key;
mod meter;
mod presence;
mod report;
mod tasks;

use crate::background::Background;
use crate::settings::{OnQuotaFailure, Settings};
use adjust::StepCounts;
use anyhow::{Context, Result, bail};
pub(crate) use chosen::{Unopened, address};
use export_report::ExportReport;
use meter::Writer;
use presence::{Dispute, Reporter};
use ratekeeper_audit::Exporter;
use ratekeeper_limiter::{Limiter, UsageMeter};
use ratekeeper_quota::{
    DatabaseAddress, DatabaseKind, FleetRecord, Follower, FollowerConfig, ListFilter, PAGE_MAX,
    QuotaStore,
};
use ratekeeper_rules::{TenantIndex, TenantKey};
use ratekeeper_server::{FleetCopy, QuotaAdmin, import_node_files};
use ratekeeper_store_redis::{NodeBoard, RedisServers};
use ratekeeper_stores::Stores;
use report::Report;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tasks::QuotaTasks;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

/// The time a service waits at its start for the database. After it, the saved copy is in force.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest that saving the quotas may hold up the end.
const SAVE_MAX: Duration = Duration::from_secs(5);

/// The tenants of a service, in step with the database.
pub(crate) struct Quotas {
    pub(crate) report: Arc<Report>,
    exporter: Option<Exporter>,
    /// For the admin API.
    pub(crate) admin: QuotaAdmin,
    writer: Writer,
    adjuster: Background,
    presence: Option<Background>,
}

impl Quotas {
    /// Writes the last calls of tenants, and stops.
    pub(crate) async fn finish(self) {
        drop((self.adjuster, self.presence));
        // All at the same time: each may wait for a database that is away.
        let saved = async {
            if timeout(SAVE_MAX, self.admin.follower.save()).await.is_err() {
                warn!("the latest quotas of tenants were not saved");
            }
        };
        let exported = async {
            if let Some(exporter) = self.exporter {
                exporter.finish().await;
            }
        };
        tokio::join!(saved, self.writer.finish(), exported);
    }

    /// The state of the audit trail's export, if there is one.
    pub(crate) fn export_report(&self) -> Option<Arc<ExportReport>> {
        let exporter = self.exporter.as_ref()?;
        Some(Arc::new(ExportReport::new(
            exporter.export_status().clone(),
        )))
    }
}

/// The limiter, which counts tenants' calls if there is a database for them.
pub(crate) fn metered(
    limiter: Limiter<Stores>,
    settings: &Settings,
) -> (Limiter<Stores>, Arc<UsageMeter>) {
    let meter = Arc::new(UsageMeter::default());
    let has_database = chosen::of_service(settings, limiter.snapshot().rules()).is_some();
    match has_database {
        true => (limiter.with_meter(Arc::clone(&meter)), meter),
        false => (limiter, meter),
    }
}

/// Puts tenants' quotas in force, now and whenever they change; [`None`] if there is no database.
///
/// # Errors
/// There is no key for the tenants' hashes, or the database is one of another key.
pub(crate) async fn follow(
    settings: &Settings,
    limiter: &Arc<Limiter<Stores>>,
    meter: Arc<UsageMeter>,
    boards: Option<&RedisServers>,
) -> Result<Option<Quotas>> {
    let address = chosen::of_service(settings, limiter.snapshot().rules());
    let Some(address) = address else {
        refuse_export(settings)?;
        return Ok(None);
    };
    // One that is open in case tenants come is no fault until they do.
    let is_needed =
        settings.quotas.named.is_some() || chosen::has_tenants(limiter.snapshot().rules());
    if is_needed {
        warn_if_unfit(&address, settings);
    }
    check_export(settings).await?;
    let store = open(settings, &address)?;
    let board = boards.map(RedisServers::quota_databases);
    if let Some(board) = board.as_ref().filter(|_| is_needed) {
        presence::refuse_second(&store, board).await?;
    }
    let config = FollowerConfig {
        saved: settings.quotas.saved.clone(),
        allows_unknown: *settings.values.on_quota_failure == OnQuotaFailure::Allow,
        fleet: fleet_copy(settings, &store).await,
    };
    let applied = Arc::clone(limiter);
    let apply = move |tenants| applied.replace_tenants(tenants);
    let follower = Follower::start(store.clone(), config, apply, PATIENCE).await;
    info!(database = %address, "tenants' quotas are in a database");
    let follower = Arc::new(follower);
    let steps = Arc::new(StepCounts::default());
    let exporter = settings.quotas.export.clone().map(|target| {
        info!(%target, "the audit trail is exported");
        Exporter::start(store.clone(), follower.quota_status().clone(), target)
    });
    let (dispute, tasks) = (Dispute::default(), QuotaTasks::default());
    let presence = board.map(|board| {
        let reporter = reporter(settings, &store, board, limiter, &dispute);
        reporter.start(Arc::clone(&tasks.presence))
    });
    let counted = (meter, Arc::clone(limiter));
    let writer = Writer::start(Arc::clone(&tasks.usage), store.clone(), counted);
    let adjuster = adjust::start(
        Arc::clone(&tasks.adjust),
        store.clone(),
        Arc::clone(limiter),
        Arc::clone(&follower),
        Arc::clone(&steps),
    );
    let status = follower.quota_status().clone();
    let report = Report::new(status, steps, dispute, tasks);
    Ok(Some(Quotas {
        exporter,
        presence,
        report: Arc::new(report),
        writer,
        adjuster,
        admin: QuotaAdmin { store, follower },
    }))
}

/// Refuses an export of the audit trail where no database has one.
fn refuse_export(settings: &Settings) -> Result<()> {
    if settings.quotas.export.is_some() {
        bail!(
            "audit_export: without a quota database there is no audit trail; name a database with --quotas, or \
             set --data-dir and give the rules a `tenant:`"
        );
    }
    Ok(())
}

/// Refuses a target of the audit trail's export with a file that cannot be read: one that is missing by mistake should not be
/// noticed when the trail is needed.
async fn check_export(settings: &Settings) -> Result<()> {
    let Some(target) = settings.quotas.export.clone() else {
        return Ok(());
    };
    let checked = spawn_blocking(move || target.check_files()).await?;
    checked.context("audit_export")
}

/// Tells the other nodes which database this one uses.
fn reporter(
    settings: &Settings,
    store: &QuotaStore,
    board: Arc<NodeBoard>,
    limiter: &Arc<Limiter<Stores>>,
    dispute: &Dispute,
) -> Reporter {
    let is_unnamed = settings.quotas.named.is_none();
    Reporter {
        store: store.clone(),
        board,
        node: settings.values.node_name.to_string(),
        unnamed_for: is_unnamed.then(|| Arc::clone(limiter)),
        dispute: Arc::clone(dispute),
    }
}

/// Warns of a database that one node has alone beside shared counters, and of one without a copy.
fn warn_if_unfit(address: &DatabaseAddress, settings: &Settings) {
    match address.kind() {
        DatabaseKind::Sqlite if settings.shares_counters() => warn!(
            "--quotas {address}: nodes share counters in Redis, but this file is one node's alone; use PostgreSQL for \
             several"
        ),
        DatabaseKind::Postgres if settings.quotas.saved.is_none() => warn!(
            "without --data-dir no copy of the quotas is saved: a start without the database has none"
        ),
        DatabaseKind::Sqlite | DatabaseKind::Postgres => {}
    }
}

/// Puts tokens that this node has kept in files into the database, and returns its saved copy of those of all nodes.
async fn fleet_copy(settings: &Settings, store: &QuotaStore) -> Option<FleetRecord> {
    let folder = settings.values.data_dir.as_deref()?;
    let node = &settings.values.node_name;
    // If it fails, the server tries again, and says why.
    let _ = timeout(PATIENCE, import_node_files(folder, store, node)).await;
    let at = folder.to_path_buf();
    match spawn_blocking(move || FleetCopy::load(&at)).await.ok()? {
        Ok(copy) => Some(copy?.state),
        Err(why) => {
            warn!(%why, "the saved copy of tokens cannot be used");
            None
        }
    }
}

/// The database that is named, else the one in the data folder; for commands.
///
/// # Errors
/// There is none, or no key for its tenants' hashes.
pub(crate) fn opened(settings: &Settings) -> Result<QuotaStore> {
    let quotas = &settings.quotas;
    let Some(address) = quotas.named.as_ref().or(quotas.unnamed.as_ref()) else {
        bail!(
            "there is no database: name one with --quotas sqlite://PATH or postgres://…, or a --data-dir"
        );
    };
    open_existing(settings, address)
}

/// The database at `address`, which has to be there. For what only looks: a wrong path is no empty database, and a new key
/// is not that of one from a backup.
///
/// # Errors
/// There is no such file, or no key for its tenants' hashes.
pub(crate) fn open_existing(settings: &Settings, address: &DatabaseAddress) -> Result<QuotaStore> {
    if let Some(file) = address.path() {
        if !file.exists() {
            bail!(
                "--quotas {address}: there is no database; `ratekeeper serve` and `ratekeeper token create` make one"
            );
        }
        let key = key_beside(file);
        if settings.values.tenant_key.is_none() && !key.exists() {
            bail!(
                "--quotas {address}: there is no {}, the key of the tenants in it: copy it from where the database was, or \
                 set `tenant_key`",
                key.display()
            );
        }
    }
    open(settings, address)
}

/// The database at `address`. SQLite's is made if it is not there.
///
/// # Errors
/// There is no key for its tenants' hashes.
pub(crate) fn open(settings: &Settings, address: &DatabaseAddress) -> Result<QuotaStore> {
    let key = tenant_key(settings, address)?;
    QuotaStore::new(address.clone(), key).with_context(|| format!("--quotas {address}"))
}

/// All tenants in `store`.
///
/// # Errors
/// The database cannot be used.
pub(crate) async fn all(store: &QuotaStore) -> Result<TenantIndex> {
    let mut index = TenantIndex::new(store.key().clone());
    let mut after = None;
    loop {
        let page = store
            .list(&ListFilter::default(), after.as_ref(), PAGE_MAX)
            .await?;
        for record in &page.records {
            index.put(&record.id.domain, record.id.hash, &record.quotas);
        }
        after = page.next;
        if after.is_none() {
            return Ok(index);
        }
    }
}

/// The key that is set; for SQLite, else the one beside the database, which is made if it is not there.
fn tenant_key(settings: &Settings, address: &DatabaseAddress) -> Result<TenantKey> {
    if let Some(key) = &*settings.values.tenant_key {
        return Ok(key.clone());
    }
    let Some(file) = address.path() else {
        bail!(
            "--quotas {address}: tenants are kept as hashes, and their key has to be the same on all nodes: make one \
             with `openssl rand -hex 16`, and set it as `tenant_key`"
        );
    };
    key::kept(&key_beside(file))
}

/// The key beside the database in `file`.
fn key_beside(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    folder.join("tenant.key")
}
