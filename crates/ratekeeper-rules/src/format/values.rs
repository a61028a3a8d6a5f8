//! The kinds of values that keys have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

use ratekeeper_core::duration::parse_duration;
use ratekeeper_core::percentage::{NotAPercentage, parse_percentage};
use ratekeeper_core::{Algorithm, MAX_COUNT, Micros, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::fields::{check_leaf, number};
use super::mapping::Value;
use super::metadata::parse_metadata;
use super::{TenantPlan, Usage};
use crate::adjust::STEPS_MAX;
use crate::choice::{Choice, choose};
use crate::draft::no_duration;
use crate::draft::quota::{Duration, PerUnit, SubWindows, Unit, Word};
use crate::mark::At;
use crate::policy::NOT_A_RATE;
use crate::report::Report;
use crate::table::{Typed, kinds};
use crate::time::{self, NotATime};
use crate::usage::{JsonPointer, UsageEstimate, WEIGHT_MAX, WEIGHT_ONE};
use crate::yaml::{Kind, Node, Resolved, Scalar};
use crate::{
    AdjustMode, Consistency, Enforce, Evaluation, FailureMode, LeakyOverRls, RegionMode, ShedMode,
};

/// The largest capacity and limit of a shedder.
const REQUESTS_MAX: u64 = 1_000_000;

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
pub(super) fn with_doc(mut schema: Schema, doc: &str) -> Schema {
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
        Algorithm::Gcra => "The same as token_bucket, in one word of state.",
        Algorithm::LeakyBucket => {
            "A queue that drains at the rate: delays instead of denying, where the edge can wait."
        }
        Algorithm::Concurrency => return None,
    };
    let name = algorithm.name();
    Some(json_schema!({ "description": description, "type": "string", "const": name }))
}

/// A value as its literal text: numbers and booleans as they are written. Decimals and huge numbers, which
/// envoyproxy/ratelimit does not accept as text, are refused.
fn text(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Box<str>> {
    let Kind::Scalar(scalar) = &node.kind else {
        let message = format!("`{key}` must be text, not {}", node.kind_name());
        report.error(node.mark, message, format!("write `{key}: some text`"));
        return None;
    };
    check_leaf(key, node, scalar, report).then(|| scalar.text.clone())
}

fn boolean(key: &str, node: &Node, report: &mut Report<'_>) -> Option<bool> {
    if let Kind::Scalar(Scalar {
        resolved: Resolved::Bool(value),
        ..
    }) = node.kind
    {
        return Some(value);
    }
    let message = format!("`{key}` must be true or false, not {}", node.kind_name());
    let quoted = matches!(&node.kind, Kind::Scalar(scalar) if scalar.text.eq_ignore_ascii_case("true")
        || scalar.text.eq_ignore_ascii_case("false"));
    let help = if quoted {
        "write it without quotes"
    } else {
        "write true or false"
    };
    report.error(node.mark, message, help);
    None
}

/// A whole number of 0 to `most`.
fn count(key: &str, node: &Node, most: u64, report: &mut Report<'_>) -> Option<u64> {
    let range = format!("a whole number from 0 to {most}");
    let (message, help) = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(int),
            text,
            ..
        }) => match u64::try_from(*int).ok().filter(|&count| count <= most) {
            Some(value) => return Some(value),
            None => (
                format!("`{key}` is {range}, not {text}"),
                too_large_help(key, *int),
            ),
        },
        Kind::Scalar(Scalar {
            resolved: Resolved::BigInt(_) | Resolved::Float(_),
            text,
            ..
        }) if text.bytes().all(|byte| byte.is_ascii_digit()) => (
            format!("`{key}` is {range}, not {text}"),
            Some(format!("write at most `{key}: {most}`")),
        ),
        Kind::Scalar(scalar) if scalar.text.parse::<u64>().is_ok() => (
            format!("`{key}` must be a number, not text"),
            Some("write it without quotes".to_owned()),
        ),
        _ => (
            format!("`{key}` must be {range}, not {}", node.kind_name()),
            number_help(key, node, most),
        ),
    };
    report.error(node.mark, message, help);
    None
}

