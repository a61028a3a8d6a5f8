//! Commands about tenants' quotas and the trail of their changes.

use super::AdminAccess;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The commands about tenants' quotas.
#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Show a tenant's plan and overrides
    #[command(after_help = "\
Examples:
  ratekeeper quota get acme
  ratekeeper quota get hash:5f0c6a8e1b2d3c4f5a69788796a5b4c3 --json")]
    Get(TenantArgs),
    /// Set plans and overrides of a tenant; what is not named stays as it is
    #[command(after_help = "\
An override is DESCRIPTOR=HITS/WINDOW: the entries after the tenant's, or `default` for the tenant as a whole; the window is a unit or a duration, and options may follow: `,post_paid` makes it a budget, `,max_debt=HITS`, `,burst=HITS` and `,algorithm=NAME` are those of rules. An override that takes the place of another keeps the options it does not name; `,burst=none` takes one away. Plans and overrides may have dates: @FROM..UNTIL, @FROM.. or @..UNTIL. While several of one descriptor are in force, the one that began last counts, so after its end the earlier one holds again.

Without dates, a plan or an override takes the place of the one that never ends. With a start, it takes the place of the one with that start. What changed is printed. --replace and --file set all that the tenant has: they show what it would lose, and ask; without a terminal they need --yes.

Examples:
  ratekeeper quota set acme --plan enterprise --override 'endpoint:POST /api/v1/orders=500/minute'
  ratekeeper quota set acme --override default=3000/minute@2027-01-05T00:00:00Z..2027-01-08T00:00:00Z
  ratekeeper quota set acme --plan pro@2027-02-01T00:00:00Z.. --if-version 17
  ratekeeper quota set acme --remove-override default
  ratekeeper quota set acme --file acme.json --yes")]
    Set(Box<QuotaSet>),
    /// Undo the last change of a tenant's plans and overrides, or return to those of an earlier version
    #[command(
        alias = "undo",
        after_help = "\
The plans and overrides come from the audit trail, and are set as a new change: revert again to undo it. Usage stays as it is.

Examples:
  ratekeeper quota revert acme
  ratekeeper audit list --tenant acme
  ratekeeper quota revert acme --to 17"
    )]
    Revert(QuotaRevert),
    /// List tenants
    #[command(after_help = "\
Examples:
  ratekeeper quota list --plan enterprise
  ratekeeper quota list --overrides --json")]
    List(QuotaList),
    /// Delete a tenant's plan and overrides: it is then on the default plan
    Delete(QuotaDelete),
    /// Import tenants' plans and overrides from JSON lines or CSV
    #[command(after_help = "\
A file goes in as a whole or not at all: up to 10,000 tenants of 8 MiB, as JSON lines, in one transaction. Larger files need --in-parts: all of the file is checked first, then up to 500 tenants change together. Tenants that are as the file says already do not change again, so an interrupted import can be repeated.

Examples:
  ratekeeper quota import tenants.csv
  ratekeeper quota import tenants.jsonl --dry-run
  ratekeeper quota import million.jsonl --in-parts
  ratekeeper quota export --format jsonl | ratekeeper quota import - --admin http://10.0.0.7:6070")]
    Import(QuotaImport),
    /// Export all tenants, in the form that `import` reads
    #[command(after_help = "\
Secret values are written as their hashes, and can be imported only under the same tenant_key.

Examples:
  ratekeeper quota export > tenants.jsonl
  ratekeeper quota export --format csv > tenants.csv")]
    Export(QuotaExport),
    /// Export tenants' calls by day, month or minute, for billing
    #[command(after_help = "\
With --by, one line for each tenant and day or month in UTC, in which each call counts once, whatever number of rules it matched. Without, one line for each tenant, rule, minute and start of a node.

Examples:
  ratekeeper quota usage --by month --from 2027-01-01T00:00:00Z --until 2027-02-01T00:00:00Z --format csv > january.csv
  ratekeeper quota usage --by day --tenant acme")]
    Usage(QuotaUsage),
    /// Migrate the tables of the quota database, as `serve` does at startup
    #[command(after_help = "\
Examples:
  ratekeeper quota migrate --quotas postgres://ratekeeper@db/ratekeeper")]
    Migrate(DatabaseFlags),
}

