//! Replays the log in `examples/logs` beside a slow and obvious model: lists of all admitted hits,
//! searched linearly, times in whole seconds.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use ratekeeper_replay::{CompareWith, Log, Replay, ReplayOptions, Report};
use ratekeeper_rules::{Options, ReadOptions};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/logs")
        .join(name)
}

fn replayed(compare: Option<CompareWith>) -> Report {
    let sources = ratekeeper_rules::read(&example("nasa.yaml"), &ReadOptions::default());
    let loaded =
        ratekeeper_rules::load(&sources.expect("the example is there"), &Options::default());
    let mut options = ReplayOptions::default();
    options.compare = compare;
    let rules = loaded.expect("the example is valid").rules;
    let mut replay = Replay::new(options, rules).expect("the example has one domain");
    let log = Log::File(example("nasa-1995-08-01.log.gz"));
    let mut last = None;
    replay
        .read(&log, |progress| last = Some(progress))
        .expect("the example can be read");
    let last = last.expect("progress is told at the end");
    assert_eq!(Some(last.bytes_read), last.bytes_total);
    assert_eq!(last.lines, 2_000);
    replay.report()
}

/// Second of the day, address, and path without the query, for every line.
fn lines() -> Vec<(u64, String, String)> {
    let bytes = std::fs::read(example("nasa-1995-08-01.log.gz")).expect("the example is there");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_string(&mut text)
        .expect("it is gzip");
    let mut latest = 0;
    let request = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let clock: Vec<u64> = words[3]
            .split(':')
            .skip(1)
            .map(|part| part.parse().expect("digits"))
            .collect();
        latest = latest.max(clock[0] * 3_600 + clock[1] * 60 + clock[2]);
        let path = words[6]
            .trim_end_matches('"')
            .split('?')
            .next()
            .unwrap_or_default();
        (latest, words[0].to_owned(), path.to_owned())
    };
    text.lines().map(request).collect()
}

#[derive(Default)]
struct Model {
    requests: u64,
    denied: u64,
    by_key: BTreeMap<String, u64>,
    by_minute: BTreeMap<u64, u64>,
    exact_denied: u64,
    wrongly_allowed: u64,
    wrongly_denied: u64,
}

impl Model {
    fn count(&mut self, second: u64, key: &str, fits: bool, exact: bool) {
        self.requests += 1;
        self.exact_denied += u64::from(!exact);
        self.wrongly_allowed += u64::from(fits && !exact);
        self.wrongly_denied += u64::from(!fits && exact);
        if !fits {
            self.denied += 1;
            *self.by_key.entry(key.to_owned()).or_default() += 1;
            *self.by_minute.entry(second / 60).or_default() += 1;
        }
    }

    fn worst_minute(&self) -> Option<(u64, u64)> {
        let most = self.by_minute.values().max()?;
        self.by_minute
            .iter()
            .find(|entry| entry.1 == most)
            .map(|entry| (*entry.0, *entry.1))
    }
}

/// Twelve sub-windows of 5 s; the oldest counts in proportion to its overlap with the window.
fn sliding_fits(admitted: &[u64], now: u64, limit: u64) -> bool {
    let current = now / 5;
    let within = |from: u64, to: u64| {
        admitted
            .iter()
            .filter(|&&at| (from..=to).contains(&(at / 5)))
            .count() as u64
    };
    let oldest = within(current - 12, current - 12);
    5 * (within(current - 11, current) + 1) + oldest * (5 - now % 5) <= 5 * limit
}

fn exact_fits(admitted: &[u64], now: u64, limit: usize) -> bool {
    admitted.iter().filter(|&&at| at + 60 > now).count() < limit
}

