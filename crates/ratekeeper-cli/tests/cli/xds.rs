//! Rules that a control plane sends.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_client::{CheckRequest, Client, Config};
use ratekeeper_proto::ratelimit::config::ratelimit::v3::{RateLimitConfig, RateLimitUnit};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::{Authority, Identity, Validity, put};
use ratekeeper_testkit::control_plane::{ControlPlane, MutualTls, resource, responses, rules};
use ratekeeper_testkit::process::eventually;
use serde_json::Value;
use tempfile::tempdir;

use crate::observability;
use crate::support::{Ratekeeper, banner, http, run, serve};
use ratekeeper_testkit::ratekeeper::Setup;

/// A service that follows `plane`, started with envoyproxy/ratelimit's variables.
fn follower(folder: &Path, plane: &ControlPlane, more: &[&str]) -> Setup {
    serve(folder)
        .args(more)
        .variable("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .variable("CONFIG_GRPC_XDS_SERVER_URL", &plane.address().to_string())
        .variable("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit")
        .variable("RATEKEEPER_PROFILE", "envoy")
}

fn start(folder: &Path, plane: &ControlPlane, more: &[&str]) -> Ratekeeper {
    follower(folder, plane, more).start()
}

fn hourly(domain: &str, limit: u32) -> RateLimitConfig {
    rules(domain, "key", RateLimitUnit::Hour, limit)
}

/// A resource that no service takes.
fn bad(domain: &str) -> RateLimitConfig {
    rules(domain, "key", RateLimitUnit::Unknown, 1)
}

fn ready(service: &Ratekeeper) -> (u16, Value) {
    let (status, body) = http(service.admin, "GET", "/readyz", "");
    (status, serde_json::from_str(&body).expect("it is JSON"))
}

/// The limit of `key` in domain `d`; none if no rule matches.
fn limit(service: &Ratekeeper) -> Option<u64> {
    service.check(&[("key", "a")])["limit"].as_u64()
}

/// The refusal is in `/readyz`, which stays well, and in one line of the log.
fn is_told(service: &Ratekeeper, refusal: &str) {
    let (status, told) = ready(service);
    assert_eq!(status, 200, "{told}");
    let faults = told["faults"].to_string();
    let part = format!("are taken: {refusal}; the last good ones stay");
    assert!(faults.contains(&part), "{refusal}: {told}");
    let log = service.log();
    let lines = log.lines().filter(|line| line.contains(refusal)).count();
    assert_eq!(lines, 1, "{refusal}: {log}");
}

#[test]
fn rules_come_change_and_go_and_a_bad_one_harms_no_other() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    let told = banner(&service);
    assert_contains(&told, "no rules yet");
    assert_eq!(
        (
            ready(&service).0,
            http(service.port, "GET", "/healthcheck", "").0
        ),
        (503, 500)
    );

    let first = plane.send(&[hourly("d", 3), hourly("e", 5)]);
    assert_eq!(plane.answer(first), None);
    assert_eq!(plane.heard().node, "envoy-ratelimit");
    assert_eq!(
        (
            ready(&service).0,
            http(service.port, "GET", "/healthcheck", "").0
        ),
        (200, 200)
    );
    let codes: Vec<_> = (0..4)
        .map(|_| service.check(&[("key", "a")])["decision"] == "allow")
        .collect();
    assert_eq!(codes, [true, true, true, false]);

    // One is bad, one is new, and one is there no more.
    let second = plane.send(&[bad("d"), hourly("f", 1)]);
    let refusal = plane.answer(second).expect("it is refused");
    assert_eq!(
        refusal,
        "d: descriptors[0].rate_limit.unit: invalid rate limit unit 'UNKNOWN'"
    );
    let (status, told) = ready(&service);
    assert_eq!(
        (status, &told["rules"]["error"]),
        (200, &Value::from(&*refusal))
    );
    assert_eq!(limit(&service), Some(3), "the last good one stays");
    let (_, rlconfig) = http(service.admin, "GET", "/rlconfig", "");
    assert!(
        rlconfig.contains("f.key") && !rlconfig.contains("e.key"),
        "{rlconfig}"
    );
    assert_eq!(service.metric("ratelimit_rules_source_refused_total "), 1);

    // Not even resources of it.
    let mut other = resource(&hourly("d", 9));
    other.type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
    let refusal = plane
        .answer(plane.send_resources(vec![other]))
        .expect("it is refused");
    assert!(
        refusal.starts_with("resources[0]: it is of the type"),
        "{refusal}"
    );
    // Beside it is what is wrong with a text that stayed.
    is_told(&service, refusal.lines().next().unwrap_or_default());
    let refusal = plane.answer(plane.send_as("type.googleapis.com/other", Vec::new()));
    let refusal = refusal.expect("it is refused");
    assert!(refusal.contains("not asked for"), "{refusal}");
    is_told(&service, &refusal);
    assert_eq!(limit(&service), Some(3));

    // Nothing is something, too.
    assert_eq!(plane.answer(plane.send(&[])), None);
    assert_eq!((ready(&service).0, limit(&service)), (200, None));
    assert_eq!(ready(&service).1["faults"], Value::Array(Vec::new()));
    assert!(service.stop().success());
}

