//! The schemas of values.

use std::borrow::Cow;

use ratekeeper_core::{Algorithm, MAX_COUNT};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    AlgorithmName, Estimate, Percentage, Period, Places, PlanOfTenant, Share, Text, UsageForm,
    Weight,
};
use crate::draft::quota::{Duration, Unit};
use crate::format::{TenantPlan, Usage};

/// Declares the schemas of kinds.
macro_rules! schemas {
    ($($name:ident $text:literal = |$generator:ident| $schema:tt;)*) => {
        $(impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $text.into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

schemas! {
    Text "Text" = |_generator| {
        "description": "Text. Numbers and booleans are taken as they are written.",
        "anyOf": [
            { "description": "A string.", "type": "string" },
            { "description": "The digits of the number.", "type": "integer", "format": "int64" },
            { "description": "The word for the boolean.", "type": "boolean" },
        ],
    };
    AlgorithmName "Algorithm" = |_generator| {
        "description": "A counting algorithm.",
        "oneOf": Algorithm::ALL.into_iter().filter_map(described).collect::<Vec<_>>(),
    };
    Duration "Duration" = |_generator| {
        "description": "Whole numbers with units: us, ms, s, m, h, d, w.",
        "type": "string",
        "pattern": "^([0-9]+(us|ms|s|m|h|d|w))+$",
    };
    Period "Period" = |generator| {
        "description": "Seconds, or a duration with its unit.",
        "anyOf": [
            { "description": "Seconds.", "type": "integer", "format": "uint64", "minimum": 0 },
            with_doc(generator.subschema_for::<Duration>(), "With its unit."),
        ],
    };
    Share "Share" = |_generator| {
        "description": "A share from 0% to 100%, with up to two decimals.",
        "type": "string",
        "pattern": "^[0-9]{1,3}(\\.[0-9]{1,2})?%$",
    };
    Percentage "Percentage" = |_generator| {
        "description": "A whole percentage: 70%.",
        "type": "string",
        "pattern": "^(100|[1-9]?[0-9])%$",
    };
    Unit "Unit" = |_generator| {
        "description": "A window of fixed length, in lower or upper case.",
        "type": "string",
        "pattern": "^(?i:second|minute|hour|day|week|month|year)$",
    };
    PlanOfTenant "PlanOfTenant" = |generator| {
        "description": "The name of a plan, with its term in a list.",
        "anyOf": [
            with_doc(generator.subschema_for::<Text>(), "The name."),
            with_doc(generator.subschema_for::<TenantPlan>(), "The name and the term."),
        ],
    };
}

schemas! {
    Weight "Weight" = |_generator| {
        "description": "Hits for one, from 0 to 1,000,000, with up to six decimals.",
        "type": "number",
        "minimum": 0,
        "maximum": 1_000_000,
    };
    Places "Places" = |_generator| {
        "description": "A JSON pointer, or several with the hits that one counts for.",
        "anyOf": [
            { "description": "A pointer.", "type": "string", "pattern": "^/" },
            {
                "description": "Pointers and hits; less than 0 for a part that another pointer tells too.",
                "type": "object",
                "minProperties": 1,
                "maxProperties": 16,
                "propertyNames": { "pattern": "^/" },
                "additionalProperties": { "type": "number", "minimum": -1_000_000, "maximum": 1_000_000 },
            },
        ],
    };
    Estimate "Estimate" = |_generator| {
        "description": "The charge for a response that does not tell.",
        "anyOf": [
            { "description": "A hit for so many bytes.", "type": "string", "pattern": "^bytes/[1-9][0-9]*$" },
            { "description": "So many hits.", "type": "integer", "minimum": 0, "maximum": MAX_COUNT },
        ],
    };
    UsageForm "UsageForm" = |generator| {
        "description": "`tokens`, or the places that tell it.",
        "anyOf": [
            { "description": "The tokens that APIs of models tell.", "type": "string", "const": "tokens" },
            with_doc(generator.subschema_for::<Usage>(), "The places that tell it."),
        ],
    };
}

/// `schema` with another description.
pub(in crate::format) fn with_doc(mut schema: Schema, doc: &str) -> Schema {
    schema.insert("description".to_owned(), doc.into());
    schema
}

/// The schema of an algorithm's name; concurrency has a key of its own.
fn described(algorithm: Algorithm) -> Option<Schema> {
    let description = match algorithm {
        Algorithm::FixedWindow => {
            "Windows aligned to the epoch; up to twice the limit across an edge."
        }
        Algorithm::SlidingWindow => {
            "The last window: exact for limits up to 23, at most a sixteenth more above."
        }
        Algorithm::SlidingLog => "The last window exactly; every hit is kept.",
        Algorithm::TokenBucket => "A bucket of `burst` tokens, refilled at the rate.",
        Algorithm::Gcra => "The same as token_bucket, under the name of ITU-T I.371.",
        Algorithm::LeakyBucket => {
            "A queue that drains at the rate: delays instead of denying, where the edge can wait."
        }
        Algorithm::Concurrency => return None,
    };
    let name = algorithm.name();
    Some(json_schema!({ "description": description, "type": "string", "const": name }))
}