/// The model's results for `nasa.yaml`: the rule on addresses, and the shadow rule.
fn model() -> (Model, Model) {
    let (mut addresses, mut watched) = (Model::default(), Model::default());
    let mut admitted: HashMap<String, (Vec<u64>, Vec<u64>)> = HashMap::new();
    let (mut shared, mut shared_exact) = (Vec::new(), Vec::new());
    for (second, address, path) in lines() {
        let (sliding, exact) = admitted.entry(address.clone()).or_default();
        let fits = sliding_fits(sliding, second, 12);
        let exactly = exact_fits(exact, second, 12);
        addresses.count(second, &format!("remote_address={address}"), fits, exactly);
        if fits {
            sliding.push(second);
        }
        if exactly {
            exact.push(second);
        }
        // A slash at a path's end does not count, so the folder itself is among what is in it.
        if format!("{path}/").starts_with("/shuttle/countdown/") {
            let same_minute = shared
                .iter()
                .filter(|&&at: &&u64| at / 60 == second / 60)
                .count();
            let (watched_fits, exactly) = (same_minute < 2, exact_fits(&shared_exact, second, 2));
            watched.count(second, "path=/shuttle/countdown/*", watched_fits, exactly);
            if watched_fits && fits {
                shared.push(second);
            }
            if exactly && fits {
                shared_exact.push(second);
            }
        }
    }
    (addresses, watched)
}

#[test]
fn every_figure_equals_the_models() {
    let report = replayed(Some(CompareWith::SlidingLog));
    assert_eq!(
        (
            report.lines.read,
            report.lines.parsed,
            report.lines.malformed
        ),
        (2_000, 2_000, 0)
    );
    let (addresses, watched) = model();
    // The log starts at 02:00 local time, four hours behind UTC.
    let midnight = 807_249_600;
    for (found, model) in report.rules.iter().zip([&addresses, &watched]) {
        assert_eq!(found.requests, model.requests, "{}", found.rule);
        assert_eq!(found.denied, model.denied, "{}", found.rule);
        assert_eq!(
            found.allowed,
            model.requests - model.denied,
            "{}",
            found.rule
        );
        let mut top: Vec<(u64, &str)> = model
            .by_key
            .iter()
            .map(|(key, count)| (*count, key.as_str()))
            .collect();
        top.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        top.truncate(10);
        let found_top: Vec<(u64, &str)> = found
            .top_denied
            .iter()
            .map(|key| (key.denied, key.key.as_str()))
            .collect();
        assert_eq!(found_top, top, "{}", found.rule);
        let worst = found
            .worst_minute
            .as_ref()
            .map(|worst| (worst.minute.clone(), worst.denied));
        let expected = model.worst_minute().map(|(minute, denied)| {
            let start = jiff::Timestamp::from_second(midnight + minute as i64 * 60);
            (start.expect("a time in 1995").to_string(), denied)
        });
        assert_eq!(worst, expected, "{}", found.rule);
        let compared = found.compare.flatten().expect("both can be compared");
        assert_eq!(compared.requests, model.requests, "{}", found.rule);
        assert_eq!(compared.exact_denied, model.exact_denied, "{}", found.rule);
        assert_eq!(
            compared.wrongly_allowed, model.wrongly_allowed,
            "{}",
            found.rule
        );
        assert_eq!(
            compared.wrongly_denied, model.wrongly_denied,
            "{}",
            found.rule
        );
    }
}

/// The same as literal numbers, so that the model and the replay cannot drift together.
#[test]
fn the_figures_of_the_manual() {
    let report = replayed(None);
    let figures: Vec<(&str, u64, u64)> = report
        .rules
        .iter()
        .map(|rule| (rule.rule.as_str(), rule.requests, rule.denied))
        .collect();
    assert_eq!(
        figures,
        [
            ("nasa.remote_address", 2_000, 45),
            ("nasa.path_/shuttle/countdown/*", 100, 15),
            ("nasa.path_/admin", 0, 0),
        ]
    );
    let never = &report.rules[2];
    assert!(never.top_denied.is_empty() && never.worst_minute.is_none() && never.compare.is_none());
}
