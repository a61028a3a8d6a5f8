//! A start while the files of rules are broken.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use crate::support::{Ratekeeper, Said, banner, http, serve, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Setup;

/// `limit` a day, with a plan of more.
fn rules(limit: u64) -> String {
    format!(
        "domain: d\ntenant: key\nplans: [free, pro]\ndescriptors:\n- key: key\n  \
         rate_limit: {{ window: 24h, limit: {limit} }}\n  \
         plans: {{ pro: {{ window: 24h, limit: {} }} }}\n",
        limit * 10
    )
}

const TENANTS: &str = "domain: d\ntenants:\n- { tenant: acme, plan: pro }\n";

const BROKEN: &str = "domain: d\ndescriptors:\n- { kee: key }\n";

/// A service with rules in two files of one domain, and a file of tenants.
fn asked(folder: &Path, rules: &str) -> Setup {
    let flags = "--tenants tenants.yaml --merge-domains --data-dir data";
    serve(folder).args(&["--rules", rules]).args(flags)
}

fn start(folder: &Path) -> Ratekeeper {
    asked(folder, "rules").start()
}

/// Runs it to its end, which comes at once.
fn refused(folder: &Path, rules: &str, more: &[&str]) -> Said {
    let said = asked(folder, rules).args(more).run();
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
    said
}

fn put_good(folder: &Path, limit: u64) {
    write(folder, "rules/a.yaml", &rules(limit));
    write(
        folder,
        "rules/b.yaml",
        "domain: d\ndescriptors:\n- { key: other, rate_limit: { window: 24h, limit: 2 } }\n",
    );
    write(folder, "tenants.yaml", TENANTS);
}

fn limit_of(service: &Ratekeeper, key: &str, value: &str) -> Value {
    service.check(&[(key, value)])["limit"].clone()
}

fn page(service: &Ratekeeper, path: &str) -> String {
    http(service.admin, "GET", path, "").1
}

#[test]
fn a_node_that_was_killed_starts_with_the_last_good_rules_and_says_so_until_the_files_are_mended() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    put_good(folder, 5);
    let service = start(folder);
    assert_eq!(limit_of(&service, "key", "acme"), 50);
    // The last good set is that of the last reload, not that of the start.
    put_good(folder, 7);
    eventually("the new rules are in use", || {
        limit_of(&service, "key", "x") == 7
    });
    write(folder, "rules/a.yaml", BROKEN);
    service.wait_for_log("new rules refused");
    drop(service);
    let service = start(folder);
    for (key, value, limit) in [("key", "acme", 70), ("key", "x", 7), ("other", "x", 2)] {
        assert_eq!(limit_of(&service, key, value), limit, "{key} {value}");
    }
    let told = banner(&service);
    assert_contains(&told, "rules/a.yaml:3:5");
    assert_contains(&told, "Starting with the last good rules, of 20");
    service.wait_for_log("the last good rules are in use until they are mended");
    let ready: Value = serde_json::from_str(&page(&service, "/readyz")).expect("JSON");
    assert_eq!(ready["ready"], true);
    let faults = ready["faults"].to_string();
    assert_contains(&faults, "the last good rules, of 20");
    assert!(
        ready["rules"]["error"].to_string().contains("a.yaml:3:5"),
        "{ready}"
    );
    let metrics = page(&service, "/metrics");
    assert_contains(&metrics, "ratelimit_config_last_good 1\n");
    // What is mended is taken at once, and the mark goes.
    put_good(folder, 9);
    eventually("the mended rules are in use", || {
        limit_of(&service, "key", "acme") == 90
    });
    eventually("the mark is gone", || {
        page(&service, "/metrics").contains("ratelimit_config_last_good 0\n")
            && !page(&service, "/readyz").contains("last good")
    });
    // Files that are put back as they were are no new set, and end the mark as well.
    write(folder, "rules/a.yaml", BROKEN);
    service.wait_for_log("new rules refused");
    drop(service);
    let service = start(folder);
    put_good(folder, 9);
    eventually("the mark is gone", || {
        !page(&service, "/readyz").contains("last good")
    });
}

#[test]
fn no_other_rules_are_used_than_those_of_the_same_files() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    put_good(folder, 5);
    write(folder, "rules/a.yaml", BROKEN);
    let said = refused(folder, "rules", &[]);
    assert!(
        said.err.contains("a.yaml:3:5"),
        "there never was a good set: {}",
        said.err
    );
    put_good(folder, 5);
    drop(start(folder));
    write(folder, "rules/a.yaml", BROKEN);
    let said = refused(folder, "rules", &["--on-broken-rules", "refuse"]);
    assert_contains(&said.err, "a.yaml:3:5");
    // The same text elsewhere.
    write(folder, "elsewhere/a.yaml", BROKEN);
    let said = refused(folder, "elsewhere", &[]);
    assert_contains(&said.err, "a.yaml:3:5");
    assert!(
        said.err.contains("from elsewhere than is asked for"),
        "{}",
        said.err
    );
    let file = folder.join("data/rules.last-good.json");
    let text = fs::read_to_string(&file).expect("it was kept");
    fs::write(&file, &text[..text.len() / 2]).expect("it is ours");
    let said = refused(folder, "rules", &[]);
    assert_contains(&said.err, "the last good rules cannot be used");
    put_good(folder, 5);
    assert_eq!(limit_of(&start(folder), "key", "x"), 5);
}

/// A disk that is full or read-only keeps no node from starting.
#[test]
fn rules_that_cannot_be_kept_are_in_use_and_a_warning_says_so() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    put_good(folder, 5);
    // Not even root writes into a folder in the place of the file.
    fs::create_dir_all(folder.join("data/rules.last-good.json/taken"))
        .expect("folders can be made");
    let service = start(folder);
    assert_eq!(limit_of(&service, "key", "x"), 5);
    service.wait_for_log("the rules in use cannot be kept");
}