/// As Envoy Gateway does: it answers a refusal with the same resources at once, in another order.
#[test]
fn a_control_plane_that_insists_is_answered_more_and_more_slowly() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    plane.insist();
    let service = start(folder.path(), &plane, &[]);
    let begun = Instant::now();
    let version = plane.send(&[hourly("d", 3), bad("f"), hourly("e", 1)]);
    eventually("it is refused three times", || plane.heard().answers >= 3);
    assert!(begun.elapsed() > Duration::from_millis(700), "two pauses");
    let refusal = plane.answer(version).expect("it is refused");
    assert!(refusal.starts_with("f: descriptors[0]"), "{refusal}");
    assert_eq!(limit(&service), Some(3), "the good ones apply");
    let log = service.log();
    let times = |words: &str| log.matches(words).count();
    assert_eq!(
        (times("new rules in use"), times("new rules refused")),
        (1, 1),
        "{log}"
    );

    assert_eq!(plane.answer(plane.send(&[hourly("d", 4)])), None);
    assert_eq!(limit(&service), Some(4));
    // The pause is over with what it was for.
    let answers = plane.heard().answers;
    let version = plane.send(&[bad("f"), hourly("d", 5)]);
    eventually("it is told", || plane.heard().answers > answers);
    assert!(plane.answer(version).is_some());
    assert_eq!(limit(&service), Some(5));
}

/// Clients take the errors of `d` for answers: they neither leave the service nor hold back what they ask about `e`.
fn others_are_decided(service: &Ratekeeper) {
    let endpoint = format!("http://127.0.0.1:{}", service.grpc);
    let mut config = Config::new(&*endpoint);
    config.endpoints.push(endpoint);
    config.deadline = Duration::from_secs(30);
    let about = |domain: &str| CheckRequest::new(domain).descriptor([("key", "a")]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::new(config).expect("it is valid");
        for _ in 0..50 {
            let answer = client.check(&about("d")).await.expect("the fallback's");
            assert!(answer.allowed && answer.degraded);
        }
        assert!(client.services().iter().all(|(_, is_up)| *is_up));
        assert!(!client.is_away());
        let answer = client.check(&about("e")).await.expect("an answer");
        assert!(!answer.allowed && !answer.degraded);
        let batch = [about("d"), about("e")];
        let answers = client.check_batch(&batch).await.expect("answers");
        let told = answers
            .iter()
            .map(|answer| (answer.allowed, answer.degraded));
        assert_eq!(told.collect::<Vec<_>>(), [(true, true), (false, false)]);
    });
}

