//! Tenants have their plans at the gateway, from files and from a database.

use crate::support::{Gateway, Upstream, ok};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::free_port;
use serde_json::Value;

/// The list is that of the library's test.
const RULES: &str = "domain: api
tenant: api_key
plans: [free, pro]
descriptors:
- key: api_key
  rate_limit: { window: 10000d, limit: 10 }
  plans: { pro: { window: 10000d, limit: 1000 } }
";

const TENANTS: &str = "tenants:
- { tenant: is-pro, plan: pro }
- { tenant: has-own, plan: pro, overrides: [ { window: 10000d, limit: 500 } ] }
- { tenant: was-pro, plan: pro, expires_at: 2020-01-01T00:00:00Z }
- { tenant: will-be-pro, plan: pro, effective_at: 2250-01-01T00:00:00Z }
";

/// The tenants, with the limit of each.
const LIMITS: [(&str, &str); 5] = [
    ("is-pro", "1000"),
    ("has-own", "500"),
    ("was-pro", "10"),
    ("will-be-pro", "10"),
    ("nobody", "10"),
];

fn limit(gateway: &Gateway, tenant: &str) -> String {
    let answer = gateway.get("/", &[&format!("X-Api-Key: {tenant}")]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let limit = answer.header("x-ratelimit-limit");
    limit.expect("a limit is told").to_owned()
}

#[test]
fn a_list_gives_tenants_their_limits_and_tells_them() {
    let upstream = Upstream::start(|_| ok("hello"));
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let rules = RULES.to_owned() + TENANTS;
    let args = ["--upstream", &upstream.url(), "--http", &address];
    let gateway = Gateway::start_with(&rules, "", &args);
    for (tenant, expected) in LIMITS {
        assert_eq!(limit(&gateway, tenant), expected, "{tenant}");
    }
    // Each caller is told its plan, on the port of the checks.
    for (tenant, plan, limit) in [
        ("is-pro", "pro", 1_000),
        ("has-own", "custom", 500),
        ("was-pro", "free", 10),
    ] {
        let key = format!("X-Api-Key: {tenant}\r\n");
        let answer = ask(http, "GET", "/v1/limits", &key, "");
        let answer = answer.expect("it answers in HTTP");
        let told: Value = serde_json::from_str(&answer.body).expect("it is JSON");
        let own = &told["limits"][0];
        assert_eq!(
            (&own["plan"], &own["limit"], &own["remaining"]),
            (&plan.into(), &limit.into(), &(limit - 1).into()),
            "{tenant}: {told}"
        );
    }
}

#[test]
fn a_database_gives_tenants_their_limits() {
    let upstream = Upstream::start(|_| ok("hello"));
    let args = ["--upstream", &upstream.url(), "--data-dir", "data"];
    let gateway = Gateway::start_with(RULES, "", &args);
    assert_eq!(limit(&gateway, "acme"), "10");
    let put = |body: &str| {
        let kind = "Content-Type: application/json\r\n";
        let answer = ask(gateway.admin, "PUT", "/admin/v1/quotas/acme", kind, body);
        let answer = answer.expect("it answers in HTTP");
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    put("{\"plan\":\"pro\"}");
    assert_eq!(limit(&gateway, "acme"), "1000");
    put("{\"overrides\":[{\"requests_per_unit\":500,\"window\":\"240000h\"}]}");
    assert_eq!(limit(&gateway, "acme"), "500");
    assert_eq!(limit(&gateway, "bob"), "10");
}

#[test]
fn calls_that_pass_the_gateway_are_counted_for_bills() {
    let upstream = Upstream::start(|_| ok("hello"));
    let args = ["--upstream", &upstream.url(), "--data-dir", "data"];
    let gateway = Gateway::start_with(RULES, "", &args);
    for _ in 0..12 {
        gateway.get("/", &["X-Api-Key: a-secret-of-bob"]);
    }
    // Nodes write every ten seconds.
    gateway.tells("/admin/v1/export/usage?by=day&format=csv", ",10,2");
    let told = gateway.told("/admin/v1/export/usage?by=day&format=csv");
    assert_contains(&told, ",api,…-bob,");
    assert!(!told.contains("secret"), "{told}");
    let by_rule = gateway.told("/admin/v1/export/usage?format=csv");
    assert_contains(&by_rule, ",…-bob,");
}
