//! Replays small inline logs from end to end.

use std::io::Write;

use ratekeeper_core::Micros;
use ratekeeper_http::{Identity, IdentityConfig};
use ratekeeper_replay::{
    CompareWith, Descriptors, Fields, Format, Log, Replay, ReplayError, ReplayOptions, Report,
};
use ratekeeper_rules::{Options, RuleSet, Source};

fn rules(text: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    ratekeeper_rules::load(&[source], &Options::default())
        .expect("good rules")
        .rules
}

fn replayed(options: ReplayOptions, text: &str, logs: &[&str]) -> Report {
    let mut replay = Replay::new(options, rules(text)).expect("good options");
    for log in logs {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(log.as_bytes()).expect("room for it");
        replay
            .read(&Log::File(file.path().to_owned()), |_| {})
            .expect("it can be read");
    }
    replay.report()
}

/// A line from `address` at that second of an hour.
fn line(address: &str, second: u64, request: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!("{address} - - [17/May/2015:10:{minute:02}:{second:02} +0000] \"{request}\" 200 5\n")
}

const TWO_A_MINUTE: &str = "
domain: web
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window }
";

#[test]
fn denials_are_reported_by_key_and_minute() {
    let seconds = [
        ("192.0.2.1", 1),
        ("192.0.2.1", 2),
        ("192.0.2.1", 3),
        ("192.0.2.2", 3),
        ("192.0.2.1", 61),
        ("192.0.2.1", 62),
        ("192.0.2.1", 63),
        ("192.0.2.1", 64),
    ];
    let log: String = seconds
        .map(|(who, when)| line(who, when, "GET / HTTP/1.1"))
        .concat();
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&log]);
    let json = serde_json::to_value(&report).expect("a report has no odd keys");
    let expected = serde_json::json!({
        "lines": { "read": 8, "parsed": 8, "malformed": 0 },
        "domain": "web",
        "format": "common",
        "span": { "first": "2015-05-17T10:00:01Z", "last": "2015-05-17T10:01:04Z" },
        "requests": { "allowed": 5, "denied": 3, "refused": 0, "unmatched": 0, "uncounted": 0 },
        "sorted": 0,
        "late": 0,
        "notes": [],
        "rules": [{
            "rule": "web.remote_address",
            "requests": 8, "allowed": 5, "denied": 3,
            "top_denied": [{ "key": "remote_address=192.0.2.1", "denied": 3 }],
            "worst_minute": { "minute": "2015-05-17T10:01:00Z", "denied": 2 },
        }],
    });
    assert_eq!(json, expected);
    assert_eq!((report.summary.allowed, report.summary.denied), (5, 3));
}

#[test]
fn a_late_line_takes_the_latest_time() {
    let late = [
        line("192.0.2.1", 120, "-"),
        line("192.0.2.1", 10, "-"),
        line("192.0.2.1", 121, "-"),
    ];
    let mut as_it_stands = ReplayOptions::default();
    as_it_stands.sort_within = Micros::ZERO;
    let report = replayed(as_it_stands, TWO_A_MINUTE, &[&late.concat()]);
    assert_eq!((report.rules[0].denied, report.summary.late), (1, 1));
    let worst = report.rules[0]
        .worst_minute
        .as_ref()
        .map(|worst| worst.minute.as_str());
    assert_eq!(worst, Some("2015-05-17T10:02:00Z"));
    assert!(
        report.to_string().contains(
            "WARNING: Lines too far out of order to be sorted: 1 (33.33 %), late by up to"
        ),
        "{report}"
    );
}

