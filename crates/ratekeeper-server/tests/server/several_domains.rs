//! Several domains have tenants: each is told of its own, and commands name it.

use serde_json::{Value, json};

use crate::quotas::start_with_rules;
use crate::support::{Running, request};
use crate::switches::admin;
use crate::tenants::post;

const RULES: &str = "
domain: api
tenant: customer
plans: [free, pro]
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window, name: own }
---
domain: mail
tenant: customer
plans: [free, pro]
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window, name: own }
";

async fn calls(running: &Running, domain: &str, times: usize) {
    let mut client = running.grpc().await;
    for _ in 0..times {
        let asked = client
            .should_rate_limit(request(domain, &[("customer", "acme")]))
            .await;
        asked.expect("an answer");
    }
}

async fn asked(running: &Running, question: Value) -> (u16, Value) {
    post(running, "/admin/v1/tenants", &question).await
}

#[tokio::test]
async fn a_tenant_of_one_domain_is_told_no_denials_of_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(RULES, folder.path(), None).await;
    calls(&running, "mail", 5).await;
    calls(&running, "api", 2).await;
    let path = "/admin/v1/quotas/acme?domain=api";
    let (status, put) = admin(
        &running,
        "PUT",
        path,
        &json!({ "plan": "free" }).to_string(),
    )
    .await;
    assert_eq!(status, 200, "{put}");
    let question = json!({ "tenant": "acme", "domain": "api" });
    let (_, told) = asked(&running, question).await;
    let summary = told["summary"].as_str().expect("a text");
    assert!(
        summary.starts_with("denied once in the last hour by api."),
        "{summary}"
    );
    assert_eq!(told["denials"].as_array().map(Vec::len), Some(1), "{told}");
    let domains = told["requests"].as_array().expect("a list").iter();
    assert!(
        domains.clone().all(|request| request["domain"] == "api"),
        "{told}"
    );
    let steps = told["next_steps"].as_array().expect("a list");
    let commands: Vec<_> = steps
        .iter()
        .filter_map(|step| step["command"].as_str())
        .collect();
    for verb in ["quota set", "reset", "quota revert"] {
        let of_verb = commands
            .iter()
            .find(|command| command.contains(&format!("ratekeeper {verb} acme")));
        let command = of_verb.unwrap_or_else(|| panic!("{verb} in {told}"));
        assert!(command.contains(" --domain api"), "{command}");
    }
    running.stop().await;
}

#[tokio::test]
async fn whoever_names_no_domain_is_told_which_have_tenants() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start_with_rules(RULES, folder.path(), None).await;
    calls(&running, "mail", 5).await;
    let (status, told) = asked(&running, json!({ "tenant": "acme" })).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told["domains"], json!(["api", "mail"]), "{told}");
    // The database was not asked, so it cannot be said that it does not have the tenant.
    let hash = "hash:5f0c6a8e1b2d3c4f5a69788796a5b4c3";
    let (status, told) = asked(&running, json!({ "tenant": hash })).await;
    assert_eq!((status, &told["field"]), (400, &json!("?domain")), "{told}");
    assert_eq!(told["domains"], json!(["api", "mail"]), "{told}");
    running.stop().await;
}
