use std::path::Path;

use super::json_schema;
use crate::parse::context::Context;

fn written() -> String {
    let schema = serde_json::to_string_pretty(&json_schema()).expect("a schema is JSON");
    schema + "\n"
}

/// `RATEKEEPER_BLESS=1 cargo test -p ratekeeper-rules` rewrites the file.
#[test]
fn the_schema_in_the_docs_is_the_one_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.schema.json");
    if std::env::var_os("RATEKEEPER_BLESS").is_some() {
        std::fs::write(&path, written()).expect("docs are writable");
    }
    let checked_in = std::fs::read_to_string(&path).expect("the schema is checked in");
    assert!(
        checked_in == written(),
        "docs/rules.schema.json is out of date"
    );
}

#[test]
fn every_kind_of_mapping_has_its_keys_in_the_schema() {
    use Context::*;
    let contexts = [
        Root,
        Descriptor,
        RateLimit,
        Replaces,
        PlanLimit,
        Concurrency,
        ServiceLevel,
        ServiceMatch,
        Tier,
        Tenant,
        TenantPlan,
        TenantOverride,
        Adjust,
        Shed,
        Classify,
        Fleet,
        Workers,
        Adaptive,
    ];
    for context in contexts {
        let mut suggested = context.first_keys();
        assert!(suggested.all(|key| context.has(key)), "{context:?}");
        assert!(!context.keys().is_empty(), "{context:?}");
    }
    assert!(Ignored.keys().is_empty());
    // A key of a group that several mappings share.
    assert!(Root.has("store") && Concurrency.has("store") && !Tier.has("store"));
}

#[test]
fn editors_are_told_what_is_wrong_with_one_alternative() {
    let schema = json_schema().to_value();
    assert_eq!(schema["if"]["type"], "array");
    assert!(schema["else"]["$ref"].is_string(), "{schema}");
    let limit = &schema["$defs"]["Descriptor"]["properties"]["rate_limit"];
    assert!(limit.get("anyOf").is_none(), "{limit}");
    let templates = &schema["$defs"]["File"]["patternProperties"]["^x-"];
    assert_eq!(templates, true);
}
