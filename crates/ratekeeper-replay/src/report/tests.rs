use super::*;
use crate::read::LogFaults;
use crate::record::MalformedLine;

fn report() -> Report {
    let compared = Compared {
        requests: 1_500,
        exact_denied: 20,
        wrongly_allowed: 3,
        wrongly_denied: 6,
        net: -3,
        wrongly_allowed_percent: 0.2,
        wrongly_denied_percent: 0.4,
        net_percent: -0.2,
    };
    let busy = RuleReport {
        rule: "web.remote_address".into(),
        requests: 1_500,
        allowed: 1_480,
        denied: 20,
        top_denied: vec![
            DeniedKey {
                key: "remote_address=192.0.2.7".into(),
                denied: 15,
                overcounted_at_most: 0,
            },
            DeniedKey {
                key: "remote_address=\u{1b}[2J".into(),
                denied: 5,
                overcounted_at_most: 2,
            },
        ],
        worst_minute: Some(WorstMinute {
            minute: "2015-05-17T10:05:00Z".into(),
            denied: 12,
        }),
        compare: Some(Some(compared)),
    };
    let idle = RuleReport {
        rule: "web.path_/login".into(),
        requests: 0,
        allowed: 0,
        denied: 0,
        top_denied: Vec::new(),
        worst_minute: None,
        compare: Some(None),
    };
    let from = Timestamp::from_secs(1_431_857_103);
    Report {
        lines: LineCounts {
            read: 1_502,
            parsed: 1_500,
            malformed: 2,
        },
        warnings: Vec::new(),
        rules: vec![busy, idle],
        growth: Vec::new(),
        summary: Summary {
            domain: "web".into(),
            format: Some(Format::Combined),
            span: Some((from, Timestamp::from_secs(1_431_857_203))),
            allowed: 1_480,
            denied: 20,
            unmatched: 0,
            refused: 0,
            sorted: 0,
            late: 0,
            late_by_max: Micros::ZERO,
            has_fractions: true,
            faults: LogFaults::default(),
            uncounted: 0,
            bad_lines: vec![BadLine::new(7, MalformedLine::NoTime, b"hello \x1b[2J")],
            notes: vec!["something to know.".into()],
        },
    }
}

#[test]
fn the_json_that_scripts_read() {
    let json = serde_json::to_string_pretty(&report()).expect("a report has no odd keys");
    assert_eq!(json, include_str!("report.json").trim_end());
    let mut plain = report();
    plain.rules.iter_mut().for_each(|rule| rule.compare = None);
    assert!(
        !serde_json::to_string(&plain)
            .expect("as above")
            .contains("compare")
    );
}

#[test]
fn the_table_that_people_read() {
    assert_eq!(report().to_string(), include_str!("report.txt"));
}

#[test]
fn growth_has_a_part_of_its_own() {
    let of = |key: Option<&str>, until: Option<&str>, usual_per_minute| GrowthReport {
        rule: "web.key".into(),
        key: key.map(str::to_owned),
        since: "2015-05-17T10:05:00Z".into(),
        until: until.map(str::to_owned),
        usual_per_minute,
        peak_per_minute: 1_200,
    };
    let grown = Report {
        growth: vec![
            of(Some("key:acme"), None, 118.6),
            of(None, Some("2015-05-17T10:15:00Z"), 400.0),
        ],
        ..report()
    };
    let expected = "\nunusual growth, which a service reports and does not limit\n\
        rule          key                 since                 until  usual a minute  most a minute\n\
        web.key  key:acme  2015-05-17T10:05:00Z                     -             119          1,200\n\
        web.key       all  2015-05-17T10:05:00Z  2015-05-17T10:15:00Z             400          1,200\n";
    let text = grown.to_string();
    assert!(text.contains(expected), "{text}");
    let json = serde_json::to_value(&grown).expect("as above");
    assert_eq!(json["growth"][0]["key"], "key:acme");
    assert_eq!(json["growth"][1]["until"], "2015-05-17T10:15:00Z");
}

#[test]
fn the_table_of_nothing() {
    let empty = Report {
        lines: LineCounts::default(),
        warnings: Vec::new(),
        rules: Vec::new(),
        growth: Vec::new(),
        summary: Summary {
            domain: "web".into(),
            ..Summary::default()
        },
    };
    let expected = "0 lines read, 0 parsed, 0 malformed\n\
        domain web: 0 requests, 0 allowed, 0 denied (0.00 %), 0 matched no limit\n\n\
        rule  requests  allowed  denied  %  worst minute\n";
    assert_eq!(empty.to_string(), expected);
}
