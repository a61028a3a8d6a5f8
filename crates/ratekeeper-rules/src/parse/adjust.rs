//! Reads `adjust:` at the top of a file.

use ratekeeper_core::Micros;

use super::context::Context;
use super::fields::{At, Fields};
use super::shed::percent;
use crate::AdjustMode;
use crate::adjust::STEPS_MAX;
use crate::report::Report;

/// The shortest time after which a step is taken back: usage is counted by minute.
const LOWER_AFTER_MIN: Micros = Micros::from_secs(60);

/// The longest: calls are kept for 400 days.
const LOWER_AFTER_MAX: Micros = Micros::from_secs(60 * 24 * 3_600);

/// `adjust:` of a file, whose plans are not looked up yet.
#[derive(Debug)]
pub(crate) struct ParsedAdjust {
    pub(crate) mode: AdjustMode,
    pub(crate) plans: Vec<At<Box<str>>>,
    pub(crate) raise_at: u8,
    pub(crate) step: u8,
    pub(crate) steps: u16,
    pub(crate) lower_after: Micros,
}

/// Reads `adjust:`; errors have been reported.
pub(super) fn parse_adjust(
    fields: &Fields<'_>,
    report: &mut Report<'_>,
) -> Option<At<ParsedAdjust>> {
    let mark = fields.key_mark("adjust")?;
    let fields = Fields::new(fields.get("adjust")?, Context::Adjust, report)?;
    let mode = fields.choice("mode", report);
    let plans = fields.texts("plans", report);
    if plans.is_empty() && fields.key_mark("plans").is_none() {
        let message = "`adjust` does not say whose limits it raises";
        report.error(mark, message, "write `plans: [pro]`");
    }
    let raise_at = some_percent(&fields, "raise_at", 80, report);
    let step = some_percent(&fields, "step", 50, report);
    let steps = fields.count("steps", STEPS_MAX, report);
    if let Some(At { value: 0, mark }) = steps {
        report.error(mark, "`steps` is at least 1", "write `mode: off`");
    }
    let lower_after = fields.duration("lower_after", report);
    if let Some(At { value, mark }) = lower_after
        && !(LOWER_AFTER_MIN..=LOWER_AFTER_MAX).contains(&value)
    {
        let message = "`lower_after` is 1m to 60d";
        report.error(mark, message, "write `lower_after: 24h`");
    }
    let value = ParsedAdjust {
        mode: mode.map_or_else(AdjustMode::default, |at| at.value),
        plans: plans.into_iter().map(|at| at.map(Into::into)).collect(),
        raise_at,
        step,
        steps: steps.map_or(2, |at| u16::try_from(at.value).unwrap_or(u16::MAX)),
        lower_after: lower_after.map_or(Micros::from_secs(24 * 3_600), |at| at.value),
    };
    Some(At { value, mark })
}

/// A percentage of at least 1%.
fn some_percent(fields: &Fields<'_>, key: &str, usual: u8, report: &mut Report<'_>) -> u8 {
    let Some(At { value, mark }) = percent(fields, key, report) else {
        return usual;
    };
    if value == 0 {
        let message = format!("`{key}` is at least 1%");
        report.error(mark, message, format!("write `{key}: {usual}%`"));
    }
    value
}
