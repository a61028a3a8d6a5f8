//! Random requests that use every field, and mostly match rules.

use fastrand::Rng;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::json;
use crate::random::{chance, pick};
use crate::rules::{Domain, Node};
use crate::unit::Unit;

/// Values for entries that match any value: few, so that counters are hit repeatedly.
const ANY: [&str; 6] = ["x", "1", "zz", "", "b_c", "10.0.0.1"];
/// Texts that a pattern's `*` may match.
const TAILS: [&str; 4] = ["", "1", "yy", "_z"];

/// A request and its transport.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) request: RateLimitRequest,
    pub(crate) via: Via,
}

/// The transport of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Via {
    Grpc,
    /// `/json` with this body.
    Json(String),
}

impl Call {
    /// A random request in `domain`.
    pub(crate) fn random(rng: &mut Rng, domain: &Domain) -> Self {
        let request = request(rng, domain);
        let is_dangerous = request.descriptors.iter().any(has_unknown_unit);
        let via = match rng.u32(0..100) {
            0..24 => Via::Json(json::written(rng, &request)),
            24..26 => Via::Json(json::broken(rng, &request)),
            // Over gRPC such a limit ends the process of envoyproxy/ratelimit; over /json only one
            // connection.
            _ if is_dangerous => Via::Json(json::written(rng, &request)),
            _ => Via::Grpc,
        };
        Self { request, via }
    }
}

/// Returns true if the descriptor's own limit has an invalid unit.
pub(crate) fn has_unknown_unit(descriptor: &RateLimitDescriptor) -> bool {
    let limit = descriptor.limit.as_ref();
    limit.is_some_and(|limit| Unit::from_number(limit.unit).is_none())
}

fn request(rng: &mut Rng, domain: &Domain) -> RateLimitRequest {
    let name = match rng.u32(0..100) {
        0 => String::new(),
        1..3 => format!("{}-unknown", domain.name),
        _ => domain.name.clone(),
    };
    let count = match rng.u32(0..100) {
        0 => 0,
        1..60 => 1,
        60..85 => 2,
        _ => rng.usize(3..=5),
    };
    let mut descriptors: Vec<_> = (0..count).map(|_| descriptor(rng, domain)).collect();
    if count > 1 && chance(rng, 12) {
        descriptors[1] = descriptors[0].clone();
    }
    let hits_addend = match rng.u32(0..100) {
        0..70 => 0,
        70..90 => rng.u32(1..4),
        90..98 => rng.u32(4..100),
        _ => rng.u32(..),
    };
    RateLimitRequest {
        domain: name,
        descriptors,
        hits_addend,
    }
}

fn descriptor(rng: &mut Rng, domain: &Domain) -> RateLimitDescriptor {
    let mut entries = Vec::new();
    let mut level = domain.roots();
    while !level.is_empty() && entries.len() < 5 {
        let node = *pick(rng, &level);
        entries.push(entry(rng, node));
        if node.limit.is_some() && chance(rng, 50) {
            break;
        }
        level = node.children.iter().collect();
    }
    match rng.u32(0..100) {
        0..4 => entries.clear(),
        4..10 => entries.push(WireEntry {
            key: (*pick(rng, &["more", "user", ""])).to_owned(),
            value: any(rng),
        }),
        10..15 => {
            entries.pop();
        }
        15..19 => rng.shuffle(&mut entries),
        19..25 => {
            if let Some(entry) = entries.last_mut() {
                entry.value = any(rng);
            }
        }
        _ => {}
    }
    let limit = chance(rng, 6).then(|| RateLimitOverride {
        requests_per_unit: if chance(rng, 10) {
            rng.u32(..)
        } else {
            rng.u32(0..9)
        },
        unit: if chance(rng, 8) {
            *pick(rng, &[0, 8, 100, -1])
        } else {
            pick(rng, &Unit::ALL).number()
        },
    });
    let hits_addend = match rng.u32(0..100) {
        0..72 => None,
        72..80 => Some(0),
        80..97 => Some(rng.u64(1..6)),
        97..99 => Some(rng.u64(0..1 << 33)),
        // The largest that both accept.
        _ => Some((1 << 53) - 1),
    };
    RateLimitDescriptor {
        entries,
        limit,
        hits_addend,
        is_negative_hits: false,
    }
}

fn any(rng: &mut Rng) -> String {
    (*pick(rng, &ANY)).to_owned()
}

/// An entry that `node` matches.
fn entry(rng: &mut Rng, node: &Node) -> WireEntry {
    let key = match node.key.strip_suffix('*') {
        Some(start) if node.value.is_none() => format!("{start}{}", pick(rng, &TAILS)),
        _ => node.key.clone(),
    };
    let value = match &node.value {
        None => any(rng),
        Some(value) => match value.strip_suffix('*') {
            Some(start) => format!("{start}{}", pick(rng, &TAILS)),
            None => value.clone(),
        },
    };
    WireEntry { key, value }
}
