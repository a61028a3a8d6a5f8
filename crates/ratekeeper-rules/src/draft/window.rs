//! The window of a limit, in its three notations.

use std::fmt::Display;

use ratekeeper_core::Micros;

use super::{Faults, LimitDraft};
use crate::nearest::nearest;
use crate::{Calendar, CalendarUnit, Unit};
use ratekeeper_core::duration::format_duration;

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

impl LimitDraft {
    /// The window; [`None`] if it is wrong, which `faults` has been told.
    pub(super) fn window(&self, faults: &mut dyn Faults) -> Option<Window> {
        if self.quota.unit.is_wrong() {
            return None;
        }
        if self.quota.window.is_set() {
            let others = [
                ("unit", self.quota.unit.mark()),
                ("calendar", self.quota.calendar.mark()),
            ];
            let mut others = others.into_iter();
            if let Some((key, mark)) = others.find_map(|(key, mark)| Some((key, mark?))) {
                let message = "`window` already says how long";
                faults.error(key, mark, message, Some("leave one of them out"));
            }
            return self.quota.window.get().copied().map(Window::Span);
        }
        let written = self.quota.unit.get().map_or("", |unit| unit);
        if self.quota.calendar.is_set() {
            return self.calendar(written, faults).map(Window::Calendar);
        }
        if let Some(unit) = Unit::from_name(written) {
            return Some(Window::Unit(unit));
        }
        let mark = self.quota.unit.mark().unwrap_or(self.mark);
        let message = format!("invalid rate limit unit '{written}'");
        faults.error("unit", mark, &message, Some(&unit_help(written)));
        None
    }

    fn calendar(&self, written: &str, faults: &mut dyn Faults) -> Option<Calendar> {
        let (zone, mark) = (self.quota.calendar.get()?, self.quota.calendar.mark()?);
        let written = written.to_lowercase();
        let Some(unit) = CalendarUnit::from_name(&written) else {
            let mark = self.quota.unit.mark().unwrap_or(mark);
            let message = format!("a calendar has no window '{written}'");
            let help = "write `unit: day`, `unit: week` or `unit: month`";
            faults.error("unit", mark, &message, Some(help));
            return None;
        };
        let calendar = Calendar::new(unit, zone);
        if calendar.is_none() {
            let message = format!("there is no time zone '{zone}'");
            faults.error("calendar", mark, &message, Some(&zone_help(zone)));
        }
        calendar
    }
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

fn zone_help(written: &str) -> String {
    let zones = [
        "Europe/Vienna",
        "Europe/London",
        "America/New_York",
        "Asia/Tokyo",
        "UTC",
    ];
    match nearest(written, zones) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "write a name of the IANA database, such as `Europe/Vienna`".to_owned(),
    }
}

/// The message and the help for what is no duration.
pub(crate) fn no_duration(key: &str, why: &dyn Display) -> (String, String) {
    let message = format!("`{key}` is not a duration: {why}");
    let help = format!("write `{key}: 10s`; the units are us, ms, s, m, h, d and w");
    (message, help)
}
