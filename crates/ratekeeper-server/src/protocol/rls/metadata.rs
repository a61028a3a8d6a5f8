//! `dynamic_metadata` for later filters and access logs, in envoyproxy/ratelimit's form.

use std::fmt::Write;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use ratekeeper_limiter::{Code, Decision};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::r#type::v3::RateLimitUnit;
use ratekeeper_rules::Profile;
use ratekeeper_rules::secret::is_secret_by_default;

/// The request's domain, descriptors and cost, and the metadata of the rules that passed.
///
/// Under our own profile, values of secret entries are fingerprinted, as everywhere else: this ends
/// up in access logs. An answer that was not counted says so.
pub(super) fn of(profile: Profile, request: &RateLimitRequest, decision: &Decision) -> Struct {
    let domain = decision.snapshot().rules().domain(&request.domain);
    let is_secret = |key: &str| {
        profile == Profile::Ratekeeper
            && domain.map_or_else(|| is_secret_by_default(key), |domain| domain.is_secret(key))
    };
    let shown = |key: &str, value: &str| match is_secret(key) {
        true => format!("{key}={}", decision.snapshot().fingerprint(value)),
        false => format!("{key}={value}"),
    };
    let mut out = Struct::default();
    set(&mut out, "domain", text(&request.domain));
    set(
        &mut out,
        "descriptors",
        list(
            request
                .descriptors
                .iter()
                .map(|view| descriptor(view, &shown)),
        ),
    );
    if request.hits_addend != 0 {
        set(
            &mut out,
            "hitsAddend",
            number(f64::from(request.hits_addend)),
        );
    }
    if profile == Profile::Ratekeeper && decision.is_degraded() {
        set(&mut out, "degraded", Kind::BoolValue(true));
    }
    let metadata = passed(decision);
    if !metadata.fields.is_empty() {
        set(&mut out, "metadata", Kind::StructValue(metadata));
    }
    out
}

fn descriptor(descriptor: &RateLimitDescriptor, shown: &dyn Fn(&str, &str) -> String) -> Kind {
    let mut out = Struct::default();
    let pair = |entry: &WireEntry| {
        let WireEntry { key, value } = entry;
        text(&shown(key, value))
    };
    set(
        &mut out,
        "entries",
        list(descriptor.entries.iter().map(pair)),
    );
    if let Some(limit) = &descriptor.limit {
        set(&mut out, "limit", text(&prototext(limit)));
    }
    if let Some(hits) = descriptor.hits_addend {
        #[expect(
            clippy::cast_precision_loss,
            reason = "numbers of a Struct are doubles"
        )]
        let hits = hits as f64;
        set(&mut out, "hitsAddend", number(hits));
    }
    Kind::StructValue(out)
}

/// The override in protobuf's text format, on one line.
fn prototext(limit: &RateLimitOverride) -> String {
    let mut out = String::new();
    if limit.requests_per_unit != 0 {
        // Writing to a string cannot fail.
        let _ = write!(out, "requests_per_unit:{}", limit.requests_per_unit);
    }
    if limit.unit != 0 {
        let space = if out.is_empty() { "" } else { " " };
        let _ = match RateLimitUnit::try_from(limit.unit) {
            Ok(unit) => write!(out, "{space}unit:{}", unit.as_str_name()),
            Err(_) => write!(out, "{space}unit:{}", limit.unit),
        };
    }
    out
}

/// The metadata of all limits that let their descriptor pass: of two values with one name the
/// first descriptor's stays, unless both are structures, which are merged likewise.
fn passed(decision: &Decision) -> Struct {
    let mut merged = Struct::default();
    let passed = decision
        .answers()
        .iter()
        .filter(|status| status.code == Code::Ok);
    for binding in passed.filter_map(|status| status.binding.as_ref()) {
        if let Some(metadata) = decision
            .rule(binding)
            .and_then(|rule| rule.metadata.as_deref())
        {
            merge(&mut merged, structure(metadata));
        }
    }
    merged
}

fn merge(into: &mut Struct, from: Struct) {
    for (name, value) in from.fields {
        match into.fields.get_mut(&name) {
            None => {
                into.fields.insert(name, value);
            }
            Some(Value {
                kind: Some(Kind::StructValue(into)),
            }) => {
                if let Some(Kind::StructValue(from)) = value.kind {
                    merge(into, from);
                }
            }
            Some(_) => {}
        }
    }
}

fn structure(map: &serde_json::Map<String, serde_json::Value>) -> Struct {
    let fields = map.iter().map(|(name, value)| {
        (
            name.clone(),
            Value {
                kind: Some(any(value)),
            },
        )
    });
    Struct {
        fields: fields.collect(),
    }
}

fn any(value: &serde_json::Value) -> Kind {
    match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        serde_json::Value::Number(value) => number(value.as_f64().unwrap_or_default()),
        serde_json::Value::String(value) => text(value),
        serde_json::Value::Array(values) => list(values.iter().map(any)),
        serde_json::Value::Object(map) => Kind::StructValue(structure(map)),
    }
}

fn set(out: &mut Struct, name: &str, kind: Kind) {
    out.fields
        .insert(name.to_owned(), Value { kind: Some(kind) });
}

fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

const fn number(number: f64) -> Kind {
    Kind::NumberValue(number)
}

fn list(kinds: impl Iterator<Item = Kind>) -> Kind {
    Kind::ListValue(ListValue {
        values: kinds.map(|kind| Value { kind: Some(kind) }).collect(),
    })
}
