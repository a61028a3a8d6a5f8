//! Costs: requests and rules that are cheap to write and dear to read.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::Process;
use ratekeeper_testkit::ratekeeper::command;

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{JSON, Setup, check};

/// The processor time that one request may cost.
const EACH: Duration = Duration::from_millis(500);

/// The processor time in which a file of rules is read or refused.
const FILE: Duration = Duration::from_secs(10);

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    Ok(vec![requests(program)?, rules(program)?])
}

/// Rules whose patterns a naive search would try at every position.
fn patterns() -> String {
    let mut rules = "domain: api\ndescriptors:\n".to_owned();
    for number in 0..100 {
        rules += &format!(
            "  - key: path\n    value: \"*{}b{number}*\"\n    rate_limit: {{ window: 1h, limit: 1000000 }}\n",
            "a".repeat(60)
        );
    }
    rules
}

/// Requests to `serve`: what they are, the path, and the body.
fn bodies() -> Vec<(&'static str, &'static str, String)> {
    let path = |value: &str| check("path", value, "");
    let a = |length: usize| path(&"a".repeat(length));
    let many = |body: &str, count: usize| vec![body; count].join(",");
    let checks = |body: &str, count| format!(r#"{{"checks":[{}]}}"#, many(body, count));
    let entry = r#"{"key":"path","value":"x"}"#;
    let descriptor = |entries: &str| format!(r#"{{"entries":[{entries}]}}"#);
    let of = |descriptors: &str| format!(r#"{{"domain":"api","descriptors":[{descriptors}]}}"#);
    let one = "/v1/check";
    vec![
        ("a value of 15 KB", one, a(15 << 10)),
        ("a value of 64 KiB", one, a(64 << 10)),
        ("a value of 900 KB", one, a(900 << 10)),
        ("a body of 2 MB", one, a(2 << 20)),
        ("a value of 900 KB", "/json", a(900 << 10)),
        ("1,000 checks", "/v1/checks", checks(&path("x"), 1_000)),
        (
            "1,000 checks of 900 bytes",
            "/v1/checks",
            checks(&a(900), 1_000),
        ),
        ("10,000 checks", "/v1/checks", checks(&of(""), 10_000)),
        (
            "20,000 descriptors",
            one,
            of(&many(&descriptor(entry), 20_000)),
        ),
        ("20,000 entries", one, of(&descriptor(&many(entry, 20_000)))),
        ("500,000 brackets", one, "[".repeat(500_000)),
        ("500,000 brackets", "/json", "[".repeat(500_000)),
        ("objects in objects", one, r#"{"a":"#.repeat(150_000)),
        ("a number of 900,000 digits", one, "9".repeat(900_000)),
        ("150,000 escapes", one, path(&"\\u0061".repeat(150_000))),
        (
            "a key said 100,000 times",
            one,
            format!("{{{}}}", many(r#""a":1"#, 100_000)),
        ),
    ]
}

fn requests(program: &Path) -> Result<Row> {
    let rules = patterns();
    let service = Setup::serve(program).start_with(&rules, "");
    let mut row = Row::new("requests that are dear to read, service");
    for (what, path, body) in bodies() {
        let before = service.process.processor_time();
        let answer = ask(service.port, "POST", path, JSON, &body);
        let fate = match answer.map(|answer| answer.status) {
            Some(200) => Fate::Harmless,
            _ => Fate::Refused,
        };
        row.count(fate, what);
        let took = service.process.processor_time() - before;
        row.most(&format!("processor time of {what} at {path}"), took, EACH);
    }
    row.bound(service.serves("/"), "it serves no more");
    row.measure(&service.process);
    row.most("KiB", row.peak_kib, 256 << 10);
    Ok(row)
}

/// Rules files: a name, and the text.
fn files() -> Vec<(&'static str, String)> {
    let bomb: String = (1..30)
        .map(|level| {
            format!(
                "a{level}: &a{level} [{}]\n",
                vec![format!("*a{}", level - 1); 9].join(",")
            )
        })
        .collect();
    let repeated = "  - key: k\n".repeat(50_000);
    let keys: String = (0..20_000).map(|_| "key: x\n").collect();
    let api = |rest: String| format!("domain: api\n{rest}\n");
    let nested = |level| format!("{}a:\n", " ".repeat(level));
    let merged = "  - {<<: *a0, <<: *a0}\n".repeat(10_000);
    let top = format!("a0: &a0 [x]\n{bomb}domain: api\n");
    vec![
        (
            "an alias bomb",
            api(format!("x-a: &a0 [x]\n{bomb}descriptors: *a29")),
        ),
        ("an alias bomb at the top", top),
        (
            "an alias of itself",
            api("descriptors: &a [ *a ]".to_owned()),
        ),
        ("a key said 20,000 times", api(keys)),
        (
            "50,000 descriptors of one key",
            api(format!("descriptors:\n{repeated}")),
        ),
        (
            "100,000 brackets",
            api(format!("descriptors: {}", "[".repeat(100_000))),
        ),
        ("2,000 levels", (0..2_000).map(nested).collect()),
        (
            "a scalar of 8 MB",
            format!("domain: {}\n", "x".repeat(8 << 20)),
        ),
        ("a file of 40 MB", api(format!("#{}", "x".repeat(40 << 20)))),
        ("binary", api("\0\u{1}\u{fffe}".to_owned())),
        (
            "a merge key bomb",
            api(format!("x-a: &a0 {{k: v}}\ndescriptors:\n{merged}")),
        ),
    ]
}

/// `ratekeeper rules check` with each file.
fn rules(program: &Path) -> Result<Row> {
    let mut row = Row::new("rules that are dear to read, `rules check`");
    let folder = tempfile::tempdir()?;
    for (what, text) in files() {
        let path = folder.path().join("rules.yaml");
        fs::write(&path, text)?;
        let command = command(program, folder.path(), &["rules", "check", "rules.yaml"]);
        let mut process = Process::spawn("rules check", command);
        let mut took = Duration::ZERO;
        while process.ended().is_none() && took < FILE {
            row.measure(&process);
            took = process.processor_time();
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = process.ended().and_then(|status| status.code());
        row.bound(
            matches!(code, Some(0 | 1)),
            format!("{what}: exit {code:?} within {FILE:?}"),
        );
        let fate = match code {
            Some(0) => Fate::Harmless,
            _ => Fate::Refused,
        };
        row.count(fate, what);
        process.kill();
    }
    row.most("KiB", row.peak_kib, 512 << 10);
    Ok(row)
}
