//! The JSON Schema of rules files, for editors.
//!
//! It is made of the tables of `format`, by which files are read too.

use schemars::Schema;
use schemars::transform::transform_subschemas;
use serde_json::{Map, Value};

/// The schema of a rules file (JSON Schema, draft 2020-12).
#[must_use]
pub fn json_schema() -> Schema {
    let mut schema = crate::format::schema();
    choose_by_type(&mut schema);
    schema
}

/// The schema of a file of [tests](crate::TestFile) (JSON Schema, draft 2020-12).
#[must_use]
pub fn tests_json_schema() -> Schema {
    let mut schema = crate::format::test_file::schema();
    choose_by_type(&mut schema);
    schema
}

/// Turns `anyOf` of a list (or null) and another shape into a choice by the value's type. An editor
/// then explains the fault in the value, instead of reporting that it matches none of the schemas.
fn choose_by_type(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut()
        && let Some((simple, other)) = two_by_type(object)
    {
        object.remove("anyOf");
        let of_type = serde_json::json!({ "type": simple["type"] });
        object.insert("if".to_owned(), of_type);
        object.insert("then".to_owned(), simple);
        object.insert("else".to_owned(), other);
    }
    transform_subschemas(&mut choose_by_type, schema);
}

/// The alternatives of `anyOf`, if there are two and one of them is a list or null: that one first.
fn two_by_type(object: &Map<String, Value>) -> Option<(Value, Value)> {
    let [one, other] = object.get("anyOf")?.as_array()?.as_slice() else {
        return None;
    };
    let is_simple = |schema: &Value| schema["type"] == "array" || schema["type"] == "null";
    match (is_simple(one), is_simple(other)) {
        (true, false) => Some((one.clone(), other.clone())),
        (false, true) => Some((other.clone(), one.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
