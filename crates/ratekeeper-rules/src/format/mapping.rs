//! One table for each kind of mapping: its type, its reader and its schema.

use std::rc::Rc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value as Json};

use super::fields::Fields;
use crate::mark::At;
use crate::report::Report;
use crate::table::Typed;
use crate::yaml::Node;

/// A kind of value that files have: how it is read, and its schema.
pub(crate) trait Value: Typed {
    /// The type whose schema it has.
    type Schema: JsonSchema;

    /// Reads the value of `key`, which is not null. [`None`] if it is wrong, which has been reported.
    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self::Is>;
}

/// Some keys of a mapping, or all of them.
pub(crate) trait Keys: Sized {
    /// The description.
    const DOC: &'static str;

    /// Reads the values of the keys.
    fn read(fields: &Fields<'_>, report: &mut Report<'_>) -> Self;

    /// Returns true if `key` is one of them.
    fn has(key: &str) -> bool;

    /// Adds the keys to `keys`.
    fn list(keys: &mut Vec<&'static str>);

    /// Adds their schemas to `properties`.
    fn describe(properties: &mut Properties<'_>);
}

/// A kind of mapping.
pub(crate) trait Mapping: Keys {
    const SHAPE: Shape;
}

/// A kind of mapping as messages speak of it.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The place of such a mapping: `in a rate_limit`.
    pub(crate) place: &'static str,
    /// The keys to suggest where there is none.
    pub(crate) first: &'static [&'static str],
    /// True if envoyproxy/ratelimit has such a mapping, and so accepts all of its keys in it.
    pub(crate) is_envoy: bool,
    pub(crate) has: fn(&str) -> bool,
    list: fn(&mut Vec<&'static str>),
}

impl Shape {
    /// A key of envoyproxy/ratelimit where it has no meaning; the keys in it have none either.
    pub(crate) const IGNORED: Self = Self {
        place: "here",
        first: &[],
        is_envoy: true,
        has: |_| false,
        list: |_| (),
    };

    pub(crate) const fn of<K: Keys>(
        place: &'static str,
        first: &'static [&'static str],
        is_envoy: bool,
    ) -> Self {
        Self {
            place,
            first,
            is_envoy,
            has: K::has,
            list: K::list,
        }
    }

    /// Returns true if this is the shape of `M`.
    pub(crate) fn is<M: Mapping>(&self) -> bool {
        self.place == M::SHAPE.place
    }

    /// Returns true if no key has a meaning here.
    pub(crate) fn is_ignored(&self) -> bool {
        self.place == Self::IGNORED.place
    }

    /// All keys that have a meaning here, sorted.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        let mut keys = Vec::new();
        (self.list)(&mut keys);
        keys.sort_unstable();
        keys
    }
}

/// Reads a mapping. [`None`] if it is none, which has been reported.
pub(crate) fn read_mapping<M: Mapping>(node: &Node, report: &mut Report<'_>) -> Option<At<M>> {
    let fields = Fields::new(node, &M::SHAPE, report)?;
    let (value, mark) = (M::read(&fields, report), fields.mark);
    Some(At { value, mark })
}

/// Reads an item of a list, which has to be a mapping. [`None`] if it is none, which has been reported.
pub(crate) fn read_item<M: Mapping>(item: &Node, report: &mut Report<'_>) -> Option<At<M>> {
    let fields = Fields::item(item, &M::SHAPE, report)?;
    let (value, mark) = (M::read(&fields, report), fields.mark);
    Some(At { value, mark })
}

/// The properties of a mapping's schema.
pub(crate) struct Properties<'g> {
    generator: &'g mut SchemaGenerator,
    properties: Map<String, Json>,
    required: Vec<&'static str>,
}

impl Properties<'_> {
    /// Adds the schema of `key`, with what only this key has in `extra`.
    pub(crate) fn add<V: Value>(
        &mut self,
        key: &'static str,
        doc: &str,
        is_required: bool,
        extra: Json,
    ) {
        let mut schema = match is_required {
            true => self.generator.subschema_for::<V::Schema>(),
            false => self.generator.subschema_for::<Option<V::Schema>>(),
        };
        if let Json::Object(extra) = extra {
            for (name, value) in extra {
                schema.insert(name, value);
            }
        }
        schema.insert("description".to_owned(), text_of(doc).into());
        self.properties.insert(key.to_owned(), schema.into());
        if is_required {
            self.required.push(key);
        }
    }
}

/// The schema of a mapping.
pub(crate) fn schema_of<K: Keys>(generator: &mut SchemaGenerator) -> Schema {
    let mut properties = Properties {
        generator,
        properties: Map::new(),
        required: Vec::new(),
    };
    K::describe(&mut properties);
    let mut schema = schemars::json_schema!({
        "description": text_of(K::DOC),
        "type": "object",
        "properties": properties.properties,
        "additionalProperties": false,
    });
    if !properties.required.is_empty() {
        schema.insert("required".to_owned(), properties.required.into());
    }
    schema
}

/// A doc comment as text.
fn text_of(doc: &str) -> String {
    let lines: Vec<_> = doc.trim().lines().map(str::trim).collect();
    lines.join("\n")
}
