//! Holds the output in the manual to the real output.

use std::path::{Path, PathBuf};

use ratekeeper_replay::{CompareWith, Descriptors, Fields, Log, Replay, ReplayOptions, Report};
use ratekeeper_rules::{Options, ReadOptions};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manual() -> String {
    std::fs::read_to_string(repository().join("docs/replay.md")).expect("the manual is there")
}

/// The report of the manual's first command.
fn report() -> Report {
    let logs = repository().join("examples/logs");
    let sources = ratekeeper_rules::read(&logs.join("nasa.yaml"), &ReadOptions::default());
    let loaded = ratekeeper_rules::load(&sources.expect("it is there"), &Options::default());
    let mut options = ReplayOptions::default();
    options.compare = Some(CompareWith::SlidingLog);
    options.top_denied = 5;
    let mut replay = Replay::new(options, loaded.expect("good rules").rules).expect("one domain");
    let log = Log::File(logs.join("nasa-1995-08-01.log.gz"));
    replay.read(&log, |_| {}).expect("it can be read");
    replay.report()
}

#[test]
fn the_table() {
    let report = report().to_string();
    assert!(
        manual().contains(&format!("```text\n{report}```")),
        "{report}"
    );
}

#[test]
fn the_json() {
    let manual = manual();
    let shown = manual
        .split("```json\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let mut shown: serde_json::Value =
        serde_json::from_str(shown.expect("the manual has JSON")).expect("it is JSON");
    let mut real = serde_json::to_value(report()).expect("a report has no odd keys");
    // The manual shows only the first rule and its first denied key.
    real["rules"].as_array_mut().expect("a list").truncate(1);
    real["rules"][0]["top_denied"]
        .as_array_mut()
        .expect("a list")
        .truncate(1);
    assert_eq!(shown.take(), real);
}

/// The values of `option` in the manual's commands.
fn values(option: &str) -> Vec<String> {
    let manual = manual();
    let blocks = manual
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let after = |block: &str| -> Option<String> {
        let rest = block.split_once(&format!("{option} "))?.1;
        let value = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split('\'').next(),
            None => rest.split_whitespace().next(),
        };
        value.map(str::to_owned)
    };
    blocks.filter_map(after).collect()
}

#[test]
fn the_options() {
    let mut fields = Fields::default();
    let mappings = values("--fields");
    assert!(!mappings.is_empty());
    for text in mappings {
        fields = Fields::parse(&text).expect(&text);
    }
    let descriptors = values("--descriptors");
    assert_eq!(descriptors.len(), 2);
    for text in descriptors {
        Descriptors::parse(&text, &fields).expect(&text);
    }
    for path in values("--rules") {
        let is_written = manual().contains(&format!("cat > {path} <<"));
        assert!(is_written || repository().join(&path).exists(), "{path}");
    }
}
