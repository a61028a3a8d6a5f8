//! Commands about tenants' quotas and the trail of their changes.

use super::AdminAccess;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The commands about tenants' quotas.
#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Show the plan and the overrides of a tenant
    #[command(after_help = "\
Examples:
  ratekeeper quota get acme
  ratekeeper quota get hash:5f0c6a8e1b2d3c4f5a69788796a5b4c3 --json")]
    Get(TenantArgs),
    /// Give a tenant a plan and overrides, in place of all that it has
    #[command(after_help = "\
An override is the entries after the tenant's, an equals sign, and the limit: hits, a slash, and the window as a unit or a duration. `default` stands for the tenant as a whole. With --effective-at in the future the tenant keeps what it has until then.

Examples:
  ratekeeper quota set acme --plan enterprise --override 'endpoint:POST /api/v1/orders=500/minute'
  ratekeeper quota set acme --override default=20/10s --expires-at 2027-02-01T00:00:00Z
  ratekeeper quota set acme --plan pro --effective-at 2027-01-01T00:00:00Z --if-version 17
  ratekeeper quota set acme --file acme.json")]
    Set(Box<QuotaSet>),
    /// List tenants
    #[command(after_help = "\
Examples:
  ratekeeper quota list --plan enterprise
  ratekeeper quota list --overrides --json")]
    List(QuotaList),
    /// Take the plan and the overrides of a tenant away: it is on the default plan then
    Delete(QuotaDelete),
    /// Give many tenants their plans and overrides, from JSON lines or CSV
    #[command(after_help = "\
Up to 500 tenants are changed together: all of them or none. What is in force already is not changed again, so an import that broke off can be repeated.

Examples:
  ratekeeper quota import tenants.csv
  ratekeeper quota import tenants.jsonl --dry-run
  ratekeeper quota export --format jsonl | ratekeeper quota import - --admin http://10.0.0.7:6070")]
    Import(QuotaImport),
    /// Write all tenants, as `import` reads them
    #[command(after_help = "\
Secret values are written as their hashes, and can be imported only under the same tenant_key.

Examples:
  ratekeeper quota export > tenants.jsonl
  ratekeeper quota export --format csv > tenants.csv")]
    Export(QuotaExport),
    /// Write the calls of tenants by minute, for billing
    #[command(after_help = "\
A line for each tenant, rule, minute and start of a node: sum them up.

Examples:
  ratekeeper quota usage --from 2027-01-01T00:00:00Z --until 2027-02-01T00:00:00Z --format csv > january.csv
  ratekeeper quota usage --tenant acme")]
    Usage(QuotaUsage),
    /// Bring the tables of the quota database up to date, as `serve` does at its start
    #[command(after_help = "\
Examples:
  ratekeeper quota migrate --quotas postgres://ratekeeper@db/ratekeeper")]
    Migrate(DatabaseFlags),
}

#[derive(Debug, Args)]
pub(crate) struct TenantArgs {
    /// The tenant: its value, or hash: and its keyed hash
    pub(crate) api_key: String,
    /// The domain, where several have tenants
    #[arg(long)]
    pub(crate) domain: Option<String>,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaSet {
    #[command(flatten)]
    pub(crate) tenant: TenantArgs,
    /// The plan [default: the default plan of the rules]
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,
    /// A limit that this tenant has alone: DESCRIPTOR=HITS/WINDOW; can be repeated
    #[arg(long = "override", value_name = "DESCRIPTOR=HITS/WINDOW")]
    pub(crate) overrides: Vec<String>,
    /// The time at which it begins, such as 2027-01-31T00:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) effective_at: Option<String>,
    /// The time at which it ends [default: never]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_at: Option<String>,
    /// The body of PUT /admin/v1/quotas/{api_key}, in place of the flags above; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "overrides", "effective_at", "expires_at"])]
    pub(crate) file: Option<PathBuf>,
    /// Only if the tenant is in this version, as `quota get` prints it
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    /// Only if the database does not have the tenant
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) if_new: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaDelete {
    #[command(flatten)]
    pub(crate) tenant: TenantArgs,
    /// Only if the tenant is in this version, as `quota get` prints it
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
    /// The file; - is standard input
    pub(crate) file: PathBuf,
    /// The format [default: by the end of the file's name, else jsonl]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<TenantsForm>,
    /// Check the tenants, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaExport {
    /// The format
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
    /// The first minute, such as 2027-01-01T00:00:00Z [default: all that is kept]
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// The minute after the last
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only calls of this tenant
    #[arg(long, value_name = "API_KEY")]
    pub(crate) tenant: Option<String>,
    /// Its domain, where several have tenants
    #[arg(long, requires = "tenant")]
    pub(crate) domain: Option<String>,
    /// The format
    #[arg(long, value_name = "NAME", default_value = "jsonl")]
    pub(crate) format: TenantsForm,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

/// The form of a file of tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TenantsForm {
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
    /// Write all changes, the oldest first, as JSON lines
    #[command(after_help = "\
Examples:
  ratekeeper audit export > audit.jsonl
  ratekeeper audit export --after 1042 >> audit.jsonl   what came after change 1042")]
    Export(AuditExport),
    /// Check that no row of the audit trail was changed, removed or added (exit 0 intact, 1 not)
    #[command(after_help = "\
Each row has a hash of itself and of the row before. The last one, the head, is printed. Keep it elsewhere and pass it as --head later: only that detects rows cut off at the end, or a trail rewritten as a whole.

Examples:
  ratekeeper audit verify --data-dir /var/lib/ratekeeper
  ratekeeper audit verify --quotas postgres://ratekeeper@db/ratekeeper --head 9f86d081884c7d65…")]
    Verify(AuditVerify),
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    /// Only changes of this tenant
    #[arg(long, value_name = "API_KEY")]
    pub(crate) tenant: Option<String>,
    /// Its domain, where several have tenants
    #[arg(long, requires = "tenant")]
    pub(crate) domain: Option<String>,
    /// At most so many changes, up to 1,000
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
    /// The settings file [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The database [default: the setting `quotas`]
    #[arg(long, value_name = "WHERE")]
    pub(crate) quotas: Option<String>,
    /// The folder with quotas.db, if no database is named [default: the setting `data_dir`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
}
