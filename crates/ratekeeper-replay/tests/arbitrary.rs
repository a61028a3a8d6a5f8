//! Arbitrary bytes: nothing panics, every line is counted, and requests stay requests.

use std::io::Write;

use proptest::prelude::*;
use ratekeeper_replay::{Descriptors, Fields, Format, LineParser, Log, Replay, ReplayOptions};
use ratekeeper_rules::{Options, RuleSet, Source};
use ratekeeper_store::memory::MemoryConfig;

const RULES: &str = "
domain: web
descriptors:
  - key: remote_address
    rate_limit: { window: 10s, limit: 2 }
  - key: path
    value: /*
    rate_limit: { unit: minute, requests_per_unit: 3, algorithm: gcra }
  - key: user_agent
    rate_limit: { unit: day, requests_per_unit: 3, algorithm: sliding_log }
";

fn rules() -> RuleSet {
    let source = Source {
        name: "web.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    ratekeeper_rules::load(&[source], &Options::default())
        .expect("good rules")
        .rules
}

/// Fragments of lines, so that arbitrary lines get deep into the parsers.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "192.0.2.7",
        " - - ",
        "[",
        "]",
        "17/May/2015:10:05:03 +0000",
        "\"",
        "\\",
        "\\\"",
        "\\x22",
        "\\u00e4",
        "GET /a HTTP/1.1",
        " 200 5 ",
        "-",
        "{",
        "}",
        ":",
        ",",
        "\"ts\":",
        "1431857103",
        "\"remote_ip\":",
        "\"192.0.2.7\"",
        "\"request\":",
        "null",
        "\n",
        "\r",
        " ",
        "\"time\":",
    ]);
    prop_oneof![
        4 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_line_makes_a_parser_panic(line in bytes()) {
        for format in [None, Some(Format::Common), Some(Format::Combined), Some(Format::Json)] {
            let fields = Fields::parse("extra=request.a,other=ts").expect("a good mapping");
            let mut parser = LineParser::new(format, fields);
            if let Ok(record) = parser.parse(&line) {
                prop_assert!(!record.remote_address.is_empty());
            }
        }
    }

    /// A time and an address make a request, whatever stands between the quotes.
    #[test]
    fn any_request_field_is_parsed(request in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut line = b"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"".to_vec();
        line.extend(request.iter().filter(|&&byte| byte != b'\n'));
        line.extend_from_slice(b"\" 400 0 \"-\" \"scanner\"");
        let mut parser = LineParser::new(None, Fields::default());
        let record = parser.parse(&line).expect("a request");
        prop_assert_eq!(record.remote_address.as_ref(), "192.0.2.7");
        prop_assert_eq!(record.time.as_micros(), 1_431_857_103_000_000);
    }

    /// A value that a server escapes is read back unchanged.
    #[test]
    fn json_strings_come_back(path in "/[^?#\\p{C}\\p{Z}]{0,20}", agent in "[^\\p{C}\\p{Z}]{2,20}") {
        let line = serde_json::json!({
            "ts": 1_431_857_103.5, "remote_ip": "192.0.2.7", "uri": path, "user_agent": agent,
        });
        let line = line.to_string();
        let mut parser = LineParser::new(None, Fields::default());
        let record = parser.parse(line.as_bytes()).expect("a request");
        prop_assert_eq!(record.path.as_deref(), Some(path.as_str()));
        prop_assert_eq!(record.user_agent.as_deref(), Some(agent.as_str()));
        prop_assert_eq!(record.time.as_micros(), 1_431_857_103_500_000);
    }

    #[test]
    fn no_text_makes_an_option_panic(text in "[ -~ä;,='\"{}.]{0,40}") {
        let fields = Fields::parse(&text).unwrap_or_default();
        if let Ok(descriptors) = Descriptors::parse(&text, &fields) {
            prop_assert!(!descriptors.is_empty());
        }
    }

    #[test]
    fn no_log_makes_a_replay_panic(log in bytes(), again in bytes()) {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(&log).and_then(|()| file.write_all(&again)).expect("room for it");
        let mut options = ReplayOptions::default();
        options.memory.memory_limit = MemoryConfig::LEAST;
        let mut replay = Replay::new(options, rules()).expect("one domain");
        replay.read(&Log::File(file.path().to_owned()), |_| {}).expect("it can be read");
        let report = replay.report();
        prop_assert_eq!(report.lines.read, report.lines.parsed + report.lines.malformed);
        let summary = &report.summary;
        prop_assert_eq!(summary.allowed + summary.denied + summary.refused, report.lines.parsed);
        for rule in &report.rules {
            prop_assert_eq!(rule.requests, rule.allowed + rule.denied);
        }
        prop_assert!(report.to_string().bytes().all(|byte| byte == b'\n' || byte >= b' '));
    }
}
