//! Quotas of tenants through the admin API, in a real SQLite database.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratekeeper_limiter::Limiter;
use ratekeeper_quota::{DatabaseAddress, Editor, FleetToken, Follower, FollowerConfig, QuotaStore};
use ratekeeper_rules::TenantKey;
use ratekeeper_server::{QuotaAdmin, Role, ServerConfig, Tokens};
use ratekeeper_stores::Stores;
use serde_json::{Value, json};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{PATIENCE, Running, start, start_with};
use crate::switches::admin;

const RULES: &str = "
domain: api_platform
evaluation: path
tenant: customer
plans: [free, pro, enterprise]
descriptors:
  - key: customer
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: fixed_window }
    plans:
      pro: { unit: hour, requests_per_unit: 1000, algorithm: fixed_window }
      enterprise: { unit: hour, requests_per_unit: 5000, algorithm: fixed_window }
    descriptors:
      - { key: endpoint, value: POST /api/v1/orders, rate_limit: { unit: hour, requests_per_unit: 20, algorithm: fixed_window } }
";

const ACME: &str = "/admin/v1/quotas/acme";

async fn start_in(folder: &Path) -> Running {
    start_with_data(folder, None).await
}

async fn start_with_data(folder: &Path, data: Option<&Path>) -> Running {
    start_with_rules(RULES, folder, data).await
}

/// Starts a node whose database is in `folder`, with a data folder.
pub(crate) async fn start_with_rules(rules: &str, folder: &Path, data: Option<&Path>) -> Running {
    let data = data.map(Path::to_path_buf);
    start_by(rules, folder, |config| config.data_dir = data).await
}

/// Starts a node whose database is in `folder`, with changed settings.
async fn start_by(rules: &str, folder: &Path, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let key = TenantKey::from_bytes([7; 16]);
    let store = QuotaStore::new(DatabaseAddress::sqlite(&folder.join("quotas.db")), key).unwrap();
    let limiter: Arc<OnceLock<Arc<Limiter<Stores>>>> = Arc::default();
    let applied = Arc::clone(&limiter);
    let apply = move |tenants| match applied.get() {
        Some(limiter) => limiter.replace_tenants(tenants),
        None => 0,
    };
    let patience = Duration::from_secs(1);
    let follower = Follower::start(store.clone(), FollowerConfig::default(), apply, patience).await;
    let quotas = QuotaAdmin {
        store,
        follower: Arc::new(follower),
    };
    let running = start_with(rules, |config| {
        config.quotas = Some(quotas);
        change(config);
    })
    .await;
    assert!(limiter.set(Arc::clone(&running.limiter)).is_ok());
    running
}

