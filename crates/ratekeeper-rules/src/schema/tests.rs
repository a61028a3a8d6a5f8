use std::collections::BTreeSet;
use std::path::Path;

use super::json_schema;
use crate::parse::context::Context;

fn written() -> String {
    let schema = serde_json::to_string_pretty(&json_schema()).expect("a schema is JSON");
    schema + "\n"
}

/// `RATEKEEPER_BLESS=1 cargo test -p ratekeeper-rules` writes the file anew.
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
fn the_schema_has_the_keys_that_files_may_have() {
    let schema = json_schema().to_value();
    let pairs = [
        ("File", Context::Root),
        ("Descriptor", Context::Descriptor),
        ("RateLimit", Context::RateLimit),
        ("Replaces", Context::Replaces),
        ("PlanLimit", Context::PlanLimit),
        ("Concurrency", Context::Concurrency),
        ("ServiceLevel", Context::ServiceLevel),
        ("ServiceMatch", Context::ServiceMatch),
        ("Tier", Context::Tier),
        ("Tenant", Context::Tenant),
        ("TenantPlan", Context::TenantPlan),
        ("TenantOverride", Context::TenantOverride),
        ("Adjust", Context::Adjust),
        ("Shed", Context::Shed),
        ("Classify", Context::Classify),
        ("Fleet", Context::Fleet),
        ("Workers", Context::Workers),
        ("Adaptive", Context::Adaptive),
    ];
    for (name, context) in pairs {
        let properties = schema["$defs"][name]["properties"].as_object().expect(name);
        let in_schema: BTreeSet<_> = properties.keys().map(String::as_str).collect();
        let in_files: BTreeSet<_> = context.keys().iter().copied().collect();
        assert_eq!(in_schema, in_files, "{name}");
    }
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
