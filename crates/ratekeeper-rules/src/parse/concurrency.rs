//! `concurrency:`, a limit on requests in flight.

use ratekeeper_core::{Algorithm, Limit, LimitError, LimitSpec, Micros};

use super::context::Context;
use super::fields::Fields;
use super::limits::{ParsedLimit, parse_id};
use super::policy::Policy;
use crate::RuleLimit;
use crate::report::Report;
use crate::window::format_duration;
use crate::yaml::Node;

/// The lifetime of a permit whose rule has no `timeout`.
const PERMIT_TIMEOUT: Micros = Micros::from_secs(60);

/// Reads `concurrency:`.
pub(crate) fn parse_concurrency(
    node: &Node,
    outer: &Policy,
    report: &mut Report<'_>,
) -> Option<ParsedLimit> {
    let fields = Fields::new(node, Context::Concurrency, report)?;
    let message = "permits are taken and given back by the gateway, the layer and acquire/release; \
                   checks over RLS, HTTP and replay skip this limit";
    report.warn(fields.mark, message, None);
    let policy = Policy::parse(&fields, report).within(outer);
    let timeout = fields.duration("timeout", report);
    let retry_after = fields.duration("retry_after", report).map(|at| at.value);
    let name = fields.text("name", report).map(|at| at.value.into());
    let id = parse_id(&fields, report);
    let Some(limit) = fields.hits("limit", report) else {
        if !fields.has("limit") {
            report.error(
                fields.mark,
                "there is no `limit`",
                "write `concurrency: { limit: 20, timeout: 60s }`",
            );
        }
        return None;
    };
    let window = timeout.map_or(PERMIT_TIMEOUT, |at| at.value);
    match Limit::try_new(LimitSpec::new(Algorithm::Concurrency, limit.value, window)) {
        Ok(limit) => Some(ParsedLimit {
            limit: RuleLimit::Limited(limit),
            window_text: format_duration(window).into(),
            name,
            id,
            policy,
            retry_after,
            ..ParsedLimit::unlimited(fields.mark)
        }),
        Err(error) => {
            let mark = timeout.map_or(limit.mark, |at| at.mark);
            let message = match error {
                LimitError::EmptyWindow => "a timeout is at least 1 microsecond".to_owned(),
                other => other.to_string(),
            };
            report.error(mark, message, None);
            None
        }
    }
}
