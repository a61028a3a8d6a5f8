//! `ratekeeper replay`.

use crate::support::{run, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::Args;
use tempfile::tempdir;

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: remote_address, rate_limit: { window: 1m, limit: 2 } }\n";

/// Three requests of one address in a minute, one of another, and a line that is none.
const LOG: &str = concat!(
    "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n",
    "192.0.2.1 - - [17/May/2015:10:05:04 +0000] \"GET /b HTTP/1.1\" 200 5\n",
    "not a line of a log\n",
    "192.0.2.2 - - [17/May/2015:10:05:04 +0000] \"GET /a HTTP/1.1\" 200 5\n",
    "192.0.2.1 - - [17/May/2015:10:05:05 +0000] \"GET /c HTTP/1.1\" 200 5\n",
);

#[test]
fn a_log_is_played_at_its_own_time() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "access.log", LOG);
    let args = "replay --rules rules.yaml --log access.log --json --compare sliding_log";
    let said = run(folder.path(), args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("it is JSON");
    assert_eq!(
        report["lines"],
        serde_json::json!({ "read": 5, "parsed": 4, "malformed": 1 })
    );
    let rule = &report["rules"][0];
    assert_eq!(rule["rule"], "d.remote_address");
    assert_eq!(
        (&rule["requests"], &rule["allowed"], &rule["denied"]),
        (&4.into(), &3.into(), &1.into())
    );
    assert_eq!(rule["top_denied"][0]["key"], "remote_address=192.0.2.1");
    assert_eq!(rule["compare"]["wrongly_denied"], 0);
    assert_contains(&said.err, "skipped 1 malformed line");
}

#[test]
fn a_log_without_a_line_is_an_error() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "empty.log", "");
    let said = run(folder.path(), "replay --rules rules.yaml --log empty.log");
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert_contains(&said.out, "There is no line in the log");
}

#[test]
fn one_request_is_counted_in_the_singular() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let line = LOG.split_inclusive('\n').next().expect("it has lines");
    write(folder.path(), "access.log", line);
    let said = run(folder.path(), "replay --rules rules.yaml --log access.log");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_contains(&said.out, "1 line read, 1 parsed, 0 malformed");
    assert_contains(&said.out, "domain d: 1 request, 1 allowed");
}

#[test]
fn people_get_a_table_and_scripts_can_be_strict() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "access.log", LOG);
    let args = ["replay", "--rules", "rules.yaml", "--log", "access.log"];
    let said = run(folder.path(), &args);
    assert_eq!(said.code, Some(0));
    assert_contains(&said.out, "d.remote_address");
    assert_eq!(
        said.err, "",
        "there is no progress bar where there is no terminal"
    );
    let strict: Vec<&str> = args.into_iter().chain(["--strict"]).collect();
    assert_eq!(run(folder.path(), &strict).code, Some(1));
}

#[test]
fn what_cannot_be_replayed_is_said() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "access.log", LOG);
    let replay = |more: &[&str]| {
        let args = ["replay", "--rules", "rules.yaml"]
            .iter()
            .chain(more)
            .copied();
        run(folder.path(), &args.collect::<Vec<_>>())
    };
    let missing = replay(&["--log", "missing.log"]);
    assert_eq!(missing.code, Some(1));
    assert_contains(&missing.err, "cannot read missing.log");
    let field = replay(&["--log", "access.log", "--descriptors", "bananas"]);
    assert_eq!(field.code, Some(1));
    assert!(
        field.err.contains("--descriptors") && field.err.contains("bananas"),
        "{}",
        field.err
    );
    let domain = replay(&["--log", "access.log", "--domain", "other"]);
    assert_eq!(domain.code, Some(1));
    assert!(domain.err.contains("other"), "{}", domain.err);
    assert_eq!(replay(&[]).code, Some(2));
    // More keys than are counted, and a flag that costs have no use for.
    let top = replay(&["--log", "access.log", "--top", "1025"]);
    assert_eq!(top.code, Some(2));
    assert_contains(&top.err, "1024");
    let sorted = replay(&["--log", "access.log", "--cost", "--sort-within", "5s"]);
    assert_eq!(sorted.code, Some(2));
    assert_contains(&sorted.err, "--sort-within");
}

