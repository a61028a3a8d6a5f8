//! The dashboard's types, generated from the OpenAPI document.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{RULES, start};

/// The answers that the dashboard reads.
const ROOTS: [&str; 6] = [
    "SecondsHistory",
    "NodeState",
    "Top",
    "Denials",
    "TenantAnswer",
    "Usage",
];

/// The fields that the page reads as seconds since 1970 (`TIMES` in `api.ts`).
const TIMES: [&str; 7] = [
    "at",
    "since",
    "last",
    "started_at",
    "last_reload_at",
    "mode_since",
    "until",
];

/// The generated file. With `UPDATE=1` the test writes it.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboard/src/schema.ts");

#[tokio::test]
async fn the_dashboard_has_the_types_of_the_openapi_document() {
    let running = start(RULES).await;
    let (_, text) = running.admin("/admin/v1/openapi.json").await;
    running.stop().await;
    let document: Value = serde_json::from_str(&text).unwrap();
    let generated = typescript(&document["components"]["schemas"]);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        committed == generated,
        "dashboard/src/schema.ts is not what the server answers; write it with \
         `UPDATE=1 cargo test -p ratekeeper-server --test server dashboard_types`"
    );
}

/// The interfaces that [`ROOTS`] need, by name.
fn typescript(schemas: &Value) -> String {
    let mut interfaces = BTreeMap::new();
    let mut wanted: BTreeSet<String> = ROOTS.iter().map(ToString::to_string).collect();
    while let Some(name) = wanted.pop_first() {
        if let Entry::Vacant(place) = interfaces.entry(name) {
            let interface = interface(place.key(), &schemas[place.key()], &mut wanted);
            place.insert(interface);
        }
    }
    let mut text = "// Generated from the OpenAPI document by crates/ratekeeper-server/tests/server/dashboard_types.rs.\n"
        .to_owned();
    interfaces
        .values()
        .for_each(|interface| text.push_str(interface));
    text
}

fn interface(name: &str, schema: &Value, wanted: &mut BTreeSet<String>) -> String {
    let comment = |indent: &str, schema: &Value| match schema["description"].as_str() {
        Some(text) => format!("{indent}/** {} */\n", text.replace('\n', " ")),
        None => String::new(),
    };
    let about = comment("", schema);
    let Some(properties) = schema["properties"].as_object() else {
        let meaning = type_of(schema, wanted);
        return format!("\n{about}export type {name} = {meaning};\n");
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let required: BTreeSet<_> = required.filter_map(Value::as_str).collect();
    // By name, whatever order the JSON keeps.
    let properties: BTreeMap<_, _> = properties.iter().collect();
    let mut text = format!("\n{about}export interface {name} {{\n");
    for (field, schema) in properties {
        let optional = match required.contains(field.as_str()) {
            true => "",
            false => "?",
        };
        let meaning = match TIMES.contains(&field.as_str()) {
            true => "number".to_owned(),
            false => type_of(schema, wanted),
        };
        text.push_str(&comment("  ", schema));
        writeln!(text, "  {field}{optional}: {meaning};").unwrap();
    }
    text.push_str("}\n");
    text
}

fn type_of(schema: &Value, wanted: &mut BTreeSet<String>) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap().to_owned();
        wanted.insert(name.clone());
        return name;
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> = words.iter().map(Value::to_string).collect();
        return words.join(" | ");
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let mut options: Vec<_> = options.iter().map(|it| type_of(it, wanted)).collect();
        options.sort_by_key(|name| name == "null");
        return options.join(" | ");
    }
    match &schema["type"] {
        // Any value.
        Value::Null => "unknown".to_owned(),
        Value::Array(kinds) => {
            let kinds = kinds.iter().map(|kind| plain(kind, schema, wanted));
            kinds.collect::<Vec<_>>().join(" | ")
        }
        kind => plain(kind, schema, wanted),
    }
}

fn plain(kind: &Value, schema: &Value, wanted: &mut BTreeSet<String>) -> String {
    match kind.as_str() {
        Some("integer" | "number") => "number".to_owned(),
        Some("array") => format!("{}[]", type_of(&schema["items"], wanted)),
        Some("object") if schema["additionalProperties"].is_null() => {
            "Record<string, unknown>".to_owned()
        }
        Some("object") => {
            let values = type_of(&schema["additionalProperties"], wanted);
            format!("Record<string, {values}>")
        }
        Some(kind @ ("string" | "boolean" | "null")) => kind.to_owned(),
        _ => panic!("no type for {schema}"),
    }
}
