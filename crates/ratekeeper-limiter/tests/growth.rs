//! The detector of unusual growth on a real log: quiet on the log as it is, and it finds steps that are put into it.

#![allow(
    clippy::cast_precision_loss,
    reason = "figures of measurements are rounded on purpose"
)]

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{
    Growth, GrowthChange, GrowthDetector, GrowthKey, GrowthRequests, SERIES_MAX, TICK_SECS,
};

/// The first tick of a detector's time.
const START: u64 = 80_000_000;

/// The ticks of an hour.
const HOUR: usize = 360;

/// A request of the log: the tick, the host, and the first part of the path.
type Request = (usize, u64, String);

fn log() -> Vec<Request> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nasa-1995-08-01.ticks.gz");
    let bytes = std::fs::read(path).expect("the log is there");
    let mut text = String::new();
    let mut lines = flate2::read::GzDecoder::new(&bytes[..]);
    lines.read_to_string(&mut text).expect("it is gzip");
    let request = |line: &str| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words");
        let number = |word: &str| word.parse().expect("a number");
        (number(word()), number(word()) as u64, word().to_owned())
    };
    text.lines().map(request).collect()
}

/// The requests by tick of each series that `of` puts a request into.
fn series(
    log: &[Request],
    mut of: impl FnMut(&Request) -> Option<String>,
) -> BTreeMap<String, Vec<u64>> {
    let ticks = log.iter().map(|(tick, ..)| tick + 1).max().unwrap_or(0);
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for request in log {
        if let Some(name) = of(request) {
            all.entry(name).or_insert_with(|| vec![0; ticks])[request.0] += 1;
        }
    }
    all
}

/// The reports on `all`, each series a rule of its own.
fn reports(all: &BTreeMap<String, Vec<u64>>) -> Vec<Growth> {
    let ticks = all.values().map(Vec::len).max().unwrap_or(0);
    let mut detector = GrowthDetector::default();
    let mut found = Vec::new();
    for tick in 0..ticks {
        let requests = all.iter().filter(|(_, counts)| counts[tick] > 0);
        let requests = requests.map(|(rule, counts)| requests_of(rule, counts[tick]));
        found.extend(begun(detector.on_sample(at(tick), requests.collect(), 1)));
    }
    found
}

fn at(tick: usize) -> Timestamp {
    Timestamp::from_secs((START + tick as u64) * TICK_SECS + TICK_SECS - 1)
}

fn requests_of(rule: &str, count: u64) -> GrowthRequests {
    let rule: Arc<str> = rule.into();
    GrowthRequests {
        key: GrowthKey {
            rule: Arc::clone(&rule),
            subject: None,
        },
        domain: "d".into(),
        subject: None,
        count,
    }
}

fn begun(changes: Vec<GrowthChange>) -> Vec<Growth> {
    let begun = changes.into_iter().filter_map(|change| match change {
        GrowthChange::Began(growth) => Some(growth),
        GrowthChange::Ended(_) => None,
    });
    begun.collect()
}

/// The same host is in another group for each `seed`.
fn group(host: u64, groups: u64, seed: u64) -> u64 {
    (host + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (seed << 17))
        .rotate_right(31)
        % groups
}

#[test]
fn a_real_log_has_at_most_one_false_report_a_day_and_hundred_rules() {
    let log = log();
    let (mut days, mut found) = (0.0, Vec::new());
    let mut look = |name: &str, all: BTreeMap<String, Vec<u64>>| {
        // The first hour is history, and a rule that is hardly used does not count.
        let used = all.values().filter(|counts| {
            let requests: u64 = counts.iter().sum();
            requests >= counts.len() as u64 / 6
        });
        let ticks = used
            .map(|counts| counts.len().saturating_sub(HOUR))
            .sum::<usize>();
        days += ticks as f64 * TICK_SECS as f64 / 86_400.0;
        found.extend(
            reports(&all)
                .into_iter()
                .map(|growth| (name.to_owned(), growth)),
        );
    };
    look("all", series(&log, |_| Some("all".to_owned())));
    look("paths", series(&log, |(_, _, path)| Some(path.clone())));
    look("hosts", series(&log, |(_, host, _)| Some(host.to_string())));
    for groups in [2, 3, 5, 8, 20, 100] {
        for seed in 0..4 {
            let of = |(_, host, _): &Request| Some(group(*host, groups, seed).to_string());
            look(&format!("{groups} groups of hosts"), series(&log, of));
        }
    }
    println!("{} reports in {days:.0} days of one rule each", found.len());
    assert!(days > 75.0, "{days}");
    assert!(found.len() as f64 <= days / 100.0, "{days} {found:#?}");
}

