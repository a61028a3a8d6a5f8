//! Several stores by name, with real servers.

use crate::owed::owed;
use crate::support::{Ratekeeper, http, keys, ratekeeper, run, serve, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server};
use std::path::Path;
use tempfile::tempdir;

/// A tenant is held to a limit in one store, and all together to one in the default store.
const RULES: &str = "domain: d
evaluation: path
on_store_failure: deny
descriptors:
- key: eu
  store: eu-payments
  rate_limit: { window: 24h, limit: 3 }
- { key: us, rate_limit: { window: 24h, limit: 3 } }
- key: both
  rate_limit: { window: 24h, limit: 5 }
  descriptors:
  - { key: user, store: eu-payments, rate_limit: { window: 24h, limit: 2 } }
";

fn settings(default: &Server, eu: &Server) -> String {
    format!(
        "store: redis://127.0.0.1:{}/\nstore_deadline: 1s\nstores:\n  eu-payments:\n    url: redis://:geheim@127.0.0.1:{}/\n",
        default.port(),
        eu.port()
    )
}

fn node(folder: &Path, name: &str, settings: &str) -> Ratekeeper {
    node_of(RULES, folder, name, settings)
}

fn node_of(rules: &str, folder: &Path, name: &str, settings: &str) -> Ratekeeper {
    serve(&folder.join(name))
        .rules(rules)
        .settings(settings)
        .start()
}

fn counters(server: &Server, password: Option<&str>) -> usize {
    let mut client = server.client();
    if let Some(password) = password {
        client.ask(&["AUTH", password]);
    }
    keys(&mut client, "rk:{*")
}

fn decision(service: &Ratekeeper, entries: &[(&str, &str)]) -> (String, bool) {
    let answer = service.check(entries);
    let decision = answer["decision"].as_str().expect("a decision").to_owned();
    (decision, answer["degraded"] == true)
}

#[test]
fn rules_choose_their_store_and_nodes_share_each() {
    let (default, eu) = (Server::start(), Server::with(&["--requirepass", "geheim"]));
    let folder = tempdir().expect("a folder can be made");
    let settings = settings(&default, &eu);
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, &settings));
    for (number, wanted) in ["allow", "allow", "allow", "deny"].into_iter().enumerate() {
        let service = &nodes[number % 2];
        assert_eq!(
            decision(service, &[("eu", "a")]),
            (wanted.to_owned(), false)
        );
        assert_eq!(
            decision(service, &[("us", "a")]),
            (wanted.to_owned(), false)
        );
    }
    assert_eq!(
        (counters(&default, None), counters(&eu, Some("geheim"))),
        (1, 1)
    );
    // Two limits in two stores: both are taken, or none.
    for (number, wanted) in ["allow", "allow", "deny", "deny"].into_iter().enumerate() {
        let entries = [("both", "x"), ("user", "a")];
        assert_eq!(decision(&nodes[number % 2], &entries).0, wanted);
    }
    // The default store gives back what denied requests took there, beside their answers.
    eventually("what was denied takes nothing", || {
        let entry = r#"{"entries": [{"key": "both", "value": "x"}]}"#;
        let request = format!(r#"{{"domain": "d", "descriptors": [{entry}]}}"#);
        let (_, peeked) = http(nodes[0].port, "POST", "/v1/peek", &request);
        let peeked: serde_json::Value = serde_json::from_str(&peeked).expect("JSON");
        peeked["remaining"] == 3
    });
    for (number, wanted) in ["allow", "allow", "allow", "deny"].into_iter().enumerate() {
        let user = number.to_string();
        let entries = [("both", "x"), ("user", &*user)];
        assert_eq!(decision(&nodes[number % 2], &entries).0, wanted);
    }
    let metrics = nodes[0].metrics();
    for shard in [
        format!("127.0.0.1:{}", default.port()),
        format!("eu-payments/127.0.0.1:{}", eu.port()),
    ] {
        let series = format!("ratelimit_circuit_state{{shard=\"{shard}\"}} 0");
        assert_contains(&metrics, &series);
    }
    assert!(!nodes[0].log().contains("geheim"), "{}", nodes[0].log());
}

