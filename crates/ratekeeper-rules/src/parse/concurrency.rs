//! `concurrency:`, a limit on requests in flight.

use ratekeeper_core::{Algorithm, Micros};

use super::limits::read_id;
use crate::draft::quota::Quota;
use crate::draft::{BuiltLimit, LimitDefaults, LimitDraft};
use crate::format::Concurrency;
use crate::mark::At;
use crate::policy::Policy;
use crate::report::Report;

/// The lifetime of a permit whose rule has no `timeout`.
const PERMIT_TIMEOUT: Micros = Micros::from_secs(60);

/// Builds `concurrency:`.
pub(crate) fn build_concurrency(
    at: At<Concurrency>,
    outer: &Policy,
    report: &mut Report<'_>,
) -> Option<BuiltLimit> {
    let At {
        value: mut keys,
        mark,
    } = at;
    let message = "permits are taken and given back by the gateway, the layer and acquire/release; \
                   checks over RLS, HTTP and replay skip this limit";
    report.warn(mark, message, None);
    if !keys.limit.is_set() {
        let help = "write `concurrency: { limit: 20, timeout: 60s }`";
        report.error(mark, "there is no `limit`", help);
        return None;
    }
    if let Some(at) = keys.retry_after.at().filter(|at| at.value.is_zero()) {
        let message = "callers that are told to retry at once would never pause";
        let help = "write `retry_after: 1s`, or leave it out";
        report.error(at.mark, message, help);
    }
    let draft = LimitDraft {
        name: keys.name.take(),
        id: read_id(&mut keys.id, report),
        policy: Policy {
            consistency: keys.consistency.copied(),
            enabled: keys.enabled.copied(),
            enforce: keys.enforce.copied(),
            on_store_failure: keys.on_store_failure.copied(),
            regions: keys.regions.copied(),
            store: keys.store.take(),
            ..Policy::default()
        },
        algorithm: Some(Algorithm::Concurrency).into(),
        quota: Quota {
            limit: keys.limit,
            window: match keys.timeout.is_set() {
                true => keys.timeout,
                false => Some(PERMIT_TIMEOUT).into(),
            },
            ..Quota::default()
        },
        ..LimitDraft::at(mark)
    };
    let around = LimitDefaults {
        policy: outer,
        algorithm: Algorithm::Concurrency,
    };
    let built = draft.build(around, report)?;
    Some(BuiltLimit {
        // A timeout is no window, though it may be as long as a unit.
        unit: None,
        retry_after: keys.retry_after.copied(),
        ..built
    })
}
