//! Plans and overrides from a file of tenants.

use crate::quotas::RULES;
use crate::support::{self, Ratekeeper, http, ratekeeper, repository, run, said, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Args;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use tempfile::tempdir;

/// A plan, and an override on an endpoint.
const TENANTS: &str = "tenants:
- tenant: acme
  plan: pro
  overrides: [ { descriptor: 'endpoint:POST /orders', window: 24h, limit: 500 } ]
";

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

fn serve(folder: &Path, more: &[&str]) -> Ratekeeper {
    support::serve(folder).args(more).start()
}

/// Replaces the list at once: no reader gets half of it.
fn put(folder: &Path, list: &str) {
    let new = write(folder, "elsewhere/tenants.yaml", list);
    std::fs::rename(new, folder.join("lists/tenants.yaml")).expect("it can be moved");
}

/// The limit that binds a call, and its rule.
fn bound(service: &Ratekeeper, entries: &[(&str, &str)]) -> (u64, String) {
    let answer = service.check(entries);
    let rule = answer["rule"].as_str().unwrap_or_default().to_owned();
    (answer["limit"].as_u64().unwrap_or_default(), rule)
}

const ORDERS: [(&str, &str); 2] = [("customer", "acme"), ("endpoint", "POST /orders")];

#[test]
fn a_file_of_tenants_gives_plans_and_overrides_and_is_reloaded() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "lists/tenants.yaml", TENANTS);
    let flags = ["--rules", "rules.yaml", "--tenants", "lists/tenants.yaml"];
    let service = serve(folder.path(), &flags);
    assert_eq!(
        bound(&service, &[("customer", "acme")]),
        (1_000, "d.customer@pro".to_owned())
    );
    assert_eq!(
        bound(&service, &[("customer", "bob")]),
        (10, "d.customer".to_owned())
    );
    let own = "d.customer.endpoint_POST /orders@custom".to_owned();
    assert_eq!(bound(&service, &ORDERS), (500, own));

    // A change is in force without a restart, and usage is kept.
    let raised = TENANTS.replace("limit: 500", "limit: 600") + "- { tenant: bob, plan: pro }\n";
    put(folder.path(), &raised);
    eventually("the new list is in force", || {
        bound(&service, &[("customer", "bob")]).0 == 1_000
    });
    assert_eq!(bound(&service, &ORDERS).0, 600);
    assert!(
        service.check(&ORDERS)["remaining"].as_u64() < Some(599),
        "two were spent before"
    );

    // A mistake is refused whole: the last good list stays, and everybody is told.
    put(folder.path(), "tenants:\n- { tenant: acme, plan: max }\n");
    service.wait_for_log("the domain has no plan 'max'");
    eventually("the mistake is told", || {
        let metrics = service.metrics();
        let ready = http(service.port, "GET", "/readyz", "").1;
        metrics.contains("ratelimit_config_reload_total{result=\"error\"} 1")
            && ready.contains("lists/tenants.yaml:2:")
    });
    assert_eq!(bound(&service, &ORDERS).0, 600);

    // So is a list that is gone; once it is back, it counts again.
    std::fs::remove_file(folder.path().join("lists/tenants.yaml")).expect("it was there");
    put(folder.path(), "tenants: []\n");
    eventually("the empty list is in force", || {
        bound(&service, &ORDERS).0 <= 20
    });

    let metrics = service.metrics();
    let labels = "domain=\"d\",rule=\"d.customer@pro\",plan=\"pro\"";
    assert_contains(&metrics, labels);
    assert!(
        !metrics.contains("acme"),
        "tenants are no labels: {metrics}"
    );
    assert!(service.stop().success());
}

#[test]
fn dates_take_effect_without_a_reload() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(4);
    let since = soon
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    let list = format!(
        "tenants:\n- {{ tenant: acme, plan: pro, effective_at: '{}' }}\n- {{ tenant: old, plan: pro, expires_at: 2020-01-01T00:00:00Z }}\n",
        rfc3339(since.as_secs())
    );
    write(folder.path(), "tenants.yaml", &list);
    let flags = "--rules rules.yaml --tenants tenants.yaml --watch=false".words();
    let service = serve(folder.path(), &flags);
    assert_eq!(bound(&service, &[("customer", "old")]).0, 10);
    eventually("the plan begins", || {
        bound(&service, &[("customer", "acme")]).0 == 1_000
    });
    let now = std::time::SystemTime::now();
    assert!(
        now >= soon - std::time::Duration::from_secs(1),
        "it began too early"
    );
}

/// A time of this century, in UTC.
fn rfc3339(secs: u64) -> String {
    let (mut day, secs) = (secs / 86_400, secs % 86_400);
    let mut year = 1970;
    let leap = |year: u64| year.is_multiple_of(4);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    format!(
        "{year}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        month + 1,
        day + 1,
        secs / 3_600,
        secs / 60 % 60,
        secs % 60
    )
}

