//! The admin API tells why a tenant is denied, from all that a node knows.

use serde_json::{Value, json};

use crate::quotas::start_with_rules;
use crate::support::{Running, request, start, start_with};
use crate::switches::admin;

const RULES: &str = "
domain: d
tenant: customer
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 2, algorithm: fixed_window, name: all }
  - key: customer
    value: loud
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

const SECRETS: &str = "
domain: d
tenant: api_key
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

const SHADOWS: &str = "
domain: d
tenant: api_key
descriptors:
  - key: api_key
    enforce: 0%
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
  - key: path
    shadow_mode: true
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

const SECRET: &str = "sk_live_geheim_geheim_x4f2";

pub(crate) async fn calls(running: &Running, entries: &[(&str, &str)], times: usize) {
    let mut client = running.grpc().await;
    for _ in 0..times {
        let asked = client.should_rate_limit(request("d", entries)).await;
        asked.expect("an answer");
    }
}

pub(crate) async fn get(running: &Running, path: &str) -> (u16, Value) {
    let (status, body) = running.admin(path).await;
    (status, serde_json::from_str(&body).expect("it is JSON"))
}

pub(crate) async fn post(running: &Running, path: &str, body: &Value) -> (u16, Value) {
    let to = running.addresses.admin;
    let headers = [("content-type", "application/json")];
    let (status, body) = running
        .send(to, "POST", path, &headers, &body.to_string())
        .await;
    (status, serde_json::from_str(&body).expect("it is JSON"))
}

#[tokio::test]
async fn a_quiet_tenant_is_found_in_the_flood_of_a_noisy_one() {
    let running = start(RULES).await;
    calls(&running, &[("customer", "loud")], 200).await;
    calls(&running, &[("customer", "quiet")], 3).await;
    calls(&running, &[("customer", "loud")], 400).await;
    let (status, told) = get(&running, "/admin/v1/tenants/quiet").await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["denials"][0]["count"], 1, "{told}");
    assert_eq!(told["denials"][0]["limit"], "2 per 10000d", "{told}");
    assert_eq!(told["requests"][0]["scope"], "customer:quiet", "{told}");
    assert_eq!(told["key"], "customer:quiet");
    assert_eq!(told["usage"]["usage"]["default"]["used"], 2, "{told}");
    let summary = told["summary"].as_str().expect("a text");
    assert!(
        summary.starts_with("denied once in the last hour by d.customer"),
        "{summary}"
    );
    // Alone, since nothing is shared; and without a database.
    assert!(told["told_by"]["only_this_node"].is_string(), "{told}");
    assert_eq!(told["quotas"], Value::Null);
    let (_, of_tenant) = get(&running, "/admin/v1/denials?tenant=quiet").await;
    assert_eq!(of_tenant["denials"].as_array().map(Vec::len), Some(1));
    assert_eq!(of_tenant["groups"].as_array().map(Vec::len), Some(1));
    let (_, never) = get(&running, "/admin/v1/tenants/other").await;
    assert_eq!(never["summary"], "not denied in the last hour", "{never}");
    running.stop().await;
}

#[tokio::test]
async fn denials_of_a_place_that_there_is_not_are_no_answer() {
    let running = start(&RULES.replace("domain: d\n", "domain: shop\n")).await;
    for (query, field) in [("domain=shpo", "?domain"), ("rule=shop.typo", "?rule")] {
        let path = format!("/admin/v1/denials?{query}");
        let (status, told) = get(&running, &path).await;
        assert_eq!(status, 400, "{told}");
        assert_eq!(told["field"], field, "{told}");
    }
    let path = "/admin/v1/denials?domain=shop&rule=shop.customer";
    let (status, told) = get(&running, path).await;
    assert_eq!((status, &told["groups"]), (200, &json!([])));
    assert_eq!(told.get("note"), None, "{told}");
    running.stop().await;
}