#[test]
fn steps_in_a_real_log_are_found() {
    let log = log();
    let of_all = series(&log, |_| Some("all".to_owned()));
    let of_paths = series(&log, |(_, _, path)| Some(path.clone()));
    // By factor: the least share of steps that is found within a minute, within five, and within a quarter of an hour.
    for (counts, expected) in [
        // 15 to 60 requests a minute, 6 to 25, and 4 to 15.
        (
            &of_all["all"],
            [
                (3, 0.2, 0.7, 0.9),
                (10, 0.9, 1.0, 1.0),
                (100, 0.95, 1.0, 1.0),
            ],
        ),
        (
            &of_paths["/images"],
            [
                (3, 0.1, 0.4, 0.75),
                (10, 0.75, 0.95, 1.0),
                (100, 0.9, 1.0, 1.0),
            ],
        ),
        (
            &of_paths["/shuttle"],
            [
                (3, 0.05, 0.25, 0.5),
                (10, 0.7, 0.95, 1.0),
                (100, 0.9, 1.0, 1.0),
            ],
        ),
    ] {
        for (factor, minute, five, quarter) in expected {
            let found = found_after(counts, factor);
            let share = |ticks: usize| {
                let within = found.iter().flatten().filter(|after| **after <= ticks);
                within.count() as f64 / found.len() as f64
            };
            let shares = [share(6), share(30), share(90)];
            println!("{factor}: {shares:.2?} of {}", found.len());
            assert!(
                shares[0] >= minute && shares[1] >= five && shares[2] >= quarter,
                "{factor}: {shares:?}"
            );
        }
    }
}

/// The ticks after which a step by `factor` that lasts a quarter of an hour is found, for places all over the log.
fn found_after(counts: &[u64], factor: u64) -> Vec<Option<usize>> {
    let (before, lasts) = (HOUR + 36, 90);
    let places = (before..counts.len() - lasts).step_by(41);
    let of_place = |start: usize| {
        let mut detector = GrowthDetector::default();
        let played = counts.iter().enumerate();
        for (tick, count) in played.take(start + lasts).skip(start - before) {
            let stepped = if tick < start { 1 } else { factor };
            let requests = vec![requests_of("r", count * stepped)];
            let begun = begun(detector.on_sample(at(tick), requests, 1));
            if tick >= start && !begun.is_empty() {
                return Some(tick - start + 1);
            }
        }
        None
    };
    places.map(of_place).collect()
}

#[test]
fn a_step_is_told_with_what_was_usual_and_ends() {
    let mut detector = GrowthDetector::default();
    let sample = |detector: &mut GrowthDetector, tick, count| {
        detector.on_sample(at(tick), vec![requests_of("r", count)], 1)
    };
    let begins = HOUR + 12;
    for tick in 0..begins {
        assert_eq!(sample(&mut detector, tick, 20), [], "{tick}");
    }
    let mut changes = HashMap::new();
    for tick in begins..begins + 30 {
        for change in sample(&mut detector, tick, 200) {
            changes.insert(tick - begins, change);
        }
    }
    let (after, change) = changes.iter().next().expect("a report");
    let GrowthChange::Began(growth) = change else {
        panic!("{change:?}");
    };
    assert!(
        changes.len() == 1 && *after < 6,
        "once, within a minute: {changes:?}"
    );
    assert_eq!((growth.usual_per_minute, growth.until), (120.0, None));
    assert_eq!(detector.active()[0].per_minute, 1_200);
    let mut ended = None;
    for tick in begins + 30..begins + 60 {
        for change in sample(&mut detector, tick, 20) {
            ended = Some((tick - begins - 30, change));
        }
    }
    let Some((after, GrowthChange::Ended(growth))) = ended else {
        panic!("{ended:?}");
    };
    assert!((6..=13).contains(&after), "{after}");
    assert_eq!(
        (growth.peak_per_minute, growth.until),
        (1_200, Some(at(begins + 30 + after)))
    );
    assert_eq!(detector.active(), []);
}

#[test]
fn without_an_hour_of_history_or_requests_in_most_minutes_nothing_is_told() {
    // Too early, by a minute.
    let mut detector = GrowthDetector::default();
    for tick in 0..HOUR - 6 {
        detector.on_sample(at(tick), vec![requests_of("r", 20)], 1);
    }
    for tick in HOUR - 6..HOUR {
        let early = detector.on_sample(at(tick), vec![requests_of("r", 2_000)], 1);
        assert_eq!(early, []);
    }
    // A job that runs each quarter of an hour.
    let mut detector = GrowthDetector::default();
    for tick in 0..10 * HOUR {
        let count = if tick % 90 < 6 { 500 } else { 0 };
        let told = detector.on_sample(at(tick), vec![requests_of("job", count)], 1);
        assert_eq!(told, [], "{tick}");
    }
}

#[test]
fn growth_that_stays_is_no_news_after_an_hour() {
    let mut detector = GrowthDetector::default();
    let mut changes = Vec::new();
    for tick in 0..4 * HOUR {
        let count = if tick < 2 * HOUR { 20 } else { 200 };
        for change in detector.on_sample(at(tick), vec![requests_of("r", count)], 1) {
            changes.push((tick, change));
        }
    }
    let ticks: Vec<_> = changes.iter().map(|(tick, _)| *tick).collect();
    assert!(
        matches!(ticks[..], [begun, ended] if ended - begun == HOUR),
        "{ticks:?}"
    );
}