/// Sends a request with a header; answers the status, the ETag and the JSON.
async fn send(
    running: &Running,
    method: &str,
    path: &str,
    header: (&str, &str),
    body: &Value,
) -> (u16, Value) {
    let headers = [("content-type", "application/json"), header];
    let to = running.addresses.admin;
    let (status, text) = running
        .send(to, method, path, &headers, &body.to_string())
        .await;
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// The limit that binds a call to the endpoint.
async fn limit(running: &Running, customer: &str) -> u64 {
    let entries = json!([{ "key": "customer", "value": customer }, { "key": "endpoint", "value": "POST /api/v1/orders" }]);
    let check = json!({ "domain": "api_platform", "descriptors": [{ "entries": entries }] });
    let (status, answer) = running.post("/v1/check", &check).await;
    assert_eq!(status, 200, "{answer}");
    answer["limit"].as_u64().unwrap()
}

fn enterprise() -> Value {
    json!({
        "plan": "enterprise",
        "overrides": [{ "descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "hour" }],
        "effective_at": "2025-02-01T00:00:00Z",
        "expires_at": null,
    })
}

#[tokio::test]
async fn a_tenant_gets_a_plan_and_an_override_and_loses_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    assert_eq!(limit(&running, "acme").await, 20);
    let (status, put) = admin(&running, "PUT", ACME, &enterprise().to_string()).await;
    assert_eq!(status, 200, "{put}");
    assert_eq!(
        (&put["tenant"], &put["plan"]),
        (&json!("acme"), &json!("enterprise"))
    );
    assert_eq!(
        put["quotas"]["default"],
        json!({ "requests_per_unit": 5000, "unit": "hour" })
    );
    let own = &put["quotas"]["overrides"][0];
    assert_eq!(own["descriptor"], "endpoint:POST /api/v1/orders");
    assert_eq!(
        (&own["requests_per_unit"], &own["unit"]),
        (&json!(500), &json!("hour"))
    );
    assert!(put["updated_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        limit(&running, "acme").await,
        500,
        "it is in force when the change is answered"
    );
    assert_eq!(limit(&running, "globex").await, 20);

    let (status, got) = admin(&running, "GET", ACME, "").await;
    assert_eq!(
        (status, &got["quotas"], &got["version"]),
        (200, &put["quotas"], &put["version"])
    );
    let by_id = format!("/admin/v1/quotas/hash:{}", got["hash"].as_str().unwrap());
    assert_eq!(
        admin(&running, "GET", &by_id, "").await.1["version"],
        put["version"]
    );
    let (_, again) = admin(&running, "PUT", ACME, &enterprise().to_string()).await;
    assert_eq!(
        again["version"], put["version"],
        "the same once more changes nothing"
    );

    let stale = ("if-match", "\"999\"");
    let (status, refused) = send(&running, "PUT", ACME, stale, &json!({ "plan": "pro" })).await;
    assert_eq!(
        (status, &refused["code"]),
        (412, &json!("VERSION_MISMATCH"))
    );
    let (status, refused) = send(
        &running,
        "PUT",
        ACME,
        ("if-none-match", "*"),
        &json!({ "plan": "pro" }),
    )
    .await;
    assert_eq!(
        (status, &refused["code"]),
        (412, &json!("VERSION_MISMATCH"))
    );
    let known = format!("\"{}\"", put["version"]);
    let (status, pro) = send(
        &running,
        "PUT",
        ACME,
        ("if-match", &known),
        &json!({ "plan": "pro" }),
    )
    .await;
    assert_eq!(
        (status, &pro["quotas"]["overrides"]),
        (200, &json!([])),
        "{pro}"
    );

    assert_eq!(admin(&running, "DELETE", ACME, "").await.0, 204);
    assert_eq!(admin(&running, "GET", ACME, "").await.0, 404);
    assert_eq!(admin(&running, "DELETE", ACME, "").await.0, 404);
    let (status, trail) = admin(&running, "GET", "/admin/v1/audit", "").await;
    let actions: Vec<_> = trail["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| &change["action"])
        .collect();
    assert_eq!(
        (status, json!(actions)),
        (200, json!(["delete", "put", "put"]))
    );
    assert_eq!(trail["changes"][0]["editor"], "local");
    let (_, rest) = admin(&running, "GET", "/admin/v1/audit?after=2&limit=1", "").await;
    assert_eq!(rest["changes"][0]["action"], "delete");
    running.stop().await;
}

#[tokio::test]
async fn an_override_that_no_tenant_has_any_more_is_listed_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let put = |tenant: &'static str, requests: u64| {
        let own = json!({ "descriptor": "default", "requests_per_unit": requests, "unit": "hour" });
        let body = json!({ "overrides": [own] }).to_string();
        let running = &running;
        async move {
            let path = format!("/admin/v1/quotas/{tenant}");
            assert_eq!(admin(running, "PUT", &path, &body).await.0, 200);
        }
    };
    let shown = async || {
        let (_, list) = admin(&running, "GET", "/admin/v1/rules", "").await;
        let ids = list["rules"].as_array().unwrap().iter();
        let own = ids.filter(|rule| rule["id"] == "api_platform.customer@custom");
        let (_, metrics) = running.admin("/metrics").await;
        (own.count(), metrics.contains("customer@custom"))
    };
    put("acme", 7).await;
    put("other", 8).await;
    assert_eq!(shown().await, (1, true));
    // The first of a place was listed for all.
    assert_eq!(admin(&running, "DELETE", ACME, "").await.0, 204);
    assert_eq!(shown().await, (1, true));
    put("other", 9).await;
    assert_eq!(shown().await, (1, true));
    let other = "/admin/v1/quotas/other";
    assert_eq!(admin(&running, "DELETE", other, "").await.0, 204);
    assert_eq!(shown().await, (0, false));
    put("acme", 7).await;
    assert_eq!(shown().await, (1, true));
    running.stop().await;
}

#[tokio::test]
async fn a_reset_sets_the_usage_to_zero() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    for _ in 0..3 {
        limit(&running, "acme").await;
    }
    let used = async || {
        let (_, usage) = admin(&running, "GET", "/admin/v1/usage/acme", "").await;
        usage["usage"]["default"]["used"].as_u64().unwrap()
    };
    assert_eq!(used().await, 3);
    let (status, reset) = admin(&running, "POST", "/admin/v1/quotas/acme/reset", "").await;
    assert_eq!((status, &reset["epoch"]), (200, &json!(1)), "{reset}");
    assert_eq!(used().await, 0);
    limit(&running, "acme").await;
    assert_eq!(used().await, 1);
    running.stop().await;
}

#[tokio::test]
async fn tenants_are_listed_by_filters_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    for (name, body) in [
        ("a", json!({ "plan": "pro" })),
        ("b", json!({ "plan": "pro" })),
        ("c", enterprise()),
    ] {
        let put = admin(
            &running,
            "PUT",
            &format!("/admin/v1/quotas/{name}"),
            &body.to_string(),
        )
        .await;
        assert_eq!(put.0, 200, "{}", put.1);
    }
    let count = async |query: &str| {
        let (status, list) = admin(&running, "GET", &format!("/admin/v1/quotas{query}"), "").await;
        assert_eq!(status, 200, "{list}");
        list["quotas"].as_array().unwrap().len()
    };
    assert_eq!(count("").await, 3);
    assert_eq!(count("?plan=pro").await, 2);
    assert_eq!(count("?overrides=true").await, 1);
    let (status, told) = admin(&running, "GET", "/admin/v1/quotas?domain=other", "").await;
    assert_eq!((status, &told["field"]), (400, &json!("?domain")), "{told}");
    let (_, first) = admin(&running, "GET", "/admin/v1/quotas?limit=2", "").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(count(&format!("?limit=2&cursor={cursor}")).await, 1);
    running.stop().await;
}