/// A domain whose rules were refused is not one that nobody limits.
#[test]
fn a_domain_without_good_rules_is_not_decided() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    let ask = |path: &str, domain: &str| {
        let entry = serde_json::json!({ "key": "key", "value": "a" });
        let check =
            serde_json::json!({ "domain": domain, "descriptors": [{ "entries": [entry] }] });
        http(service.port, "POST", path, &check.to_string())
    };
    assert!(plane.answer(plane.send(&[bad("d")])).is_some());
    let (status, told) = ready(&service);
    assert_eq!((status, told["state"].as_str()), (503, Some("no rules")));
    // It lives: whoever restarts what is dead leaves it alone.
    let admin = format!("127.0.0.1:{}", service.admin);
    run(folder.path(), &["health", "--alive", &admin]).succeeded();
    let unready = run(folder.path(), &["health", &admin]);
    assert_eq!(unready.code, Some(1), "{}", unready.err);
    assert_eq!(http(service.port, "GET", "/healthcheck", "").0, 500);
    assert_ne!(ask("/json", "d").0, 200);

    // It is ready for the others.
    assert!(
        plane
            .answer(plane.send(&[bad("d"), hourly("e", 1)]))
            .is_some()
    );
    let (status, told) = ready(&service);
    assert_eq!(status, 200, "{told}");
    assert_contains(
        &told["faults"].to_string(),
        "no rules for d: theirs were refused, and there are none before them",
    );
    assert_eq!([ask("/json", "e").0, ask("/json", "e").0], [200, 429]);
    assert_eq!(ask("/json", "of-nobody").0, 200);
    for path in ["/json", "/v1/check", "/v1/acquire"] {
        let (status, told) = ask(path, "d");
        assert!(status >= 400 && status != 429, "{path}: {status} {told}");
    }
    let (status, told) = ask("/v1/check", "d");
    assert_eq!(status, 404, "{told}");
    assert_contains(&told, "NO_RULES");
    others_are_decided(&service);

    // Rules that were good once stay, and are decided by.
    assert_eq!(plane.answer(plane.send(&[hourly("d", 2)])), None);
    assert_eq!(ready(&service).1["faults"], Value::Array(Vec::new()));
    assert!(plane.answer(plane.send(&[bad("d")])).is_some());
    assert_eq!(limit(&service), Some(2));
    // As are they for one that is gone.
    assert_eq!(plane.answer(plane.send(&[])), None);
    assert_eq!(ask("/json", "d").0, 200);
}

/// The responses of Envoy Gateway 1.9.1 to `cargo xtask compat envoy-gateway --record FILE`: the policy of
/// examples/envoy-gateway with 3 an hour for each user, then with 6, and the same again after its restart.
const ENVOY_GATEWAY: &[u8] = include_bytes!("envoy_gateway.bin");

#[test]
fn what_a_real_envoy_gateway_sent_becomes_its_rules() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    let rule = "httproute/default/backend/rule/0/match/0/*";
    // Its names: the first rule tells users apart, the second has one counter for all.
    let (users, all) = ("rule-0-match-0", "rule-1-match--1");
    let limit = |name: &str, requests: u32| {
        let name = format!("default/eg/http.{rule}_{rule}.{name}");
        format!(
            "{name}: unit=HOUR requests_per_unit={requests}, shadow_mode: false, quota_mode: false"
        )
    };
    let mut in_force: Vec<Vec<String>> = Vec::new();
    for response in responses(ENVOY_GATEWAY) {
        assert_eq!(plane.answer(plane.replay(response)), None, "it is taken");
        let (_, rlconfig) = http(service.admin, "GET", "/rlconfig", "");
        let mut lines: Vec<_> = rlconfig.lines().map(str::to_owned).collect();
        lines.sort();
        if in_force.last() != Some(&lines) {
            in_force.push(lines);
        }
    }
    let by_policy = |requests| vec![limit(users, requests), limit(&format!("{all}_{all}"), 100)];
    assert_eq!(in_force, [by_policy(3), by_policy(6)]);
    assert_eq!(
        (
            plane.heard().stale,
            service.metric("ratelimit_rules_source_refused_total ")
        ),
        (0, 0)
    );

    // As its Envoy asks: both of the policy's rules at once.
    let entry = |key: &str, value: &str| serde_json::json!({ "key": key, "value": value });
    let ask = |user: &str| {
        let route = entry(rule, rule);
        let body = serde_json::json!({
            "domain": "default/eg/http",
            "descriptors": [
                { "entries": [route, entry(users, user)] },
                { "entries": [route, entry(all, all)] },
            ],
        });
        let (status, answer) = http(service.port, "POST", "/v1/check", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("it is JSON");
        answer["decision"] == "allow"
    };
    let answers: Vec<_> = (0..7).map(|_| ask("ada")).collect();
    assert_eq!(answers, [true, true, true, true, true, true, false]);
    assert!(ask("bob"), "apart from her");
}