/// The lines before a fault may be hours of reading.
#[test]
fn what_was_read_of_a_broken_log_is_printed_and_it_is_no_success() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "access.log", LOG);
    let gzip = std::process::Command::new("gzip")
        .args(["-k", "access.log"])
        .current_dir(folder.path())
        .status();
    assert!(gzip.expect("there is gzip").success());
    let packed = folder.path().join("access.log.gz");
    let bytes = std::fs::read(&packed).expect("it was packed");
    std::fs::write(&packed, &bytes[..bytes.len() - 4]).expect("it can be cut");
    std::fs::write(folder.path().join("access.log.zst"), b"\x28\xb5\x2f\xfd").expect("room");
    let args = ["replay", "--rules", "rules.yaml", "--log"];
    let said = run(folder.path(), &[&args[..], &["access.log.gz"]].concat());
    assert_eq!(said.code, Some(1));
    assert_contains(&said.out, "WARNING: access.log.gz was not read to its end");
    assert_contains(&said.out, "1 denied");
    assert_contains(&said.err, "cannot read access.log.gz");
    // None is read if one of them cannot be.
    let said = run(
        folder.path(),
        &[&args[..], &["access.log", "access.log.zst"]].concat(),
    );
    assert_eq!((said.code, &*said.out), (Some(1), ""));
    assert_contains(
        &said.err,
        "cannot read access.log.zst: it is zstd: `zstd -dc FILE",
    );
    let json = ["access.log", "--format", "json", "--json"];
    let said = run(folder.path(), &[&args[..], &json].concat());
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_contains(
        &said.err,
        "warning: access.log has no request in its 5 lines",
    );
}