#[tokio::test]
async fn what_is_wrong_in_quotas_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let own = |change: Value| {
        let mut limit =
            json!({ "descriptor": "endpoint:x", "requests_per_unit": 5, "unit": "minute" });
        limit
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        json!({ "overrides": [limit] })
    };
    for (body, field) in [
        (json!({ "plan": "gold" }), "plan"),
        (json!({ "tire": "pro" }), "tire"),
        (json!({ "plan": 7 }), "plan"),
        (json!([]), "body"),
        (
            json!({ "plan": "pro", "effective_at": "soon" }),
            "effective_at",
        ),
        (
            json!({ "plan": "pro", "plans": [{ "plan": "free" }] }),
            "plans",
        ),
        (
            json!({ "plans": [{ "plan": "free" }, { "plan": "gold" }] }),
            "plans[1].plan",
        ),
        (json!({ "plans": [{ "plan": "custom" }] }), "plans[0].plan"),
        (json!({ "plan": "custom" }), "overrides"),
        (
            json!({ "plan": "pro", "effective_at": "2027-01-01T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z" }),
            "expires_at",
        ),
        (own(json!({ "unit": "fortnight" })), "overrides[0].unit"),
        (own(json!({ "window": "10s" })), "overrides[0].window"),
        (
            own(json!({ "algorithm": "magic" })),
            "overrides[0].algorithm",
        ),
        (
            own(json!({ "descriptor": ":x" })),
            "overrides[0].descriptor",
        ),
        (
            own(json!({ "requests_per_unit": -1 })),
            "overrides[0].requests_per_unit",
        ),
        (
            own(json!({ "expires_at": "1969-01-01T00:00:00Z" })),
            "overrides[0].expires_at",
        ),
    ] {
        let (status, problem) = admin(&running, "PUT", ACME, &body.to_string()).await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{body}: {problem}"
        );
    }
    for (query, field) in [("?domain=other", "?domain"), ("?by=name", "?by")] {
        let (status, problem) = admin(&running, "GET", &format!("{ACME}{query}"), "").await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{query}: {problem}"
        );
    }
    assert_eq!(
        admin(&running, "GET", "/admin/v1/quotas", "").await.1["quotas"],
        json!([]),
        "nothing was written"
    );
    running.stop().await;
}

/// No body that somebody makes up is our fault.
#[tokio::test]
async fn random_bodies_never_give_a_500() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % most as u64).unwrap()
    };
    let words = [
        "plan",
        "overrides",
        "descriptor",
        "unit",
        "window",
        "burst",
        "algorithm",
        "effective_at",
        "expires_at",
        "requests_per_unit",
        "pro",
        "custom",
        "default",
        "minute",
        "1s",
        "gcra",
        "endpoint:POST /x",
        "2027-01-01T00:00:00Z",
        "",
        "\u{0}",
        "*",
        "99999999999999999999d",
    ];
    for _ in 0..400 {
        let mut body = String::new();
        for _ in 0..random(24) {
            let word = words[random(words.len())];
            let piece = match random(8) {
                0 => "{".to_owned(),
                1 => "}".to_owned(),
                2 => "[".to_owned(),
                3 => "]".to_owned(),
                4 => ",".to_owned(),
                5 => format!("{}", random(usize::MAX)),
                6 => format!("{}:", Value::from(word)),
                _ => Value::from(word).to_string(),
            };
            body.push_str(&piece);
        }
        if random(2) == 0 {
            let (key, value) = (words[random(words.len())], words[random(words.len())]);
            let limit = json!({ "descriptor": value, "requests_per_unit": random(9), "unit": "minute", key: value });
            body = json!({ words[random(3)]: [limit], key: value }).to_string();
        }
        let path = [ACME, "/admin/v1/explain", "/admin/v1/quotas/acme/reset"][random(3)];
        let method = if path == ACME { "PUT" } else { "POST" };
        let (status, answer) = admin(&running, method, path, &body).await;
        assert!(status < 500, "{method} {path} {body}: {status} {answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_database_that_is_away_gives_503_and_none_at_all_501() {
    let data = tempfile::tempdir().unwrap();
    let token = Tokens::local(data.path()).create("ann", Role::Admin);
    let bearer = format!("Bearer {}", token.unwrap());
    let running = start_with_data(Path::new("/proc/nowhere"), Some(data.path())).await;
    // Neither the database nor a copy of its tokens is there, so being on this host admits no one.
    let (status, problem) = admin(&running, "GET", ACME, "").await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("UNAUTHENTICATED")),
        "{problem}"
    );
    for (method, path, body) in [
        ("GET", ACME, ""),
        ("PUT", ACME, "{\"plan\": \"pro\"}"),
        ("DELETE", ACME, ""),
        ("GET", "/admin/v1/quotas", ""),
        ("GET", "/admin/v1/audit", ""),
        ("POST", "/admin/v1/quotas/acme/reset", ""),
    ] {
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*bearer),
        ];
        let to = running.addresses.admin;
        let (status, text) = running.send(to, method, path, &headers, body).await;
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!(
            (status, &problem["code"]),
            (503, &json!("QUOTAS_UNAVAILABLE")),
            "{method} {path}: {problem}"
        );
    }
    assert_eq!(limit(&running, "acme").await, 20, "checks go on");
    running.stop().await;
    let running = start(RULES).await;
    let (status, problem) = admin(&running, "GET", ACME, "").await;
    assert_eq!(
        (status, &problem["code"]),
        (501, &json!("NO_QUOTA_DATABASE"))
    );
    running.stop().await;
}