#[test]
fn a_thousand_changes_cuts_and_restarts_lose_nothing() {
    let folder = tempdir().expect("a folder");
    let mut plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    assert_eq!(plane.answer(plane.send(&[hourly("d", 1)])), None);
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = std::thread::spawn({
        let (address, is_over) = (service.port, Arc::clone(&is_over));
        move || {
            let body =
                r#"{"domain": "d", "descriptors": [{"entries": [{"key": "key", "value": "b"}]}]}"#;
            let mut answers = 0;
            while !is_over.load(Ordering::Relaxed) {
                let (status, body) = http(address, "POST", "/v1/check", body);
                assert_eq!(status, 200, "{body}");
                answers += 1;
            }
            answers
        }
    });
    for change in 1..=1_000_u32 {
        let is_bad = change % 10 == 3;
        let changed = if is_bad {
            bad("e")
        } else {
            hourly("e", change)
        };
        let version = plane.send(&[hourly("d", 1 + change), changed]);
        match change % 250 {
            100 => plane.cut(),
            200 => {
                let port = plane.address().port();
                drop(plane);
                plane = ControlPlane::start(port, None);
                let version = plane.send(&[hourly("d", 1 + change), hourly("e", change)]);
                assert_eq!(plane.answer(version), None);
                continue;
            }
            _ => {}
        }
        assert_eq!(plane.answer(version).is_some(), is_bad, "change {change}");
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(asking.join().expect("every request was decided") > 0);
    assert_eq!(limit(&service), Some(1_001));
    assert_eq!(
        (plane.heard().stale, ready(&service).1["faults"].clone()),
        (0, Value::Array(Vec::new()))
    );
}

#[test]
fn the_last_good_rules_serve_while_the_control_plane_is_away() {
    let folder = tempdir().expect("a folder");
    let data = ["--data-dir", "data"];
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &data);
    assert_eq!(
        plane.answer(plane.send(&[hourly("d", 7), hourly("e", 7)])),
        None
    );
    // What is kept is what was in force: the bad one's predecessor.
    assert!(
        plane
            .answer(plane.send(&[bad("d"), hourly("e", 8)]))
            .is_some()
    );
    let port = plane.address().port();
    let away = follower(folder.path(), &plane, &data);
    drop(plane);
    eventually("it notices", || {
        let faults = ready(&service).1["faults"].to_string();
        faults.contains("rules cannot be fetched from xds://127.0.0.1:")
    });
    assert_eq!(
        (
            service.metric("ratelimit_rules_source_up "),
            limit(&service)
        ),
        (0, Some(7))
    );
    assert!(service.stop().success());

    let service = away.start();
    let told = banner(&service);
    assert_contains(&told, "the last good ones, of");
    let (status, told) = ready(&service);
    assert_eq!((status, limit(&service)), (200, Some(7)));
    assert!(
        told["faults"]
            .to_string()
            .contains("no rules have come from xds://"),
        "{told}"
    );
    let plane = ControlPlane::start(port, None);
    assert_eq!(plane.answer(plane.send(&[hourly("d", 9)])), None);
    assert_eq!(limit(&service), Some(9));
    eventually("it is well", || {
        ready(&service).1["faults"] == Value::Array(Vec::new())
    });
    service.wait_for_log("rules can be fetched again");
}