/// The hashes that `ratekeeper key hash` prints.
fn hashed(folder: &Path, keys: &str) -> String {
    let mut command = ratekeeper(folder, &["key", "hash"]);
    command.env("RATEKEEPER_TENANT_KEY", KEY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("its input is piped");
    input.write_all(keys.as_bytes()).expect("it reads");
    drop(input);
    said(child.wait_with_output().expect("it ends")).succeeded()
}

#[test]
fn api_keys_are_named_by_their_hash() {
    let folder = tempdir().expect("a folder can be made");
    let secret = "sk_live_0123456789";
    let printed = hashed(folder.path(), &format!("{secret}\nshort\n"));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(lines[0].ends_with("\"  # ends in 6789"), "{printed}");
    assert!(
        lines[1].ends_with('"'),
        "too short to show any of it: {printed}"
    );
    let rules = RULES.replace("customer", "api_key");
    write(folder.path(), "rules.yaml", &rules);
    let list = format!("tenants:\n- plan: pro\n  {}\n", lines[0]);
    write(folder.path(), "tenants.yaml", &list);
    let setup = support::serve(folder.path()).args("--rules rules.yaml --tenants tenants.yaml");
    setup.clone().run().refused("tenant_key");
    let service = setup.variable("RATEKEEPER_TENANT_KEY", KEY).start();
    assert_eq!(bound(&service, &[("api_key", secret)]).0, 1_000);
    assert_eq!(bound(&service, &[("api_key", "sk_live_0123456788")]).0, 10);
    let log = service.log();
    assert!(!log.contains("WARN"), "{log}");
    drop(service);

    let clear = format!("tenants:\n- {{ tenant: {secret}, plan: pro }}\n");
    write(folder.path(), "clear.yaml", &clear);
    let args = ["rules", "check", "rules.yaml", "--tenants", "clear.yaml"];
    let warned = run(folder.path(), &args);
    assert_eq!(warned.code, Some(0));
    assert!(
        warned.err.contains("stands here in the clear"),
        "{}",
        warned.err
    );
}

#[test]
fn rules_and_tenants_are_checked_explained_and_replayed_together() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "tenants.yaml", TENANTS);
    let check = ["rules", "check", "rules.yaml", "--tenants", "tenants.yaml"];
    let good = run(folder.path(), &check);
    assert_eq!(good.code, Some(0), "{}", good.err);
    assert_eq!(good.err, "", "plans are no reason for a warning");
    for line in [
        "  d: 1 tenant with a plan or limits of their own\n",
        "  d.customer@pro: 1000 per 24h, ",
        "  d.customer.endpoint_POST /orders@custom: 500 per 24h, ",
    ] {
        let line = line.replace("24h", "1d");
        assert_contains(&good.out, &line);
    }
    let explain = "rules explain --rules rules.yaml --tenants tenants.yaml d".words();
    let told = run(
        folder.path(),
        &[&explain[..], &["customer=acme,endpoint=POST /orders"]].concat(),
    );
    for part in [
        "  plan: pro\n",
        "d.customer@pro",
        "@custom",
        "an override of this tenant",
    ] {
        assert_contains(&told.out, part);
    }
    let line = "192.0.2.1 - - [01/Jan/2024:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n";
    write(folder.path(), "access.log", &line.repeat(30));
    let by_address = TENANTS.replace("acme", "192.0.2.1");
    write(folder.path(), "addresses.yaml", &by_address);
    let replay = ["replay", "--rules", "rules.yaml", "--log", "access.log"];
    let by = ["--descriptors", "customer=remote_address"];
    let denied = |more: &[&str]| {
        let said = run(
            folder.path(),
            &[&replay[..], &by, &["--json"], more].concat(),
        );
        let report: serde_json::Value = serde_json::from_str(&said.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", said.out, said.err));
        let rules = report["rules"].as_array().expect("the rules that matched");
        let denied = rules.iter().filter_map(|rule| rule["denied"].as_u64());
        denied.sum::<u64>()
    };
    assert_eq!(denied(&[]), 20, "on the default plan");
    assert_eq!(denied(&["--tenants", "addresses.yaml"]), 0, "on its own");

    write(
        folder.path(),
        "tenants.yaml",
        "tenants:\n- { tenant: acme, plan: pr }\n- { tenant: acme }\n",
    );
    write(
        folder.path(),
        "rules.yaml",
        &RULES.replace("limit: 20", "limit: x"),
    );
    let refused = run(folder.path(), &check);
    assert_eq!(refused.code, Some(1));
    for part in [
        "rules.yaml:10:",
        "tenants.yaml:2:25",
        "did you mean `pro`?",
        "tenants.yaml:3:",
    ] {
        assert_contains(&refused.err, part);
    }
}

#[test]
fn the_shipped_example_has_tenants() {
    let rules = ["rules", "explain", "--rules", "config/rules", "api"];
    let explain = |entries| run(&repository(), &[&rules[..], &[entries]].concat());
    let told = explain("organization=acme,endpoint=GET /report");
    for part in [
        "plan: enterprise",
        "5000 per 1m",
        "500 per 1m",
        "an override of this tenant",
    ] {
        assert!(told.out.contains(part), "{part}: {}{}", told.out, told.err);
    }
    let checked = run(&repository(), &["rules", "check", "config/rules"]);
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""));
}
