//! Which service is asked, and the bytes it is asked with.

use http::Method;
use http::uri::PathAndQuery;
use prost::Message;
use ratekeeper_proto::ratekeeper::v1::CheckBatchRequest;
use serde_json::json;

use crate::failure::LoadError;
use crate::keys::{Keys, Picker};
use crate::payload::{Order, Payloads};
use crate::question::{PLACE, Question, name};

/// The most checks of one batch, which is what `/v1/checks` takes.
pub const BATCH_MAX: u32 = 1_000;

/// Different batches of a run; each thread walks them from its own place.
const BATCHES: u32 = 256;

/// What is asked, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Service {
    /// Envoy's `RateLimitService` over gRPC.
    Rls(Question),
    /// throttlecrab's own service over gRPC, for comparison: the question has a limit of two
    /// thousand million an hour, and only the key in it.
    Throttlecrab,
    /// One check a request over HTTP/1.1.
    Http(HttpPath, Question),
    /// Requests through a gateway, or to whatever answers 429 to those that are over a limit.
    Gateway(Forwarded),
    /// Several checks a request.
    Batch {
        /// What carries them.
        over: Over,
        /// What each check asks, about a key of its own.
        question: Question,
        /// Checks of a request, 1 to [`BATCH_MAX`].
        size: u32,
    },
}

/// Where a check is asked over HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpPath {
    /// `/v1/check`.
    Check,
    /// `/json`, Envoy's protocol as JSON.
    Json,
}

/// A request that is to be forwarded, without a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarded {
    /// GET, unless something else is meant.
    pub method: Method,
    /// Where to, with `{key}` for the key of each request.
    pub path: String,
}

impl Forwarded {
    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        let path = self.path_of(0);
        match path.parse::<PathAndQuery>() {
            Ok(_) if path.starts_with('/') => Ok(()),
            _ => Err(LoadError::invalid(format!(
                "path: `{}` is none; write one such as /tenants/{{key}}/orders",
                self.path
            ))),
        }
    }

    fn path_of(&self, key: u32) -> String {
        self.path.replace(PLACE, &name(key))
    }
}

/// What carries a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// `ratekeeper.v1`'s `CheckBatch`.
    Grpc,
    /// `/v1/checks` over HTTP/1.1.
    Http,
}

/// throttlecrab's request, by the numbers of its fields.
#[derive(Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period_secs: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

impl Service {
    /// Decisions of one request.
    #[must_use]
    pub const fn decisions_per_request(&self) -> u32 {
        match self {
            Self::Rls(_) | Self::Throttlecrab | Self::Http(..) | Self::Gateway(_) => 1,
            Self::Batch { size, .. } => *size,
        }
    }

    /// Whether several requests can be under way on one connection.
    #[must_use]
    pub const fn has_streams(&self) -> bool {
        match self {
            Self::Rls(_) | Self::Throttlecrab => true,
            Self::Batch { over, .. } => matches!(over, Over::Grpc),
            Self::Http(..) | Self::Gateway(_) => false,
        }
    }

    /// What it is called in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Rls(_) => "grpc",
            Self::Throttlecrab => "throttlecrab",
            Self::Http(HttpPath::Check, _) => "http /v1/check",
            Self::Http(HttpPath::Json, _) => "http /json",
            Self::Gateway(_) => "gateway",
            Self::Batch { over, .. } => match over {
                Over::Grpc => "batch CheckBatch",
                Over::Http => "batch /v1/checks",
            },
        }
    }

    /// Where requests go; those through a gateway each have their own.
    pub(crate) const fn path(&self) -> &'static str {
        match self {
            Self::Gateway(_) => "/",
            Self::Rls(_) => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::Throttlecrab => "/throttlecrab.RateLimiter/Throttle",
            Self::Http(HttpPath::Check, _) => "/v1/check",
            Self::Http(HttpPath::Json, _) => "/json",
            Self::Batch { over, .. } => match over {
                Over::Grpc => "/ratekeeper.v1.RateLimiterService/CheckBatch",
                Over::Http => "/v1/checks",
            },
        }
    }

    /// Whether requests can be about different keys.
    pub(crate) fn has_place(&self) -> bool {
        match self {
            Self::Rls(question) | Self::Http(_, question) | Self::Batch { question, .. } => {
                question.has_place()
            }
            Self::Gateway(forwarded) => forwarded.path.contains(PLACE),
            Self::Throttlecrab => true,
        }
    }

    /// Every request of a run, and the order they are asked in.
    pub(crate) fn requests(&self, keys: Keys) -> (Payloads, Order) {
        let picker = Picker::new(keys, 1);
        let by_key = |encode: &dyn Fn(u32) -> Vec<u8>| {
            let payloads = Payloads::new((0..keys.count()).map(encode));
            (payloads, Order::ByKey(picker.clone()))
        };
        match self {
            Self::Rls(question) => by_key(&|key| framed(&question.envoy(key))),
            Self::Throttlecrab => by_key(&|key| framed(&throttle(key))),
            Self::Http(_, question) => by_key(&|key| question.json(key).to_string().into_bytes()),
            Self::Gateway(forwarded) => by_key(&|key| forwarded.path_of(key).into_bytes()),
            Self::Batch {
                over,
                question,
                size,
            } => {
                let batches = if keys.count() == 1 { 1 } else { BATCHES };
                let mut picker = picker;
                let mut batch = |_| {
                    let keys = (0..*size).map(|_| picker.next());
                    match over {
                        Over::Grpc => framed(&CheckBatchRequest {
                            checks: keys.map(|key| question.check(key)).collect(),
                        }),
                        Over::Http => {
                            let checks: Vec<_> = keys.map(|key| question.json(key)).collect();
                            json!({ "checks": checks }).to_string().into_bytes()
                        }
                    }
                };
                let payloads = Payloads::new((0..batches).map(&mut batch));
                (
                    payloads,
                    Order::InTurn {
                        count: batches,
                        next: 0,
                    },
                )
            }
        }
    }
}

fn throttle(key: u32) -> ThrottleRequest {
    ThrottleRequest {
        key: name(key),
        max_burst: 2_000_000_000,
        count_per_period: 2_000_000_000,
        period_secs: 3_600,
        quantity: 1,
    }
}

/// A gRPC message: not compressed, its length, its bytes.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut frame = Vec::with_capacity(5 + message.len());
    frame.push(0);
    // Some hundred bytes.
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}
