//! `concurrency:`, a limit on requests in flight.

use ratekeeper_core::{Algorithm, MAX_COUNT, Micros};

use super::context::Context;
use super::fields::Fields;
use super::limits::parse_id;
use super::policy::Policy;
use crate::draft::{BuiltLimit, LimitDefaults, LimitDraft};
use crate::report::Report;
use crate::yaml::Node;

/// The lifetime of a permit whose rule has no `timeout`.
const PERMIT_TIMEOUT: Micros = Micros::from_secs(60);

/// Reads `concurrency:`.
pub(crate) fn parse_concurrency(
    node: &Node,
    outer: &Policy,
    report: &mut Report<'_>,
) -> Option<BuiltLimit> {
    let fields = Fields::new(node, Context::Concurrency, report)?;
    let message = "permits are taken and given back by the gateway, the layer and acquire/release; \
                   checks over RLS, HTTP and replay skip this limit";
    report.warn(fields.mark, message, None);
    let policy = Policy::parse(&fields, report);
    let retry_after = fields.duration("retry_after", report).map(|at| at.value);
    let draft = LimitDraft {
        name: fields.text("name", report).map(|at| at.value.into()),
        id: parse_id(&fields, report),
        algorithm: Some(Algorithm::Concurrency).into(),
        window: match fields.read_duration("timeout", report) {
            timeout if timeout.is_set() => timeout,
            _ => Some(PERMIT_TIMEOUT).into(),
        },
        limit: fields.read_count("limit", MAX_COUNT, report),
        policy,
        ..LimitDraft::at(fields.mark)
    };
    if !draft.limit.is_set() {
        let help = "write `concurrency: { limit: 20, timeout: 60s }`";
        report.error(fields.mark, "there is no `limit`", help);
        return None;
    }
    let around = LimitDefaults {
        policy: outer,
        algorithm: Algorithm::Concurrency,
    };
    let built = draft.build(around, report)?;
    Some(BuiltLimit {
        // A timeout is no window, though it may be as long as a unit.
        unit: None,
        retry_after,
        ..built
    })
}
