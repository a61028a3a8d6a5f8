//! `ratekeeper quota migrate` and `ratekeeper audit verify`, which open the database themselves.

use crate::cli::{AuditVerify, DatabaseFlags};
use crate::output::{self, count};
use crate::quotas;
use crate::settings::{self, Flags, row};
use anyhow::{Context, Result};
use ratekeeper_quota::{AuditVerdict, QuotaStore};
use std::future::Future;
use std::process::ExitCode;

/// Brings the tables up to date.
pub(crate) fn migrate(flags: DatabaseFlags) -> Result<ExitCode> {
    with_store(flags, async |store| {
        store.migrate().await?;
        let tenants = usize::try_from(store.count().await?)?;
        let version = store.version().await?;
        output::print(&format!(
            "the tables in {} are up to date: {}, {} so far\n",
            store.address(),
            count(tenants, "tenant"),
            count(usize::try_from(version)?, "change"),
        ))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Checks the chain of the audit trail.
pub(crate) fn verify(args: AuditVerify) -> Result<ExitCode> {
    let AuditVerify { database, head } = args;
    with_store(database, async move |store| {
        let (said, code) = match store.verify_audit(head.as_deref()).await? {
            AuditVerdict::Intact { rows: 0, .. } => {
                ("the audit trail is empty".to_owned(), ExitCode::SUCCESS)
            }
            AuditVerdict::Intact { rows, head } => {
                let rows = count(usize::try_from(rows)?, "row");
                (
                    format!("the audit trail is intact: {rows}, head {head}"),
                    ExitCode::SUCCESS,
                )
            }
            AuditVerdict::Altered { version } => (
                format!("the audit trail was altered: row {version} is not as it was written"),
                ExitCode::FAILURE,
            ),
            AuditVerdict::OtherTrail => (
                "the audit trail has no row with the given head: rows were cut off at its end, or all were rewritten"
                    .to_owned(),
                ExitCode::FAILURE,
            ),
            AuditVerdict::Missing { version } => (
                format!("the audit trail is incomplete: row {version} is missing"),
                ExitCode::FAILURE,
            ),
            _ => (
                "the audit trail is not intact".to_owned(),
                ExitCode::FAILURE,
            ),
        };
        output::print(&format!("{said}\n"))?;
        Ok(code)
    })
}

fn with_store<F: Future<Output = Result<ExitCode>>>(
    flags: DatabaseFlags,
    command: impl FnOnce(QuotaStore) -> F,
) -> Result<ExitCode> {
    let mut all = Flags::of_config(flags.config);
    for (setting, text) in [
        (&row::quotas, flags.quotas),
        (&row::data_dir, flags.data_dir),
    ] {
        if let Some(text) = text {
            all = all.with(setting, text);
        }
    }
    let settings = settings::of_process(&all)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = quotas::opened(&settings)?;
        let shown = store.address().to_string();
        command(store)
            .await
            .with_context(|| format!("--quotas {shown}"))
    })
}
