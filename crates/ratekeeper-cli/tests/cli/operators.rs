//! The commands of operators: switches of rules, usage, tokens.

use crate::support::{Ratekeeper, Said, ratekeeper, run, said, serve, write};
use ratekeeper_testkit::assert_contains;
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d
tenant: customer
evaluation: path
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 2, algorithm: fixed_window }
  descriptors:
  - { key: endpoint, value: POST /orders?, rate_limit: { window: 24h, limit: 9, algorithm: fixed_window } }
";

/// The reach of a switch with the database in the data folder.
const EVERYWHERE: &str = "on all nodes that use the quota database, within seconds";

const ORDERS: &str = "d.customer.endpoint_POST /orders?";

fn start(folder: &Path) -> Ratekeeper {
    serve(folder)
        .args("--rules rules.yaml --data-dir data")
        .start()
}

/// Runs a command about `service`.
fn tell(service: &Ratekeeper, folder: &Path, args: &[&str]) -> Said {
    let admin = format!("http://127.0.0.1:{}", service.admin);
    run(folder, &[args, &["--admin", &admin]].concat())
}

fn done(service: &Ratekeeper, folder: &Path, args: &[&str]) -> String {
    tell(service, folder, args).succeeded()
}

#[test]
fn a_rule_is_switched_from_the_command_line_and_stays_so_over_a_restart() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    let service = start(folder);
    assert_eq!(
        done(&service, folder, &["rules", "disable", "d.customer"]),
        format!("d.customer is disabled, {EVERYWHERE}\n")
    );
    for _ in 0..5 {
        assert_eq!(service.check(&[("customer", "a")])["decision"], "allow");
    }
    assert_eq!(
        done(&service, folder, &["rules", "shadow", ORDERS]),
        format!("{ORDERS} is shadow, {EVERYWHERE}\n"),
        "an id with a slash, a question mark and spaces"
    );
    let table = done(&service, folder, &["rules", "list"]);
    let row = table.lines().find(|line| line.starts_with("d.customer "));
    let row = row.unwrap_or_else(|| panic!("no row of the rule in:\n{table}"));
    assert_contains(&row, "disabled  disabled");
    assert_contains(&row, "rules.yaml:");
    assert!(service.stop().success());

    let service = start(folder);
    for _ in 0..5 {
        assert_eq!(service.check(&[("customer", "a")])["decision"], "allow");
    }
    let json = done(&service, folder, &["rules", "list", "--switched", "--json"]);
    let rules: Value = serde_json::from_str(&json).expect("it is JSON");
    let switches: Vec<_> = rules
        .as_array()
        .expect("a list")
        .iter()
        .map(|rule| &rule["switch"])
        .collect();
    assert_eq!(switches, ["disabled", "shadow"]);
    assert_eq!(
        done(&service, folder, &["rules", "restore", "d.customer"]),
        format!("d.customer is enforced, as its file says, {EVERYWHERE}\n")
    );
    let denied = (0..3).any(|_| service.check(&[("customer", "a")])["decision"] == "deny");
    assert!(denied);

    tell(&service, folder, &["rules", "disable", "d.nobody"])
        .refused("404: no rule has the id \"d.nobody\"");
    assert!(service.stop().success());
}

#[test]
fn usage_is_shown_to_people_and_to_scripts() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    let service = start(folder);
    service.check(&[("customer", "acme"), ("endpoint", "POST /orders?")]);
    let table = done(&service, folder, &["usage", "acme"]);
    let row = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in:\n{table}"));
        line.trim_start_matches(name)
            .split_whitespace()
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("default"), ["1", "2", "1"]);
    assert_eq!(row("endpoint:POST /orders?"), ["1", "9", "8"]);
    let asked = ["--descriptor", "endpoint:GET /", "--descriptor"];
    let asked = [&["usage", "acme"][..], &asked, &["endpoint:POST /orders?"]].concat();
    let table = done(&service, folder, &asked);
    let absent = "no limit of this tenant for endpoint:GET / has a counter\n";
    assert!(table.ends_with(&format!("\n{absent}")), "{table}");
    let json = done(&service, folder, &["usage", "acme", "--json"]);
    let usage: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(usage["usage"]["default"]["remaining"], 1);
    assert!(service.stop().success());
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    let service = start(folder);
    done(&service, folder, &["rules", "list"]);
    let create = "token create ann --role viewer --data-dir data";
    let made = run(folder, create).succeeded();
    let token = made.trim();
    assert!(
        token.starts_with("rk_admin_") && token.len() == 73,
        "{token}"
    );

    tell(&service, folder, &["rules", "list"]).refused("401: say who you are");
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let by_variable = |args: &[&str]| {
        let mut command = ratekeeper(folder, &[args, &["--admin", &admin]].concat());
        said(
            command
                .env("RATEKEEPER_ADMIN_TOKEN", token)
                .output()
                .expect("it starts"),
        )
    };
    assert_eq!(by_variable(&["rules", "list"]).code, Some(0));
    let refused = by_variable(&["rules", "disable", "d.customer"]);
    assert!(
        refused
            .err
            .contains("403: \"ann\" has the role viewer; this needs editor"),
        "{}",
        refused.err
    );
    service.wait_for_log("a request to the admin API is refused");
    write(folder, "token", &made);
    done(
        &service,
        folder,
        &["rules", "list", "--token-file", "token"],
    );
    let mut explain = ratekeeper(
        folder,
        &format!("rules explain --address {admin} d customer=a"),
    );
    said(
        explain
            .env("RATEKEEPER_ADMIN_TOKEN", token)
            .output()
            .expect("it starts"),
    )
    .succeeded();

    let list = run(folder, &["token", "list", "--data-dir", "data"]).out;
    assert!(list.contains("ann") && list.contains("viewer"), "{list}");
    assert!(!service.log().contains(token), "tokens are not logged");
    assert_eq!(
        run(folder, &["token", "revoke", "ann", "--data-dir", "data"]).code,
        Some(0)
    );
    let revoked = tell(
        &service,
        folder,
        &["rules", "list", "--token-file", "token"],
    );
    assert_contains(&revoked.err, "401");
    let nowhere = run(folder, &["token", "list"]);
    assert!(nowhere.err.contains("--data-dir"), "{}", nowhere.err);
    for command in [&["list"][..], &["revoke", "ann"]] {
        let args = [&["token"], command, &["--data-dir", "dtaa"]].concat();
        run(folder, &args).refused("there is no folder dtaa");
        assert!(!folder.join("dtaa").exists(), "nothing is made");
    }
    assert!(service.stop().success());
}