#[test]
fn lines_out_of_order_are_sorted_within_a_minute() {
    let log = |seconds: &[u64]| {
        let lines = seconds.iter().map(|second| line("192.0.2.1", *second, "-"));
        lines.collect::<String>()
    };
    // In order nothing is denied; as they stand, the lines of 100 and 101 would count at 161.
    let shuffled = log(&[0, 1, 160, 161, 100, 101, 220]);
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&shuffled]);
    assert_eq!(report.rules[0].denied, 0);
    assert_eq!((report.summary.sorted, report.summary.late), (2, 0));
    let note = "note: Lines out of order that were put in order: 2 (28.57 %).";
    assert!(report.to_string().contains(note), "{report}");
    // Several logs are one: what the first ends with waits for what the second begins with.
    let (first, second) = (log(&[0, 1, 160, 161]), log(&[100, 101, 220]));
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&first, &second]);
    assert_eq!((report.rules[0].denied, report.summary.sorted), (0, 2));
    // Further than that is said, with how many.
    let dense: Vec<u64> = (0..2_000).chain([10]).chain(2_000..2_100).collect();
    let far = log(&dense);
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&far]);
    assert_eq!((report.summary.sorted, report.summary.late), (0, 1));
    let warning =
        "WARNING: Lines too far out of order to be sorted: 1 (0.05 %), late by up to 1929 s.";
    assert!(report.to_string().contains(warning), "{report}");
}

#[test]
fn logs_go_on_where_the_one_before_ended_each_in_its_format() {
    let first = line("192.0.2.1", 1, "-").repeat(2);
    let second = r#"{"ts":1431857103,"remote_ip":"192.0.2.1"}"#;
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&first, second]);
    assert_eq!((report.lines.parsed, report.rules[0].denied), (3, 0));
    let third = r#"{"ts":1431856802,"remote_ip":"192.0.2.1"}"#;
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&first, third]);
    assert_eq!((report.lines.parsed, report.rules[0].denied), (3, 1));
}

/// A folder with the logs that a rotation leaves: three days of one request of each of four clients every minute.
fn rotated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("files can be written");
    };
    let day = |day: u64| {
        let requests = (0..2_000).map(|request| {
            let (quarters, minutes) = (request % 4, request / 4);
            let (hour, minute, second) = (minutes / 60, minutes % 60, quarters * 15);
            format!("192.0.2.{quarters} - - [{day:02}/May/2015:{hour:02}:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5\n")
        });
        requests.collect::<String>()
    };
    write("access.log", day(19).as_bytes());
    write("access.log.1", format!("starting\n{}", day(18)).as_bytes());
    write("access.log.10", b"");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(day(17).as_bytes()).expect("room for it");
    write("access.log.2.gz", &gzip.finish().expect("room for it"));
    folder
}

/// A shell names the newest log of a rotation first.
#[test]
fn logs_are_replayed_in_the_order_of_their_times() {
    let folder = rotated();
    let names = [
        "access.log",
        "access.log.1",
        "access.log.10",
        "access.log.2.gz",
    ];
    let logs = names.map(|name| Log::File(folder.path().join(name)));
    let mut replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
    replay
        .read_all(logs.to_vec(), |_| {})
        .expect("all are there");
    let report = replay.report();
    assert_eq!((report.lines.parsed, report.summary.denied), (6_000, 0));
    assert_eq!(report.summary.late, 0);
    let head = "2015-05-17T00:00:00Z to 2015-05-19T08:19:45Z";
    assert!(report.to_string().contains(head), "{report}");
    assert!(!report.is_unsound());
}

#[test]
fn logs_newest_first_are_no_sound_report() {
    let folder = rotated();
    let mut replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
    for (name, is_unsound) in [("access.log", false), ("access.log.1", true)] {
        let log = Log::File(folder.path().join(name));
        replay.read(&log, |_| {}).expect("it can be read");
        assert_eq!(replay.report().is_unsound(), is_unsound, "{name}");
    }
    let log = Log::File(folder.path().join("access.log.2.gz"));
    replay.read(&log, |_| {}).expect("it can be read");
    let report = replay.report();
    assert!(report.is_unsound());
    // The span does not hide the days that came late.
    let head = "2015-05-17T00:00:00Z to 2015-05-19T08:19:45Z";
    assert!(report.to_string().contains(head), "{report}");
}