/// The text that a request is answered with.
async fn text(
    running: &Running,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
) -> (u16, String) {
    let headers = [("content-type", kind)];
    let to = running.addresses.admin;
    running.send(to, method, path, &headers, body).await
}

#[tokio::test]
async fn a_change_of_a_later_time_leaves_what_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let now = json!({ "plan": "pro", "overrides": enterprise()["overrides"] });
    let (status, put) = admin(&running, "PUT", ACME, &now.to_string()).await;
    assert_eq!(status, 200, "{put}");
    let later = json!({ "plan": "enterprise", "effective_at": "2199-01-01T00:00:00Z" });
    let mut versions = Vec::new();
    for _ in 0..2 {
        let (status, put) = admin(&running, "PUT", ACME, &later.to_string()).await;
        assert_eq!(status, 200, "{put}");
        versions.push(put["version"].as_u64().unwrap());
        assert_eq!(put["plan"], "pro", "{put}");
        assert_eq!(
            put["plans"],
            json!([
                { "plan": "pro", "expires_at": "2199-01-01T00:00:00Z" },
                { "plan": "enterprise", "effective_at": "2199-01-01T00:00:00Z" },
            ])
        );
        let own = &put["quotas"]["overrides"];
        assert_eq!(own.as_array().unwrap().len(), 1, "{put}");
        assert_eq!(own[0]["expires_at"], "2199-01-01T00:00:00Z");
        assert_eq!(limit(&running, "acme").await, 500);
    }
    assert_eq!(
        versions[0], versions[1],
        "the same once more changes nothing"
    );
    // What has a date and begins now takes the place of all of it.
    let (_, put) = admin(&running, "PUT", ACME, &enterprise().to_string()).await;
    assert_eq!(put["quotas"]["overrides"].as_array().unwrap().len(), 1);
    assert_eq!(put["plan"], "enterprise", "{put}");
    running.stop().await;
}

#[tokio::test]
async fn many_tenants_come_in_and_go_out_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let import = "/admin/v1/import/quotas";
    let csv = "tenant,plan,descriptor,requests_per_unit,unit,expires_at\n\
               acme,enterprise,endpoint:POST /api/v1/orders,500,hour,\n\
               acme,enterprise,default,7000,day,\n\
               \"glo,bex\",pro,,,,2199-01-01T00:00:00Z\n\
               \"say \"\"hi\"\"\",custom,default,9,minute,\n";
    let dry = format!("{import}?dry_run=true");
    let (status, done) = text(&running, "POST", &dry, "text/csv", csv).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(admin(&running, "GET", ACME, "").await.0, 404, "it was dry");
    for counts in [json!([3, 0, 0]), json!([0, 0, 3])] {
        let (status, done) = text(&running, "POST", import, "text/csv", csv).await;
        assert_eq!(status, 200, "{done}");
        let done: Value = serde_json::from_str(&done).unwrap();
        let told = [&done["created"], &done["updated"], &done["unchanged"]];
        assert_eq!(json!(told), counts, "{done}");
    }
    let (_, acme) = admin(&running, "GET", ACME, "").await;
    assert_eq!(acme["plan"], "enterprise");
    assert_eq!(
        acme["quotas"]["default"],
        json!({ "requests_per_unit": 7000, "unit": "day" })
    );
    let (_, hi) = admin(&running, "GET", "/admin/v1/quotas/say%20%22hi%22", "").await;
    assert_eq!(hi["plan"], "custom", "{hi}");
    for (tenant, plan) in [
        ("say%20%22hi%22", "custom"),
        ("acme", "enterprise"),
        ("new", "free"),
    ] {
        let (_, usage) = admin(&running, "GET", &format!("/admin/v1/usage/{tenant}"), "").await;
        assert_eq!(usage["plan"], plan, "{usage}");
    }

    // Each export is read back as it was written, and nothing has changed.
    for (format, kind) in [("jsonl", "application/x-ndjson"), ("csv", "text/csv")] {
        let path = format!("/admin/v1/export/quotas?format={format}");
        let (status, all) = text(&running, "GET", &path, kind, "").await;
        assert_eq!(status, 200, "{all}");
        let (status, done) = text(&running, "POST", import, kind, &all).await;
        assert_eq!(status, 200, "{all}\n{done}");
        let done: Value = serde_json::from_str(&done).unwrap();
        assert_eq!(done["unchanged"], 3, "{all}\n{done}");
    }

    // One wrong line, and none of them counts.
    let lines = "{\"tenant\":\"new\",\"plan\":\"pro\"}\n\n{\"tenant\":\"bad\",\"plan\":\"gold\"}\n";
    for (kind, body, field) in [
        ("application/x-ndjson", lines, "line 3: plan"),
        (
            "application/x-ndjson",
            "{\"plan\":\"pro\"}",
            "line 1: tenant",
        ),
        (
            "application/x-ndjson",
            "{\"tenant\":\"a\",\"x\":1}",
            "line 1",
        ),
        ("application/x-ndjson", "", "body"),
        ("text/csv", "tenant,colour\na,red\n", "line 1: colour"),
        ("text/csv", "tenant,api_key\na,b\n", "line 1: api_key"),
        (
            "text/csv",
            "tenant,limit,unit\na,many,day\n",
            "line 2: requests_per_unit",
        ),
        (
            "text/csv",
            "tenant,limit,unit,post_paid\na,1,day,no\n",
            "line 2: post_paid",
        ),
        ("text/csv", "tenant,plan\na,pro\nb,pro\na,free\n", "line 4"),
        (
            "text/csv",
            "tenant,plan,expires_at\nnew,pro,soon\n",
            "line 2: expires_at",
        ),
        (
            "application/x-ndjson",
            "{\"hash\":\"5f0c6a8e1b2d3c4f5a69788796a5b4c3\",\"tenant_key\":\"00000000\",\"plan\":\"pro\"}",
            "line 1: tenant_key",
        ),
    ] {
        let (status, problem) = text(&running, "POST", import, kind, body).await;
        let problem: Value = serde_json::from_str(&problem).unwrap();
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{body}: {problem}"
        );
    }
    assert_eq!(
        admin(&running, "GET", "/admin/v1/quotas/new", "").await.0,
        404
    );
    running.stop().await;
}

