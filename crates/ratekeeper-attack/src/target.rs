//! The process under attack.

pub(crate) use ratekeeper_testkit::ratekeeper::{Ratekeeper as Target, Setup};

/// The line of a head by which a body is JSON.
pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

/// A check of one entry in the domain `api`, as JSON, with `more` fields in the descriptor.
pub(crate) fn check(key: &str, value: &str, more: &str) -> String {
    format!(
        r#"{{"domain":"api","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]{more}}}]}}"#
    )
}