#[test]
fn calls_of_a_model_are_charged_to_budgets_in_three_ways() {
    let folder = tempdir().expect("a folder can be made");
    let rules = "domain: llm
descriptors:
- { key: user, rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window, post_paid: true } }
";
    write(folder.path(), "rules.yaml", rules);
    // Two of them in flight at once, of 30 + 2 x 20 hits, and a line that is none.
    let calls = "TIMESTAMP,ContextTokens,GeneratedTokens,user\n1700000000,30,20,ada\n1700000001,30,20,ada\nx\n";
    write(folder.path(), "calls.csv", calls);
    let args = ["replay", "--rules", "rules.yaml", "--log", "calls.csv"];
    let replay = |more: &[&str]| run(folder.path(), &[&args[..], more].concat());
    let flags = "--cost --descriptors user --weights 1:2 --reserve 25 --speed 10".words();
    let said = replay(&[&flags[..], &["--json"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("it is JSON");
    let ways = report["ways"].as_array().expect("a list").iter();
    let let_in: Vec<_> = ways
        .map(|way| (&way["way"], &way["calls"]["allowed"]))
        .collect();
    let expected = [("post_paid", 2), ("reserved", 2), ("in_advance", 1)];
    let expected = expected.map(|(way, calls)| (way.into(), calls.into()));
    assert_eq!(let_in, expected.each_ref().map(|(way, calls)| (way, calls)));
    assert_contains(&said.err, "skipped 1 malformed line");
    let strict = replay(&[&flags[..], &["--strict"]].concat());
    assert_eq!(strict.code, Some(1));
    assert_contains(&strict.out, "in advance");
    // A flag of costs alone, one that costs have not, and a column that is not there.
    assert_eq!(replay(&["--reserve", "5"]).code, Some(2));
    assert_eq!(
        replay(&["--cost", "--compare", "sliding_log"]).code,
        Some(2)
    );
    assert_eq!(replay(&["--cost", "--weights", "0:0"]).code, Some(2));
    let missing = replay(&["--cost", "--descriptors", "model"]);
    assert_eq!(missing.code, Some(1));
    assert_contains(&missing.err, "no column model");
}

#[test]
fn a_base_names_the_tenants_of_service_levels() {
    let folder = tempdir().expect("a folder can be made");
    let levels =
        "slas: [ { id: get, pathPattern: '/product/*', tiers: [ { period: 60, threshold: 1 } ] } ]";
    write(folder.path(), "rules.yaml", levels);
    let line = |tenant: &str| {
        format!(
            "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET /v1/{tenant}/product/7 HTTP/1.1\" 200 5\n"
        )
    };
    let log = [line("a"), line("a"), line("b")].concat();
    write(folder.path(), "access.log", &log);
    let denied = |more: &[&str]| {
        let args = "replay --rules rules.yaml --log access.log --json".words();
        let args: Vec<&str> = args.iter().chain(more).copied().collect();
        let said = run(folder.path(), &args);
        let report: serde_json::Value = serde_json::from_str(&said.out).expect("it is JSON");
        let rule = report["rules"][0].clone();
        (rule["requests"].as_u64(), rule["denied"].as_u64())
    };
    let based = denied(&["--slas-base", "/v1/{tenant}"]);
    assert_eq!(based, (Some(3), Some(1)));
    assert_ne!(denied(&[]), based);
}

#[test]
fn the_manuals_example_works_as_it_is_written() {
    let manual = include_str!("../../../../docs/replay.md");
    let mut blocks = manual.split("```sh\n").skip(1);
    let block = blocks.find(|block| block.contains("--config gateway.yaml"));
    let block = block.expect("the manual shows --config");
    let (script, after) = block.split_once("```").expect("the block ends");
    let shown = after.split_once("```text\n").map(|(_, shown)| shown);
    let shown = shown.and_then(|shown| shown.split("```").next());
    let shown = shown.expect("the manual shows what it prints");
    let folder = tempdir().expect("a folder can be made");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let programs = binary.parent().expect("it lies in a folder").display();
    let output = std::process::Command::new("sh")
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", format!("{programs}:/usr/bin:/bin"))
        .args(["-ec", script])
        .output()
        .expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{said}");
}

#[test]
fn lines_out_of_order_are_said_beside_the_percentage() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let mut lines: Vec<&str> = LOG.lines().filter(|line| line.starts_with("192")).collect();
    lines.reverse();
    write(folder.path(), "access.log", &(lines.join("\n") + "\n"));
    let args = ["replay", "--rules", "rules.yaml", "--log", "access.log"];
    let sorted = run(folder.path(), &args).out;
    assert!(!sorted.contains("WARNING"), "{sorted}");
    assert_contains(&sorted, "put in order: 3 (75.00 %)");
    let args = [&args[..], &["--sort-within", "0"]].concat();
    let said = run(folder.path(), &args);
    let line = said.out.lines().position(|line| line.contains("denied ("));
    let after = line.and_then(|at| said.out.lines().nth(at + 1));
    let after = after.expect("a line follows");
    assert!(
        after.starts_with("WARNING: Lines too far out of order to be sorted: 3 (75.00 %)"),
        "{}",
        said.out
    );
    assert!(after.contains("by up to 2 s"), "{}", said.out);
    let json = run(folder.path(), &[&args[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json.out).expect("it is JSON");
    assert!(
        report["warnings"][0]
            .to_string()
            .contains("to be sorted: 3"),
        "{report}"
    );
    assert!(json.err.contains("warning: Lines too far"), "{}", json.err);
}

#[test]
fn whole_seconds_are_warned_of_where_windows_are_seconds() {
    let folder = tempdir().expect("a folder can be made");
    let short = RULES.replace("window: 1m", "window: 1s");
    let fine = "{\"time\":\"2015-05-17T10:05:03.5Z\",\"remote_address\":\"192.0.2.1\"}\n".repeat(3);
    for (rules, log, warned) in [
        (short.as_str(), LOG, true),
        (RULES, LOG, false),
        (short.as_str(), fine.as_str(), false),
    ] {
        write(folder.path(), "rules.yaml", rules);
        write(folder.path(), "access.log", log);
        let args = ["replay", "--rules", "rules.yaml", "--log", "access.log"];
        let said = run(folder.path(), &args);
        let warns = said
            .out
            .contains("WARNING: The log's times are whole seconds");
        assert_eq!(warns, warned, "{}", said.out);
        assert_eq!(
            said.out.contains("d.remote_address (1s)"),
            warned,
            "{}",
            said.out
        );
    }
}
