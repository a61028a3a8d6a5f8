//! The OpenAPI document, held to what the server does.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::{RULES, Running, start};

/// The sources with the routes.
const ROUTES: [&str; 2] = [
    include_str!("../../src/admin.rs"),
    include_str!("../../src/http.rs"),
];

/// A route whose answer does not end.
const ENDLESS: &str = "/admin/v1/live";

async fn document(running: &Running) -> Value {
    let (status, text) = running.admin("/admin/v1/openapi.json").await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The paths of our own formats that the routers have.
fn routed() -> BTreeSet<&'static str> {
    let paths = ROUTES.iter().flat_map(|text| text.split(".route(").skip(1));
    let paths = paths.map(|rest| rest.split('"').nth(1).unwrap());
    let ours = |path: &&str| path.starts_with("/v1/") || path.starts_with("/admin/v1/");
    paths.filter(ours).collect()
}

/// Clients are generated from the documents: one that is not told of tokens never sends any.
#[tokio::test]
async fn every_operation_names_how_to_authenticate() {
    let running = start(RULES).await;
    let (status, text) = running.http("GET", "/openapi.json", "").await;
    assert_eq!(status, 200, "{text}");
    let of_checks: Value = serde_json::from_str(&text).unwrap();
    for document in [document(&running).await, of_checks] {
        let schemes = &document["components"]["securitySchemes"];
        let paths = document["paths"].as_object().unwrap().iter();
        for (path, method, operation) in paths.flat_map(|(path, item)| {
            let item = item.as_object().unwrap().iter();
            item.filter(|(_, operation)| operation.get("responses").is_some())
                .map(move |(method, operation)| (path, method, operation))
        }) {
            let ways = operation["security"].as_array().expect("a list");
            let names = ways.iter().flat_map(|way| way.as_object().unwrap().keys());
            let names: Vec<_> = names.collect();
            assert_eq!(names, ["token"], "{method} {path}");
            assert_eq!(schemes["token"]["scheme"], "bearer");
            // Whoever is on this host may need none.
            assert!(ways.contains(&json!({})), "{method} {path}");
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn every_route_is_described_and_every_description_has_a_route() {
    let running = start(RULES).await;
    let document = document(&running).await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let described = document["paths"].as_object().unwrap();
    let names: BTreeSet<_> = described.keys().map(String::as_str).collect();
    assert_eq!(names, routed());
    for (path, item) in described {
        let to = listener(&running, path);
        let filled = path.replace("{api_key}", "a").replace("{id}", "a");
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH"] {
            if path == ENDLESS && method == "GET" {
                continue;
            }
            let (status, text) = running
                .send(
                    to,
                    method,
                    &filled,
                    &[("content-type", "application/json")],
                    "",
                )
                .await;
            let is_described = item.get(method.to_lowercase()).is_some();
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            // A rule that is not there is a 404 of the handler, not of the router.
            let is_unrouted = status == 404 && code(&answer) == "NOT_FOUND";
            assert!(!is_unrouted, "{method} {path}: {text}");
            assert_eq!(
                is_described,
                status != 405,
                "{method} {path}: {status} {text}"
            );
        }
    }
    running.stop().await;
}

fn listener(running: &Running, path: &str) -> SocketAddr {
    match path.starts_with("/admin/") {
        true => running.addresses.admin,
        false => running.addresses.http,
    }
}

fn code(answer: &Value) -> &str {
    answer["code"].as_str().unwrap_or_default()
}

/// Every reference leads to a schema.
#[tokio::test]
async fn the_document_is_whole() {
    let running = start(RULES).await;
    let document = document(&running).await;
    let mut references = 0;
    let mut left = vec![&document];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                    references += 1;
                }
                left.extend(fields.values());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    assert!(references > 30, "{references}");
    running.stop().await;
}

/// Answers have no fields but those of their schema, and all that it requires.
#[tokio::test]
async fn answers_are_as_described() {
    let running = start(RULES).await;
    let document = document(&running).await;
    let descriptors = json!([
        { "entries": [{ "key": "plain", "value": "a" }] },
        { "entries": [{ "key": "unknown", "value": "a" }] },
    ]);
    let check = json!({ "domain": "d", "descriptors": descriptors, "standing": true });
    for _ in 0..2 {
        let (status, answer) = running.post("/v1/check", &check).await;
        assert_eq!(status, 200, "{answer}");
        fits(&document, "Decision", &answer);
        fits(&document, "Status", &answer["statuses"][0]);
    }
    let batch = json!({ "checks": [{ "domain": "d", "descriptors": descriptors }] });
    let (_, answer) = running.post("/v1/checks", &batch).await;
    fits(&document, "Decisions", &answer);
    let (_, refused) = running.post("/v1/check", &json!({ "domain": 7 })).await;
    fits(&document, "Problem", &refused);
    let (_, rules) = running.admin("/admin/v1/rules").await;
    let rules: Value = serde_json::from_str(&rules).unwrap();
    fits(&document, "RuleList", &rules);
    fits(&document, "RuleEntry", &rules["rules"][0]);
    let (_, problem) = running.admin("/admin/v1/quotas/a").await;
    fits(
        &document,
        "Problem",
        &serde_json::from_str(&problem).unwrap(),
    );
    running.stop().await;
}

#[track_caller]
fn fits(document: &Value, schema: &str, answer: &Value) {
    let schema = &document["components"]["schemas"][schema];
    // Fields that several answers share are a part of each.
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let parts: Vec<_> = parts.chain([schema]).collect();
    let described = |field: &str| {
        parts
            .iter()
            .any(|part| part["properties"].get(field).is_some())
    };
    let fields = answer.as_object().unwrap();
    for field in fields.keys() {
        assert!(
            described(field),
            "{field} of {answer} is not described in {schema}"
        );
    }
    let required = parts.iter().filter_map(|part| part["required"].as_array());
    for required in required.flatten() {
        assert!(
            fields.contains_key(required.as_str().unwrap()),
            "{required} is not in {answer}"
        );
    }
}

/// Each listener has the document of what it serves.
#[tokio::test]
async fn each_listener_describes_itself() {
    let running = start(RULES).await;
    let (_, admin) = running.admin("/openapi.json").await;
    let admin: Value = serde_json::from_str(&admin).unwrap();
    assert_eq!(admin, document(&running).await);
    let (status, text) = running.http("GET", "/openapi.json", "").await;
    assert_eq!(status, 200, "{text}");
    let public: Value = serde_json::from_str(&text).unwrap();
    let paths = |document: &Value| -> BTreeSet<String> {
        document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let of_this_listener = |path: &String| path.starts_with("/v1/");
    let expected: BTreeSet<_> = paths(&admin).into_iter().filter(of_this_listener).collect();
    assert_eq!(paths(&public), expected);
    assert!(expected.contains("/v1/auth") && expected.contains("/v1/limit"));
    let schemas = public["components"]["schemas"].as_object().unwrap();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    running.stop().await;
}
