//! Two tenants whose names are alike are never told as one.

use serde_json::{Value, json};

use crate::quotas::start_with_rules;
use crate::support::Running;
use crate::switches::admin;
use crate::tenants::{calls, get, post};

const SECRETS: &str = "
domain: d
tenant: api_key
plans: [free, pro]
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    plans:
      pro: { window: 10000d, limit: 2, algorithm: fixed_window }
";

const CUSTOMERS: &str = "
domain: d
tenant: customer
plans: [free, pro]
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    plans:
      pro: { window: 10000d, limit: 100, algorithm: fixed_window }
  - key: country
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

/// In the database, and not denied.
const STORED: &str = "sk_live_aaaaaaaaaaaa_x4f2";

/// Denied, and not in the database.
const DENIED: &str = "sk_live_bbbbbbbbbbbb_x4f2";

async fn put(running: &Running, tenant: &str) -> Value {
    let path = format!("/admin/v1/quotas/{tenant}");
    let (status, answer) =
        admin(running, "PUT", &path, &json!({ "plan": "pro" }).to_string()).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn asked(running: &Running, tenant: &str) -> (u16, Value) {
    post(running, "/admin/v1/tenants", &json!({ "tenant": tenant })).await
}

fn commands(told: &Value) -> String {
    let steps = told["next_steps"].as_array().expect("a list");
    let steps = steps
        .iter()
        .map(|step| format!("{}: {}\n", step["title"], step["command"]));
    steps.collect()
}

fn missing(told: &Value) -> String {
    told["missing"].to_string()
}

#[tokio::test]
async fn two_secrets_with_one_ending_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(SECRETS, folder.path(), None).await;
    put(&running, STORED).await;
    calls(&running, &[("api_key", DENIED)], 3).await;
    let (_, by_value) = asked(&running, DENIED).await;
    let (_, stored) = asked(&running, STORED).await;
    assert_ne!(by_value["hash"], stored["hash"]);
    let entry = by_value["key"].as_str().expect("an entry").to_owned();
    let fingerprint = entry.strip_prefix("api_key:").expect("a key of the API");
    let hash = by_value["hash"].as_str().expect("a hash").to_owned();
    for name in [DENIED, fingerprint, &entry, &hash] {
        let (status, told) = asked(&running, name).await;
        assert_eq!(status, 200, "{name}: {told}");
        assert_eq!(told["denials"][0]["count"], 2, "{name}: {told}");
        assert_eq!(told["quotas"], Value::Null, "{name}: {told}");
        assert_eq!(told["changes"], json!([]), "{name}: {told}");
        assert_eq!(told["hash"], json!(hash), "{name}: {told}");
        assert_eq!(told["plan"], "free", "{name}: {told}");
        assert!(!commands(&told).contains("revert"), "{name}: {told}");
    }
    let of_stored = stored["hash"].as_str().expect("a hash");
    let (status, told) = asked(&running, of_stored).await;
    assert_eq!(
        (status, &told["quotas"]["plan"]),
        (200, &json!("pro")),
        "{told}"
    );
    assert_eq!(told["denials"], json!([]), "{told}");
    assert_eq!(told["requests"], json!([]), "{told}");
    assert_eq!(told["usage"], Value::Null, "its value is not known: {told}");
    for ending in ["*x4f2", "x4f2"] {
        let (status, told) = asked(&running, ending).await;
        assert_eq!(
            (status, &told["code"]),
            (409, &json!("AMBIGUOUS_TENANT")),
            "{told}"
        );
        let message = told["detail"].as_str().expect("a text");
        assert!(
            message.contains(&entry) && message.contains(of_stored),
            "{message}"
        );
    }
    // The database has no more of a secret than its last four characters.
    let (status, told) = asked(&running, "*bbb_x4f2").await;
    assert_eq!(
        (status, &told["code"]),
        (409, &json!("AMBIGUOUS_TENANT")),
        "{told}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_name_that_ends_like_another_one_is_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(CUSTOMERS, folder.path(), None).await;
    put(&running, "ycorp").await;
    calls(&running, &[("customer", "xcorp")], 3).await;
    let (status, told) = asked(&running, "*corp").await;
    assert_eq!(
        (status, &told["code"]),
        (409, &json!("AMBIGUOUS_TENANT")),
        "{told}"
    );
    let message = told["detail"].as_str().expect("a text");
    assert!(
        message.contains("customer:xcorp") && message.contains("customer:ycorp"),
        "{message}"
    );
    let (_, denied) = asked(&running, "*xcorp").await;
    assert_eq!(
        (&denied["tenant"], &denied["quotas"]),
        (&json!("xcorp"), &Value::Null),
        "{denied}"
    );
    // What is denied and what is stored are one here.
    calls(&running, &[("customer", "ycorp")], 102).await;
    let (_, both) = asked(&running, "*ycorp").await;
    assert_eq!(
        (&both["tenant"], &both["quotas"]["plan"]),
        (&json!("ycorp"), &json!("pro")),
        "{both}"
    );
    assert_eq!(both["denials"].as_array().map(Vec::len), Some(1), "{both}");
    running.stop().await;
}

#[tokio::test]
async fn a_whole_name_is_not_taken_for_the_end_of_another_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(CUSTOMERS, folder.path(), None).await;
    put(&running, "ycorp").await;
    let (status, told) = asked(&running, "corp").await;
    assert_eq!(
        (status, &told["tenant"], &told["quotas"], &told["plan"]),
        (200, &json!("corp"), &Value::Null, &json!("free")),
        "{told}"
    );
    assert!(!commands(&told).contains("ycorp"), "{told}");
    assert!(missing(&told).contains("ask for *corp"), "{told}");
    let (_, told) = asked(&running, "*corp").await;
    assert_eq!(told["tenant"], "ycorp", "{told}");
    running.stop().await;
}