#[derive(Debug, Args)]
pub(crate) struct TenantArgs {
    /// Tenant: its value, or hash: and its keyed hash
    pub(crate) tenant: String,
    /// Domain, if several have tenants
    #[arg(long)]
    pub(crate) domain: Option<String>,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaSet {
    #[command(flatten)]
    pub(crate) tenant: TenantArgs,
    /// Plan: NAME, or NAME@FROM..UNTIL; repeatable
    #[arg(long = "plan", value_name = "NAME[@FROM..UNTIL]")]
    pub(crate) plans: Vec<String>,
    /// Limit of this tenant alone: DESCRIPTOR=HITS/WINDOW, with options such as `,post_paid` and dates behind it; repeatable
    #[arg(
        long = "override",
        value_name = "DESCRIPTOR=HITS/WINDOW[,OPTION…][@FROM..UNTIL]"
    )]
    pub(crate) overrides: Vec<String>,
    /// Remove a plan: all of that name, or the one that begins at FROM; repeatable
    #[arg(
        long = "remove-plan",
        value_name = "NAME[@FROM]",
        conflicts_with = "replace"
    )]
    pub(crate) remove_plans: Vec<String>,
    /// Remove overrides: all of that descriptor, or the one that begins at FROM; repeatable
    #[arg(
        long = "remove-override",
        value_name = "DESCRIPTOR[@FROM]",
        conflicts_with = "replace"
    )]
    pub(crate) remove_overrides: Vec<String>,
    /// Start of the plans and overrides named here that have no dates, such as 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) effective_at: Option<String>,
    /// End of the plans and overrides named here that have no dates
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_at: Option<String>,
    /// Replace all that the tenant has by what is named here
    #[arg(long)]
    pub(crate) replace: bool,
    /// Body of PUT /admin/v1/quotas/{tenant}, in place of all that the tenant has; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plans", "overrides", "remove_plans", "remove_overrides", "effective_at", "expires_at"])]
    pub(crate) file: Option<PathBuf>,
    /// Replace without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Change it only if it has this version, as `quota get` prints it
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    /// Change it only if the database does not have the tenant yet
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) if_new: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaRevert {
    #[command(flatten)]
    pub(crate) tenant: TenantArgs,
    /// Return to what the tenant had after change N, as `audit list` prints it [default: before its last change]
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaDelete {
    #[command(flatten)]
    pub(crate) tenant: TenantArgs,
    /// Change it only if it has this version, as `quota get` prints it
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaList {
    /// Only tenants of this domain
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Only tenants on this plan, now or at another time
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,
    /// Only tenants that have overrides
    #[arg(long)]
    pub(crate) overrides: bool,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaImport {
    /// File to import; - is standard input
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its extension, else jsonl]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<TenantsForm>,
    /// Check the tenants without changing them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change up to 500 tenants at a time, for files that are too large to go in as a whole
    #[arg(long)]
    pub(crate) in_parts: bool,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaExport {
    /// Format of the output
    #[arg(long, value_name = "NAME", default_value = "jsonl")]
    pub(crate) format: TenantsForm,
    /// Only tenants of this domain
    #[arg(long)]
    pub(crate) domain: Option<String>,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaUsage {
    /// Add up by day or month [default: a line for each rule and minute]
    #[arg(long, value_name = "PERIOD")]
    pub(crate) by: Option<UsageBy>,
    /// Start, such as 2027-01-01T00:00:00Z [default: the earliest that is kept]
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// End, which is not included
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only calls of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Its domain, if several have tenants
    #[arg(long, requires = "tenant")]
    pub(crate) domain: Option<String>,
    /// Format of the output
    #[arg(long, value_name = "NAME", default_value = "jsonl")]
    pub(crate) format: TenantsForm,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

/// The period that calls are added up over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum UsageBy {
    Day,
    Month,
}

/// The form of a file of tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TenantsForm {
    #[value(alias = "json")]
    Jsonl,
    Csv,
}

/// The commands about the audit trail.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// List changes of tenants' quotas, the newest first
    #[command(after_help = "\
Examples:
  ratekeeper audit list
  ratekeeper audit list --tenant acme --limit 5 --json")]
    List(AuditList),
    /// Export all changes as JSON lines, the oldest first
    #[command(after_help = "\
Examples:
  ratekeeper audit export > audit.jsonl
  ratekeeper audit export --after 1042 >> audit.jsonl   what came after change 1042")]
    Export(AuditExport),
    /// Verify that no row of the audit trail was changed, removed or added (exit 0 intact, 1 not)
    #[command(after_help = "\
Each row has a hash of itself and of the row before. The last hash, the head, is printed. Keep it elsewhere and pass it as --head later: only that detects rows cut off at the end, or a trail rewritten as a whole.

Examples:
  ratekeeper audit verify --data-dir /var/lib/ratekeeper
  ratekeeper audit verify --quotas postgres://ratekeeper@db/ratekeeper --head 9f86d081884c7d65…")]
    Verify(AuditVerify),
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    /// Only changes of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Its domain, if several have tenants
    #[arg(long, requires = "tenant")]
    pub(crate) domain: Option<String>,
    /// Most changes to list, up to 1,000
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct AuditExport {
    /// Only changes after this one
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    pub(crate) after: u64,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    #[command(flatten)]
    pub(crate) database: DatabaseFlags,
    /// A head that an earlier run printed: a row has to have it
    #[arg(long, value_name = "HASH")]
    pub(crate) head: Option<String>,
}

/// The flags that name the quota database.
#[derive(Debug, Args)]
pub(crate) struct DatabaseFlags {
    /// Settings file [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Database [default: the `quotas` setting]
    #[arg(long, value_name = "WHERE")]
    pub(crate) quotas: Option<String>,
    /// Folder with quotas.db, if no database is named [default: the `data_dir` setting]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
}
