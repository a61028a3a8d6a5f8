//! Rules that are switched while the service runs.

use std::path::Path;

use ratekeeper_rules::{Options, Source, load};
use serde_json::{Value, json};

use crate::quotas::start_with_rules;
use crate::support::{RULES, Running, start, start_with};

const PLAIN: &str = "d.plain";

/// Sends a request to the admin listener and answers its status and JSON.
pub(crate) async fn admin(running: &Running, method: &str, path: &str, body: &str) -> (u16, Value) {
    let json = [("content-type", "application/json")];
    let (status, text) = running
        .send(running.addresses.admin, method, path, &json, body)
        .await;
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

async fn switch(running: &Running, to: &str) -> Value {
    let path = format!("/admin/v1/rules/{PLAIN}/{to}");
    let (status, switched) = admin(running, "POST", &path, "").await;
    assert_eq!(status, 200, "{switched}");
    switched
}

/// One check of the limit, which has one hit; true if it was allowed.
async fn passes(running: &Running) -> bool {
    let check = json!({ "domain": "d", "descriptors": [{ "entries": [{ "key": "plain", "value": "a" }] }] });
    let (status, answer) = running.post("/v1/check", &check).await;
    assert_eq!(status, 200, "{answer}");
    answer["decision"] == "allow"
}

async fn listed(running: &Running, query: &str) -> Value {
    let (status, list) = admin(running, "GET", &format!("/admin/v1/rules{query}"), "").await;
    assert_eq!(status, 200, "{list}");
    list
}

#[tokio::test]
async fn a_rule_is_switched_off_and_on_without_stopping_checks() {
    let running = start(RULES).await;
    assert!(passes(&running).await);
    assert!(!passes(&running).await);
    let switched = switch(&running, "disable").await;
    assert_eq!(
        (&switched["mode"], &switched["switch"]),
        (&json!("disabled"), &json!("disabled"))
    );
    assert_eq!(
        switched["survives_restart"], false,
        "there is no data folder"
    );
    assert!(passes(&running).await);
    assert!(passes(&running).await);

    // It is told wherever somebody may look for the reason.
    let ready: Value = serde_json::from_str(&running.admin("/readyz").await.1).unwrap();
    assert_eq!(ready["rules"]["switched"], json!({ PLAIN: "disabled" }));
    assert_eq!(
        running
            .metric("ratelimit_rules_switched{switch=\"disabled\"}")
            .await,
        1.0
    );
    let series = "ratelimit_rule_switched{domain=\"d\",rule=\"d.plain\",switch=\"disabled\"}";
    assert_eq!(running.metric(series).await, 1.0);
    let (_, explained) = admin(
        &running,
        "GET",
        "/admin/v1/explain?domain=d&entry=plain:a",
        "",
    )
    .await;
    let limit = &explained["descriptors"][0]["nodes"][0]["limits"][0];
    assert_eq!(
        (&limit["switch"], &limit["counts"]),
        (&json!("disabled"), &json!(false))
    );
    assert_eq!(limit["note"], "does not count: its switch is off");

    switch(&running, "shadow").await;
    assert!(passes(&running).await);
    switch(&running, "enable").await;
    assert!(!passes(&running).await, "the hit from before still counts");
    let path = format!("/admin/v1/rules/{PLAIN}/switch");
    let (status, restored) = admin(&running, "DELETE", &path, "").await;
    assert_eq!((status, &restored["switch"]), (200, &Value::Null));
    assert_eq!(listed(&running, "?switched=true").await["rules"], json!([]));
    running.stop().await;
}

#[tokio::test]
async fn rules_are_listed_in_pages_with_their_places_and_counts() {
    let running = start(RULES).await;
    passes(&running).await;
    passes(&running).await;
    let all = listed(&running, "").await;
    let all = all["rules"].as_array().unwrap();
    assert_eq!(all.len(), 6);
    let plain = all.iter().find(|rule| rule["id"] == PLAIN).unwrap();
    assert_eq!(plain["mode"], "enforced");
    assert_eq!(plain["counts"]["allowed"], 1);
    assert_eq!(plain["counts"]["denied"], 1);
    let source = plain["source"].as_str().unwrap();
    assert!(source.contains("rules.yaml:9:"), "{source}");
    let (mut found, mut query) = (Vec::new(), "?limit=4".to_owned());
    loop {
        let page = listed(&running, &query).await;
        found.extend(page["rules"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => query = format!("?limit=4&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(&found, all);
    assert_eq!(listed(&running, "?domain=other").await["rules"], json!([]));
    for (query, field) in [
        ("?limit=0", "?limit"),
        ("?limit=1001", "?limit"),
        ("?cursor=x", "?cursor"),
        ("?what=x", "?what"),
    ] {
        let (status, problem) =
            admin(&running, "GET", &format!("/admin/v1/rules{query}"), "").await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{problem}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn a_list_of_rules_goes_on_where_it_was_though_the_rules_have_changed() {
    let rules = |keys: &[&str]| {
        let limit = "rate_limit: { limit: 9, window: 1m }";
        let rules = keys
            .iter()
            .map(|key| format!("- {{ key: {key}, {limit} }}\n"));
        format!("domain: d\ndescriptors:\n{}", rules.collect::<String>())
    };
    let ids = |page: &Value| -> Vec<String> {
        let rules = page["rules"].as_array().unwrap().iter();
        rules
            .map(|rule| rule["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let running = start(&rules(&["a", "b", "c"])).await;
    let page = listed(&running, "?limit=2").await;
    assert_eq!(ids(&page), ["d.a", "d.b"]);
    let put = |keys: &[&str]| {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: rules(keys),
        };
        let loaded = load(&[source], &Options::default()).unwrap();
        running.limiter.replace_rules(loaded.rules);
    };
    put(&["new", "a", "b", "c"]);
    let next = format!("?limit=2&cursor={}", page["next_cursor"].as_str().unwrap());
    let rest = listed(&running, &next).await;
    assert_eq!(ids(&rest), ["d.c"]);
    assert!(rest["next_cursor"].is_null());
    put(&["a", "c"]);
    let (status, problem) = admin(&running, "GET", &format!("/admin/v1/rules{next}"), "").await;
    assert_eq!(
        (status, &problem["field"]),
        (400, &json!("?cursor")),
        "{problem}"
    );
    running.stop().await;
}

#[tokio::test]
async fn an_unknown_rule_is_a_problem() {
    let running = start(RULES).await;
    let json = [("content-type", "application/json")];
    let to = running.addresses.admin;
    let path = "/admin/v1/rules/d.plain%2F%20x%3F/disable";
    let (status, text) = running.send(to, "POST", path, &json, "").await;
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 404);
    assert_eq!(problem["title"], "Not Found");
    assert_eq!(problem["status"], 404);
    assert_eq!(problem["code"], "UNKNOWN_RULE");
    assert_eq!(problem["detail"], "no rule has the id \"d.plain/ x?\"");
    running.stop().await;
}

async fn start_in(folder: &Path) -> Running {
    let folder = folder.to_path_buf();
    start_with(RULES, |config| config.data_dir = Some(folder)).await
}

#[tokio::test]
async fn switches_outlive_a_restart_and_a_damaged_file_is_set_aside() {
    let data = tempfile::tempdir().unwrap();
    let running = start_in(data.path()).await;
    assert_eq!(switch(&running, "disable").await["survives_restart"], true);
    running.stop().await;

    let running = start_in(data.path()).await;
    assert!(passes(&running).await);
    assert!(passes(&running).await);
    running.stop().await;

    let file = data.path().join("switches.json");
    for damage in [
        "{\"version\": 1, \"switches\": {\"d.plain\": \"off\"}}",
        "{",
    ] {
        std::fs::write(&file, damage).unwrap();
        let running = start_in(data.path()).await;
        assert!(passes(&running).await);
        assert!(!passes(&running).await, "the rule does what its file says");
        let ready = running.admin("/readyz").await.1;
        assert!(ready.contains("switches.json was damaged"), "{ready}");
        running.stop().await;
        let aside = std::fs::read_to_string(data.path().join("switches.json.damaged")).unwrap();
        assert_eq!(aside, damage);
        assert!(!file.exists());
    }
}

/// They would be lost to the version that wrote them.
#[tokio::test]
async fn switches_of_a_later_version_stay_as_they_are() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("switches.json");
    let later = "{\"version\": 2, \"turned\": {\"d.plain\": \"off\"}}";
    std::fs::write(&file, later).unwrap();
    let running = start_in(data.path()).await;
    let ready = running.admin("/readyz").await.1;
    let knows =
        "the file of switches is of format 2, and this version of Ratekeeper knows format 1";
    assert!(ready.contains(knows), "{ready}");
    assert_eq!(switch(&running, "disable").await["survives_restart"], false);
    assert!(passes(&running).await);
    assert!(passes(&running).await, "it is in force all the same");
    running.stop().await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), later);
}

#[tokio::test]
async fn a_switch_that_cannot_be_kept_is_in_force_and_says_so() {
    let data = tempfile::tempdir().unwrap();
    let taken = data.path().join("file");
    std::fs::write(&taken, "").unwrap();
    let running = start_in(&taken).await;
    let switched = switch(&running, "disable").await;
    assert_eq!(switched["survives_restart"], false);
    let warning = switched["warning"].as_str().unwrap();
    assert!(warning.contains("cannot be written"), "{warning}");
    assert!(passes(&running).await);
    assert!(passes(&running).await);
    let ready = running.admin("/readyz").await.1;
    assert!(ready.contains("switches.json cannot be written"), "{ready}");
    running.stop().await;
}

/// An earlier switch that waited for the quota database must not come back with a restart.
#[tokio::test]
async fn a_switch_that_waited_is_forgotten_once_a_later_one_is_on_all_nodes() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = start_with_rules(RULES, folder.path(), Some(data.path())).await;
    let database = folder.path().join("quotas.db");
    let away = folder.path().join("quotas.away");
    std::fs::rename(&database, &away).unwrap();
    std::fs::create_dir(&database).unwrap();
    assert_eq!(switch(&running, "disable").await["scope"], "node");
    let waiting = data.path().join("switches.waiting.json");
    assert!(waiting.exists());
    std::fs::remove_dir(&database).unwrap();
    std::fs::rename(&away, &database).unwrap();
    let path = format!("/admin/v1/rules/{PLAIN}/switch");
    let (status, restored) = admin(&running, "DELETE", &path, "").await;
    assert_eq!((status, &restored["scope"]), (200, &json!("fleet")));
    assert!(!waiting.exists());
    running.stop().await;

    let running = start_with_rules(RULES, folder.path(), Some(data.path())).await;
    assert_eq!(listed(&running, "?switched=true").await["rules"], json!([]));
    running.stop().await;
}
