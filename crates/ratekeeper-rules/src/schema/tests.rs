use std::path::Path;

use super::{json_schema, tests_json_schema};
use crate::format::mapping::Mapping as _;
use crate::format::test_file::{Expect, Step, Test, TestFile, View};
use crate::format::{
    Adaptive, Adjust, Classify, Concurrency, Descriptor, File, Fleet, PlanLimit, RateLimit,
    Replaces, ServiceLevel, ServiceMatch, Shed, Tenant, TenantOverride, TenantPlan, Tier, Workers,
};

fn written(schema: &schemars::Schema) -> String {
    let schema = serde_json::to_string_pretty(schema).expect("a schema is JSON");
    schema + "\n"
}

/// `RATEKEEPER_BLESS=1 cargo test -p ratekeeper-rules` rewrites the file.
#[test]
fn the_schemas_in_the_docs_are_those_of_the_types() {
    for (name, schema) in [
        ("rules.schema.json", json_schema()),
        ("rules-tests.schema.json", tests_json_schema()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs")
            .join(name);
        if std::env::var_os("RATEKEEPER_BLESS").is_some() {
            std::fs::write(&path, written(&schema)).expect("docs are writable");
        }
        let checked_in = std::fs::read_to_string(&path).expect("the schema is checked in");
        assert!(checked_in == written(&schema), "docs/{name} is out of date");
    }
}

#[test]
fn suggested_keys_are_keys_of_their_mapping() {
    let shapes = [
        File::SHAPE,
        Adjust::SHAPE,
        Shed::SHAPE,
        Classify::SHAPE,
        Fleet::SHAPE,
        Workers::SHAPE,
        Adaptive::SHAPE,
        Descriptor::SHAPE,
        RateLimit::SHAPE,
        PlanLimit::SHAPE,
        Tenant::SHAPE,
        TenantPlan::SHAPE,
        TenantOverride::SHAPE,
        Replaces::SHAPE,
        Concurrency::SHAPE,
        ServiceLevel::SHAPE,
        ServiceMatch::SHAPE,
        Tier::SHAPE,
        TestFile::SHAPE,
        Test::SHAPE,
        Step::SHAPE,
        View::SHAPE,
        Expect::SHAPE,
    ];
    for shape in shapes {
        let keys = shape.keys();
        assert!(
            shape.first.iter().all(|key| keys.contains(key)),
            "{}",
            shape.place
        );
        assert!(keys.iter().all(|key| (shape.has)(key)), "{}", shape.place);
    }
    // A key of a group that several mappings share.
    assert!((File::SHAPE.has)("store") && !(Tier::SHAPE.has)("store"));
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
