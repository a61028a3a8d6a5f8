//! `ratekeeper quota set`: what is named changes, and nothing else.
//!
//! The admin API replaces a tenant's quotas as a whole. So the command reads them, merges, and writes them on the
//! condition that they have not been changed meanwhile; if they have, it begins again.

mod named;

use super::changes::{Change, changes, not_in_force};
use super::live::{print_tenant, read};
use super::tenant::{KnownTenant, is_outdated};
use crate::cli::{BadArgument, QuotaSet};
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use named::{Named, named};
use ratekeeper_core::Timestamp;
use ratekeeper_quota::QuotaDocument;
use ratekeeper_rules::TenantQuotas;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// The largest body that a service takes, by default.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// The times that a change is tried while others change the same tenant.
const ATTEMPTS_MAX: u32 = 5;

pub(super) fn set(args: &QuotaSet) -> Result<ExitCode> {
    let wanted = match &args.file {
        Some(file) => Wanted::All(document(&read(file, BODY_BYTES_MAX)?)?),
        None => Wanted::of_flags(args).map_err(|error| BadArgument::of(&error))?,
    };
    let mut attempt = 1;
    loop {
        let before = KnownTenant::read(&args.tenant)?;
        require(args, &before)?;
        let wish = wanted.on(&before)?;
        if !args.yes {
            confirm(&args.tenant.tenant, &wish.lost)?;
        }
        let written = before.put(&args.tenant, &wish.body);
        let is_free = args.if_version.is_none() && !args.if_new;
        match written {
            Err(error) if is_outdated(&error) && is_free && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(error) => return Err(error),
            Ok(answer) => {
                for note in &wish.notes {
                    output::complain(note);
                }
                return print_tenant(&args.tenant, &before, &answer);
            }
        }
    }
}

/// The quotas that the tenant is to have.
enum Wanted {
    /// These, and those that it has.
    Some(Box<Named>),
    /// These alone.
    All(QuotaDocument),
}

/// A change of one tenant as it is now.
struct Wish {
    body: QuotaDocument,
    /// The plans and overrides that the tenant would lose though nothing takes their place.
    lost: Vec<Change>,
    notes: Vec<String>,
}

impl Wanted {
    fn of_flags(args: &QuotaSet) -> Result<Self> {
        Ok(match args.replace {
            true => Self::All(Named::of(args)?.document()),
            false => Self::Some(named(args)?),
        })
    }

    /// The change of a tenant that is so `before`.
    fn on(&self, before: &KnownTenant) -> Result<Wish> {
        match self {
            Self::Some(named) => {
                named.refuse_ended(before.now)?;
                let mut quotas = before.quotas.clone();
                named.edit().apply(&mut quotas, before.now)?;
                Ok(Wish {
                    body: QuotaDocument::of(&quotas),
                    lost: Vec::new(),
                    notes: not_in_force(named.edit(), &quotas, before.now),
                })
            }
            Self::All(document) => {
                let after = document.quotas_after(&before.quotas, before.now)?;
                Ok(Wish {
                    body: document.clone(),
                    lost: lost(&before.quotas, &after, before.now),
                    notes: Vec::new(),
                })
            }
        }
    }
}

fn lost(before: &TenantQuotas, after: &TenantQuotas, now: Timestamp) -> Vec<Change> {
    let all = changes(before, after).into_iter();
    all.filter(|change| change.is_loss(now)).collect()
}

/// The document in a file. A state before the tenant was there is none.
fn document(text: &str) -> Result<QuotaDocument> {
    if text.trim() == "null" {
        bail!("there was no such tenant then: write `ratekeeper quota delete`, or `quota revert`");
    }
    let reader = &mut serde_json::Deserializer::from_str(text);
    let document: QuotaDocument = serde_path_to_error::deserialize(reader)?;
    Ok(document)
}

/// Refuses a tenant that is not in the state that is asked for.
fn require(args: &QuotaSet, before: &KnownTenant) -> Result<()> {
    let name = &args.tenant.tenant;
    match (args.if_version, before.version) {
        (Some(wanted), Some(version)) if wanted != version => {
            bail!("{name} has version {version}, not {wanted}: it was changed meanwhile")
        }
        (Some(wanted), None) => {
            bail!("{name} has no version {wanted}: the database does not have it")
        }
        (None, Some(version)) if args.if_new => {
            bail!("{name} is not new: the database has it, in version {version}")
        }
        _ => Ok(()),
    }
}

/// Shows what a tenant would lose, and asks.
fn confirm(tenant: &str, lost: &[Change]) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let list: String = lost
        .iter()
        .map(|change| format!("  {}\n", output::within_line(&change.to_string())))
        .collect();
    let text = format!("{tenant} would lose what is not named:\n{list}");
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(anyhow!("{text}add --yes to replace them all the same"));
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{}Replace them? [y/N] ", output::plain(&text))?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("no answer")?;
    match matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => bail!("nothing was changed"),
    }
}