/// Nodes behind a balancer write a log each, over the same time.
#[test]
fn logs_of_several_servers_are_replayed_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = (0..9_000_u64).map(|at| {
        let address = format!("192.0.2.{}", at % 7);
        // Each server logs some requests when they end.
        let late = if at % 5 == 0 { 20 } else { 0 };
        line(
            &address,
            (60 + at / 3).saturating_sub(late),
            "GET / HTTP/1.1",
        )
    });
    let lines: Vec<String> = lines.collect();
    let part = |name: &str, wanted: &dyn Fn(usize) -> bool| {
        let lines = lines.iter().enumerate().filter(|(at, _)| wanted(*at));
        let text: String = lines.map(|(_, line)| &**line).collect();
        std::fs::write(folder.path().join(name), text).expect("it can be written");
        Log::File(folder.path().join(name))
    };
    let reported = |logs: Vec<Log>| {
        let mut replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
        replay.read_all(logs, |_| {}).expect("all are there");
        replay.report()
    };
    let whole = reported(vec![part("whole.log", &|_| true)]);
    let dealt = reported(vec![
        part("a.log", &|at| at % 3 == 0),
        part("b.log", &|at| at % 3 == 1 && at < 6_000),
        part("c.log", &|at| at % 3 == 2),
        part("d.log", &|at| at % 3 == 1 && at >= 6_000),
    ]);
    assert_eq!(dealt.warnings, Vec::<String>::new());
    assert_eq!((dealt.lines, dealt.summary.late), (whole.lines, 0));
    assert_eq!(dealt.summary.denied, whole.summary.denied);
    assert_eq!(dealt.rules, whole.rules);
    assert!(whole.summary.denied > 1_000 && !dealt.is_unsound());
    let twice = reported(vec![part("a.log", &|_| true), part("a.log", &|_| true)]);
    assert!(
        twice.warnings[0].contains("a.log is named twice"),
        "{:?}",
        twice.warnings
    );
}

#[test]
fn one_log_of_several_that_cannot_be_read_to_its_end_ends_the_replay() {
    let folder = rotated();
    let zipped = std::fs::read(folder.path().join("access.log.2.gz")).expect("it is there");
    let cut = folder.path().join("cut.gz");
    std::fs::write(&cut, &zipped[..zipped.len() / 2]).expect("it can be written");
    let logs = vec![Log::File(folder.path().join("access.log")), Log::File(cut)];
    let mut replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
    let error = replay.read_all(logs, |_| {}).expect_err("it is cut");
    assert!(error.to_string().contains("cut.gz"), "{error}");
    let report = replay.report();
    assert!(report.is_unsound() && report.lines.parsed > 0);
    assert_eq!(
        report.summary.allowed + report.summary.denied,
        report.lines.parsed
    );
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
}

#[test]
fn a_log_without_a_line_is_no_sound_report() {
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[""]);
    assert!(report.is_unsound());
    assert!(
        report.warnings[0].contains("no line"),
        "{:?}",
        report.warnings
    );
    // A rotation may have made the newest one only now.
    let lines = line("192.0.2.1", 1, "GET / HTTP/1.1");
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &["", &lines]);
    assert!(!report.is_unsound());
}

/// Rules on what the settings do not describe are no more asked than by a gateway.
#[test]
fn a_rule_on_the_user_agent_is_asked_by_descriptors_alone() {
    let text = "
domain: web
descriptors:
  - key: user_agent
    rate_limit: { unit: minute, requests_per_unit: 1 }
";
    let log = "192.0.2.1 - - [17/May/2015:10:00:01 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"bot\"\n"
        .repeat(3);
    let report = replayed(ReplayOptions::default(), text, &[&log]);
    assert_eq!((report.summary.denied, report.summary.unmatched), (0, 3));
    let notes = report.summary.notes.join("\n");
    assert!(
        notes.contains("Rules that begin with user_agent are not asked"),
        "{notes}"
    );
    let mut options = ReplayOptions::default();
    let descriptors = Descriptors::parse("user_agent", &options.fields).expect("good");
    options.descriptors = Some(descriptors);
    let report = replayed(options, text, &[&log]);
    assert_eq!(report.summary.denied, 2);
    assert!(!report.summary.notes.join("").contains("not asked"));
}

#[test]
fn logs_that_can_be_read_only_once_keep_their_order_and_a_missing_one_is_said_first() {
    let folder = rotated();
    let file = |name: &str| Log::File(folder.path().join(name));
    let replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
    let logs = vec![file("access.log"), Log::Stdin, file("access.log.1")];
    assert_eq!(replay.oldest_first(logs.clone()).ok(), Some(logs));
    let error = replay.oldest_first(vec![Log::Stdin, file("nope.log")]);
    let error = error.expect_err("one is missing").to_string();
    assert!(error.contains("nope.log"), "{error}");
}

