//! A tenant as a service has it, on which a change is based.

use crate::cli::TenantArgs;
use crate::commands::admin::{Condition, Refusal};
use crate::settings::percent_encoded;
use anyhow::{Context, Result, anyhow};
use jiff::fmt::rfc2822;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Clock;
use ratekeeper_quota::{QuotaDocument, TenantDocument};
use ratekeeper_rules::TenantQuotas;
use serde::Deserialize;
use serde_json::Value;

/// The state of a tenant, and the time at which it was read.
pub(super) struct KnownTenant {
    /// Its own plans and overrides; those that files give it, if the database does not have it.
    pub(super) quotas: TenantQuotas,
    /// The number of its last change; [`None`] if the database does not have it.
    pub(super) version: Option<u64>,
    /// The time, by the clock of the service.
    pub(super) now: Timestamp,
}

/// The code of an answer about a tenant that the database does not have.
const UNKNOWN_TENANT: &str = "UNKNOWN_TENANT";

impl KnownTenant {
    /// Reads the tenant.
    ///
    /// # Errors
    /// There is no answer, the service refuses, or its answer is of another version.
    pub(super) fn read(args: &TenantArgs) -> Result<Self> {
        let answer = args
            .access
            .answer("GET", &path(args, ""), "", Condition::Any)?;
        let now = answer.header("date").and_then(time_of);
        let now = now.unwrap_or_else(|| Clock::new().now());
        let listed = listed(&answer.body);
        let tenant = match args.access.accepted(answer) {
            Err(error) if is_unknown(&error) => {
                return Ok(Self {
                    quotas: listed?,
                    version: None,
                    now,
                });
            }
            answer => answer?,
        };
        let tenant: TenantDocument = args.access.read(&tenant.body)?;
        Ok(Self {
            quotas: own(&tenant).with_context(|| args.access.address.clone())?,
            version: Some(tenant.version),
            now,
        })
    }

    /// Gives the tenant other quotas, if it is still as it was read.
    ///
    /// # Errors
    /// Somebody has changed it ([`is_outdated`]), or the service refuses.
    pub(super) fn put(&self, args: &TenantArgs, body: &QuotaDocument) -> Result<Value> {
        let body = serde_json::to_string(body)?;
        args.access
            .ask_if("PUT", &path(args, ""), &body, self.condition())
    }

    /// The state that the tenant is still to have.
    pub(super) fn condition(&self) -> Condition {
        self.version.map_or(Condition::Absent, Condition::Version)
    }
}

/// The path of a tenant's quotas, or of what `end` says about them.
pub(super) fn path(args: &TenantArgs, end: &str) -> String {
    // The colon of `hash:` is one of few characters that mean something: it may stand in a path.
    let named = match args.tenant.strip_prefix("hash:") {
        Some(hash) => format!("hash:{}", percent_encoded(hash)),
        None => percent_encoded(&args.tenant),
    };
    let domain = args.domain.as_deref().map(percent_encoded);
    let query = domain.map_or_else(String::new, |domain| format!("?domain={domain}"));
    format!("/admin/v1/quotas/{named}{end}{query}")
}

/// The own plans and overrides of a tenant.
///
/// # Errors
/// The service does not tell them.
pub(super) fn own(tenant: &TenantDocument) -> Result<TenantQuotas> {
    let own = tenant.own.as_ref().ok_or_else(|| {
        anyhow!("this service is of an older version, which does not tell a tenant's own quotas: nothing is changed")
    })?;
    Ok(own.quotas()?)
}

/// The plans and overrides that files give a tenant, as the service tells when the database does not have it.
///
/// # Errors
/// The service is of a later version.
fn listed(body: &str) -> Result<TenantQuotas> {
    #[derive(Deserialize)]
    struct Unknown {
        listed: Option<QuotaDocument>,
    }
    let unknown: Unknown = serde_json::from_str(body)?;
    let listed = unknown.listed.unwrap_or_default();
    Ok(listed.quotas()?)
}

/// Returns true if a change was refused because somebody else was faster.
pub(super) fn is_outdated(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Refusal>()
        .is_some_and(|refusal| refusal.status == 412)
}

fn is_unknown(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| refusal.code == UNKNOWN_TENANT)
}

/// The time in the header `Date`.
fn time_of(text: &str) -> Option<Timestamp> {
    let zoned = rfc2822::parse(text).ok()?;
    let secs = u64::try_from(zoned.timestamp().as_second()).ok()?;
    Some(Timestamp::from_secs(secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_service_is_read() {
        let time = time_of("Sun, 31 Jan 2027 00:00:00 GMT");
        assert_eq!(time, Some(Timestamp::from_secs(1_801_353_600)));
        assert_eq!(time_of("yesterday"), None);
    }
}
