//! `ratekeeper why` and `denials`, and the page about them: its commands are pasted one after the other.

use crate::support::{self, Ratekeeper, http, ratekeeper, repository, url};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{eventually, output_of};
use ratekeeper_testkit::redis::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

const RULES: &str = "domain: shop
tenant: customer
descriptors:
  - key: customer
    rate_limit: { window: 24h, limit: 3, algorithm: fixed_window }
  - key: path
    shadow_mode: true
    rate_limit: { window: 24h, limit: 1, algorithm: fixed_window }
";

fn serve(folder: &Path) -> Ratekeeper {
    support::serve(folder)
        .rules(RULES)
        .args("--data-dir data")
        .start()
}

fn call(service: &Ratekeeper, key: &str, value: &str, times: usize) {
    let entries = [json!({ "key": key, "value": value })];
    let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] }).to_string();
    for _ in 0..times {
        let (status, body) = http(service.port, "POST", "/v1/check", &body);
        assert_eq!(status, 200, "{body}");
    }
}

/// A line of a shell in which `ratekeeper` asks the service.
fn shell(service: &Ratekeeper, folder: &Path, script: &str) -> Command {
    let binary = ratekeeper(folder, "").get_program().to_owned();
    let function = format!(
        "ratekeeper() {{ \"$BINARY\" \"$@\" --admin http://127.0.0.1:{}; }}\n",
        service.admin
    );
    let mut command = Command::new("sh");
    command.args(["-ec", &(function + script)]);
    command.env("BINARY", binary).current_dir(folder);
    command
}

fn said(service: &Ratekeeper, folder: &Path, script: &str) -> String {
    output_of(&mut shell(service, folder, script))
}

#[test]
fn the_commands_of_the_page_work_as_they_are_pasted() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let service = serve(folder);
    call(&service, "customer", "acme", 5);
    let page = std::fs::read_to_string(repository().join("docs/why-429.md"));
    let page = page.expect("there is a page");
    let blocks: Vec<_> = page.split("```sh\n").skip(1).collect();
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
    for block in blocks {
        let script = block.split("```").next().unwrap_or_default();
        said(&service, folder, script);
    }
    service.stop();
}

#[test]
fn one_customer_is_told_on_one_screen() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let service = serve(folder);
    call(&service, "customer", "acme", 5);
    call(&service, "path", "/slow", 3);
    said(
        &service,
        folder,
        "ratekeeper quota set acme --override default=7/day",
    );
    let told = said(&service, folder, "ratekeeper why acme");
    for part in [
        "denied 2 times in the last hour by shop.customer (3 per 1d), since ",
        "Usage now",
        "7 per day",
        "default 7 per day",
        "ratekeeper quota revert acme",
        "of this node alone: ",
    ] {
        assert!(told.contains(part), "no {part:?} in:\n{told}");
    }
    assert!(told.lines().count() < 40, "more than a screen:\n{told}");
    let by_end = said(&service, folder, "echo '*acme' | ratekeeper why");
    assert_contains(&by_end, "denied 2 times");
    let list = said(
        &service,
        folder,
        "ratekeeper denials --kind would-be-denied",
    );
    assert!(list.contains("/slow") && list.contains("shadow"), "{list}");
    assert!(!list.contains("acme"), "{list}");
    let json = said(&service, folder, "ratekeeper denials acme --json");
    assert_contains(&json, "\"count\": 2");
    let unknown = shell(&service, folder, "ratekeeper why '*nobody'").output();
    let unknown = unknown.expect("there is a shell");
    assert_eq!(unknown.status.code(), Some(1));
    eventually("the log names whom the rule in shadow would deny", || {
        let log = service.log();
        log.contains("would be denied, were the rule enforced") && log.contains("/slow")
    });
    service.stop();
}

/// Rules without tenants, and somebody whom nothing has denied.
#[test]
fn whoever_is_not_denied_is_told_by_the_name_that_was_asked_for() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let rules = RULES.replace("tenant: customer\n", "");
    let service = support::serve(folder).rules(&rules).start();
    let told = said(&service, folder, "ratekeeper why nobody");
    assert_eq!(told.lines().next(), Some("nobody"), "{told}");
    assert_contains(&told, "not denied in the last hour");
    assert_contains(&told, "ratekeeper denials nobody --follow");
    said(&service, folder, "ratekeeper denials nobody");
    service.stop();

    let secrets = SECRETS.replace("tenant: api_key\n", "");
    let service = support::serve(folder).rules(&secrets).start();
    let told = said(
        &service,
        folder,
        "echo a-key-that-nobody-may-see | ratekeeper why",
    );
    assert!(told.starts_with('~') && !told.contains("a-key"), "{told}");
    assert_contains(&told, "ratekeeper denials '~");
    service.stop();
}

