//! The kinds of values that keys have.

mod readers;
mod schemas;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

use ratekeeper_core::{Algorithm, MAX_COUNT, Micros, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::mapping::Value;
use super::metadata::parse_metadata;
use crate::adjust::STEPS_MAX;
use crate::draft::quota::{Duration, PerUnit, SubWindows, Unit, Word};
use crate::mark::At;
use crate::report::Report;
use crate::table::{Typed, kinds};
use crate::test_values::TestAnswer;
use crate::usage::{JsonPointer, UsageEstimate};
use crate::yaml::Node;
use crate::{
    AdjustMode, Consistency, Enforce, Evaluation, FailureMode, LeakyOverRls, OnSilence, RegionMode,
    ShedMode,
};
use readers::{
    algorithm, boolean, choice, count, duration, entries, estimate, lease_time, list, moment,
    percent, period, places, requests, share, store, text, texts, weight,
};
pub(super) use schemas::with_doc;

kinds! {
    /// Text. Numbers and booleans are taken as they are written.
    Text: Box<str>;
    /// The name of a store.
    StoreName: Box<str>;
    /// A list of texts.
    Names: Vec<At<Box<str>>>;
    /// A text or a list of texts.
    Entries: Vec<At<Box<str>>>;
    /// A counting algorithm.
    AlgorithmName: Algorithm;
    /// A number of steps.
    Steps: u64;
    /// A number of requests, at least 1.
    Requests: u32;
    /// The time of a lease.
    LeaseTime: Micros;
    /// Seconds, or a duration with its unit.
    Period: Micros;
    /// A share from 0% to 100%, with up to two decimals.
    Share: Enforce;
    /// A share that is a whole percentage.
    WholeShare: u8;
    /// A whole percentage: 70%.
    Percentage: u8;
    /// A time.
    Moment: Timestamp;
    /// Hits for one of something, in millionths.
    Weight: i64;
    /// One pointer, or several with their weights.
    Places: Vec<(At<JsonPointer>, i64)>;
    /// The charge for a response that tells no usage.
    Estimate: UsageEstimate;
    /// `tokens`, or a mapping that is read later.
    UsageForm: Rc<Node>;
    /// Any mapping, as JSON.
    Metadata: serde_json::Map<String, serde_json::Value>;
}

/// Gives kinds of values their schema and their reader: `Name: schema = reader;`.
macro_rules! readers {
    ($($name:ident: $schema:ty = $read:expr;)*) => {
        $(
            impl Value for $name {
                type Schema = $schema;

                fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self::Is> {
                    let read: fn(&str, &Node, &mut Report<'_>) -> Option<Self::Is> = $read;
                    read(key, node, report)
                }
            }
        )*
    };
}

readers! {
    Text: Self = text;
    Word: String = text;
    StoreName: String = store;
    Names: Vec<String> = texts;
    Entries: OneOrMany<String> = entries;
    AlgorithmName: Self = algorithm;
    PerUnit: u64 = |key, node, report| count(key, node, u64::from(u32::MAX), report);
    SubWindows: u32 = |key, node, report| count(key, node, u64::from(u32::MAX), report);
    Steps: u64 = |key, node, report| count(key, node, STEPS_MAX, report);
    Requests: u32 = requests;
    Duration: Self = duration;
    LeaseTime: Duration = lease_time;
    Period: Self = period;
    Share: Self = share;
    WholeShare: Share = percent;
    Percentage: Self = percent;
    Unit: Self = text;
    Moment: String = moment;
    Weight: Self = weight;
    Places: Self = places;
    Estimate: Self = estimate;
    Metadata: serde_json::Map<String, serde_json::Value> = |_, node, report| parse_metadata(node, report);
}

impl Value for bool {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self> {
        boolean(key, node, report)
    }
}

/// A whole number of 0 to 2^53 - 1.
impl Value for u64 {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self> {
        count(key, node, MAX_COUNT, report)
    }
}

impl Value for UsageForm {
    type Schema = Self;

    fn read(_: &str, node: &Rc<Node>, _: &mut Report<'_>) -> Option<Rc<Node>> {
        Some(Rc::clone(node))
    }
}

/// A list whose items are read one by one.
pub(crate) struct List<M>(PhantomData<M>);

impl<M> Typed for List<M> {
    type Is = Vec<Rc<Node>>;
}

impl<M: JsonSchema> Value for List<M> {
    type Schema = Vec<M>;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self::Is> {
        Some(list(key, node, report)?.to_vec())
    }
}

/// One item, or a list, which are read later.
pub(crate) struct OneOrMany<T>(PhantomData<T>);

impl<T> Typed for OneOrMany<T> {
    type Is = Rc<Node>;
}

impl<T: JsonSchema> Value for OneOrMany<T> {
    type Schema = Self;

    fn read(_: &str, node: &Rc<Node>, _: &mut Report<'_>) -> Option<Rc<Node>> {
        Some(Rc::clone(node))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }

    fn schema_id() -> Cow<'static, str> {
        format!("OneOrMany<{}>", T::schema_id()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut one = generator.subschema_for::<T>();
        one.insert("description".to_owned(), "A single item.".into());
        let mut many = generator.subschema_for::<Vec<T>>();
        many.insert(
            "description".to_owned(),
            "A list, all of which apply.".into(),
        );
        json_schema!({ "description": "One item, or a list.", "anyOf": [one, many] })
    }
}

/// The limits of plans by their names, which are read later.
pub(crate) struct ByPlan<T>(PhantomData<T>);

impl<T> Typed for ByPlan<T> {
    type Is = Rc<Node>;
}

impl<T: JsonSchema> Value for ByPlan<T> {
    type Schema = BTreeMap<String, OneOrMany<T>>;

    fn read(_: &str, node: &Rc<Node>, _: &mut Report<'_>) -> Option<Rc<Node>> {
        Some(Rc::clone(node))
    }
}

/// The name of a plan, with its term in a list.
pub(crate) struct PlanOfTenant;

macro_rules! words {
    ($($type:ty),+) => {
        $(
            impl Typed for $type {
                type Is = Self;
            }

            impl Value for $type {
                type Schema = Self;

                fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self> {
                    choice(key, node, report)
                }
            }
        )+
    };
}

words!(
    AdjustMode,
    Consistency,
    Evaluation,
    FailureMode,
    LeakyOverRls,
    OnSilence,
    RegionMode,
    ShedMode,
    TestAnswer
);
