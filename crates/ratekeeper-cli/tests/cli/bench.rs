//! `ratekeeper bench`.

use crate::support::{PROGRAM, Ratekeeper, run};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::{Args, Setup};
use std::path::Path;
use tempfile::tempdir;

const RULES: &str =
    "domain: api\ndescriptors:\n- { key: api_key, rate_limit: { window: 1h, limit: 3 } }\n";

fn start(folder: &Path, words: &str) -> Ratekeeper {
    let setup = Setup::of(PROGRAM, words).in_folder(folder);
    setup.rules(RULES).start()
}

/// A pace at which every request counts, however late its answer comes on a busy machine.
const OPEN: [&str; 2] = ["--rate", "500"];

/// Runs a short bench and answers its JSON.
fn bench(folder: &Path, args: &[&str]) -> serde_json::Value {
    bench_for("200ms", folder, args)
}

fn bench_for(duration: &str, folder: &Path, args: &[&str]) -> serde_json::Value {
    let short = ["--duration", duration, "--warm-up", "0", "--json"];
    let said = run(folder, &[&["bench"], args, &short].concat()).succeeded();
    serde_json::from_str(&said).expect("it prints JSON")
}

#[test]
fn each_transport_counts_the_same_three_allowances() {
    let folder = tempdir().expect("a folder can be made");
    let service = start(folder.path(), "serve");
    let (grpc, http) = (
        format!("127.0.0.1:{}", service.grpc),
        format!("127.0.0.1:{}", service.port),
    );
    let report = bench(
        folder.path(),
        &[&["grpc", "--target", &grpc, "--keys", "hot"], &OPEN[..]].concat(),
    );
    assert_eq!(report["schema"], 1);
    assert_eq!(report["allowed"], 3, "{report}");
    assert_eq!(report["pace"], "open");
    assert_eq!(report["server"], serde_json::Value::Null);
    for args in [
        &["http", "--target", &http][..],
        &["http", "--target", &http, "--path", "/json"],
        &["batch", "--over", "http", "--target", &http, "--size", "7"],
        &["batch", "--target", &grpc, "--size", "7"],
    ] {
        let report = bench(folder.path(), &[args, &["--keys", "hot"], &OPEN].concat());
        assert_eq!(report["allowed"], 0, "{report}");
        assert_eq!(report["denied"], report["decisions"], "{report}");
        assert_eq!(report["denied_share"], 1.0, "{report}");
        assert_ne!(report["decisions"], 0, "{report}");
    }
    assert!(service.stop().success());
}

#[test]
fn an_open_loop_and_other_entries_and_a_table() {
    let folder = tempdir().expect("a folder can be made");
    let service = start(folder.path(), "serve");
    let grpc = format!("127.0.0.1:{}", service.grpc);
    let open = format!("grpc --target {grpc} --rate 500 --keys uniform:1000");
    let open = open.words();
    let report = bench(folder.path(), &open);
    assert_eq!(report["requests"], 100, "{report}");
    assert_eq!(report["offered_per_second"], 500.0);
    let pid = std::process::id().to_string();
    let watched = format!("bench grpc --target {grpc} --entries nothing=1 --pid {pid}");
    let watched = watched.words();
    let said = run(
        folder.path(),
        &[&watched[..], &["--duration", "100ms"], &OPEN].concat(),
    )
    .succeeded();
    for word in [
        "decisions",
        "p99.9",
        "0 denied",
        "MiB resident",
        "failed                none",
    ] {
        assert_contains(&said, word);
    }
}

/// Denials cost something else than what passes, and are not what people want to know first.
#[test]
fn by_default_what_passes_is_measured_and_the_share_of_denials_is_told() {
    let folder = tempdir().expect("a folder can be made");
    let service = start(folder.path(), "serve");
    let (grpc, http) = (
        format!("127.0.0.1:{}", service.grpc),
        format!("127.0.0.1:{}", service.port),
    );
    for args in [
        &["grpc", "--target", &grpc][..],
        &["http", "--target", &http],
        &["batch", "--target", &grpc, "--size", "7"],
    ] {
        let report = bench(folder.path(), &[args, &OPEN].concat());
        assert_eq!(report["keys"], "uniform:100000", "{report}");
        assert_eq!(report["allowed"], report["decisions"], "{report}");
        assert_eq!(report["denied_share"], 0.0, "{report}");
    }
    let hot = format!("bench http --target {http} --keys hot --duration 100ms");
    let hot = hot.words();
    let said = run(folder.path(), &[&hot[..], &OPEN].concat());
    for part in ["% denied)", "note       many of these are denials"] {
        assert_contains(&said.out, part);
    }
    assert!(service.stop().success());
}

#[test]
fn the_ceiling_decides_nothing() {
    let folder = tempdir().expect("a folder can be made");
    let service = start(folder.path(), "bench ceiling");
    let grpc = format!("127.0.0.1:{}", service.grpc);
    let report = bench_for("2s", folder.path(), &["grpc", "--target", &grpc]);
    assert_eq!(report["pace"], "closed");
    assert_eq!(
        report["denied"], 0,
        "three a minute would not have lasted: {report}"
    );
    assert!(report["allowed"].as_u64() > Some(3), "{report}");
    assert_eq!(report["answer_bytes_min"], 31, "{report}");
    assert_eq!(report["answer_bytes_max"], 31, "{report}");
    assert!(service.stop().success());
    run(folder.path(), &["bench", "ceiling", "--answer", "0a"]).refused("RateLimitResponse");
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempdir().expect("a folder can be made");
    let fails = |args: &[&str], code: i32, word: &str| {
        let said = run(folder.path(), &[&["bench"], args].concat());
        assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
        assert_contains(&said.err, word);
    };
    fails(&["grpc", "--keys", "cold"], 2, "write hot, uniform:N");
    fails(&["grpc", "--entries", "x"], 2, "write key=value");
    fails(&["grpc", "--duration", "0"], 1, "duration");
    fails(&["grpc", "--target", "here"], 1, "write HOST:PORT");
    fails(
        &["grpc", "--target", "127.0.0.1:1"],
        1,
        "cannot connect to 127.0.0.1:1",
    );
    fails(
        &["grpc", "--keys", "uniform:2", "--entries", "a=b"],
        1,
        "{key}",
    );
    fails(&["batch", "--size", "1001"], 2, "1000");
    fails(&["ceiling", "--answer", "xyz"], 2, "hexadecimal");
}

#[test]
fn requests_without_a_decision_are_a_failure() {
    let folder = tempdir().expect("a folder can be made");
    let service = start(folder.path(), "serve");
    let grpc = format!("127.0.0.1:{}", service.grpc);
    let args = [
        "bench",
        "grpc",
        "--target",
        &grpc,
        "--domain",
        "",
        "--duration",
        "100ms",
        OPEN[0],
        OPEN[1],
    ];
    let said = run(folder.path(), &args);
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert_contains(&said.out, "grpc 3");
    assert_contains(&said.err, "got no decision");
}
