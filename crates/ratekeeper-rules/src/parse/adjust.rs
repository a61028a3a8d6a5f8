//! Checks `adjust:` at the top of a file.

use ratekeeper_core::Micros;

use crate::AdjustMode;
use crate::draft::Field;
use crate::format::Adjust;
use crate::mark::{At, Mark};
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

/// Checks `adjust:`, whose key is at `mark`; errors have been reported.
pub(super) fn check_adjust(
    mark: Mark,
    mut keys: Adjust,
    report: &mut Report<'_>,
) -> At<ParsedAdjust> {
    if keys.plans.key().is_none() {
        let message = "`adjust` does not say whose limits it raises";
        report.error(mark, message, "write `plans: [pro]`");
    }
    if let Some(At { value: 0, mark }) = keys.steps.at().map(|at| at.map(|steps| *steps)) {
        report.error(mark, "`steps` is at least 1", "write `mode: off`");
    }
    if let Some(At { value, mark }) = keys.lower_after.at()
        && !(LOWER_AFTER_MIN..=LOWER_AFTER_MAX).contains(value)
    {
        let message = "`lower_after` is 1m to 60d";
        report.error(mark, message, "write `lower_after: 24h`");
    }
    let steps = keys.steps.copied();
    let lower_after = keys.lower_after.copied();
    let value = ParsedAdjust {
        mode: keys.mode.copied().unwrap_or_default(),
        plans: keys.plans.take().unwrap_or_default(),
        raise_at: some_percent(&keys.raise_at, "raise_at", 80, report),
        step: some_percent(&keys.step, "step", 50, report),
        steps: steps.map_or(2, |steps| u16::try_from(steps).unwrap_or(u16::MAX)),
        lower_after: lower_after.unwrap_or(Micros::from_secs(24 * 3_600)),
    };
    At { value, mark }
}

/// A percentage of at least 1%.
fn some_percent(field: &Field<u8>, key: &str, usual: u8, report: &mut Report<'_>) -> u8 {
    let Some(At { value, mark }) = field.at() else {
        return usual;
    };
    if *value == 0 {
        let message = format!("`{key}` is at least 1%");
        report.error(mark, message, format!("write `{key}: {usual}%`"));
    }
    *value
}