/// One line with a wrong clock leaves the others sorted, and the report tells the truth about them.
#[test]
fn one_line_of_the_future_does_not_end_the_sorting() {
    let every_second_late = (0..1_000_u64).map(|second| {
        let late = if second % 2 == 0 { 0 } else { 8 };
        let address = format!("192.0.2.{}", second % 200);
        line(&address, 100 + second - late, "-")
    });
    let mut lines: Vec<String> = every_second_late.collect();
    lines.insert(5, line("192.0.2.1", 1, "-").replace("17/May", "18/May"));
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&lines.concat()]);
    assert_eq!((report.summary.sorted, report.summary.late), (500, 0));
    assert_eq!(report.warnings, Vec::<String>::new());
}

#[test]
fn malformed_lines_are_counted_and_the_first_shown() {
    let log = format!(
        "hello\n\n{}\u{1b}[2J {}\nworld\n",
        line("192.0.2.1", 1, "-"),
        "x".repeat(200)
    );
    let mut options = ReplayOptions::default();
    options.bad_lines = 2;
    let report = replayed(options, TWO_A_MINUTE, &[&log]);
    assert_eq!(
        (
            report.lines.read,
            report.lines.parsed,
            report.lines.malformed
        ),
        (4, 1, 3)
    );
    let shown: Vec<String> = report
        .summary
        .bad_lines
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(shown[0], "line 1: no time: hello");
    assert!(shown[1].starts_with("line 4: no time: \\x1b[2J xxx") && shown[1].ends_with("x..."));
    assert_eq!(shown.len(), 2);
}

#[test]
fn tenants_endpoints_and_lists_of_limits() {
    let text = r#"
domain: api
evaluation: path
descriptors:
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 3, algorithm: fixed_window }
    descriptors:
      - key: endpoint
        value: "POST /orders"
        rate_limit:
          - { window: 1s, limit: 1, algorithm: fixed_window }
          - { window: 60s, limit: 2, algorithm: fixed_window }
"#;
    let mut options = ReplayOptions::default();
    options.fields = Fields::parse("api_key=request.headers.X-Api-Key").expect("a good mapping");
    let entries = r#"api_key,endpoint="{method} {path}""#;
    options.descriptors = Descriptors::parse(entries, &options.fields).ok();
    let request = |second: u64, uri: &str| {
        format!(
            r#"{{"ts":{},"request":{{"client_ip":"192.0.2.1","method":"POST","uri":"{uri}","headers":{{"X-Api-Key":["0123456789abcdef"]}}}}}}"#,
            1_431_857_100 + second,
        ) + "\n"
    };
    let log = [
        request(0, "/orders?a"),
        request(0, "/orders"),
        request(1, "/orders"),
        request(2, "/orders"),
        request(3, "/other"),
        request(4, "/other"),
    ];
    let report = replayed(options, text, &[&log.concat()]);
    let found: Vec<(&str, u64, u64)> = report
        .rules
        .iter()
        .map(|rule| (rule.rule.as_str(), rule.allowed, rule.denied))
        .collect();
    assert_eq!(
        found,
        [
            ("api.api_key", 5, 1),
            ("api.api_key.endpoint_POST /orders#1s", 3, 1),
            ("api.api_key.endpoint_POST /orders#1m", 3, 1),
        ]
    );
    assert_eq!((report.summary.allowed, report.summary.denied), (3, 3));
    let key = &report.rules[0].top_denied[0].key;
    assert!(
        key.starts_with("api_key=~") && key.ends_with("…cdef"),
        "{key}"
    );
}

#[test]
fn rules_that_only_watch_are_off_or_cannot_be_compared() {
    let text = "
domain: web
descriptors:
  - key: remote_address
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: fixed_window }
  - key: method
    rate_limit: { unlimited: true }
  - key: path
    rate_limit: { calendar: UTC, unit: month, requests_per_unit: 1 }