#[tokio::test]
async fn a_whole_secret_is_not_taken_for_another_one_of_the_same_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(SECRETS, folder.path(), None).await;
    put(&running, STORED).await;
    let (status, told) = asked(&running, DENIED).await;
    assert_eq!(
        (status, &told["quotas"], &told["plan"]),
        (200, &Value::Null, &json!("free")),
        "{told}"
    );
    let (_, told) = asked(&running, "x4f2").await;
    assert_eq!(told["quotas"]["plan"], "pro", "{told}");
    running.stop().await;
}

#[tokio::test]
async fn tenants_of_the_database_that_end_alike_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(CUSTOMERS, folder.path(), None).await;
    put(&running, "first_zzz9").await;
    put(&running, "other_zzz9").await;
    let (status, told) = asked(&running, "*zzz9").await;
    assert_eq!(
        (status, &told["code"]),
        (409, &json!("AMBIGUOUS_TENANT")),
        "{told}"
    );
    let message = told["detail"].as_str().expect("a text");
    assert!(
        message.contains("first_zzz9") && message.contains("other_zzz9"),
        "{message}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_tenant_is_not_denied_when_something_else_of_its_name_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(CUSTOMERS, folder.path(), None).await;
    put(&running, "de").await;
    calls(&running, &[("customer", "de")], 1).await;
    calls(&running, &[("country", "de")], 5).await;
    let (_, told) = get(&running, "/admin/v1/tenants/de").await;
    assert_eq!(told["summary"], "not denied in the last hour", "{told}");
    assert_eq!(
        (&told["key"], &told["plan"]),
        (&json!("customer:de"), &json!("pro")),
        "{told}"
    );
    assert_eq!(
        (&told["denials"], &told["requests"]),
        (&json!([]), &json!([])),
        "{told}"
    );
    assert!(
        missing(&told).contains("also denied: country:de, which is no tenant"),
        "{told}"
    );
    // If both are denied, the tenant's denials alone are told.
    calls(&running, &[("customer", "at")], 2).await;
    calls(&running, &[("country", "at")], 5).await;
    let (_, told) = get(&running, "/admin/v1/tenants/at").await;
    assert_eq!(
        (&told["key"], &told["denials"][0]["count"]),
        (&json!("customer:at"), &json!(1)),
        "{told}"
    );
    assert_eq!(told["denials"].as_array().map(Vec::len), Some(1), "{told}");
    let keys = told["requests"].as_array().expect("a list").iter();
    assert!(
        keys.clone().all(|request| request["key"] == "customer:at"),
        "{told}"
    );
    assert!(missing(&told).contains("also denied: country:at"), "{told}");
    running.stop().await;
}

#[tokio::test]
async fn the_last_change_is_undone_only_where_it_can_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(CUSTOMERS, folder.path(), None).await;
    put(&running, "acme").await;
    let (_, told) = asked(&running, "acme").await;
    assert!(
        commands(&told).contains("ratekeeper quota revert acme"),
        "{told}"
    );
    let (status, reset) = admin(&running, "POST", "/admin/v1/quotas/acme/reset", "").await;
    assert_eq!(status, 200, "{reset}");
    let (_, told) = asked(&running, "acme").await;
    assert_eq!(told["changes"][0]["action"], "reset", "{told}");
    // The command would undo the plan, and not the reset.
    assert!(!commands(&told).contains("revert"), "{told}");
    running.stop().await;
}
