//! `ratekeeper serve --store redis://…`, with real servers.

use crate::support::{Ratekeeper, faults, http, keys, ratekeeper, run, said, serve, url, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::{Authority, Validity, put};
use ratekeeper_testkit::process::{eventually, free_port};
use ratekeeper_testkit::ratekeeper::Args;
use ratekeeper_testkit::redis::{Cluster, Reply, Server, hosts};
use std::path::Path;
use std::time::Duration;
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- { key: user, rate_limit: { window: 24h, limit: 3 } }
- { key: strict, rate_limit: { window: 24h, limit: 3 }, on_store_failure: deny }
";

/// A node in a folder of its own. Slow machines are no failure of Redis.
fn node(folder: &Path, name: &str, store: &str, more: &[&str]) -> Ratekeeper {
    let setup = serve(&folder.join(name)).rules(RULES);
    setup.args(&["--store", store]).args(more).start()
}

const PATIENT: [&str; 2] = ["--store-deadline", "1s"];

/// Asks for `user` until the answer is marked, or is not any more.
fn until_degraded(service: &Ratekeeper, user: &str, degraded: bool) -> serde_json::Value {
    let mut last = serde_json::Value::Null;
    eventually("the store is found to be as it is", || {
        last = service.check(&[("user", user)]);
        last["degraded"] == degraded
    });
    last
}

/// Asks two nodes in turn for one subject, until its limit is used up and both deny. Another subject takes its place where
/// the machine is so slow that a decision misses the longest deadline that there is.
fn share_a_limit(nodes: [&Ratekeeper; 2], name: &str) {
    for attempt in 0..20 {
        let user = format!("{name} {attempt}");
        let asked = (0..5).map(|number| nodes[number % 2].check(&[("user", &user)]));
        let answers: Vec<_> = asked.collect();
        if answers.iter().any(|answer| answer["degraded"] == true) {
            continue;
        }
        let left: Vec<_> = answers.iter().map(|answer| &answer["remaining"]).collect();
        assert_eq!(left, [2, 1, 0, 0, 0], "{answers:?}");
        let decisions = answers.iter().map(|answer| answer["decision"].as_str());
        let decisions: Vec<_> = decisions.flatten().collect();
        assert_eq!(decisions, ["allow", "allow", "allow", "deny", "deny"]);
        return;
    }
    panic!("no subject was counted in Redis alone");
}

#[test]
fn two_nodes_share_their_limits_in_a_cluster() {
    let cluster = Cluster::of(3, 0, Duration::from_secs(15));
    // The third one is found by the others.
    let ports = cluster.ports();
    let store = format!("redis+cluster://{}/", hosts(&[ports[2], ports[0]]));
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, &store, &PATIENT));
    // Many subjects, so that every shard is asked.
    for user in 0..30 {
        share_a_limit([&nodes[0], &nodes[1]], &user.to_string());
    }
    for node in &nodes {
        eventually("nothing is wrong", || faults(node) == "[]");
        let metrics = node.metrics();
        for port in &ports {
            let asked = format!("ratelimit_redis_decisions_total{{shard=\"127.0.0.1:{port}\"}} ");
            let asked = metrics.lines().find_map(|line| line.strip_prefix(&asked));
            assert!(asked.is_some_and(|count| count != "0"), "{port}: {metrics}");
        }
    }
}

#[test]
fn two_nodes_share_their_limits() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let one = node(folder.path(), "one", &url(&server), &PATIENT);
    let two = node(folder.path(), "two", &url(&server), &PATIENT);
    share_a_limit([&one, &two], "ada");
    for service in [&one, &two] {
        eventually("nothing is wrong", || faults(service) == "[]");
    }
    let metrics = one.metrics();
    let shard = format!("shard=\"127.0.0.1:{}\"", server.port());
    for series in [
        format!("ratelimit_circuit_state{{{shard}}} 0"),
        format!("ratelimit_redis_errors_total{{{shard},cause=\"timeout\"}}"),
        format!("ratelimit_redis_decisions_total{{{shard}}}"),
        format!("ratelimit_redis_command_duration_seconds_count{{{shard}}}"),
    ] {
        assert_contains(&metrics, &series);
    }
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#;
    let (status, explained) = http(two.admin, "POST", "/admin/v1/explain", asked);
    assert_eq!(status, 200, "{explained}");
}

#[test]
fn without_redis_the_rules_say_what_is_answered() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", &url(&server), &PATIENT);
    until_degraded(&service, "warm", false);
    server.process().kill();
    until_degraded(&service, "warm", true);
    for decision in ["allow", "allow", "allow", "deny"] {
        let answer = service.check(&[("user", "bob")]);
        assert_eq!(
            answer["decision"], decision,
            "this node goes on by itself: {answer}"
        );
        assert_eq!(answer["degraded"], true, "{answer}");
    }
    assert_eq!(service.check(&[("strict", "bob")])["decision"], "deny");
    eventually("it is said that Redis does not serve", || {
        faults(&service).contains("does not serve")
    });
    let metrics = service.metrics();
    let counted = "ratelimit_failopen_total{domain=\"d\",rule=\"d.strict\",mode=\"deny\"} 1";
    assert_contains(&metrics, counted);
    server.restart();
    let back = until_degraded(&service, "bob", false);
    assert_eq!(
        back["decision"], "allow",
        "what was counted meanwhile is dropped: {back}"
    );
    eventually("that is old news", || faults(&service) == "[]");
}