/// The worst case: a server that hangs, its connections open.
#[test]
fn a_store_that_hangs_slows_no_decision_of_other_stores() {
    let (default, mut eu) = (Server::start(), Server::with(&["--requirepass", "geheim"]));
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", &settings(&default, &eu));
    assert_eq!(
        decision(&service, &[("eu", "a")]),
        ("allow".to_owned(), false)
    );
    eu.process().pause();
    eventually("the hung store is left alone", || {
        let other = decision(&service, &[("us", "b")]);
        assert!(!other.1, "the other one is not touched");
        let (_, ready) = http(service.port, "GET", "/readyz", "");
        decision(&service, &[("eu", "a")]).1 && ready.contains("store eu-payments: ")
    });
    for wanted in ["allow", "allow", "allow", "deny"] {
        assert_eq!(
            decision(&service, &[("us", "c")]),
            (wanted.to_owned(), false)
        );
    }
    eu.process().resume();
    eventually("it is asked again", || {
        !decision(&service, &[("eu", "z")]).1
    });
}

/// The hash key is kept in every store, so that a node can share counters without having reached the first one.
#[test]
fn a_node_that_starts_while_the_default_store_hangs_shares_the_limits_of_the_other() {
    let (mut default, eu) = (Server::start(), Server::with(&["--requirepass", "geheim"]));
    let folder = tempdir().expect("a folder can be made");
    let settings = settings(&default, &eu);
    let one = node(folder.path(), "one", &settings);
    let agreed = |service: &Ratekeeper, number: u8| {
        let metrics = service.metrics();
        metrics.contains(&format!("ratelimit_redis_hash_key_agreed {number}\n"))
    };
    let mut client = eu.client();
    client.ask(&["AUTH", "geheim"]);
    eventually("the other store has what names counters", || {
        agreed(&one, 1) && client.ask(&["EXISTS", "rk:hash-key:copy:0"]) == Reply::Int(1)
    });
    default.process().pause();
    let two = node(folder.path(), "two", &settings);
    for (service, wanted) in [
        (&one, "allow"),
        (&two, "allow"),
        (&two, "allow"),
        (&one, "deny"),
        (&two, "deny"),
    ] {
        let answer = decision(service, &[("eu", "a")]);
        assert_eq!(answer, (wanted.to_owned(), false));
    }
    assert!(agreed(&two, 0), "the first store may say something else");
    default.process().resume();
    eventually("the default store has said the same", || agreed(&two, 1));
    assert_eq!(decision(&two, &[("eu", "a")]), ("deny".to_owned(), false));
}

/// All counters are named by one key, which is that of the Redis from then on. Those in memory would take their room unseen.
#[test]
fn counters_in_memory_are_forgotten_aloud_where_a_redis_that_comes_later_has_another_hash_key() {
    let folder = tempdir().expect("a folder can be made");
    let rules = "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window } }\n";
    let node = |settings: &str| {
        let state = "--state counters.state";
        let node = serve(folder.path()).rules(rules).settings(settings);
        node.args(state).start()
    };
    let left =
        |service: &Ratekeeper, user: &str| service.check(&[("user", user)])["remaining"] == 8;
    let service = node("{}\n");
    assert!(left(&service, "ada") && left(&service, "bob"));
    assert!(service.stop().success());

    let mut late = Server::start();
    late.process().kill();
    let settings = format!(
        "stores: {{ late: {{ url: 'redis://127.0.0.1:{}/' }} }}\n",
        late.port()
    );
    let service = node(&settings);
    assert!(!left(&service, "ada"), "it goes on from what was kept");
    assert!(left(&service, "eve"));
    late.restart();
    let said = service.wait_for_log("are forgotten");
    assert_contains(&said, "counters=3");
    assert!(left(&service, "ada") && left(&service, "eve"));
    assert_eq!(
        service.metric("ratelimit_store_counters"),
        2,
        "bob's is gone"
    );
    assert!(service.stop().success());

    let service = node(&settings);
    assert!(!left(&service, "ada"), "by the key of that Redis");
    assert!(
        !service.log().contains("are forgotten"),
        "{}",
        service.log()
    );
}