#[tokio::test]
async fn a_dry_import_of_a_later_time_looks_at_what_the_tenant_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let own = json!({ "descriptor": "default", "requests_per_unit": 7, "unit": "day", "effective_at": "2198-01-01T00:00:00Z" });
    let now = json!({ "overrides": [own] });
    let (status, put) = admin(&running, "PUT", ACME, &now.to_string()).await;
    assert_eq!(status, 200, "{put}");
    // The one that it keeps begins in 2198 too.
    let later =
        json!({ "tenant": "acme", "effective_at": "2199-01-01T00:00:00Z", "overrides": [own] });
    let lines = format!("{{\"tenant\":\"new\",\"plan\":\"pro\"}}\n{later}\n");
    let (import, kind) = ("/admin/v1/import/quotas", "application/x-ndjson");
    for path in [format!("{import}?dry_run=true"), import.to_owned()] {
        let (status, told) = text(&running, "POST", &path, kind, &lines).await;
        assert_eq!(status, 400, "{path}: {told}");
        assert!(
            told.contains("another one begins at the same time"),
            "{told}"
        );
        assert!(told.contains("line 2: "), "{told}");
    }
    // Where nothing is kept, there is nothing to refuse.
    let new = lines.replace("acme", "globex");
    let dry = format!("{import}?dry_run=true");
    let (status, told) = text(&running, "POST", &dry, kind, &new).await;
    assert_eq!(status, 200, "{told}");
    running.stop().await;
}

#[tokio::test]
async fn an_import_without_tenants_is_refused_and_says_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    for (kind, body, said, help) in [
        (
            "application/x-ndjson",
            "",
            "the file is empty",
            "{\\\"tenant\\\":",
        ),
        (
            "application/x-ndjson",
            "\n \n",
            "the file is empty",
            "{\\\"tenant\\\":",
        ),
        ("text/csv", "", "the file is empty", "tenant,plan"),
        (
            "text/csv",
            "tenant,plan\n",
            "no row follows the head",
            "acme,pro",
        ),
    ] {
        for path in [
            "/admin/v1/import/quotas",
            "/admin/v1/import/quotas?dry_run=true",
        ] {
            let (status, told) = text(&running, "POST", path, kind, body).await;
            assert_eq!(status, 400, "{kind} {body:?}: {told}");
            assert!(told.contains(said) && told.contains(help), "{told}");
            assert!(told.contains("\"field\":\"body\""), "{told}");
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn a_tenant_named_twice_is_no_import_whatever_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let hash = TenantKey::from_bytes([7; 16]).hash("acme").to_string();
    for second in [
        json!({ "hash": hash, "plan": "free" }),
        json!({ "domain": "api_platform", "tenant": "acme", "plan": "free" }),
        json!({ "tenant": "acme", "plan": "free" }),
    ] {
        let lines = format!("{{\"tenant\":\"acme\",\"plan\":\"pro\"}}\n{second}\n");
        let import = "/admin/v1/import/quotas";
        let (status, told) = text(&running, "POST", import, "application/x-ndjson", &lines).await;
        assert_eq!(status, 400, "{second}: {told}");
        assert!(
            told.contains("line 2") && told.contains("listed twice"),
            "{told}"
        );
    }
    assert_eq!(admin(&running, "GET", ACME, "").await.0, 404);
    running.stop().await;
}

/// The plan in force changes with time and with the rules, and the version does not.
#[tokio::test]
async fn a_reader_is_sent_the_tenant_as_it_is_now_whatever_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    assert_eq!(
        admin(&running, "PUT", ACME, "{\"plan\":\"pro\"}").await.0,
        200
    );
    let to = running.addresses.admin;
    for tags in ["\"1\"", "W/\"1\"", "*", "\"2\""] {
        let has = [("if-none-match", tags)];
        let (head, text) = running.send_whole(to, "GET", ACME, &has, "").await;
        assert_eq!(head.status, 200, "{tags}: {text}");
        assert_eq!(head.headers["cache-control"], "no-store", "{tags}");
        assert_eq!(head.headers["etag"], "\"1\"", "{tags}");
        assert!(text.contains("\"plan\":\"pro\""), "{text}");
    }
    running.stop().await;
}

