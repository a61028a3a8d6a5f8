//! Rules in Redis and etcd.

use std::path::Path;

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::{Authority, Identity, Validity, put};
use ratekeeper_testkit::etcd;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::ratekeeper::Args;
use ratekeeper_testkit::redis::{Client, Server};
use tempfile::tempdir;

use crate::rules_url::{limit, rules, start};
use crate::support::{Ratekeeper, http, run, write};

/// Pushes a file or a folder, and returns what is said about it.
fn push(folder: &Path, path: &str, url: &str) -> String {
    run(folder, &["rules", "push", path, url]).succeeded()
}

fn readyz(service: &Ratekeeper) -> String {
    http(service.admin, "GET", "/readyz", "").1
}

/// The lines of the log with `part` in them.
fn lines(service: &Ratekeeper, part: &str) -> usize {
    let log = service.log();
    log.lines().filter(|line| line.contains(part)).count()
}

/// A YAML document that is 10^8 items once its aliases are followed.
fn bomb() -> String {
    let list = |item: &str| vec![item; 100].join(",");
    format!(
        "a: &a [{}]\nb: &b [{}]\nc: &c [{}]\nd: [{}]\n",
        list("x"),
        list("*a"),
        list("*b"),
        list("*c")
    )
}

#[test]
fn a_key_of_redis_is_followed_and_its_last_good_text_stays() {
    let folder = tempdir().expect("a folder");
    let server = Server::start();
    let mut client = Client::connect(server.port());
    let url = format!("redis://127.0.0.1:{}/1?key=team:rules", server.port());
    client.ask(&["SELECT", "1"]);

    write(folder.path(), "api.yaml", &rules(5));
    assert_eq!(
        push(folder.path(), "api.yaml", &url),
        "+ the text\n1 rule pushed\n"
    );
    assert_eq!(
        push(folder.path(), "api.yaml", &url),
        "nothing to push: 1 rule\n"
    );
    let service = start(folder.path(), &url, &[]);
    eventually("the rules come", || limit(&service) == Some(5));
    client.ask(&["SET", "team:rules", &rules(50)]);
    eventually("the change comes", || limit(&service) == Some(50));

    for (text, part) in [
        (
            "domain: d\ndescriptors:\n- { kee: key }\n",
            "team:rules:3:5: unknown key",
        ),
        (&*bomb(), "error loading config file"),
    ] {
        client.ask(&["SET", "team:rules", text]);
        eventually(part, || readyz(&service).contains(part));
    }
    client.ask(&["DEL", "team:rules"]);
    eventually("it is gone", || {
        readyz(&service).contains("there is no key team:rules; those in use stay")
    });
    eventually("attempts go on", || {
        let counted = "ratelimit_rules_source_errors_total ";
        let metrics = service.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix(counted));
        line.is_some_and(|count| count != "0" && count != "1")
    });
    assert_eq!(lines(&service, "rules cannot be fetched"), 1);
    assert!(service.metrics().contains("ratelimit_rules_source_up 0"));
    assert_eq!(limit(&service), Some(50));
    assert!(service.stop().success());
    drop(server);

    let service = start(folder.path(), &url, &[]);
    assert_eq!(limit(&service), Some(50), "the last good ones serve");
}

