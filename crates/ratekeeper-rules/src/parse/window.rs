//! The window of a limit, in its three notations.

use ratekeeper_core::Micros;

use super::fields::{At, Fields};
use super::nearest::nearest;
use crate::report::Report;
use crate::window::format_duration;
use crate::{Calendar, CalendarUnit, Unit};

/// A window as it is written in a file.
pub(super) enum Window {
    Unit(Unit),
    Span(Micros),
    Calendar(Calendar),
}

impl Window {
    /// The unit of the same length, if there is one.
    pub(super) fn unit(&self) -> Option<Unit> {
        match self {
            Self::Unit(unit) => Some(*unit),
            Self::Span(span) => Unit::from_window(*span),
            Self::Calendar(_) => None,
        }
    }

    /// The shortest spelling: `1m`, `month@Europe/Vienna`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Calendar(calendar) => format!("{}@{}", calendar.unit().name(), calendar.zone()),
            _ => format_duration(self.length()),
        }
    }

    pub(super) fn into_calendar(self) -> Option<Calendar> {
        match self {
            Self::Calendar(calendar) => Some(calendar),
            _ => None,
        }
    }

    /// The window's length; for a calendar, the longest it can be.
    pub(super) const fn length(&self) -> Micros {
        match self {
            Self::Unit(unit) => unit.window(),
            Self::Span(span) => *span,
            Self::Calendar(calendar) => calendar.unit().longest(),
        }
    }
}

/// Reads the window; [`None`] if it is wrong, which has been reported.
pub(super) fn parse_window(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Window> {
    let unit = fields.text("unit", report);
    if fields.has("unit") && unit.is_none() {
        return None;
    }
    if fields.has("window") {
        let mut others = ["unit", "calendar"].into_iter();
        if let Some(other) = others.find_map(|key| fields.get(key)) {
            let message = "`window` already says how long";
            report.error(other.mark, message, "leave one of them out");
        }
        return fields
            .duration("window", report)
            .map(|at| Window::Span(at.value));
    }
    if fields.has("calendar") {
        return parse_calendar(fields, unit, report).map(Window::Calendar);
    }
    let written = unit.map_or("", |at| at.value);
    if let Some(unit) = Unit::from_name(written) {
        return Some(Window::Unit(unit));
    }
    let mark = unit.map_or(fields.mark, |at| at.mark);
    report.error(
        mark,
        format!("invalid rate limit unit '{written}'"),
        unit_help(written),
    );
    None
}

fn unit_help(written: &str) -> String {
    const NAMES: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];
    match nearest(written, NAMES) {
        Some(name) if !written.is_empty() => format!("did you mean `{name}`?"),
        _ => format!(
            "write `unit:` with one of {}, or `window: 10s`",
            NAMES.join(", ")
        ),
    }
}

fn parse_calendar(
    fields: &Fields<'_>,
    unit: Option<At<&str>>,
    report: &mut Report<'_>,
) -> Option<Calendar> {
    let zone = fields.text("calendar", report)?;
    let written = unit.map_or("", |at| at.value).to_lowercase();
    let Some(unit) = CalendarUnit::from_name(&written) else {
        let mark = unit.map_or(zone.mark, |at| at.mark);
        let message = format!("a calendar has no window '{written}'");
        report.error(
            mark,
            message,
            "write `unit: day`, `unit: week` or `unit: month`",
        );
        return None;
    };
    let calendar = Calendar::new(unit, zone.value);
    if calendar.is_none() {
        let message = format!("there is no time zone '{}'", zone.value);
        let zones = [
            "Europe/Vienna",
            "Europe/London",
            "America/New_York",
            "Asia/Tokyo",
            "UTC",
        ];
        let help = match nearest(zone.value, zones) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "write a name of the IANA database, such as `Europe/Vienna`".to_owned(),
        };
        report.error(zone.mark, message, help);
    }
    calendar
}