const LISTED: &str = "tenants:
  - tenant: acme
    plan: enterprise
    overrides:
      - { descriptor: \"endpoint:POST /api/v1/orders\", unit: hour, requests_per_unit: 500 }
      - { descriptor: \"endpoint:GET /x\", unlimited: true }
  - { tenant: globex, plan: enterprise }
  - { tenant: hooli, plan: enterprise }
";

/// The limit of a customer as a whole.
async fn whole(running: &Running, customer: &str) -> u64 {
    let entries = json!([{ "key": "customer", "value": customer }]);
    let check = json!({ "domain": "api_platform", "descriptors": [{ "entries": entries }] });
    let (status, answer) = running.post("/v1/check", &check).await;
    assert_eq!(status, 200, "{answer}");
    answer["limit"].as_u64().unwrap()
}

#[tokio::test]
async fn a_change_begins_with_what_files_give_and_tells_what_it_takes_away() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_with_rules(&format!("{RULES}{LISTED}"), folder.path(), None).await;
    assert_eq!(whole(&running, "acme").await, 5_000);
    let (status, unknown) = admin(&running, "GET", ACME, "").await;
    assert_eq!((status, &unknown["code"]), (404, &json!("UNKNOWN_TENANT")));
    let orders = json!({
        "descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "hour",
    });
    let listed = json!({ "plan": "enterprise", "overrides": [orders] });
    assert_eq!(unknown["listed"], listed);

    // Until it begins, the tenant has what files give it.
    let path = "/admin/v1/quotas/globex";
    let later = json!({ "plan": "pro", "effective_at": "2099-01-01T00:00:00Z" });
    let (status, put) = admin(&running, "PUT", path, &later.to_string()).await;
    assert_eq!((status, &put["plan"]), (200, &json!("enterprise")), "{put}");
    assert!(put["warnings"].is_null(), "{put}");
    assert_eq!(whole(&running, "globex").await, 5_000);

    // A PUT replaces all of it, says so, and tells what is in force.
    let (status, put) = admin(&running, "PUT", ACME, "{}").await;
    assert_eq!((status, &put["plan"]), (200, &json!("free")), "{put}");
    assert_eq!(put["quotas"]["default"]["requests_per_unit"], 100);
    let warned = "files give acme plan enterprise, an override of endpoint:POST /api/v1/orders, \
                  an override of endpoint:GET /x:";
    let said = put["warnings"][0].as_str().unwrap();
    assert!(said.starts_with(warned), "{put}");
    assert_eq!(whole(&running, "acme").await, 100);
    assert_eq!(limit(&running, "acme").await, 20);
    let (_, got) = admin(&running, "GET", ACME, "").await;
    assert_eq!((&got["plan"], &got["own"]), (&json!("free"), &json!({})));
    let lines = [("content-type", "application/x-ndjson")];
    let (to, import) = (running.addresses.admin, "/admin/v1/import/quotas");
    let body = "{\"tenant\":\"hooli\"}\n";
    let (head, text) = running.send_whole(to, "POST", import, &lines, body).await;
    assert_eq!(head.status, 200, "{text}");
    let warning = head.headers["warning"].to_str().unwrap();
    assert!(
        warning.contains("files give some of these tenants"),
        "{warning}"
    );

    // The usage starts over, and nothing else.
    let (status, _) = admin(&running, "POST", &format!("{ACME}/reset"), "").await;
    assert_eq!((status, whole(&running, "acme").await), (200, 100));
    assert_eq!(admin(&running, "DELETE", ACME, "").await.0, 204);
    assert_eq!(whole(&running, "acme").await, 5_000);
    let (status, _) = admin(&running, "POST", &format!("{ACME}/reset"), "").await;
    assert_eq!((status, whole(&running, "acme").await), (200, 5_000));
    running.stop().await;
}

#[tokio::test]
async fn a_domain_without_a_tenant_is_refused_where_it_would_mean_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    for path in [
        "/admin/v1/export/usage?by=month&",
        "/admin/v1/export/usage?",
        "/admin/v1/audit?",
    ] {
        let alone = format!("{path}domain=api_platform");
        let (status, problem) = admin(&running, "GET", &alone, "").await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!("?domain")),
            "{path}: {problem}"
        );
        let of_tenant = format!("{alone}&tenant=acme");
        assert_eq!(
            admin(&running, "GET", &of_tenant, "").await.0,
            200,
            "{path}"
        );
    }
    running.stop().await;
}