";
    let mut options = ReplayOptions::default();
    options.compare = Some(CompareWith::SlidingLog);
    let log = line("192.0.2.1", 1, "GET / HTTP/1.1").repeat(3);
    let report = replayed(options, text, &[&log]);
    let counts: Vec<(u64, u64)> = report
        .rules
        .iter()
        .map(|rule| (rule.allowed, rule.denied))
        .collect();
    assert_eq!(counts, [(1, 2), (3, 0), (1, 2)]);
    let compared: Vec<bool> = report
        .rules
        .iter()
        .map(|rule| rule.compare.flatten().is_some())
        .collect();
    assert_eq!(compared, [true, false, false]);
    assert!(report.rules.iter().all(|rule| rule.compare.is_some()));
    assert!(
        report
            .to_string()
            .contains("web.remote_address only watches"),
        "{report}"
    );
}

#[test]
fn a_replay_in_which_nothing_matches_says_what_would() {
    let text = TWO_A_MINUTE.replace("remote_address", "tenant");
    let report = replayed(
        ReplayOptions::default(),
        &text,
        &[&line("192.0.2.1", 1, "-")],
    );
    assert_eq!((report.summary.unmatched, report.rules[0].requests), (1, 0));
    assert!(
        report.to_string().contains("The rules begin with: tenant."),
        "{report}"
    );
}

#[test]
fn a_domain_has_to_be_chosen_where_there_are_several() {
    let source = |name: &str| Source {
        name: format!("{name}.yaml"),
        text: TWO_A_MINUTE.replace("web", name),
    };
    let both = || {
        let sources = [source("web"), source("api")];
        ratekeeper_rules::load(&sources, &Options::default())
            .expect("good rules")
            .rules
    };
    let open = |domain: Option<&str>| {
        let mut options = ReplayOptions::default();
        options.domain = domain.map(str::to_owned);
        Replay::new(options, both())
    };
    let error = open(None).expect_err("a choice to make").to_string();
    assert!(
        error.contains("--domain") && error.contains("web, api"),
        "{error}"
    );
    let error = open(Some("tcp")).expect_err("no such domain").to_string();
    assert!(
        error.contains("\"tcp\"") && error.contains("web, api"),
        "{error}"
    );
    assert_eq!(
        open(Some("api"))
            .expect("it is there")
            .report()
            .summary
            .domain,
        "api"
    );
    let none = Replay::new(ReplayOptions::default(), RuleSet::default());
    assert!(matches!(none, Err(ReplayError::NoDomain)));
}

#[test]
fn a_log_that_is_not_there() {
    let mut replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
    let error = replay.read(&Log::from_arg("/nowhere/access.log".as_ref()), |_| {});
    assert_eq!(
        error.expect_err("no such file").to_string(),
        "cannot read /nowhere/access.log"
    );
}

#[test]
fn a_log_without_a_request_is_no_sound_report() {
    let good = line("192.0.2.1", 1, "-");
    let is_unsound = |format: Option<Format>, logs: &[&str]| {
        let mut options = ReplayOptions::default();
        options.format = format;
        let report = replayed(options, TWO_A_MINUTE, logs);
        let warning = report.warnings.first().cloned().unwrap_or_default();
        assert_eq!(
            warning.contains("has no request in its 2 lines"),
            report.is_unsound(),
            "{report}"
        );
        assert_eq!(
            warning.contains("--format json"),
            format.is_some(),
            "{report}"
        );
        report.is_unsound()
    };
    assert!(is_unsound(None, &["hello\nworld\n"]));
    assert!(is_unsound(Some(Format::Json), &[&good.repeat(2)]));
    assert!(is_unsound(None, &[&good, "hello\nworld\n"]));
    // Nothing happened, or something did.
    assert!(!is_unsound(None, &["", "\n\n", &good]));
    assert!(!is_unsound(None, &[&format!("hello\n{good}")]));
}

/// A replay of gzip that begins with `kept` bytes of the lines and goes on with `more`.
fn of_gzip(cut: usize, more: &[u8]) -> (Result<(), ReplayError>, Report) {
    let lines: String = (0..500)
        .map(|second| line("192.0.2.1", second, "-"))
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).expect("room for it");
    let bytes = gzip.finish().expect("room for it");
    let bytes = [&bytes[..bytes.len() - cut], more].concat();
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&bytes).expect("room for it");
    let mut replay = Replay::new(ReplayOptions::default(), rules(TWO_A_MINUTE)).expect("good");
    let done = replay.read(&Log::File(file.path().to_owned()), |_| {});
    (done, replay.report())
}