#[test]
fn memory_is_bounded_and_busy_callers_stay_watched() {
    let mut detector = GrowthDetector::default();
    let caller = |number: u64, count| GrowthRequests {
        key: GrowthKey {
            rule: "r".into(),
            subject: Some(number),
        },
        subject: Some(format!("customer:{number}").into()),
        ..requests_of("r", count)
    };
    let mut told = Vec::new();
    for tick in 0..2 * HOUR as u64 {
        // One with many requests, and a flood of new names.
        let step = if tick < HOUR as u64 + 60 { 30 } else { 300 };
        let mut requests = vec![caller(0, step)];
        requests.extend((1..200).map(|number| caller(tick * 1_000 + number, 1 + number % 3)));
        told.extend(begun(detector.on_sample(
            at(usize::try_from(tick).expect("few")),
            requests,
            1,
        )));
        assert!(detector.watched() <= SERIES_MAX);
    }
    let told: Vec<_> = told
        .iter()
        .map(|growth| growth.subject.as_deref())
        .collect();
    assert_eq!(told, [Some("customer:0")]);
}

#[test]
fn time_that_stands_still_or_jumps_does_no_harm() {
    let mut detector = GrowthDetector::default();
    let mut told = Vec::new();
    for tick in 0..3 * HOUR {
        // Back and forth, as a clock that is set; then a day ahead.
        let now = match tick {
            tick if tick > 2 * HOUR => tick + 24 * HOUR,
            tick => tick - tick % 3,
        };
        told.extend(detector.on_sample(at(now), vec![requests_of("r", 20)], 1));
    }
    assert_eq!(told, []);
}

#[test]
fn callers_with_one_request_take_no_room_from_those_with_more() {
    let mut detector = GrowthDetector::default();
    let mut sample = |tick, callers: std::ops::Range<u64>, count| {
        let requests = callers.map(|number| GrowthRequests {
            key: GrowthKey {
                rule: "r".into(),
                subject: Some(number),
            },
            ..requests_of("r", count)
        });
        detector.on_sample(at(tick), requests.collect(), 1);
        detector.watched()
    };
    assert_eq!(sample(0, 0..600, 1), 512);
    assert_eq!(sample(1, 1_000..1_100, 1), 512);
    assert_eq!(sample(2, 2_000..9_000, 2), SERIES_MAX);
    assert_eq!(sample(3, 10_000..10_100, 3), SERIES_MAX);
}

/// So many requests of one caller of the rule.
fn caller(number: u64, count: u64) -> GrowthRequests {
    GrowthRequests {
        key: GrowthKey {
            rule: "r".into(),
            subject: Some(number),
        },
        ..requests_of("r", count)
    }
}

/// All places are taken by callers with a few requests at the start.
#[test]
fn a_busy_caller_takes_the_place_of_a_quiet_one() {
    let mut detector = GrowthDetector::default();
    let callers = (0..SERIES_MAX as u64).map(|number| caller(number, 2));
    detector.on_sample(at(0), callers.collect(), 1);
    let mut told = Vec::new();
    for tick in 1..HOUR + 30 {
        let count = if tick < HOUR + 10 { 5 } else { 100 };
        let requests = vec![caller(SERIES_MAX as u64, count)];
        told.extend(begun(detector.on_sample(at(tick), requests, 1)));
        assert_eq!(detector.watched(), SERIES_MAX);
    }
    assert_eq!(told.len(), 1);
}

/// All places are taken, and a newcomer looks for one whose caller was quiet when another newcomer looked.
#[test]
fn growth_that_has_begun_is_followed_to_its_end() {
    let mut detector = GrowthDetector::default();
    let (quiet, growing, newcomer) = (0, 1, SERIES_MAX as u64);
    let busy = (2..newcomer).map(|number| caller(number, 10_000));
    let few = [caller(quiet, 2), caller(growing, 2)];
    detector.on_sample(at(0), few.into_iter().chain(busy).collect(), 1);
    let mut sample = |tick, requests| detector.on_sample(at(tick), requests, 1);
    let grows = HOUR + 12;
    for tick in 1..grows + 3 {
        let count = if tick < grows { 1 } else { 20 };
        assert_eq!(sample(tick, vec![caller(growing, count)]), [], "{tick}");
    }
    let newcomers = [newcomer, newcomer + 1].map(|number| caller(number, 1_000));
    let [before, after] = newcomers;
    let changes = sample(grows + 3, vec![before, caller(growing, 20), after]);
    assert_eq!(begun(changes).len(), 1);
    let calm = (grows + 4..grows + 30).flat_map(|tick| sample(tick, Vec::new()));
    let ended: Vec<_> = calm.collect();
    assert!(matches!(ended[..], [GrowthChange::Ended(_)]), "{ended:?}");
    assert_eq!(detector.watched(), SERIES_MAX);
}
