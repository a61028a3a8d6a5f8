//! Service levels hold in front of an upstream.

use ratekeeper_testkit::http1;

use crate::support::{Answer, Gateway, Upstream, ok};

const MANUAL: &str = include_str!("../../../../docs/service-levels.md");

/// The file of the manual, with windows that do not end while a test runs.
fn levels() -> String {
    let text = MANUAL.split("```yaml\n").nth(1);
    let text = text.and_then(|text| text.split("```").next());
    let text = text.expect("the manual has a file");
    let text = text.replace("period: 10,", "period: 864000000,");
    let text = text.replace("period: 1,", "period: 432000000,");
    assert_eq!(text.matches("000000,").count(), 3, "{text}");
    text
}

fn ask(gateway: &Gateway, method: &str, path: &str) -> Answer {
    http1::ask(gateway.port, method, path, "", "").expect("it answers in HTTP")
}

#[test]
fn each_tenant_and_method_has_its_own_threshold() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::start_with(&levels(), "", &["--upstream", &upstream.url()]);
    let [a, b] = ["A", "B"].map(|tenant| format!("/v1/organizations/{tenant}/product/7"));
    for number in 1..=1_000 {
        assert_eq!(ask(&gateway, "GET", &a).status, 200, "request {number}");
    }
    let denied = ask(&gateway, "GET", "/v1/organizations/A/product/8");
    assert_eq!(denied.status, 429, "{denied:?}");
    assert!(denied.body.contains("get-product"), "{denied:?}");
    assert_eq!(upstream.asked().len(), 1_000);

    let other = ask(&gateway, "GET", &b);
    assert_eq!(other.status, 200);
    assert_eq!(other.header("x-ratelimit-remaining"), Some("999"));
    for number in 1..=20 {
        assert_eq!(ask(&gateway, "PUT", &a).status, 200, "request {number}");
    }
    assert_eq!(ask(&gateway, "PUT", &a).status, 429);
    assert_eq!(ask(&gateway, "DELETE", &a).status, 200);
}

#[test]
fn a_path_that_can_be_read_in_two_ways_does_not_reach_the_upstream() {
    let upstream = Upstream::start(|_| ok(""));
    let asked = |settings: &str, paths: &[&str]| -> Vec<u16> {
        let gateway = Gateway::start_with(&levels(), settings, &["--upstream", &upstream.url()]);
        let statuses = paths.iter().map(|path| gateway.get(path, &[]).status);
        statuses.collect()
    };
    let paths = [
        "/v1/organizations/A/product%2F7",
        "/v1/organizations/A/product%5c7",
        "/users/a%2fb",
        "/x%2f..%2fadmin",
    ];
    assert_eq!(asked("", &paths), [400; 4]);
    assert!(upstream.asked().is_empty());
    let kept = asked("encoded_slashes: keep\n", &paths);
    assert_eq!(kept, [200, 200, 200, 400]);
}

/// Signed with each of two secrets; both are of `acme`, until 2100.
const BY_FIRST: &str = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhY21lIiwiZXhwIjo0MTAyNDQ0ODAwfQ.UnEDKDfWZTVloN7QBpoi7Yp8ELTTrxLEy4QLnKD4D9U";
const BY_SECOND: &str = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhY21lIiwiZXhwIjo0MTAyNDQ0ODAwfQ.SEdXfwpwEbu89qEhvyKdEEcVjdzO9KI0etcSdcTTbGI";

#[test]
fn renewed_keys_are_taken_in() {
    let upstream = Upstream::start(|_| ok(""));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let secret = folder.path().join("secret");
    let write = |text: &str| std::fs::write(&secret, text).expect("a file can be written");
    write("the first secret, of at least 32 bytes");
    let settings = format!(
        "identity: {{ from: ['claim:sub'], jwt: {{ secret_file: {} }} }}\n",
        secret.display()
    );
    let gateway = Gateway::start_with(&levels(), &settings, &["--upstream", &upstream.url()]);
    assert_eq!(gateway.get("/a", &[BY_FIRST]).status, 200);
    assert_eq!(gateway.get("/a", &[BY_SECOND]).status, 401);
    write("another secret, of at least 32 bytes!");
    ratekeeper_testkit::process::eventually("the new secret is in force", || {
        gateway.get("/a", &[BY_SECOND]).status == 200
    });
    assert_eq!(gateway.get("/a", &[BY_FIRST]).status, 401);
}

#[test]
fn a_tenants_plan_and_override_hold_at_the_gateway() {
    let upstream = Upstream::start(|_| ok("hello"));
    let rules = "domain: shop
tenant: org
plans: [free, pro]
slas:
- id: all
  pathPattern: /**
  tiers: [ { period: 864000000, threshold: 2 } ]
  plans: { pro: { period: 864000000, threshold: 4 } }
tenants:
- { tenant: acme, plan: pro }
- { tenant: globex, plan: pro, overrides: [ { descriptor: 'sla:all', window: 10000d, limit: 6 } ] }
";
    let settings = "identity: { from: [ { from: header:x-org, key: org }, remote_address ] }\n";
    let gateway = Gateway::start_with(rules, settings, &["--upstream", &upstream.url()]);
    for (org, passed) in [("acme", 4), ("globex", 6), ("initech", 2)] {
        let line = format!("X-Org: {org}");
        let statuses = (0..8).map(|_| gateway.get("/a", &[&line]).status);
        let statuses: Vec<_> = statuses.collect();
        let found = statuses.iter().take_while(|status| **status == 200).count();
        assert_eq!(found, passed, "{org}: {statuses:?}");
    }
}
