//! The plan of a move from envoyproxy/ratelimit, and the comparison of both services.

use ratekeeper_testkit::assert_contains;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use tempfile::tempdir;

use crate::rules_url::rules;
use crate::support::{self, Ratekeeper, run, write};

#[test]
fn a_plan_says_what_to_set_what_differs_and_what_starts_afresh() {
    let folder = tempdir().expect("a folder");
    write(folder.path(), "config/api.yaml", &rules(5));
    let variables =
        "REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\nREDIS_PERSECOND=true\nUSE_PROMETHEUS=true\n";
    write(folder.path(), "theirs.env", variables);
    let said = run(folder.path(), "migrate theirs.env --rules config").succeeded();
    for part in [
        "profile: envoy ",
        "store: \"redis://redis:6379",
        "# REDIS_URL",
        "metrics: \":9090\"",
        "`REDIS_PERSECOND`: this variable of envoyproxy/ratelimit changes nothing here",
        "| 1 | d.key |",
        "# Steps",
    ] {
        assert_contains(&said, part);
    }

    write(folder.path(), "theirs.env", "CONFIG_TYPE=MAGIC\n");
    let said = run(folder.path(), &["migrate", "theirs.env"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert_contains(&said.out, "**In the way:** `CONFIG_TYPE`");
    write(folder.path(), "theirs.env", "nothing of that kind");
    run(folder.path(), &["migrate", "theirs.env"]).refused("there are no variables in it");
}

#[test]
fn a_template_is_named_without_its_text_which_may_be_a_secret() {
    let folder = tempdir().expect("a folder");
    write(folder.path(), "theirs.env", "REDIS_AUTH=s3c$(ret)pw\n");
    let said = run(folder.path(), &["migrate", "theirs.env"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert_contains(&said.out, "**In the way:** `REDIS_AUTH`: its value has");
    let all = [said.out, said.err].concat();
    assert!(!all.contains("s3c"), "{all}");
}

#[test]
fn two_services_are_compared_by_looks() {
    let folder = tempdir().expect("a folder");
    let serve = |name: &str, limit: u32| {
        let own = folder.path().join(name);
        let setup = support::serve(&own).rules(&rules(limit));
        setup.args("--profile envoy").start()
    };
    let (theirs, ours, other) = (serve("theirs", 5), serve("ours", 5), serve("other", 6));
    write(folder.path(), "rules.yaml", &rules(5));
    let check = |service: &Ratekeeper| {
        let [theirs, ours] =
            [theirs.port, service.port].map(|port| format!("http://127.0.0.1:{port}"));
        run(
            folder.path(),
            &format!("migrate --rules rules.yaml --check {theirs} {ours}"),
        )
    };
    let same = check(&ours);
    assert_eq!(same.code, Some(0), "{}{}", same.out, same.err);
    assert_eq!(same.out, "1 look: 1 the same, 0 different\n");
    let different = check(&other);
    assert_eq!(different.code, Some(1));
    assert_eq!(
        different.out,
        "differs: d key=ratekeeper-migrate-look: theirs 5 per hour (OK), ours 6 per hour (OK)\n\
         1 look: 0 the same, 1 different\n"
    );

    // Both say the same of rules that neither has.
    let unknown = rules(5).replace("domain: d", "domain: e");
    write(folder.path(), "rules.yaml", &unknown);
    let neither = check(&ours);
    assert_eq!(neither.code, Some(1), "{}", neither.out);
    assert_contains(
        &neither.out,
        "1 rule with a limit on neither side, the first for e key=",
    );
    check(&theirs).refused("are one service");
}

#[test]
fn services_that_tell_no_limits_are_not_the_same() {
    let folder = tempdir().expect("a folder can be made");
    let rules =
        "domain: d\ndescriptors:\n- { key: a, rate_limit: { unit: day, requests_per_unit: 5 } }\n";
    write(folder.path(), "rules.yaml", rules);
    write(folder.path(), "none.yaml", "domain: d\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let other = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a client comes");
        let _ = connection.read(&mut [0; 8_192]).expect("it asks");
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        connection.write_all(answer).expect("it listens");
    });
    let check = |rules: &str| {
        let address = format!("http://{address}");
        run(
            folder.path(),
            &[
                "migrate",
                "--rules",
                rules,
                "--check",
                &address,
                "127.0.0.1:1",
            ][..],
        )
    };
    check("rules.yaml").refused("it answers without `statuses`");
    other.join().expect("it has answered");
    check("none.yaml").refused("the rules have no descriptor with a limit");
}
