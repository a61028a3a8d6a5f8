//! Requests as JSON, in all spellings that protojson accepts, and some that it refuses.

use fastrand::Rng;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::r#type::v3::RateLimitUnit;
use serde_json::{Map, Value, json};

use crate::random::{chance, pick};

/// `request` as JSON, with random spellings of its fields.
pub(crate) fn written(rng: &mut Rng, request: &RateLimitRequest) -> String {
    let mut out = Map::new();
    if !request.domain.is_empty() || chance(rng, 30) {
        out.insert("domain".into(), json!(request.domain));
    }
    let descriptors = request.descriptors.iter().map(|view| descriptor(rng, view));
    let descriptors: Vec<_> = descriptors.collect();
    out.insert("descriptors".into(), json!(descriptors));
    if request.hits_addend != 0 || chance(rng, 10) {
        let name = name(rng, "hitsAddend", "hits_addend");
        out.insert(name, number(rng, u64::from(request.hits_addend)));
    }
    let out = Value::Object(out);
    if chance(rng, 30) {
        format!("{out:#}\n")
    } else {
        out.to_string()
    }
}

fn descriptor(rng: &mut Rng, view: &RateLimitDescriptor) -> Value {
    let entries: Vec<_> = view
        .entries
        .iter()
        .map(|entry| json!({ "key": entry.key, "value": entry.value }))
        .collect();
    let mut out = Map::new();
    if !entries.is_empty() || chance(rng, 50) {
        out.insert("entries".into(), json!(entries));
    }
    if let Some(limit) = &view.limit {
        out.insert("limit".into(), own_limit(rng, limit));
    } else if chance(rng, 5) {
        out.insert("limit".into(), Value::Null);
    }
    if let Some(hits) = view.hits_addend {
        let name = name(rng, "hitsAddend", "hits_addend");
        out.insert(name, number(rng, hits));
    }
    Value::Object(out)
}

fn own_limit(rng: &mut Rng, limit: &RateLimitOverride) -> Value {
    let mut out = Map::new();
    let name = name(rng, "requestsPerUnit", "requests_per_unit");
    out.insert(name, number(rng, u64::from(limit.requests_per_unit)));
    let unit = match RateLimitUnit::try_from(limit.unit) {
        Ok(unit) if chance(rng, 70) => json!(unit.as_str_name()),
        _ => json!(limit.unit),
    };
    out.insert("unit".into(), unit);
    Value::Object(out)
}

fn name(rng: &mut Rng, json: &str, proto: &str) -> String {
    if chance(rng, 50) {
        json.into()
    } else {
        proto.into()
    }
}

/// protojson accepts numbers as text too.
fn number(rng: &mut Rng, number: u64) -> Value {
    if chance(rng, 50) {
        json!(number)
    } else {
        json!(number.to_string())
    }
}

/// A body that is not a request.
pub(crate) fn broken(rng: &mut Rng, request: &RateLimitRequest) -> String {
    let good = written(rng, request);
    let odd = [
        "",
        "{",
        "[]",
        "null",
        "\"domain\"",
        "{\"domain\": 5}",
        "{\"domain\": \"d\", \"descriptors\": {}}",
        "{\"domain\": \"d\", \"descriptors\": [null]}",
        "{\"domain\": \"d\", \"descriptors\": [{\"entries\": [{\"key\": \"a\", \"val\": \"b\"}]}]}",
        "{\"domain\": \"d\", \"hitsAddend\": -1}",
        "{\"domain\": \"d\", \"hitsAddend\": 1.5}",
        "{\"domain\": \"d\", \"hitsAddend\": 4294967296}",
        "{\"domain\": \"d\", \"hitsAddend\": \"\"}",
        "{\"domain\": \"d\", \"descriptors\": [{\"limit\": {\"unit\": \"FORTNIGHT\"}}]}",
        "{\"domain\": \"d\", \"descriptors\": [{\"hitsAddend\": {\"value\": 1}}]}",
        "{\"domain\": \"d\", \"domain\": \"d\"}",
        "{\"hitsAddend\": 1, \"hits_addend\": 1}",
        "{\"domain\": \"\\ud800\"}",
        "{\"domain\": \"d\",}",
        "{} {}",
        "{\"Domain\": \"d\"}",
    ];
    match rng.u32(0..5) {
        0 => good[..good.len() - 1].to_owned(),
        1 => format!("{good}x"),
        2 => good.replacen("\"descriptors\"", "\"descriptor\"", 1),
        _ => (*pick(rng, &odd)).to_owned(),
    }
}