/// As go-control-plane does with a node that it does not know.
#[test]
fn a_control_plane_that_says_nothing_is_told_and_its_stream_stays() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    service.wait_for_log("it sends nothing");
    let (_, told) = ready(&service);
    assert_contains(&told["faults"].to_string(), "(node envoy-ratelimit) since");
    assert_contains(&told["faults"].to_string(), "xds_node_id");
    let told = observability::names(|name| name.starts_with(observability::OF_SOURCES));
    assert!(!told.is_empty());
    observability::assert_has_all(&service.metrics(), &told);
    let up = || service.metric("ratelimit_rules_source_up ");
    assert_eq!(up(), 0);
    assert_eq!(plane.answer(plane.send(&[hourly("d", 9)])), None);
    assert_eq!((up(), limit(&service)), (1, Some(9)));
    assert_eq!(ready(&service).1["faults"], Value::Array(Vec::new()));
    assert_eq!(plane.heard().streams, 1, "silence is no reason to leave");
    let log = service.log();
    assert_eq!(log.matches("it sends nothing").count(), 1, "{log}");
}

/// It does not even open a stream.
#[test]
fn a_server_that_only_takes_connections_is_told() {
    let folder = tempdir().expect("a folder");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("it is bound");
    let service = serve(folder.path())
        .args(&["--rules", &format!("xds://{address}")])
        .start();
    service.wait_for_log("it sends nothing");
    let (_, told) = ready(&service);
    assert_contains(&told["faults"].to_string(), "(node ratekeeper) since");
    assert_eq!(service.metric("ratelimit_rules_source_up "), 0);
    assert_eq!(service.metric("ratelimit_rules_source_errors_total "), 0);
}

#[test]
fn a_service_may_be_ready_before_it_has_rules() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let setup = follower(folder.path(), &plane, &[]);
    let service = setup
        .variable("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
        .start();
    let (status, told) = ready(&service);
    assert_eq!((status, told["state"].as_str()), (200, Some("no rules")));
    run(
        folder.path(),
        &["health", &format!("127.0.0.1:{}", service.port)],
    )
    .succeeded();
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}"#;
    assert_ne!(
        http(service.port, "POST", "/v1/check", body).0,
        200,
        "nothing is decided"
    );
}