#[test]
fn a_folder_becomes_a_hash_and_comes_back_as_a_folder() {
    let folder = tempdir().expect("a folder");
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/?key=rules&prefix=p:", server.port());
    write(folder.path(), "rules/a.yaml", &rules(5));
    write(
        folder.path(),
        "rules/more/b.yaml",
        &rules(6).replace("domain: d", "domain: e"),
    );
    assert_eq!(
        push(folder.path(), "rules", &url),
        "+ a.yaml\n+ more/b.yaml\n2 rules pushed\n"
    );
    let service = start(folder.path(), &url, &[]);
    eventually("the rules come", || limit(&service) == Some(5));

    write(folder.path(), "rules/a.yaml", &rules(7));
    std::fs::remove_file(folder.path().join("rules/more/b.yaml")).expect("it was there");
    let dry = run(folder.path(), &format!("rules push rules {url} --dry-run"));
    assert_eq!(dry.out, "~ a.yaml\n- more/b.yaml\n1 rule would be pushed\n");
    let mut client = Client::connect(server.port());
    assert_eq!(client.ask(&["HGET", "p:rules", "a.yaml"]).text(), rules(5));
    assert_eq!(
        push(folder.path(), "rules/", &url),
        "~ a.yaml\n- more/b.yaml\n1 rule pushed\n"
    );
    eventually("the change comes", || limit(&service) == Some(7));

    write(folder.path(), "rules/a.yaml", "domain: d\ndescriptors: 5\n");
    let refused = run(folder.path(), &["rules", "push", "rules", &url]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("nothing was pushed: 1 error"),
        "{}",
        refused.err
    );

    let pull = |more: &[&str]| {
        let args = ["rules", "pull", &url, "--to", "rules"];
        run(folder.path(), &[&args[..], more].concat())
    };
    let kept = pull(&[]);
    assert_eq!(kept.code, Some(1));
    assert_contains(&kept.err, "--force overwrites it");
    assert_eq!(pull(&["--force"]).out, "1 file in rules, 1 written\n");
    let text = std::fs::read_to_string(folder.path().join("rules/a.yaml"));
    assert_eq!(text.expect("it is there"), rules(7));
}

#[test]
fn etcd_tells_of_changes_and_the_last_good_rules_stay() {
    let folder = tempdir().expect("a folder");
    let mut server = etcd::Server::start();
    let url = format!("etcd://127.0.0.1:{}//rules/", server.port());
    write(folder.path(), "rules/a.yaml", &rules(5));
    write(
        folder.path(),
        "rules/b.yaml",
        &rules(6).replace("domain: d", "domain: e"),
    );
    push(folder.path(), "rules", &url);
    // A neighbour, which is not below.
    server.control(&["put", "/rules", "nothing"]);
    let service = start(folder.path(), &url, &["--rules-interval", "24h"]);
    eventually("the rules come", || limit(&service) == Some(5));
    server.control(&["put", "/rules/a.yaml", &rules(50)]);
    eventually("the change is told", || limit(&service) == Some(50));
    for (text, part) in [
        (
            "domain: d\ndescriptors:\n- { kee: key }\n",
            "a.yaml:3:5: unknown key",
        ),
        (&*bomb(), "error loading config file"),
    ] {
        server.control(&["put", "/rules/a.yaml", text]);
        eventually(part, || readyz(&service).contains(part));
    }
    server.control(&["del", "--prefix", "/rules/"]);
    eventually("they are gone", || {
        readyz(&service).contains("there is no key below /rules/; those in use stay")
    });
    assert!(service.metrics().contains("ratelimit_rules_source_up 0"));
    assert_eq!(lines(&service, "rules cannot be fetched"), 1);
    assert_eq!(limit(&service), Some(50));

    server.kill();
    eventually("etcd is away", || {
        !readyz(&service).contains("there is no key")
    });
    server.restart();
    server.control(&["put", "/rules/a.yaml", &rules(500)]);
    eventually("the change comes", || limit(&service) == Some(500));
    let pulled = run(folder.path(), &["rules", "pull", &url]);
    assert_eq!(pulled.out, rules(500));
}