fn too_large_help(key: &str, int: i64) -> Option<String> {
    match key {
        _ if int <= 0 => None,
        "requests_per_unit" => Some(format!(
            "write `limit:` instead: it goes up to {MAX_COUNT} (2^53 - 1)"
        )),
        _ => None,
    }
}

/// Suggests the number that a text stands for.
fn number_help(key: &str, node: &Node, most: u64) -> Option<String> {
    let Kind::Scalar(scalar) = &node.kind else {
        return None;
    };
    let is_count = matches!(key, "limit" | "requests_per_unit");
    if let Some((window, limit)) = number::rate(&scalar.text).filter(|_| is_count) {
        return Some(format!("write `window: {window}` and `limit: {limit}`"));
    }
    let meant = number::meant(&scalar.text).into_iter();
    let meant = meant.filter(|number| *number <= most);
    let meant: Vec<_> = meant.map(|number| format!("`{key}: {number}`")).collect();
    (!meant.is_empty()).then(|| format!("write {}", meant.join(" or ")))
}

/// A number of requests, at least 1.
fn requests(key: &str, node: &Node, report: &mut Report<'_>) -> Option<u32> {
    let count = count(key, node, REQUESTS_MAX, report)?;
    if count == 0 {
        report.error(node.mark, format!("`{key}` is at least 1"), None);
        return None;
    }
    u32::try_from(count).ok()
}

/// A span of time: `10s`, `250ms`, `1h30m`.
fn duration(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Micros> {
    let (message, help) = match &node.kind {
        Kind::Scalar(scalar) => match parse_duration(&scalar.text) {
            Ok(value) => return Some(value),
            Err(why) => no_duration(key, &why),
        },
        _ => no_duration(key, &"it must be a duration"),
    };
    let help = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(seconds),
            ..
        }) if *seconds > 0 => format!("say the unit: `{key}: {seconds}s`"),
        _ => help,
    };
    report.error(node.mark, message, help);
    None
}

/// The shortest lease that is worth a call, and the longest for which other nodes may lack the hits.
const LEASE_TIMES: (Micros, Micros) = (Micros::from_millis(5), Micros::from_secs(10));

fn lease_time(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Micros> {
    let value = duration(key, node, report)?;
    let (least, most) = LEASE_TIMES;
    if value < least || value > most {
        let message = "`lease_time` is out of range: it is 5ms to 10s";
        let help = "write `lease_time: 100ms`: other nodes cannot admit the hits that a node holds for so long";
        report.error(node.mark, message, help);
        return None;
    }
    Some(value)
}

/// A period: whole seconds, or a duration with its unit.
fn period(_: &str, node: &Node, report: &mut Report<'_>) -> Option<Micros> {
    let period = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(seconds),
            ..
        }) => u64::try_from(*seconds).ok().map(Micros::from_secs),
        Kind::Scalar(scalar) => parse_duration(&scalar.text).ok(),
        _ => None,
    };
    let period = period.filter(|period| !period.is_zero());
    if period.is_none() {
        let help = "write `period: 10`, or `period: 500ms`";
        report.error(node.mark, "`period` is at least 1 second", help);
    }
    period
}