#[test]
fn both_sides_prove_who_they_are_and_certificates_are_read_again() {
    let folder = tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (authority, other) = (Authority::new(), Authority::new());
    let own = |authority: &Authority, validity| {
        let Identity { certificate, key } = authority.issue("127.0.0.1", validity);
        put(at("tls.crt").as_ref(), &certificate);
        put(at("tls.key").as_ref(), &key);
    };
    put(at("ca.crt").as_ref(), &authority.pem());
    own(&other, Validity::Valid);
    let plane = ControlPlane::start(
        0,
        Some(MutualTls {
            identity: authority.issue("127.0.0.1", Validity::Valid),
            client_authority: authority.pem(),
        }),
    );
    let version = plane.send(&[hourly("d", 4)]);
    let service = follower(folder.path(), &plane, &[])
        .variable("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")
        .variable("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &at("tls.crt"))
        .variable("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &at("tls.key"))
        .variable("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &at("ca.crt"))
        .start();
    eventually("it is turned away", || {
        service.metric("ratelimit_rules_source_errors_total ") > 0
    });
    own(&authority, Validity::Valid);
    assert_eq!(plane.answer(version), None);
    assert_eq!(limit(&service), Some(4));
}

/// Each new stream begins with the resource that was refused before.
#[test]
fn a_refused_resource_does_not_delay_the_next_stream() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    assert!(
        plane
            .answer(plane.send(&[hourly("e", 1), bad("d")]))
            .is_some()
    );
    let refused = || service.metric("ratelimit_rules_source_refused_total ");
    let begun = Instant::now();
    for _ in 0..7 {
        let before = refused();
        plane.cut();
        eventually("it is back", || refused() > before);
    }
    // Pauses that double add up to at least 23 seconds.
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn each_response_is_answered_by_its_own_nonce() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    let rows = vec![
        vec![hourly("d", 3)],
        vec![bad("d")],
        vec![hourly("d", 4), hourly("e", 1)],
        vec![hourly("d", 5)],
    ];
    assert_eq!(plane.answer(plane.send_in_a_row(rows)), None);
    assert_eq!(limit(&service), Some(5), "the last one counts");
    plane.cut();
    assert_eq!(plane.answer(plane.send(&[hourly("d", 6)])), None);
    assert_eq!(limit(&service), Some(6));
    let heard = plane.heard();
    assert_eq!((heard.overtaken, heard.stale), (3, 0));
    assert!(heard.streams >= 2);
}

#[test]
fn a_set_may_be_large_but_not_too_large_and_names_are_there_once() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let service = start(folder.path(), &plane, &[]);
    let many = |count: usize, limit: u32| {
        let domains = (1..count).map(|number| hourly(&format!("domain-{number}"), 1));
        let all: Vec<_> = domains.chain([hourly("d", limit)]).collect();
        all
    };
    assert_eq!(plane.answer(plane.send(&many(10_000, 3))), None);
    assert_eq!(limit(&service), Some(3));
    let refusal = plane.answer(plane.send(&many(10_001, 4)));
    assert_eq!(
        refusal.as_deref(),
        Some("10001 resources are more than 10000")
    );
    is_told(&service, "10001 resources are more than 10000");
    assert_eq!(limit(&service), Some(3), "the last good ones stay");
    assert_eq!(ready(&service).0, 200);

    let refusal = plane.answer(plane.send(&[hourly("d", 5), hourly("d", 6)]));
    assert_eq!(
        refusal.as_deref(),
        Some("d: two resources have this name: the one whose rules sort first counts")
    );
    is_told(
        &service,
        "d: two resources have this name: the one whose rules sort first counts",
    );
    assert_eq!(limit(&service), Some(5));
    assert_eq!(service.metric("ratelimit_rules_source_refused_total "), 2);
}

#[test]
fn an_expired_certificate_is_told_and_the_last_good_rules_stay() {
    let folder = tempdir().expect("a folder");
    let (authority, clients) = (Authority::new(), Authority::new());
    let Identity { certificate, key } = clients.issue("node", Validity::Valid);
    for (name, text) in [
        ("ca.pem", &authority.pem()),
        ("node.pem", &certificate),
        ("node.key", &key),
    ] {
        put(&folder.path().join(name), text);
    }
    let plane = |port: u16, validity: Validity| {
        let tls = MutualTls {
            identity: authority.issue("127.0.0.1", validity),
            client_authority: clients.pem(),
        };
        ControlPlane::start(port, Some(tls))
    };
    let good = plane(0, Validity::Valid);
    let port = good.address().port();
    let service = follower(folder.path(), &good, &[])
        .variable("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")
        .variable("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "node.pem")
        .variable("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "node.key")
        .variable("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "ca.pem")
        .start();
    assert_eq!(good.answer(good.send(&[hourly("d", 3)])), None);
    drop(good);

    let expired = plane(port, Validity::Expired);
    let _ = expired.send(&[hourly("d", 4)]);
    eventually("the certificate is told", || {
        let (_, told) = http(service.admin, "GET", "/readyz", "");
        told.to_lowercase().contains("expired") && told.contains("those in use stay")
    });
    assert_eq!(limit(&service), Some(3));
    assert_eq!(service.metric("ratelimit_rules_source_up "), 0);
    let log = service.log();
    let told = log
        .lines()
        .filter(|line| line.contains("rules cannot be fetched"));
    assert_eq!(told.count(), 1, "{log}");
    drop(expired);

    let renewed = plane(port, Validity::Valid);
    assert_eq!(renewed.answer(renewed.send(&[hourly("d", 5)])), None);
    assert_eq!(limit(&service), Some(5));
}

#[test]
fn defaults_say_what_resources_cannot() {
    let folder = tempdir().expect("a folder");
    let plane = ControlPlane::start(0, None);
    let defaults = "{algorithm: sliding_window, domains: {'d*': {algorithm: token_bucket, post_paid: true, count_denied: false}}}";
    let service = start(folder.path(), &plane, &["--xds-defaults", defaults]);
    assert_eq!(
        plane.answer(plane.send(&[hourly("d", 4), hourly("e", 4)])),
        None
    );
    let (_, listed) = http(service.admin, "GET", "/admin/v1/rules", "");
    assert!(
        listed.contains("token_bucket") && listed.contains("sliding_window"),
        "{listed}"
    );
    assert!(!listed.contains("fixed_window"), "{listed}");
    // As gateways for models ask: a look, what the answer did cost, and a look again.
    let ask = |hits: u32| {
        let descriptor =
            serde_json::json!({ "entries": [{ "key": "key", "value": "a" }], "hitsAddend": hits });
        let body = serde_json::json!({ "domain": "d", "descriptors": [descriptor] });
        http(service.port, "POST", "/json", &body.to_string()).0
    };
    assert_eq!([ask(0), ask(10), ask(0)], [200, 200, 429]);
    let refused = run(
        folder.path(),
        &[
            "serve",
            "--rules",
            "xds://127.0.0.1:1",
            "--xds-defaults",
            "{algorithm: magic}",
        ],
    );
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("--xds-defaults: ") && refused.err.contains("magic"),
        "{}",
        refused.err
    );
    // Who wants to look on first is not to be enforced without a word.
    let shown = run(
        folder.path(),
        &[
            "config",
            "show",
            "--rules",
            "xds://127.0.0.1:1",
            "--xds-defaults",
            "{shadow_mode: true}",
        ],
    );
    assert_eq!(shown.code, Some(1), "{}", shown.out);
    assert_contains(&shown.err, "`shadow_mode` means nothing in xds_defaults");
    assert_contains(&shown.err, "enforce: 0%");
    let refused = run(
        folder.path(),
        &[
            "serve",
            "--rules",
            "rules",
            "--xds-defaults",
            "{algorithm: gcra}",
        ],
    );
    assert_contains(&refused.err, "it means nothing without a control plane");
}

#[test]
fn called_ratelimit_it_is_envoyproxy_ratelimits_place() {
    let folder = tempdir().expect("a folder");
    let program = folder.path().join("ratelimit");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ratekeeper"), &program).expect("a link");
    let show = |more: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        command
            .args(["config", "show"])
            .current_dir(folder.path())
            .env_clear();
        let output = command
            .envs(more.iter().copied())
            .output()
            .expect("it starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let has = |shown: &str, key: &str, value: &str| {
        let line = shown
            .lines()
            .find(|line| line.split_whitespace().next() == Some(key));
        line.is_some_and(|line| line.split_whitespace().nth(1) == Some(value))
    };
    let shown = show(&[]);
    assert!(
        has(&shown, "profile", "envoy") && has(&shown, "envoy_metrics", "true"),
        "{shown}"
    );
    let shown = show(&[("RATEKEEPER_PROFILE", "ratekeeper")]);
    assert!(
        has(&shown, "profile", "ratekeeper") && has(&shown, "envoy_metrics", "true"),
        "{shown}"
    );
}