/// Other filters may leave nothing of a domain that only the database has.
#[tokio::test]
async fn an_empty_page_of_a_known_domain_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let before = RULES.replace("domain: api_platform", "domain: gone");
    let running = start_with_rules(&before, folder.path(), None).await;
    for path in [
        "/admin/v1/quotas?domain=",
        "/admin/v1/export/quotas?domain=",
    ] {
        let (status, answer) = text(&running, "GET", path, "text/plain", "").await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    let (status, done) = admin(&running, "PUT", ACME, r#"{"plan": "pro"}"#).await;
    assert_eq!(status, 200, "{done}");
    running.stop().await;
    let running = start_in(folder.path()).await;
    for (filter, tenants) in [("", 1), ("&plan=free", 0), ("&overrides=true", 0)] {
        let path = format!("/admin/v1/quotas?domain=gone{filter}");
        let (status, list) = admin(&running, "GET", &path, "").await;
        assert_eq!(status, 200, "{path}: {list}");
        assert_eq!(list["quotas"].as_array().unwrap().len(), tenants, "{path}");
    }
    for filter in ["", "&plan=free"] {
        let path = format!("/admin/v1/quotas?domain=typo{filter}");
        let (status, problem) = admin(&running, "GET", &path, "").await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!("?domain")),
            "{path}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn exports_go_on_where_a_page_ends() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let lines: String = (0..7)
        .map(|number| format!("{{\"tenant\":\"t{number}\",\"plan\":\"pro\"}}\n"))
        .collect();
    let kind = "application/x-ndjson";
    let (status, done) = text(&running, "POST", "/admin/v1/import/quotas", kind, &lines).await;
    assert_eq!(status, 200, "{done}");
    let (_, page) = text(&running, "GET", "/admin/v1/export/quotas?limit=3", kind, "").await;
    assert_eq!(page.lines().count(), 3);
    let (_, all) = text(&running, "GET", "/admin/v1/export/quotas", kind, "").await;
    assert_eq!(all.lines().count(), 7);
    assert!(all.starts_with(&page));
    let (_, csv) = text(
        &running,
        "GET",
        "/admin/v1/export/quotas?format=csv",
        kind,
        "",
    )
    .await;
    assert_eq!(csv.lines().count(), 8, "{csv}");
    running.stop().await;
}

#[tokio::test]
async fn a_switch_of_a_rule_is_in_the_trail() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let path = "/admin/v1/rules/api_platform.customer/disable";
    let (status, switched) = admin(&running, "POST", path, "").await;
    assert_eq!(
        (status, &switched["audited"]),
        (200, &json!(true)),
        "{switched}"
    );
    let (_, trail) = admin(&running, "GET", "/admin/v1/audit", "").await;
    let change = &trail["changes"][0];
    assert_eq!(
        (&change["action"], &change["subject"], &change["after"]),
        (
            &json!("rule.switch"),
            &json!("api_platform.customer"),
            &json!({ "switch": "disabled" })
        )
    );
    running.stop().await;
}

#[tokio::test]
async fn quotas_that_can_never_hold_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let levels = "
slas_base: /v1/{tenant}
slas:
  - { id: get, match: { pathPattern: /x }, tiers: [ { period: 10, threshold: 8 } ] }
";
    let rules = format!("{}{levels}", RULES.trim_end());
    let running = start_with_rules(&rules, folder.path(), None).await;
    let warned = async |tenant: &str, descriptor: &Value| {
        let own = json!({ "descriptor": descriptor, "requests_per_unit": 5, "unit": "hour" });
        let path = format!("/admin/v1/quotas/{tenant}");
        let put = json!({ "overrides": [own] });
        let (status, put) = admin(&running, "PUT", &path, &put.to_string()).await;
        assert_eq!(status, 200, "{put}");
        put["warnings"].to_string()
    };
    let orders = "endpoint:POST /api/v1/orders";
    let in_no_path = "no service level finds Acme by its path";
    assert!(warned("Acme", &json!(orders)).await.contains(in_no_path));
    assert!(
        !warned("acme", &json!(orders))
            .await
            .contains("no service level")
    );
    let itself = "customer is the tenant's own entry";
    for own in [
        json!("customer:acme"),
        json!("customer"),
        json!(["customer:acme", orders]),
    ] {
        let said = warned("acme", &own).await;
        assert!(
            said.contains(itself) && !said.contains("no rule has"),
            "{said}"
        );
    }
    let other = warned("acme", &json!("endpoint:GET /x")).await;
    assert!(
        other.contains("no rule has") && !other.contains(itself),
        "{other}"
    );
    running.stop().await;
}

