//! `ratekeeper regions retire`: the share of a region that is gone.

use crate::fleet::{Fleet, KEY};
use crate::support::{ratekeeper, write};
use ratekeeper_testkit::assert_contains;
use std::net::TcpListener;
use std::process::Output;
use tempfile::tempdir;

/// Settings with regions of which ap may answer at this port.
fn settings(port: u16) -> String {
    format!(
        "# our regions\nregion: eu\nregions:\n  version: 3\n  ap: {{ weight: 1, link: ['http://127.0.0.1:{port}'] }} # far\n  \
         eu: {{ weight: 2 }}\n  us: {{ weight: 1 }}\nrules: rules.yaml\nstore: redis://127.0.0.1:1\nstore_hash_key: \
         00112233445566778899aabbccddeeff\n"
    )
}

const RULES: &str = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1h, limit: 600, regions: bounded } } ]\n";

fn run(folder: &std::path::Path, args: &[&str]) -> (Output, String) {
    let args: Vec<&str> = ["regions", "retire"].iter().chain(args).copied().collect();
    let output = ratekeeper(folder, &args).output().expect("it runs");
    let all = [&*output.stdout, &*output.stderr].concat();
    (output, String::from_utf8(all).expect("text"))
}

/// The port is free: no region answers there.
const NOWHERE: u16 = 1;

const LONG_AGO: [&str; 3] = ["ap", "--since", "2026-01-01T00:00:00Z"];

/// As `serve` finds it.
#[test]
fn the_settings_file_in_use_is_changed() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    write(folder, "other.yaml", &settings(NOWHERE));
    let arguments = [&["regions", "retire"][..], &LONG_AGO].concat();
    let mut command = ratekeeper(folder, &arguments);
    let output = command.env("RATEKEEPER_CONFIG", "other.yaml").output();
    let said = crate::support::said(output.expect("it runs")).succeeded();
    assert_contains(&said, "other.yaml is changed");
    let text = std::fs::read_to_string(folder.join("other.yaml")).expect("it is there");
    assert_contains(&text, "retired: true");
}

/// Its caller could go on as if the share were given to the others.
#[test]
fn a_settings_file_that_is_not_changed_is_a_failure() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    let inline = "regions: { version: 3, ap: { weight: 1 }, eu: { weight: 2 }, us: { weight: 1 } }";
    let text = settings(NOWHERE);
    let (begin, rest) = text.split_once("regions:").expect("it has them");
    let (_, rest) = rest.split_once("rules:").expect("it has them");
    let text = format!("{begin}{inline}\nrules:{rest}");
    write(folder, "ratekeeper.yaml", &text);
    let (output, said) = run(folder, &LONG_AGO);
    assert_contains(&said, "Write in ratekeeper.yaml");
    assert_contains(&said, "ratekeeper.yaml is as it was");
    assert!(!output.status.success(), "{said}");
    let after = std::fs::read_to_string(folder.join("ratekeeper.yaml")).expect("it is there");
    assert_eq!(after, text);
}

/// Rules whose tenants may have other windows.
const OF_TENANTS: &str = "domain: d
tenant: customer
descriptors: [ { key: customer, rate_limit: { window: 1m, limit: 600, regions: bounded } } ]
";

/// The same for nodes that are in no region.
const OF_TENANTS_ANYWHERE: &str = "domain: d
tenant: customer
descriptors: [ { key: customer, rate_limit: { window: 1m, limit: 600 } } ]
";

/// A window of 30 days, for hits and for loans, and 11 minutes for what is lent.
const OVERRIDDEN: &str = "may still be in use for 5184660 s";

#[test]
fn overrides_in_the_quota_database_count() {
    let fleet = Fleet::sqlite().with_rules(OF_TENANTS_ANYWHERE);
    let node = fleet.node("a");
    fleet.done(
        &node,
        &["quota", "set", "acme", "--override", "default=5000/720h"],
    );
    drop(node);
    let folder = fleet.folder.path();
    write(folder, "rules.yaml", OF_TENANTS);
    let database = format!("quotas: {}\ntenant_key: {KEY}\n", fleet.database.url());
    write(folder, "ratekeeper.yaml", &(settings(NOWHERE) + &database));
    let (output, said) = run(folder, &["ap"]);
    assert!(!output.status.success(), "{said}");
    assert_contains(&said, OVERRIDDEN);
}

/// Without a word, it would be made, with no overrides in it.
#[test]
fn a_quota_database_that_is_not_here_is_said_to_be_missing() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", OF_TENANTS);
    let database = folder.join("away.db");
    let named = format!("quotas: sqlite://{}\n", database.display());
    write(folder, "ratekeeper.yaml", &(settings(NOWHERE) + &named));
    let (output, said) = run(folder, &LONG_AGO);
    assert!(!output.status.success(), "{said}");
    assert_contains(&said, "there is no such file here");
    assert!(!database.exists());
}

#[test]
fn overrides_in_files_count() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", OF_TENANTS);
    let tenants =
        "domain: d\ntenants:\n- { tenant: acme, overrides: [ { window: 720h, limit: 5000 } ] }\n";
    write(folder, "tenants.yaml", tenants);
    write(
        folder,
        "ratekeeper.yaml",
        &(settings(NOWHERE) + "tenants: tenants.yaml\n"),
    );
    let (output, said) = run(folder, &["ap"]);
    assert!(!output.status.success(), "{said}");
    assert_contains(&said, OVERRIDDEN);
}

#[test]
fn a_region_is_retired_once_nothing_of_its_share_is_in_use() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let living = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = living.local_addr().expect("it is bound").port();
    write(folder, "rules.yaml", RULES);
    write(folder, "ratekeeper.yaml", &settings(port));
    let long_ago = ["ap", "--since", "2026-01-01T00:00:00Z"];
    let (output, said) = run(folder, &long_ago);
    assert!(!output.status.success(), "{said}");
    assert_contains(&said, "ap answers at");
    drop(living);
    // An hour for what it admitted, and for loans 11 minutes and another hour.
    let (output, said) = run(folder, &["ap"]);
    assert!(!output.status.success(), "{said}");
    assert_contains(&said, "may still be in use for 7860 s");
    for (name, why) in [("eu", "is this region"), ("xx", "is none of them")] {
        let (output, said) = run(folder, &[name]);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    let read = || std::fs::read_to_string(folder.join("ratekeeper.yaml")).expect("it is there");
    assert_eq!(read(), settings(port), "nothing was changed");

    let (output, said) = run(folder, &long_ago);
    assert!(output.status.success(), "{said}");
    assert_contains(
        &said,
        "Each limit is then owned as follows: eu 66.7 %, us 33.3 %",
    );
    let link = format!("['http://127.0.0.1:{port}']");
    let expected = settings(port)
        .replace("version: 3", "version: 4")
        .replace(&format!("{link} }}"), &format!("{link}, retired: true }}"));
    assert_eq!(read(), expected);
    let (_, said) = run(folder, &long_ago);
    assert_contains(&said, "`ap` is retired already");
    let checked = ratekeeper(folder, "rules explain --rules rules.yaml d k=a");
    let explained = { checked }.output().expect("it runs").stdout;
    let explained = String::from_utf8(explained).expect("text");
    assert_contains(&explained, "eu owns 400");
    assert_contains(&explained, "ap 1 retired");
}
