//! Exports the audit trail of tenants' quotas to Redis Streams and NATS JetStream.
//!
//! Each row is sent at least once, and no row before those with smaller numbers. The position is kept in the database
//! of the trail, where one node at a time claims the task. A target that is away is tried again with growing pauses;
//! meanwhile the rows wait in the database, so that nothing is lost and little is held in memory.
//!
//! ```no_run
//! # async fn example(store: ratekeeper_quota::QuotaStore, status: ratekeeper_quota::QuotaStatus)
//! # -> Result<(), ratekeeper_audit::BadTarget> {
//! use ratekeeper_audit::{ExportFiles, ExportTarget, Exporter};
//!
//! let target = ExportTarget::new("redis://audit.internal:6379/0", "ratekeeper.audit", ExportFiles::default())?;
//! let exporter = Exporter::start(store, status, target);
//! assert!(exporter.export_status().faults().is_empty());
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "nats")]
mod credentials;
mod error;
mod exporter;
#[cfg(feature = "nats")]
mod nats;
mod pause;
mod record;
mod status;
mod stream;
mod target;

pub use error::ExportError;
pub use exporter::Exporter;
pub use status::ExportStatus;
pub use target::{BadTarget, ExportFiles, ExportTarget};