#[test]
fn what_was_read_of_a_log_that_breaks_off_is_reported_as_a_part() {
    let (done, report) = of_gzip(10, b"");
    assert!(done.is_err());
    assert!(report.lines.parsed > 0, "{report}");
    assert!(report.is_unsound());
    assert!(
        report.warnings[0].contains("was not read to its end"),
        "{report}"
    );
}

#[test]
fn what_follows_gzip_is_warned_of() {
    let (done, report) = of_gzip(0, b"\0\0");
    assert!(done.is_ok() && report.warnings.is_empty(), "{report}");
    let (done, report) = of_gzip(0, b"\0\0hello");
    assert!(done.is_ok() && !report.is_unsound(), "{report}");
    assert_eq!(report.lines.parsed, 500);
    assert!(report.warnings[0].contains("left out"), "{report}");
}

#[test]
fn service_levels_are_replayed_by_method_and_path() {
    let rules = "
slas_base: /v1/organizations/{tenant}
slas:
  - { id: get-product, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 60, threshold: 2 } ] }
  - { id: any, pathPattern: '/**', tiers: [ { period: 60, threshold: 1 } ] }
";
    let calls = [
        "GET /v1/organizations/A/product/1 HTTP/1.1",
        "GET /v1/organizations/A/product/2?x=1 HTTP/1.1",
        "GET /v1/organizations/A/%70roduct/3 HTTP/1.1",
        "GET /v1/organizations/B/product/1 HTTP/1.1",
        "PUT /v1/organizations/A/product/1 HTTP/1.1",
        "PUT /v1/organizations/A/product/1 HTTP/1.1",
        "GET /elsewhere HTTP/1.1",
        "-",
    ];
    let log: String = calls.map(|call| line("192.0.2.1", 1, call)).concat();
    let report = replayed(ReplayOptions::default(), rules, &[&log]);
    let denied = |number: usize| {
        let rule = &report.rules[number];
        let keys = serde_json::to_value(rule).expect("a report has no odd keys");
        keys["top_denied"].to_string()
    };
    assert_eq!(
        denied(0),
        r#"[{"denied":1,"key":"tenant=a,sla=get-product,method=GET"}]"#
    );
    assert_eq!(
        denied(1),
        r#"[{"denied":1,"key":"tenant=a,sla=any,method=PUT"}]"#
    );
    assert_eq!(
        (
            report.summary.allowed,
            report.summary.denied,
            report.summary.unmatched
        ),
        (6, 2, 2)
    );
    let both = format!("{TWO_A_MINUTE}{rules}");
    let report = replayed(ReplayOptions::default(), &both, &[&log]);
    assert_eq!(report.rules.len(), 3);
    assert_eq!((report.summary.allowed, report.summary.denied), (2, 6));
}

/// Options with the given mapping and identity settings.
fn described(mapping: &str, identity: &str) -> ReplayOptions {
    let mut options = ReplayOptions::default();
    options.describer.mapping = serde_json::from_str(mapping).expect("a mapping");
    let identity: IdentityConfig = serde_json::from_str(identity).expect("an identity");
    options.describer.identity = Identity::open(&identity).expect("a good identity");
    options
}