#[tokio::test]
async fn names_of_earlier_versions_are_understood_and_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let old = json!({ "tiers": [{ "tier": "pro", "expires_at": "2199-01-01T00:00:00Z" }] });
    let (status, put) = admin(&running, "PUT", ACME, &old.to_string()).await;
    assert_eq!((status, &put["plan"]), (200, &json!("pro")), "{put}");
    let warnings = put["warnings"].to_string();
    for old in [
        "`tier` is now called `plan`",
        "`tiers` is now called `plans`",
    ] {
        assert!(warnings.contains(old), "{warnings}");
    }
    let (_, put) = admin(&running, "PUT", ACME, "{\"plan\": \"pro\"}").await;
    assert!(!put.to_string().contains("is now called"), "{put}");

    let to = running.addresses.admin;
    let import = "/admin/v1/import/quotas";
    for (method, path, kind, body, warned) in [
        (
            "GET",
            "/admin/v1/quotas?tier=pro",
            "text/csv",
            "",
            "`tier` is",
        ),
        ("GET", "/admin/v1/quotas?plan=pro", "text/csv", "", ""),
        (
            "GET",
            "/admin/v1/audit?api_key=acme",
            "text/csv",
            "",
            "`api_key` is",
        ),
        (
            "POST",
            import,
            "text/csv",
            "api_key,plan\nbob,pro\n",
            "`api_key` is",
        ),
        ("POST", import, "text/csv", "tenant,plan\nbob,pro\n", ""),
    ] {
        let kind = [("content-type", kind)];
        let (head, answer) = running.send_whole(to, method, path, &kind, body).await;
        assert_eq!(head.status, 200, "{path}: {answer}");
        let warning = head.headers.get("warning").map(|it| it.to_str().unwrap());
        assert_eq!(warning.is_some(), !warned.is_empty(), "{path}: {warning:?}");
        assert!(
            warning.unwrap_or_default().contains(warned),
            "{path}: {warning:?}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn tenants_with_overrides_alone_are_listed_as_custom() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_in(folder.path()).await;
    let own = json!([{ "requests_per_unit": 7, "unit": "minute" }]);
    for (name, body) in [
        ("a", json!({ "overrides": own })),
        ("b", json!({ "plan": "pro", "overrides": own })),
        ("c", json!({ "plan": "pro" })),
    ] {
        let path = format!("/admin/v1/quotas/{name}");
        assert_eq!(
            admin(&running, "PUT", &path, &body.to_string()).await.0,
            200
        );
    }
    let (_, list) = admin(&running, "GET", "/admin/v1/quotas?plan=custom", "").await;
    let listed = list["quotas"].as_array().unwrap().iter();
    let names: Vec<_> = listed.map(|it| &it["tenant"]).collect();
    assert_eq!(names, ["a"], "{list}");
    running.stop().await;
}

/// Panics when the node says for the second time that its copy of the tokens is not saved: the first time is at the start,
/// the second in the task that keeps it in step with the other nodes. Every test in which it says so has one of these, as
/// what no subscriber wants at first is kept from those that come later.
#[derive(Debug, Default)]
struct FleetWarnings {
    breaks_at: Option<u32>,
    before: AtomicU32,
}

impl Subscriber for FleetWarnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target() == "ratekeeper_server::fleet"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        let before = self.before.fetch_add(1, Ordering::Relaxed);
        assert_ne!(Some(before), self.breaks_at, "a mistake of ours");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Tokens, switches and the report of a node go on, and operators are told.
#[tokio::test]
async fn a_fleet_task_that_panics_is_begun_again_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // No file can be written where a folder is.
    std::fs::create_dir_all(data.join("fleet.saved.json")).unwrap();
    let _guard = set_default(FleetWarnings {
        breaks_at: Some(1),
        before: AtomicU32::new(0),
    });
    let running = start_with_data(folder.path(), Some(&data)).await;
    let told = json!("fleet ended early (1 so far) and was restarted: see the log");
    let told_of = async {
        loop {
            let (_, body) = running.admin("/readyz").await;
            let body: Value = serde_json::from_str(&body).unwrap();
            if body["faults"].as_array().unwrap().contains(&told) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told_of)
        .await
        .expect("the fault is told");
    let failures = "ratelimit_task_failures_total{task=\"fleet\"}";
    assert_eq!(running.metric(failures).await, 1.0);
    running.stop().await;
}

/// The copy would otherwise say for as long as nothing else changes what was true before, such as that a revoked token counts.
#[tokio::test]
async fn a_copy_of_tokens_that_could_not_be_saved_is_saved_once_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // No file can be written where a folder is.
    let in_the_way = data.join("fleet.saved.json.new");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let _guard = set_default(FleetWarnings::default());
    let running = start_with_data(folder.path(), Some(&data)).await;
    let key = TenantKey::from_bytes([7; 16]);
    let address = DatabaseAddress::sqlite(&folder.path().join("quotas.db"));
    let store = QuotaStore::new(address, key).unwrap();
    let token = FleetToken {
        name: "ops".into(),
        role: "admin".into(),
        sha256: "0".repeat(64).into(),
        created_at: 1_800_000_000,
    };
    let version = store
        .create_token(&token, &Editor::default())
        .await
        .unwrap();
    // A node tells of a change once it has tried to save it.
    eventually("the node tells of it", async || {
        let nodes = store.nodes().await.unwrap();
        nodes
            .iter()
            .any(|node| node.report.tokens_version == version)
    })
    .await;
    std::fs::remove_dir(&in_the_way).unwrap();
    eventually("the copy has the token", async || {
        let copy = std::fs::read_to_string(data.join("fleet.saved.json"));
        copy.is_ok_and(|copy| copy.contains("\"ops\""))
    })
    .await;
    running.stop().await;
}

async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}

/// An import may take 30 s in the database, and whatever checks may take does not cut it off.
#[tokio::test]
async fn changes_have_the_time_that_the_database_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_by(RULES, folder.path(), |config| {
        config.bounds.request_timeout = Duration::ZERO;
    })
    .await;
    let (status, put) = admin(&running, "PUT", ACME, &enterprise().to_string()).await;
    assert_eq!(status, 200, "{put}");
    let line = json!({ "tenant": "globex", "plan": "pro" }).to_string();
    let import = "/admin/v1/import/quotas";
    let (status, imported) = admin(&running, "POST", import, &line).await;
    assert_eq!(
        (status, &imported["created"]),
        (200, &json!(1)),
        "{imported}"
    );
    running.stop().await;
}