#[test]
fn it_serves_before_redis_is_there() {
    let mut server = Server::start();
    server.process().kill();
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", &url(&server), &PATIENT);
    assert_eq!(service.check(&[("user", "ada")])["degraded"], true);
    service.wait_for_log("cannot connect to 127.0.0.1");
    server.restart();
    until_degraded(&service, "ada", false);
}

#[test]
fn a_store_that_is_required_is_named_when_it_is_missing() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let store = format!("redis://app:geheim@127.0.0.1:{}/", free_port());
    let args = format!("serve --rules rules.yaml --require-store --store {store}");
    let said = run(folder.path(), &args);
    assert_eq!(said.code, Some(1));
    let told = [
        "--store redis://app:****@127.0.0.1",
        "cannot connect",
        "--require-store",
    ];
    for part in told {
        assert_contains(&said.err, part);
    }
    assert!(!said.err.contains("geheim"), "{}", said.err);
}

/// The log names the setting, the file and the error; the service starts all the same.
#[test]
fn certificates_are_named_by_their_settings() {
    let folder = tempdir().expect("a folder can be made");
    let store = format!("rediss://127.0.0.1:{}/", free_port());
    let service = node(folder.path(), "one", &store, &["--store-ca", "none.pem"]);
    assert_eq!(service.check(&[("user", "ada")])["degraded"], true);
    let log = service.log();
    for part in [
        &*store,
        "store_ca: the authorities in ",
        "/none.pem cannot be used: No such file",
        "failure modes answer until",
    ] {
        assert_contains(&log, part);
    }
    for (args, part) in [
        (
            ["--store-ca", "ca.pem"],
            "--store-ca: it means nothing for a store that is not encrypted",
        ),
        (
            ["--store-cert", "a.pem"],
            "--store-cert: it means nothing without `store_key`",
        ),
        (["--store-hash-key", "geheim"], "32 hexadecimal digits"),
    ] {
        let args = [&["serve", "--store", "redis://localhost/"][..], &args].concat();
        let said = run(folder.path(), &args);
        assert_eq!(said.code, Some(1), "{args:?}");
        assert!(
            said.err.contains(part) && !said.err.contains("geheim"),
            "{}",
            said.err
        );
    }
}

/// Encrypted, by an authority that the system trusts, and with a hash key that is not in Redis.
#[test]
fn a_node_needs_no_secret_in_redis() {
    let authority = Authority::new();
    let folder = tempdir().expect("a folder can be made");
    authority
        .issue("127.0.0.1", Validity::Valid)
        .write(folder.path());
    put(&folder.path().join("ca.pem"), &authority.pem());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (port, ca) = (free_port(), path("ca.pem"));
    let options = format!(
        "--tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {ca} --tls-port {port} --requirepass geheim \
         --tls-auth-clients no",
        path("tls.crt"),
        path("tls.key"),
    );
    let server = Server::with(&options.words());
    let hash_key = "00112233445566778899aabbccddeeff";
    let service = serve(folder.path())
        .rules(RULES)
        .args("--require-store")
        .args(&PATIENT)
        .variable("SSL_CERT_FILE", &ca)
        .variable(
            "RATEKEEPER_STORE",
            &format!("rediss://:geheim@127.0.0.1:{port}/"),
        )
        .variable("RATEKEEPER_STORE_HASH_KEY", hash_key)
        .start();
    assert_eq!(service.check(&[("user", "ada")])["degraded"], false);
    let mut client = server.client();
    client.ask(&["AUTH", "geheim"]);
    assert_eq!(client.ask(&["EXISTS", "rk:hash-key"]), Reply::Int(0));
    // What a probe has written is gone a moment later.
    eventually("its counter is all there is", || {
        keys(&mut client, "*") == 1
    });
    assert!(!service.log().contains("geheim"), "{}", service.log());

    let mut command = ratekeeper(folder.path(), &["config", "show"]);
    command
        .env("RATEKEEPER_STORE", "redis+unix:///run/r.sock?pass=geheim")
        .env("RATEKEEPER_STORE_HASH_KEY", hash_key);
    let shown = said(command.output().expect("the binary starts"));
    assert!(
        !shown.out.contains("geheim") && !shown.out.contains("0011"),
        "{}",
        shown.out
    );
}

#[test]
fn a_url_that_means_nothing_is_refused_with_what_to_write() {
    let folder = tempdir().expect("a folder can be made");
    for (store, part) in [
        ("redis", "write `memory`, or where Redis is"),
        ("http://:geheim@localhost/", "redis://HOST:PORT/"),
        (
            "redis://:geheim@localhost/?pool=9",
            "there is no parameter `pool`",
        ),
        ("redis://geheim@localhost/", "no password"),
    ] {
        let said = run(folder.path(), &["serve", "--store", store]);
        assert_eq!(said.code, Some(1), "{store}");
        assert!(said.err.contains(part), "{store}: {}", said.err);
        assert!(!said.err.contains("geheim"), "{}", said.err);
    }
}