/// Each request is held to a limit in the default store, and to one in the other.
const PARTED: &str = "domain: d
evaluation: path
descriptors:
- key: all
  rate_limit: { window: 10000d, limit: 5 }
  descriptors:
  - { key: free, store: eu-payments, on_store_failure: allow, rate_limit: { window: 10000d, limit: 2 } }
  - { key: own, store: eu-payments, on_store_failure: local, rate_limit: { window: 10000d, limit: 2 } }
  - { key: strict, store: eu-payments, on_store_failure: deny, rate_limit: { window: 10000d, limit: 2 } }
";

#[test]
fn a_store_that_hangs_leaves_the_limits_in_others_counted_and_enforced() {
    let (default, mut eu) = (Server::start(), Server::with(&["--requirepass", "geheim"]));
    let folder = tempdir().expect("a folder can be made");
    let service = node_of(PARTED, folder.path(), "one", &settings(&default, &eu));
    let ask = |all: &str, key: &str| decision(&service, &[("all", all), (key, "k")]);
    let allow = |degraded| ("allow".to_owned(), degraded);
    let deny = |degraded| ("deny".to_owned(), degraded);
    assert_eq!(ask("before", "free"), allow(false));
    eu.process().pause();
    eventually("the hung store is left alone", || {
        ask("meanwhile", "strict");
        let (_, ready) = http(service.port, "GET", "/readyz", "");
        ready.contains("store eu-payments: ")
    });
    for _ in 0..5 {
        assert_eq!(ask("a", "free"), allow(true));
    }
    assert_eq!(ask("a", "free"), deny(true), "the other store still counts");
    for wanted in [allow(true), allow(true), deny(true), deny(true)] {
        assert_eq!(ask("b", "own"), wanted, "this node counts to two");
    }
    for _ in 0..7 {
        assert_eq!(ask("c", "strict"), deny(true));
    }
    eu.process().resume();
    eventually("it is asked again", || {
        !decision(&service, &[("all", "after"), ("free", "z")]).1
    });
    assert_eq!(ask("a", "free"), deny(false), "what passed was counted");
    eventually("what passed without the store is posted there", || {
        owed(&service, "owed") > 0 && owed(&service, "posted") == owed(&service, "owed")
    });
    assert_eq!(ask("b", "own"), deny(false), "two passed at b");
    eventually("what was denied took nothing", || {
        decision(&service, &[("all", "b"), ("free", "k")]) == allow(false)
    });
    for wanted in [allow(false), allow(false), deny(false)] {
        assert_eq!(ask("c", "strict"), wanted);
    }
    for (number, wanted) in [allow(false), allow(false), allow(false), deny(false)]
        .into_iter()
        .enumerate()
    {
        let user = number.to_string();
        assert_eq!(
            decision(&service, &[("all", "c"), ("free", &*user)]),
            wanted,
            "only two were taken"
        );
    }
}

#[test]
fn stores_that_there_are_not_are_refused_and_shown_ones_hold_no_password() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let file = "stores: { eu-payment: { url: 'redis://:geheim@h/' } }\n";
    write(folder.path(), "other.yaml", file);
    let said = run(folder.path(), "rules check --config other.yaml rules.yaml");
    assert_eq!(said.code, Some(1));
    for part in [
        "rules.yaml:6:10",
        "there is no store 'eu-payments'",
        "did you mean `eu-payment`?",
    ] {
        assert_contains(&said.err, part);
    }
    run(
        folder.path(),
        "serve --config other.yaml --rules rules.yaml",
    )
    .refused("there is no store 'eu-payments'");
    let shown = run(folder.path(), &["config", "show", "--config", "other.yaml"]);
    assert!(
        shown.out.contains("eu-payment") && !shown.out.contains("geheim"),
        "{}",
        shown.out
    );

    write(
        folder.path(),
        "good.yaml",
        "stores: { eu-payments: { url: 'redis://h/' } }\n",
    );
    let said = run(folder.path(), "rules check --config good.yaml rules.yaml");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let mut command = ratekeeper(folder.path(), "rules explain --rules rules.yaml d eu=a");
    command.env("RATEKEEPER_STORES", "{eu-payments: {url: 'redis://h/'}}");
    let explained = crate::support::said(command.output().expect("the binary starts"));
    assert_contains(&explained.out, "in store eu-payments");
}