/// Limits that come with the request count in domains that no rule has. Whoever polls their denials gets a list, before the
/// first of them as well as after it.
#[tokio::test]
async fn denials_of_limits_that_come_with_requests_are_none_before_the_first() {
    let running = start(RULES).await;
    for domain in ["default", "trials"] {
        let path = format!("/admin/v1/denials?domain={domain}");
        let (status, told) = get(&running, &path).await;
        assert_eq!((status, &told["groups"]), (200, &json!([])), "{told}");
        assert!(told["note"].is_string(), "{told}");
        let body = json!({ "identifier": "ada", "limit": 1, "duration": "1h", "domain": domain });
        for _ in 0..2 {
            let (status, answer) = running.post("/v1/limit", &body).await;
            assert_eq!(status, 200, "{answer}");
        }
        let (status, told) = get(&running, &path).await;
        assert_eq!(status, 200, "{told}");
        assert_eq!(told["denials"][0]["domain"], domain, "{told}");
        assert_eq!(told.get("note"), None, "{told}");
    }
    running.stop().await;
}

#[tokio::test]
async fn denials_of_a_key_are_not_those_of_one_that_it_begins_with() {
    let running = start(RULES).await;
    calls(&running, &[("customer", "acme")], 4).await;
    let groups = async |key: &str| {
        let path = format!("/admin/v1/denials?key={key}");
        let (_, list) = get(&running, &path).await;
        list["groups"].as_array().map(Vec::len)
    };
    assert_eq!(groups("customer:acme2").await, Some(0));
    for key in [
        "customer",
        "customer:ac",
        "customer:acme",
        "customer:acme:endpoint:/",
    ] {
        assert_eq!(groups(key).await, Some(1), "{key}");
    }
    running.stop().await;
}

const OTHERS: &str = "
domain: d
tenant: customer
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 2, algorithm: fixed_window }
  - key: path
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

#[tokio::test]
async fn a_denied_key_that_is_no_tenant_is_not_told_the_limits_of_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(OTHERS, folder.path(), None).await;
    let commands = |told: &Value| {
        let steps = told["next_steps"].as_array().expect("a list");
        let steps = steps.iter().map(|step| step["command"].to_string());
        steps.collect::<String>()
    };
    calls(&running, &[("path", "demo")], 3).await;
    let (_, no_tenant) = get(&running, "/admin/v1/tenants/demo").await;
    assert_eq!(no_tenant["denials"][0]["count"], 2, "{no_tenant}");
    for absent in ["usage", "plan", "domain", "hash"] {
        assert_eq!(no_tenant[absent], Value::Null, "{absent}: {no_tenant}");
    }
    assert_eq!(
        no_tenant["missing"],
        json!([
            "no plan and no usage: what was denied is path:demo, and tenants are named by customer"
        ])
    );
    assert_eq!(commands(&no_tenant), "", "{no_tenant}");
    // A tenant of the same name has its own use, which is not why the path is denied.
    calls(&running, &[("customer", "demo")], 1).await;
    let (_, both) = get(&running, "/admin/v1/tenants/demo").await;
    assert_eq!(both["usage"]["usage"]["default"]["used"], 1, "{both}");
    assert_eq!(commands(&both), "", "{both}");
    calls(&running, &[("customer", "demo")], 5).await;
    let (_, both) = get(&running, "/admin/v1/tenants/demo").await;
    assert!(commands(&both).contains("ratekeeper reset demo"), "{both}");
    running.stop().await;
}

/// Overrides of one descriptor are limits of one id, and a denial is told by the id.
#[tokio::test]
async fn the_limit_of_another_override_is_not_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(OTHERS, folder.path(), None).await;
    for (tenant, limit, told) in [("small", 1, "1 per 10000d"), ("large", 3, "")] {
        let own =
            json!({ "descriptor": "default", "requests_per_unit": limit, "window": "10000d" });
        let body = json!({ "overrides": [own] }).to_string();
        let path = format!("/admin/v1/quotas/{tenant}");
        let (status, put) = admin(&running, "PUT", &path, &body).await;
        assert_eq!(status, 200, "{put}");
        calls(&running, &[("customer", tenant)], limit + 1).await;
        let (_, answer) = get(&running, &format!("/admin/v1/tenants/{tenant}")).await;
        let denied = &answer["denials"][0];
        assert_eq!(denied["count"], 1, "{answer}");
        assert_eq!(denied["limit"], told, "{answer}");
    }
    running.stop().await;
}