const SECRETS: &str = "domain: shop
tenant: api_key
descriptors:
  - key: api_key
    rate_limit: { window: 24h, limit: 2, algorithm: fixed_window }
  - key: path
    shadow_mode: true
    rate_limit: { window: 24h, limit: 1, algorithm: fixed_window }
";

#[test]
fn what_to_do_about_a_key_names_it_by_its_hash() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let setup = support::serve(folder).rules(SECRETS);
    let service = setup.args("--data-dir data").start();
    for key in ["a-key-that-nobody-may-see", "short"] {
        call(&service, "api_key", key, 3);
        let told = said(&service, folder, &format!("ratekeeper why {key}"));
        let raise = told
            .lines()
            .find(|line| line.contains("ratekeeper quota set hash:"));
        let raise = raise.unwrap_or_else(|| panic!("nothing to do in:\n{told}"));
        said(&service, folder, raise);
        let list = said(&service, folder, "ratekeeper audit list");
        assert_contains(&list, "default 4 per 1d from 20");
        assert!(!list.contains(key), "{list}");
        let usage = said(&service, folder, &format!("ratekeeper usage {key}"));
        assert!(
            usage.contains("an override") || usage.contains("@custom"),
            "{usage}"
        );
    }
    let list = said(&service, folder, "ratekeeper audit list");
    assert_eq!(list.matches("  hash:").count(), 2, "{list}");
    service.stop();
}

/// A node that shares its counters with others.
fn member(folder: &Path, name: &str, store: &str) -> Ratekeeper {
    let setup = support::serve(&folder.join(name)).rules(SECRETS);
    setup
        .args(&format!(
            "--node-name {name} --store {store} --store-deadline 1s"
        ))
        .start()
}

#[test]
fn any_node_with_the_same_redis_tells_why() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let url = url(&server);
    let nodes = ["one", "two"].map(|name| member(folder, name, &url));
    let [one, two] = &nodes;
    call(one, "api_key", "sk_live_of_acme_x4f2", 6);
    call(one, "path", "/slow", 3);
    // Many others are denied on the second node.
    for number in 0..50 {
        call(two, "api_key", &format!("sk_live_of_others_{number:04}"), 3);
    }
    let told = |node: &Ratekeeper, name: &str| {
        let output = shell(node, folder, &format!("ratekeeper why '{name}' --json")).output();
        let output = output.expect("there is a shell");
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()
    };
    for node in &nodes {
        eventually("each node tells of the denials of the other", || {
            told(node, "*x4f2")["denials"][0]["count"] == 4
        });
        let why = told(node, "*x4f2");
        let text = why.to_string();
        assert_eq!(why["denials"][0]["nodes"], json!(["one"]), "{text}");
        assert!(why["told_by"]["only_this_node"].is_null(), "{text}");
        assert!(!text.contains("sk_live"), "{text}");
        let list = said(node, folder, "ratekeeper denials --kind would-be-denied");
        assert_contains(&list, "/slow");
    }
    // The node that denied the key knows its counters; the other says where to ask.
    let fingerprint = told(one, "*x4f2")["key"].clone();
    let fingerprint = fingerprint
        .as_str()
        .and_then(|key| key.strip_prefix("api_key:"));
    let fingerprint = fingerprint.and_then(|key| key.split('…').next());
    let fingerprint = fingerprint.expect("an entry").to_owned();
    let own = told(one, &fingerprint);
    assert_eq!(own["usage"]["usage"]["default"]["remaining"], 0, "{own}");
    let other = told(two, &fingerprint);
    assert!(other["usage"].is_null(), "{other}");
    assert!(
        other["missing"].to_string().contains("or a node that has"),
        "{other}"
    );
    // Whoever has the value gets all of it from any node.
    let script = "echo sk_live_of_acme_x4f2 | ratekeeper why --json";
    let by_value: Value = serde_json::from_str(&said(two, folder, script)).expect("it is JSON");
    assert_eq!(
        by_value["usage"]["usage"]["default"]["remaining"], 0,
        "{by_value}"
    );

    server.process().kill();
    eventually("without Redis a node tells its own, and says so", || {
        let why = told(one, "*x4f2");
        why["denials"][0]["count"] == 4 && why["told_by"]["only_this_node"].is_string()
    });
    server.restart();
    eventually("with Redis all of them again", || {
        told(two, "*x4f2")["denials"][0]["nodes"] == json!(["one"])
    });
}
