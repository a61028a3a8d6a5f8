//! Times in JSON answers, which are all in the form of RFC 3339.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time;
use serde::Serializer;

/// Writes seconds since 1970, as in `2027-01-31T00:00:00Z`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn rfc3339<S: Serializer>(seconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time::rfc3339(Timestamp::from_secs(*seconds)))
}
