//! Plans and overrides of tenants in a database: SQLite for one node, PostgreSQL for many.
//!
//! [`QuotaStore`] reads and changes tenants, each change in one transaction with its row of the audit
//! trail. [`Follower`] keeps an index of all tenants in memory in step with the database, so that a check
//! never waits for it. The crate knows SQL, and no protocol.
//!
//! ```no_run
//! # async fn example(rules: ratekeeper_rules::RuleSet) -> Result<(), ratekeeper_quota::QuotaError> {
//! use ratekeeper_quota::{Editor, Precondition, QuotaStore, TenantId, TenantPut};
//! use ratekeeper_rules::{TenantKey, TenantPlan, TenantQuotas};
//!
//! let key = TenantKey::from_bytes([7; 16]);
//! let quotas = QuotaStore::new("sqlite:///var/lib/ratekeeper/quotas.db".parse()?, key.clone())?;
//! let acme = TenantId::of_value("api_platform", "acme", false, &key);
//! let on_pro = TenantQuotas {
//!     plans: vec![TenantPlan::new("pro")],
//!     ..TenantQuotas::default()
//! };
//! let editor = Editor::default();
//! let put = TenantPut::now(acme, on_pro);
//! let written = quotas.put(&put, Precondition::Any, &editor, &rules).await?;
//! assert_eq!(written.record.quotas, put.quotas);
//! # Ok(())
//! # }
//! ```

// Calls are counted twice: in `usage` by minute (`metering` has its lines in files), and in `calls` by hour, for bills. The last
// change of the database is in `head`, whether somebody listens there in `reach`, and who has called in `seen`.
mod adjust;
mod audit;
mod audited;
mod boot;
mod bulk;
mod calls;
mod change;
mod database;
mod document;
mod edit;
mod error;
mod export;
mod file;
mod fleet;
mod follow;
mod head;
mod identity;
mod list;
mod metering;
mod period;
#[cfg(test)]
mod query_plans;
mod reach;
mod record;
mod rows;
mod saved;
mod seen;
mod status;
mod store;
mod tenants_domain;
mod usage;

pub use adjust::{AdjustRound, AdjustStep, AdjustTimes};
pub use audit::{AuditFilter, AuditRow, AuditVerdict};
pub use bulk::{
    BadTenantLine, BulkFormat, BulkLine, BulkTenant, LineFault, UnknownFormat, bulk_head,
    read_tenants,
};
pub use calls::{CallCursor, CallLine, CallPage, CallRow, CallerRow};
pub use change::{PutAllError, TenantPut};
pub use database::{DatabaseAddress, DatabaseKind};
pub use document::{
    AuditDocument, BadDocument, LimitDocument, LimitsDocument, QuotaDocument, TenantDocument,
};
pub use edit::{NotSet, OverrideOption, QuotaEdit};
pub use error::{QuotaError, with_causes};
pub use export::ExportClaim;
pub use fleet::{
    FleetRecord, FleetToken, FleetTokenError, ImportedTokens, KnownNode, LateSwitch, NodeReport,
    NodeTokens, RevokedToken, SwitchedLate, TOKENS_MAX,
};
pub use follow::{Follower, FollowerConfig};
pub use identity::DatabaseIdentity;
pub use list::{ListCursor, ListFilter, ListPage, NotACursor, PAGE_MAX};
pub use metering::{NotAUsageCursor, USAGE_PAGE_MAX, UsageCursor, UsageLine, UsagePage};
pub use period::{UnknownPeriod, UsagePeriod};
pub use record::{Deleted, Editor, HIDDEN, Precondition, TenantId, TenantRecord, Written};
pub use saved::SavedError;
pub use status::QuotaStatus;
pub use store::QuotaStore;
pub use tenants_domain::{UnclearTenants, tenants_domain};
pub use usage::{FORGOTTEN_MAX, UsageFilter, UsageRow};