#[test]
fn requests_are_described_as_a_gateway_describes_them() {
    let rules = "
domain: api
descriptors:
  - key: who
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: fixed_window }
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window }
";
    let mapping = r#"{"descriptors": [
        [{"key": "who", "from": "identity"}],
        [{"key": "remote_address", "from": "remote_address"}]
    ]}"#;
    let identity = r#"{"from": ["query:key", "header:x-org", "path:/o/{org}/**"]}"#;
    let request = |client: &str, uri: &str, org: &str| {
        format!(
            r#"{{"ts":1,"client_ip":"{client}","method":"GET","uri":"{uri}","http_x_org":"{org}","http_x_forwarded_for":"198.51.100.1, 203.0.113.7"}}"#
        ) + "\n"
    };
    let log = [
        request("2001:db8::1", "/a?key=k%31", "acme"),
        request("2001:db8::2", "/a?key=k1", "globex"),
        request("192.0.2.3", "/a", "acme"),
        request("192.0.2.4", "/a", "acme"),
        request("192.0.2.5", "/%6f/initech/x", ""),
        request("192.0.2.6", "/o/initech", ""),
        // Proxies in these networks are trusted, so these are one client.
        request("127.0.0.1", "/a", "o1"),
        request("127.0.0.1", "/b", "o2"),
        request("203.0.113.7", "/b", "o3"),
    ];
    let report = replayed(described(mapping, identity), rules, &[&log.concat()]);
    let denied = |rule: usize| {
        let keys = report.rules[rule].top_denied.iter();
        keys.map(|denied| (denied.key.as_str(), denied.denied))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        denied(0),
        ["who=acme", "who=initech", "who=k1"].map(|key| (key, 1))
    );
    assert_eq!(denied(1), [("remote_address=203.0.113.7", 1)]);
}

/// Behind a balancer, logs have the list of proxies in place of the address: the client is the one that a gateway there
/// would take.
#[test]
fn a_list_of_proxies_in_place_of_the_address_is_read_as_such() {
    let rules = "
domain: web
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: fixed_window }
";
    let json = |list: &str| format!(r#"{{"ts":1431856801,"remote_ip":"{list}"}}"#);
    let logs = [
        line("203.0.113.1, 10.0.0.1", 1, "-") + &line("203.0.113.1", 1, "-"),
        // The first was not told by a proxy that is trusted.
        line("192.0.2.9, 203.0.113.1,10.0.0.1, 10.0.0.2", 1, "-"),
        json("203.0.113.1, 10.0.0.1"),
        line("2001:db8:1:2::2, 10.0.0.1", 1, "-") + &line("2001:db8:1:2::3", 1, "-"),
    ];
    let logs: Vec<&str> = logs.iter().map(String::as_str).collect();
    let expected = [
        ("remote_address=203.0.113.1", 3),
        ("remote_address=2001:db8:1:2::/64", 1),
    ];
    let mut options = ReplayOptions::default();
    options.forwarding.trusted = "10.0.0.0/8".parse().expect("a network");
    let report = replayed(options.clone(), rules, &logs);
    assert_eq!(most_denied(&report), expected);
    // Descriptors of one's own take the same address.
    options.descriptors = Descriptors::parse("remote_address", &options.fields).ok();
    let report = replayed(options, rules, &logs[..3]);
    assert_eq!(most_denied(&report), expected[..1]);
    assert!(!report.to_string().contains("trusted_proxies"), "{report}");
    // Without settings the last proxy is the client, which is said.
    let report = replayed(ReplayOptions::default(), rules, &logs[..3]);
    assert_eq!(most_denied(&report), [("remote_address=10.0.0.1", 1)]);
    let note = "not among `trusted_proxies` and so counts as the client: 3.";
    assert!(report.to_string().contains(note), "{report}");
}

fn most_denied(report: &Report) -> Vec<(&str, u64)> {
    let keys = report.rules[0].top_denied.iter();
    keys.map(|denied| (denied.key.as_str(), denied.denied))
        .collect()
}

#[test]
fn a_virtual_host_before_the_address_is_not_the_client() {
    let log = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"]
        .map(|address| line(&format!("shop.example:443 {address}"), 1, "-"));
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&log.concat()]);
    assert_eq!(most_denied(&report), [("remote_address=192.0.2.1", 1)]);
}

/// As at a gateway, which answers 400.
#[test]
fn a_method_in_small_letters_is_refused() {
    let log = line("192.0.2.1", 1, "get /a HTTP/1.1").repeat(4)
        + &line("192.0.2.1", 1, "GET /a HTTP/1.1");
    let report = replayed(ReplayOptions::default(), TWO_A_MINUTE, &[&log]);
    let summary = &report.summary;
    assert_eq!(
        (summary.refused, summary.allowed, summary.denied),
        (4, 1, 0)
    );
}