const RAISED: &str = "
domain: d
tenant: customer
plans: [free, pro]
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 600, burst: 2, algorithm: token_bucket }
    concurrency: { limit: 9 }
    descriptors:
      - key: list
        rate_limit: [ { window: 10000d, limit: 1 }, { window: 1000d, limit: 1 } ]
      - key: month
        rate_limit: { unit: month, calendar: Europe/Vienna, limit: 1 }
      - key: path
        value: /a#b
        rate_limit: { window: 10000d, limit: 1 }
        descriptors:
          - key: method
            value: GET
            rate_limit: { window: 10000d, limit: 1 }
      - key: tokens
        rate_limit: { window: 10000d, limit: 9, burst: 1, algorithm: token_bucket, post_paid: true, max_debt: 3 }
      - key: bytes
        rate_limit: { window: 10000d, limit: 9, burst: 1, algorithm: token_bucket, post_paid: true }
      - key: spent
        rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window, post_paid: true }
        plans:
          pro: { window: 10000d, limit: 1, algorithm: fixed_window }
";

#[tokio::test]
async fn the_offered_raise_is_twice_the_limit_and_takes_no_other_one_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(RAISED, folder.path(), None).await;
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<&'a str>);
    let to = running.addresses.admin;
    let pro = json!({ "plan": "pro" }).to_string();
    let headers = [("content-type", "application/json")];
    let put = running.send(to, "PUT", "/admin/v1/quotas/prepaid", &headers, &pro);
    assert_eq!(put.await.0, 200);
    let cases: [Case<'_>; 8] = [
        (
            "bucket",
            &[],
            Some("default=1200/10000d,algorithm=token_bucket,burst=4@.."),
        ),
        // An override takes the place of all limits of a list, and knows no calendar.
        ("several", &[("list", "x")], None),
        ("monthly", &[("month", "x")], None),
        ("path", &[("path", "/a#b")], Some("'path:/a#b=2/10000d@..")),
        (
            "method",
            &[("path", "/a#b"), ("method", "GET")],
            Some(r#"'["path:/a#b","method:GET"]=2/10000d@.."#),
        ),
        (
            "debts",
            &[("tokens", "x")],
            Some("tokens:x=18/10000d,algorithm=token_bucket,burst=2,max_debt=3@.."),
        ),
        // Ten bursts are the default.
        (
            "usual",
            &[("bytes", "x")],
            Some("bytes:x=18/10000d,algorithm=token_bucket,burst=2@.."),
        ),
        // The default plan's is a budget, as an override in its place is unless it says otherwise.
        (
            "prepaid",
            &[("spent", "x")],
            Some("spent:x=2/10000d,algorithm=fixed_window,post_paid=false@.."),
        ),
    ];
    for (name, after, raise) in cases {
        let mut entries = vec![json!({ "key": "customer", "value": name })];
        entries.extend(
            after
                .iter()
                .map(|(key, value)| json!({ "key": key, "value": value })),
        );
        let check = json!({ "domain": "d", "descriptors": [{ "entries": entries }] });
        for _ in 0..4 {
            running.post("/v1/check", &check).await;
        }
        let further: Vec<_> = after
            .iter()
            .map(|(key, value)| format!("{key}:{value}"))
            .collect();
        let further: Vec<_> = (!further.is_empty())
            .then_some(further)
            .into_iter()
            .collect();
        let question = json!({ "tenant": name, "descriptors": further });
        let (_, told) = post(&running, "/admin/v1/tenants", &question).await;
        let steps = told["next_steps"].as_array().expect("a list");
        let commands = steps.iter().filter_map(|step| step["command"].as_str());
        let set = commands
            .clone()
            .find(|command| command.contains(" quota set "));
        let found = set
            .and_then(|set| set.split_once("--override "))
            .map(|(_, own)| own);
        match (found, raise) {
            (Some(found), Some(raise)) => assert!(found.starts_with(raise), "{found}"),
            (found, raise) => assert_eq!(found, raise, "{told}"),
        }
        let reset = format!("ratekeeper reset {name}");
        assert!(commands.clone().any(|command| command == reset), "{told}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_secret_is_found_by_value_fingerprint_and_last_characters() {
    let running = start(SECRETS).await;
    calls(&running, &[("api_key", SECRET)], 3).await;
    let (status, told) = post(&running, "/admin/v1/tenants", &json!({ "tenant": SECRET })).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["denials"][0]["count"], 2, "{told}");
    assert_eq!(told["tenant"], "…x4f2");
    assert_eq!(told["usage"]["usage"]["default"]["remaining"], 0, "{told}");
    // The usage repeats the name that it was asked for; nothing else has it.
    let mut without = told.clone();
    without["usage"] = Value::Null;
    assert!(!without.to_string().contains("geheim"), "{without}");
    let fingerprint = told["key"].as_str().and_then(|key| key.split(':').nth(1));
    let fingerprint = fingerprint.expect("an entry").to_owned();
    assert!(fingerprint.starts_with('~'), "{fingerprint}");
    for (named, form) in [
        (&*fingerprint, "fingerprint"),
        ("*x4f2", "last_characters"),
        ("…x4f2", "last_characters"),
        // Who types the end alone finds it too.
        ("x4f2", "last_characters"),
        ("geheim_x4f2", "last_characters"),
    ] {
        let (status, told) = post(&running, "/admin/v1/tenants", &json!({ "tenant": named })).await;
        assert_eq!(
            (status, &told["named_by"]),
            (200, &json!(form)),
            "{named}: {told}"
        );
        assert_eq!(told["denials"][0]["count"], 2, "{named}: {told}");
        // Its counters are found by the value, which the node has in memory and does not tell.
        let usage = &told["usage"];
        assert_eq!(usage["usage"]["default"]["remaining"], 0, "{named}: {told}");
        assert_eq!(usage["tenant"], "…x4f2");
        assert!(!told.to_string().contains("geheim"), "{named}: {told}");
        let (_, list) = post(&running, "/admin/v1/denials", &json!({ "tenant": named })).await;
        assert_eq!(list["groups"][0]["count"], 2, "{named}: {list}");
        assert_eq!(list["denials"][0]["tenant"], "…x4f2", "{named}: {list}");
    }
    let (_, list) = post(&running, "/admin/v1/denials", &json!({ "tenant": SECRET })).await;
    assert_eq!(
        list["groups"][0]["count"], 2,
        "a key denied just now: {list}"
    );
    for (named, status) in [
        ("~0000000000000000", 404),
        ("*zzzz", 404),
        ("*abc", 400),
        ("", 400),
    ] {
        let (found, told) = post(&running, "/admin/v1/tenants", &json!({ "tenant": named })).await;
        assert_eq!(found, status, "{named}: {told}");
    }
    calls(&running, &[("api_key", "sk_live_another_secret_x4f2")], 2).await;
    let (status, told) = post(&running, "/admin/v1/tenants", &json!({ "tenant": "*x4f2" })).await;
    assert_eq!(
        (status, &told["code"]),
        (409, &json!("AMBIGUOUS_TENANT")),
        "{told}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_question_about_a_tenant_has_the_bounds_of_one_about_usage() {
    let running = start(RULES).await;
    let entry = json!("endpoint:/");
    for (descriptors, field) in [
        (json!(vec![[&entry]; 201]), "descriptors"),
        (json!([[entry], vec![&entry; 32]]), "descriptors[1]"),
        (json!([[]]), "descriptors[0]"),
        (json!([["endpoint"]]), "descriptors[0]"),
    ] {
        let body = json!({ "tenant": "quiet", "descriptors": descriptors });
        let (status, problem) = post(&running, "/admin/v1/tenants", &body).await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{problem}"
        );
    }
    let most = json!({ "tenant": "quiet", "descriptors": vec![vec![&entry; 31]; 200] });
    let (status, told) = post(&running, "/admin/v1/tenants", &most).await;
    assert_eq!(status, 200, "{told}");
    running.stop().await;
}

#[tokio::test]
async fn shadow_and_enforce_name_those_whom_they_would_deny() {
    let running = start(SHADOWS).await;
    calls(&running, &[("path", "/a")], 3).await;
    calls(&running, &[("api_key", SECRET)], 5).await;
    let (_, list) = get(&running, "/admin/v1/denials?kind=would_be_denied").await;
    let groups = list["groups"].as_array().expect("a list");
    let found: Vec<_> = groups
        .iter()
        .map(|it| (&it["tenant"], &it["mode"], &it["count"]))
        .collect();
    assert!(
        found.contains(&(&json!("/a"), &json!("shadow"), &json!(2))),
        "{list}"
    );
    assert!(
        found.contains(&(&json!("…x4f2"), &json!("enforce: 0%"), &json!(4))),
        "{list}"
    );
    let since = |list: &Value| list["groups"][0]["mode_since"].as_str().map(str::to_owned);
    assert!(
        since(&list).is_some(),
        "since the start of the node: {list}"
    );
    assert_eq!(list["denials"], json!([]), "nothing was denied");
    let (_, real) = get(&running, "/admin/v1/denials?kind=denied").await;
    assert_eq!(real["groups"], json!([]));
    let (_, told) = post(&running, "/admin/v1/tenants", &json!({ "tenant": SECRET })).await;
    assert_eq!(told["denials"], json!([]), "{told}");
    assert_eq!(told["would_be_denied"][0]["count"], 4, "{told}");
    let summary = told["summary"].as_str().expect("a text");
    assert!(
        summary.contains("4 requests passed that d.api_key"),
        "{summary}"
    );
    let top = async {
        loop {
            let path = "/admin/v1/top?decision=would_be_denied&window=hour";
            let (_, top) = get(&running, path).await;
            // Both rules, with all requests of each.
            let counts = [&top["keys"][0]["count"], &top["keys"][1]["count"]];
            if counts == [&json!(4), &json!(2)] {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let top = tokio::time::timeout(crate::support::PATIENCE, top).await;
    top.expect("both rules and all requests are counted");
    let (_, denied) = get(&running, "/admin/v1/top").await;
    assert_eq!(denied["keys"], json!([]), "no tenant was denied");
    running.stop().await;
}

#[tokio::test]
async fn other_nodes_tell_whom_they_denied() {
    let place = std::sync::Arc::new(crate::support::Board::default());
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let board = place.node(name);
        nodes.push(
            start_with(RULES, |config| {
                config.top_peers = Some(board);
                config.denials = std::sync::Arc::new(ratekeeper_server::DenialLog::new(
                    ratekeeper_server::DenialLogConfig {
                        node: name.into(),
                        ..Default::default()
                    },
                ));
            })
            .await,
        );
    }
    calls(&nodes[0], &[("customer", "acme")], 3).await;
    calls(&nodes[1], &[("customer", "acme")], 4).await;
    let both = async {
        loop {
            let (_, told) = get(&nodes[0], "/admin/v1/tenants/acme").await;
            if told["denials"][0]["count"] == 3 {
                return told;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(crate::support::PATIENCE, both).await;
    let told = told.expect("the other node tells its denials");
    assert_eq!(told["denials"][0]["nodes"], json!(["a", "b"]), "{told}");
    assert_eq!(told["told_by"]["only_this_node"], Value::Null, "{told}");
    let (_, own) = get(&nodes[0], "/admin/v1/denials?tenant=acme&nodes=own").await;
    assert_eq!(own["groups"][0]["count"], 1, "{own}");
    for node in nodes {
        node.stop().await;
    }
}
