//! Reads a request.

use std::borrow::Cow;

use super::JsonError;
use super::tree::Tree;
use crate::envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor};
use crate::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::envoy::r#type::v3::RateLimitUnit;
use crate::{WireEntry, text};

/// Reads a request.
///
/// # Errors
/// The text is not JSON, or a field is unknown, repeated, of the wrong type or out of range.
pub fn read_request(text: &[u8]) -> Result<RateLimitRequest, JsonError> {
    let tree = serde_json::from_slice(text).map_err(|error| JsonError {
        field: String::new(),
        problem: error.to_string(),
    })?;
    let mut request = RateLimitRequest::default();
    for_each_field(tree, &Path::Root, REQUEST, |field, value, path| {
        match field {
            0 => request.domain = string(value, path)?,
            1 => request.descriptors = list(value, path, descriptor)?,
            _ => request.hits_addend = u32(value, path)?,
        }
        Ok(())
    })?;
    Ok(request)
}

/// The names of a message's fields: in JSON, and in the `.proto` file.
type Fields = &'static [(&'static str, &'static str)];

const REQUEST: Fields = &[
    ("domain", "domain"),
    ("descriptors", "descriptors"),
    ("hitsAddend", "hits_addend"),
];
const DESCRIPTOR: Fields = &[
    ("entries", "entries"),
    ("limit", "limit"),
    ("hitsAddend", "hits_addend"),
    ("isNegativeHits", "is_negative_hits"),
];
const ENTRY: Fields = &[("key", "key"), ("value", "value")];
const OVERRIDE: Fields = &[("requestsPerUnit", "requests_per_unit"), ("unit", "unit")];

fn descriptor(tree: Tree<'_>, path: &Path<'_>) -> Result<RateLimitDescriptor, JsonError> {
    let mut descriptor = RateLimitDescriptor::default();
    for_each_field(tree, path, DESCRIPTOR, |field, value, path| {
        match field {
            0 => descriptor.entries = list(value, path, entry)?,
            1 => descriptor.limit = Some(limit(value, path)?),
            2 => descriptor.hits_addend = Some(u64(&value, path)?),
            _ => descriptor.is_negative_hits = bool(&value, path)?,
        }
        Ok(())
    })?;
    Ok(descriptor)
}

fn entry(tree: Tree<'_>, path: &Path<'_>) -> Result<WireEntry, JsonError> {
    let mut entry = WireEntry::default();
    for_each_field(tree, path, ENTRY, |field, value, path| {
        match field {
            0 => entry.key = entry_text(value, path)?,
            _ => entry.value = entry_text(value, path)?,
        }
        Ok(())
    })?;
    Ok(entry)
}

fn limit(
    tree: Tree<'_>,
    path: &Path<'_>,
) -> Result<rate_limit_descriptor::RateLimitOverride, JsonError> {
    let mut limit = rate_limit_descriptor::RateLimitOverride::default();
    for_each_field(tree, path, OVERRIDE, |field, value, path| {
        match field {
            0 => limit.requests_per_unit = u32(value, path)?,
            _ => limit.unit = unit(&value, path)?,
        }
        Ok(())
    })?;
    Ok(limit)
}

/// The current position in the request; formatted only for an error.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Root => {}
            Self::Field(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Self::Item(parent, index) => {
                parent.write(out);
                out.push_str(&format!("[{index}]"));
            }
        }
    }

    fn refuse(&self, problem: impl Into<String>) -> JsonError {
        let mut field = String::new();
        self.write(&mut field);
        JsonError {
            field,
            problem: problem.into(),
        }
    }

    fn expected(&self, what: &str, tree: &Tree<'_>) -> JsonError {
        self.refuse(format!("expected {what}, found {}", tree.kind()))
    }
}

/// Calls `set` with the index in `fields` of each field that is present and not null.
fn for_each_field<'t>(
    tree: Tree<'t>,
    path: &Path<'_>,
    fields: Fields,
    mut set: impl FnMut(usize, Tree<'t>, &Path<'_>) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let Tree::Object(found) = tree else {
        return Err(path.expected("an object", &tree));
    };
    let mut seen = 0_u32;
    for (name, value) in found {
        let path = Path::Field(path, &name);
        let index = fields
            .iter()
            .position(|(json, proto)| name == *json || name == *proto);
        let Some(index) = index else {
            let names: Vec<_> = fields.iter().map(|(json, _)| *json).collect();
            return Err(path.refuse(format!("unknown field; expected {}", names.join(", "))));
        };
        if seen & (1 << index) != 0 {
            return Err(path.refuse("the field is there twice"));
        }
        seen |= 1 << index;
        if !matches!(value, Tree::Null) {
            set(index, value, &path)?;
        }
    }
    Ok(())
}

fn list<'t, T>(
    tree: Tree<'t>,
    path: &Path<'_>,
    item: impl Fn(Tree<'t>, &Path<'_>) -> Result<T, JsonError>,
) -> Result<Vec<T>, JsonError> {
    let Tree::Array(trees) = tree else {
        return Err(path.expected("an array", &tree));
    };
    trees
        .into_iter()
        .enumerate()
        .map(|(index, tree)| item(tree, &Path::Item(path, index)))
        .collect()
}

fn string(tree: Tree<'_>, path: &Path<'_>) -> Result<String, JsonError> {
    match tree {
        Tree::String(text) => Ok(Cow::into_owned(text)),
        other => Err(path.expected("a string", &other)),
    }
}

/// A key or a value of an entry, as any protocol reads it.
fn entry_text(tree: Tree<'_>, path: &Path<'_>) -> Result<String, JsonError> {
    let text = string(tree, path)?;
    Ok(match text::is_plain(&text) {
        true => text,
        false => text::read(text.as_bytes()).into_owned(),
    })
}

fn bool(tree: &Tree<'_>, path: &Path<'_>) -> Result<bool, JsonError> {
    match tree {
        Tree::Bool(value) => Ok(*value),
        other => Err(path.expected("a boolean", other)),
    }
}

fn u32(tree: Tree<'_>, path: &Path<'_>) -> Result<u32, JsonError> {
    let value = integer(&tree).and_then(|value| u32::try_from(value).ok());
    value.ok_or_else(|| path.refuse("expected an integer from 0 to 4294967295"))
}

fn u64(tree: &Tree<'_>, path: &Path<'_>) -> Result<u64, JsonError> {
    let value = integer(tree).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| path.refuse("expected an integer from 0 to 18446744073709551615"))
}

/// A unit by name or number, also an undefined number: the limiter judges it.
fn unit(tree: &Tree<'_>, path: &Path<'_>) -> Result<i32, JsonError> {
    let value = match tree {
        Tree::String(name) => RateLimitUnit::from_str_name(name).map(|unit| unit as i32),
        number => integer(number).and_then(|value| i32::try_from(value).ok()),
    };
    value.ok_or_else(|| path.refuse("expected SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or a number"))
}

/// A whole number, written as `7`, `7.0` or `0.7e1`, or as a string of one of these.
fn integer(tree: &Tree<'_>) -> Option<i128> {
    match tree {
        Tree::Number(number) => whole(number),
        // A string must hold a valid JSON number: no spaces, no plus sign.
        Tree::String(text) if !text.contains(char::is_whitespace) => {
            whole(&serde_json::from_str(text).ok()?)
        }
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 10^20")]
fn whole(number: &serde_json::Number) -> Option<i128> {
    if let Some(value) = number.as_i128() {
        return Some(value);
    }
    let value = number.as_f64()?;
    // In this range, a double without a fraction converts exactly.
    (value.fract() == 0.0 && value.abs() <= 1e20).then_some(value as i128)
}
