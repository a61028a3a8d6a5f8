//! Calendar windows where clocks change, and at both ends of time.

use jiff::Zoned;
use proptest::prelude::*;
use ratekeeper_core::{MAX_COUNT, Timestamp};
use ratekeeper_rules::{Calendar, CalendarUnit};

fn at(zoned: &str) -> Timestamp {
    let zoned: Zoned = zoned.parse().expect("a time in its zone");
    let micros = u64::try_from(zoned.timestamp().as_microsecond()).expect("after the epoch");
    Timestamp::from_micros(micros)
}

fn check(unit: CalendarUnit, zone: &str, now: &str, [start, end, next_end]: [&str; 3]) {
    let calendar = Calendar::new(unit, zone).expect("there is such a zone");
    let bounds = calendar.bounds(at(now));
    assert_eq!(
        (bounds.start, bounds.end, bounds.next_end),
        (at(start), at(end), at(next_end)),
        "{now}"
    );
}

#[test]
fn months_start_at_local_midnight() {
    check(
        CalendarUnit::Month,
        "Europe/Vienna",
        "2026-03-31T23:59:59[Europe/Vienna]",
        [
            "2026-03-01T00[Europe/Vienna]",
            "2026-04-01T00[Europe/Vienna]",
            "2026-05-01T00[Europe/Vienna]",
        ],
    );
    // The first tick of a month belongs to it.
    check(
        CalendarUnit::Month,
        "Europe/Vienna",
        "2026-12-01T00:00:00[Europe/Vienna]",
        [
            "2026-12-01T00[Europe/Vienna]",
            "2027-01-01T00[Europe/Vienna]",
            "2027-02-01T00[Europe/Vienna]",
        ],
    );
}

#[test]
fn weeks_start_on_monday() {
    check(
        CalendarUnit::Week,
        "UTC",
        "2026-11-22T23:00[UTC]",
        [
            "2026-11-16T00[UTC]",
            "2026-11-23T00[UTC]",
            "2026-11-30T00[UTC]",
        ],
    );
}

#[test]
fn days_have_23_to_25_hours_where_clocks_change() {
    let vienna = Calendar::new(CalendarUnit::Day, "Europe/Vienna").expect("there is such a zone");
    let hours = |noon: &str| {
        let bounds = vienna.bounds(at(noon));
        bounds.end.since(bounds.start).get() / 3_600_000_000
    };
    assert_eq!(hours("2026-03-29T12[Europe/Vienna]"), 23);
    assert_eq!(hours("2026-10-25T12[Europe/Vienna]"), 25);
    assert_eq!(hours("2026-10-26T12[Europe/Vienna]"), 24);
    // Clocks skipped midnight that day: it began at one.
    let santiago =
        Calendar::new(CalendarUnit::Day, "America/Santiago").expect("there is such a zone");
    let bounds = santiago.bounds(at("2022-09-11T12[America/Santiago]"));
    assert_eq!(bounds.start, at("2022-09-11T01[America/Santiago]"));
}

#[test]
fn zones_are_known_by_their_names_only() {
    assert!(Calendar::new(CalendarUnit::Day, "Nowhere/Else").is_none());
    assert!(Calendar::new(CalendarUnit::Day, "").is_none());
    assert_eq!(
        Calendar::new(CalendarUnit::Day, "europe/vienna")
            .map(|it| it.zone().to_owned())
            .as_deref(),
        Some("Europe/Vienna")
    );
}

proptest! {
    #[test]
    fn bounds_hold_the_time_and_follow_each_other(
        micros in 0..=MAX_COUNT, zone in prop::sample::select(vec!["UTC", "Europe/Vienna", "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu"]),
    ) {
        let now = Timestamp::from_micros(micros);
        for unit in CalendarUnit::ALL {
            let calendar = Calendar::new(unit, zone).expect("there is such a zone");
            let bounds = calendar.bounds(now);
            prop_assert!(bounds.start <= now && (now < bounds.end || now.as_micros() == MAX_COUNT));
            prop_assert!(bounds.end <= bounds.next_end);
            // The cached answer is the same, within the window and after it.
            prop_assert_eq!(calendar.bounds(bounds.start), bounds);
            if bounds.next_end.as_micros() < MAX_COUNT {
                let next = calendar.bounds(bounds.end);
                prop_assert_eq!((next.start, next.end), (bounds.end, bounds.next_end));
                prop_assert_eq!(calendar.bounds(now), bounds);
            }
        }
    }
}