#[test]
fn missing_fields_are_noted_once() {
    let mapping = r#"{"descriptors": [
        [{"key": "remote_address", "from": "remote_address"}],
        [{"key": "remote_address", "from": "bearer"}],
        [{"key": "remote_address", "from": "header:x-org"}],
        [{"key": "remote_address", "from": "query:key"}],
        [{"key": "other", "from": "cookie:session"}]
    ]}"#;
    let log = line("host.example", 1, "GET /a?key=x HTTP/1.1").repeat(3);
    let report = replayed(described(mapping, "{}"), TWO_A_MINUTE, &[&log]);
    assert_eq!(
        report.rules[0].top_denied[0].key,
        "remote_address=host.example"
    );
    let notes: Vec<&String> = report
        .summary
        .notes
        .iter()
        .filter(|note| note.contains("does not tell"))
        .collect();
    let [note] = notes[..] else {
        panic!("{notes:?}");
    };
    assert!(
        note.contains("does not tell: bearer, header:x-org. All 3 requests"),
        "{note}"
    );
}

#[test]
fn a_request_of_two_meanings_asks_no_rule() {
    let rules =
        "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 60, threshold: 1 } ] } ]";
    let log =
        line("192.0.2.1", 1, "GET /a/..;x/b HTTP/1.1") + &line("192.0.2.1", 1, "GET /a HTTP/1.1");
    let report = replayed(ReplayOptions::default(), rules, &[&log]);
    let summary = &report.summary;
    assert_eq!(
        (summary.refused, summary.allowed, summary.denied),
        (1, 1, 0)
    );
    assert!(report.to_string().contains("refused with 400"), "{report}");
}

#[test]
fn callers_of_service_levels_are_told_from_headers_and_not_shown() {
    let rules =
        "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 60, threshold: 1 } ] } ]";
    let request = |key: &str| {
        format!(
            r#"{{"ts":1,"remote_ip":"192.0.2.1","method":"GET","uri":"/a","headers":{{"x-api-key":"{key}"}}}}"#
        ) + "\n"
    };
    let log = ["0123456789abcdef", "another", "0123456789abcdef"].map(request);
    let report = replayed(ReplayOptions::default(), rules, &[&log.concat()]);
    let [denied] = &report.rules[0].top_denied[..] else {
        panic!("{report}");
    };
    assert!(denied.key.starts_with("api_key=~"), "{}", denied.key);
    assert!(!report.to_string().contains("0123456789abcdef"));
}

#[test]
fn a_leaky_bucket_delays_as_it_does_at_a_gateway() {
    let text = "
domain: web
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 1, burst: 30, algorithm: leaky_bucket }
";
    // Twenty at once, with a turn every second.
    let log = line("192.0.2.1", 1, "GET / HTTP/1.1").repeat(20);
    let mut options = ReplayOptions::default();
    for (wait_max, wait, allowed) in [(10, "10s", 11), (2, "2s", 3), (0, "0ns", 1)] {
        options.wait_max = Micros::from_secs(wait_max);
        let report = replayed(options.clone(), text, &[&log]);
        let rule = &report.rules[0];
        assert_eq!(
            (rule.allowed, rule.denied),
            (allowed, 20 - allowed),
            "{report}"
        );
        let note = format!(
            "web.remote_address delays requests: those that wait for no more than {wait} are allowed, as at a gateway."
        );
        assert!(report.to_string().contains(&note), "{report}");
    }
    assert_eq!(ReplayOptions::default().wait_max, Micros::from_secs(10));
}

#[test]
fn a_budget_is_not_charged_what_no_log_tells() {
    let text = "
domain: web
usage: tokens
descriptors:
  - key: remote_address
    rate_limit:
      - { name: tokens, unit: hour, requests_per_unit: 2, post_paid: true }
      - { name: requests, unit: day, requests_per_unit: 4 }
";
    let log = line("192.0.2.1", 1, "GET / HTTP/1.1").repeat(5);
    let report = replayed(ReplayOptions::default(), text, &[&log]);
    let denied: Vec<u64> = report.rules.iter().map(|rule| rule.denied).collect();
    assert_eq!(denied, [0, 1], "{report}");
    let note = "is charged what responses use, which a log does not tell: it was looked at.";
    assert!(report.to_string().contains(note), "{report}");
}