#[test]
fn a_push_to_etcd_overwrites_nothing_that_it_has_not_seen() {
    let folder = tempdir().expect("a folder");
    let server = etcd::Server::start();
    let proxy = Proxy::start(server.port());
    let url = |port: u16| format!("etcd://127.0.0.1:{port}//rules/");
    let (direct, slow) = (url(server.port()), url(proxy.port()));
    let other = |limit| rules(limit).replace("domain: d", "domain: e");
    write(folder.path(), "rules/a.yaml", &rules(5));
    write(folder.path(), "rules/b.yaml", &other(6));
    push(folder.path(), "rules", &direct);
    write(folder.path(), "rules/a.yaml", &rules(777));

    // Each is done after the push has read what is there, and before it writes.
    let theirs = [
        (vec!["put", "/rules/a.yaml", "theirs"], "a text is changed"),
        (vec!["put", "/rules/c.yaml", "theirs"], "a text is added"),
        (vec!["del", "/rules/b.yaml"], "a text is deleted"),
    ];
    for (change, what) in theirs {
        proxy.hold("requests_per_unit: 777");
        let said = std::thread::scope(|threads| {
            let pushing = threads.spawn(|| run(folder.path(), &["rules", "push", "rules", &slow]));
            eventually("the push is about to write", || proxy.is_holding());
            server.control(&change);
            let before = server.control(&["get", "--prefix", "/rules/"]);
            proxy.let_go();
            let said = pushing.join().expect("it ends");
            assert_eq!(
                server.control(&["get", "--prefix", "/rules/"]),
                before,
                "{what}: theirs stays"
            );
            said
        });
        assert_eq!(said.code, Some(1), "{what}: {}", said.out);
        assert!(
            said.err
                .contains("somebody else has changed the rules in the meantime"),
            "{what}: {}",
            said.err
        );
        assert_eq!(said.out, "", "{what}: nothing is said to be pushed");
    }
    assert_eq!(
        push(folder.path(), "rules", &direct),
        "~ a.yaml\n+ b.yaml\n- c.yaml\n2 rules pushed\n"
    );
}

#[test]
fn etcd_is_asked_over_tls_and_by_a_user() {
    let folder = tempdir().expect("a folder");
    let authority = Authority::new();
    let Identity { certificate, key } = authority.issue("127.0.0.1", Validity::Valid);
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        put(&path, text);
        path
    };
    let server = etcd::Server::with(Some(etcd::Tls {
        certificate: file("cert.pem", &certificate),
        key: file("key.pem", &key),
        authority: file("ca.pem", &authority.pem()),
    }));
    for args in [
        &["put", "rules", &rules(5)][..],
        &["user", "add", "root:top"],
        &["user", "add", "reader:ge@heim"],
        &["role", "add", "reads"],
        &["role", "grant-permission", "reads", "read", "rules"],
        &["user", "grant-role", "reader", "reads"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        server.control(args);
    }
    let tls = "--rules-ca ca.pem --rules-cert cert.pem --rules-key key.pem".words();
    let url = |login: &str| format!("etcds://{login}@127.0.0.1:{}/rules", server.port());
    let service = start(folder.path(), &url("reader:wrong"), &tls);
    service.wait_for_log("authentication failed");
    assert_eq!(limit(&service), None);
    assert!(service.stop().success());
    let service = start(folder.path(), &url("reader:ge%40heim"), &tls);
    eventually("the rules come", || limit(&service) == Some(5));
    assert!(!service.log().contains("heim") && !readyz(&service).contains("heim"));
    server.control(&["--user", "root:top", "put", "rules", &rules(50)]);
    eventually("the change comes", || limit(&service) == Some(50));
}

#[test]
fn places_that_are_none_are_refused() {
    let folder = tempdir().expect("a folder");
    for (url, part) in [
        (
            "redis://u:geheim@127.0.0.1/",
            "the key of the rules is missing",
        ),
        (
            "etcd://u:geheim@127.0.0.1",
            "this is not a place of rules in etcd",
        ),
        (
            "redis://u:geheim@127.0.0.1/?key=a&colour=red",
            "there is no parameter `colour`",
        ),
    ] {
        let said = run(folder.path(), &["serve", "--rules", url]).refused(part);
        assert!(!said.contains("geheim"), "{said}");
    }
}

#[test]
fn a_place_that_is_away_is_told_of_once() {
    let folder = tempdir().expect("a folder");
    let pull = [
        "rules",
        "pull",
        "redis://127.0.0.1:1/?key=a",
        "--to",
        "b.yaml",
    ];
    let said = run(folder.path(), &pull).refused("cannot connect to 127.0.0.1:1");
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
}