fn moment(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Timestamp> {
    let written = text(key, node, report)?;
    let (message, help) = match time::parse(&written) {
        Ok(value) => return Some(value),
        Err(NotATime::Unreadable) => (
            format!("`{key}` is neither a date nor a date and time of RFC 3339"),
            format!(
                "write `{key}: 2027-01-31T00:00:00Z`, with `Z` or the offset from UTC, or `{key}: 2027-01-31`, which is \
                 its start in UTC"
            ),
        ),
        Err(NotATime::TooLate) => (
            format!("`{key}` is too late: times end in June 2255"),
            "leave it out if it never comes".to_owned(),
        ),
    };
    report.error(node.mark, message, help);
    None
}

/// The millionths of a decimal number with at most six decimals, if it is at most [`WEIGHT_MAX`] either way.
fn millionths(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 6 || !is_digits(whole) || !is_digits(decimals) {
        return None;
    }
    let decimals: i64 = format!("{decimals:0<6}").parse().ok()?;
    let whole: i64 = whole.parse().ok()?;
    let value = whole.checked_mul(WEIGHT_ONE)?.checked_add(decimals)?;
    (value <= WEIGHT_MAX).then_some(sign * value)
}

/// The weight that a node is.
fn weight_of(node: &Node) -> Option<i64> {
    match &node.kind {
        Kind::Scalar(scalar) => millionths(&scalar.text),
        _ => None,
    }
}

fn weight(key: &str, node: &Node, report: &mut Report<'_>) -> Option<i64> {
    let weight = weight_of(node).filter(|weight| *weight >= 0);
    if weight.is_none() {
        let message = format!("`{key}` is a number from 0 to 1000000 with at most six decimals");
        report.error(
            node.mark,
            message,
            format!("write `{key}: 1` or `{key}: 0.25`"),
        );
    }
    weight
}

/// A pointer of weight 1, or pointers with their weights.
fn places(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Vec<(At<JsonPointer>, i64)>> {
    let Some(pairs) = node.as_map() else {
        let pointer = text(key, node, report)?;
        return Some(vec![(
            node.at(pointer_of(&pointer, node, report)?),
            WEIGHT_ONE,
        )]);
    };
    let mut places = Vec::new();
    for pair in pairs {
        let written = text(key, &pair.key, report)?;
        let pointer = pointer_of(&written, &pair.key, report)?;
        let Some(weight) = weight_of(&pair.value) else {
            let message = "the hits that one counts for are a number from -1000000 to 1000000 with at most six decimals";
            report.error(pair.value.mark, message, format!("write `{written}: 1`"));
            return None;
        };
        places.push((pair.key.at(pointer), weight));
    }
    Some(places)
}

fn pointer_of(written: &str, node: &Node, report: &mut Report<'_>) -> Option<JsonPointer> {
    match JsonPointer::parse(written) {
        Ok(pointer) => Some(pointer),
        Err(error) => {
            let help = "write the keys down to the number: `/usage/total_tokens`";
            report.error(node.mark, error.to_string(), help);
            None
        }
    }
}

/// `bytes/4`, or a number of hits.
fn estimate(key: &str, node: &Node, report: &mut Report<'_>) -> Option<UsageEstimate> {
    let written = text(key, node, report)?;
    let bytes = written.strip_prefix("bytes/").map(str::parse);
    let hits = || written.parse().ok().filter(|hits| *hits <= MAX_COUNT);
    let estimate = match bytes {
        Some(bytes) => bytes.ok().map(UsageEstimate::Bytes),
        None => hits().map(UsageEstimate::Hits),
    };
    if estimate.is_none() {
        let message = format!("`{key}` is `bytes/` and a number, or a number of hits");
        report.error(
            node.mark,
            message,
            format!("write `{key}: bytes/4` or `{key}: 500`"),
        );
    }
    estimate
}

fn store(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Box<str>> {
    let value = text(key, node, report)?;
    if value.is_empty() {
        let help = "write a store's name, or leave the key out";
        report.error(node.mark, "`store` is empty", help);
        return None;
    }
    // A single file cannot know which stores exist.
    report.stores.push(node.at(value.clone()));
    Some(value)
}

/// The items of a list.
fn list<'t>(key: &str, node: &'t Node, report: &mut Report<'_>) -> Option<&'t [Rc<Node>]> {
    if node.as_list().is_none() {
        let message = format!("`{key}` must be a list, not {}", node.kind_name());
        report.error(node.mark, message, "start each item with `- `");
    }
    node.as_list()
}

/// A list of texts with their positions; items that are not text are reported and left out.
fn texts(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Vec<At<Box<str>>>> {
    let mut texts = Vec::new();
    for item in list(key, node, report)? {
        match &item.kind {
            Kind::Scalar(scalar) if !item.is_null() && !scalar.text.is_empty() => {
                texts.push(item.at(scalar.text.clone()));
            }
            _ => {
                let kind = item.kind_name();
                let message = format!("`{key}` is a list of names, and {kind} is none");
                report.error(item.mark, message, None);
            }
        }
    }
    Some(texts)
}

fn entries(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Vec<At<Box<str>>>> {
    match node.as_list() {
        Some(_) => texts(key, node, report),
        None => Some(vec![node.at(text(key, node, report)?)]),
    }
}

fn algorithm(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Algorithm> {
    let algorithm = choice(key, node, report)?;
    if algorithm == Algorithm::Concurrency {
        let (message, help) = NOT_A_RATE;
        report.error(node.mark, message, help);
        return None;
    }
    Some(algorithm)
}

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
    ShedMode
);

impl Typed for RegionMode {
    type Is = Self;
}

impl Value for RegionMode {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self> {
        let text = written(node);
        if text == "counted" {
            let message =
                format!("`{key}: {text}` is not possible yet: regions do not exchange hits");
            let help = format!(
                "write `{key}: regional`, which gives each region a fixed share by its weight"
            );
            report.error(node.mark, message, help);
            return None;
        }
        choice(key, node, report)
    }
}

/// One of a fixed set of words.
fn choice<T: Choice>(key: &str, node: &Node, report: &mut Report<'_>) -> Option<T> {
    let chosen = choose(key, written(node));
    chosen
        .map_err(|(message, help)| report.error(node.mark, message, help))
        .ok()
}

/// The text of a value, else its kind.
fn written(node: &Node) -> &str {
    match &node.kind {
        Kind::Scalar(scalar) => &scalar.text,
        _ => node.kind_name(),
    }
}

/// A share of 0% to 100%.
fn share(_: &str, node: &Node, report: &mut Report<'_>) -> Option<Enforce> {
    let Kind::Scalar(scalar) = &node.kind else {
        let message = format!("`enforce` is a share, not {}", node.kind_name());
        report.error(node.mark, message, "write `enforce: 10%`");
        return None;
    };
    let text = &scalar.text;
    let help = match parse_percentage(text) {
        Ok(hundredths) => return Enforce::from_hundredths(hundredths),
        Err(NotAPercentage::NoSign(_)) => format!("write `enforce: {text}%`"),
        Err(NotAPercentage::NoNumber) => "write `enforce: 10%`".to_owned(),
    };
    let message =
        format!("`enforce` cannot be '{text}': it is 0% to 100%, with up to two decimals");
    report.error(node.mark, message, help);
    None
}

/// A whole percentage from 0% to 100%.
fn percent(key: &str, node: &Node, report: &mut Report<'_>) -> Option<u8> {
    let text = written(node);
    let whole = |hundredths: u16| {
        u8::try_from(hundredths / 100)
            .ok()
            .filter(|_| hundredths.is_multiple_of(100))
    };
    let read = parse_percentage(text);
    if let Some(percent) = read.ok().and_then(whole) {
        return Some(percent);
    }
    let message = format!("`{key}` cannot be '{text}': it is a whole percentage from 0% to 100%");
    let help = match read {
        Err(NotAPercentage::NoSign(hundredths)) if hundredths.is_multiple_of(100) => {
            format!("write `{key}: {}%`", hundredths / 100)
        }
        _ => format!("write `{key}: 20%`"),
    };
    report.error(node.mark, message, help);
    None
}
