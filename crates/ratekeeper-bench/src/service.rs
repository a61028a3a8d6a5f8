//! The kinds of services, and the requests to each.

use http::Method;
use http::uri::PathAndQuery;
use prost::Message;
use ratekeeper_proto::ratekeeper::v1::CheckBatchRequest;
use serde_json::json;

use crate::failure::LoadError;
use crate::keys::{Keys, Picker};
use crate::payload::{Order, Payloads};
use crate::question::{KEY_PLACEHOLDER, Question, name};

/// The most checks in a batch, which is the limit of `/v1/checks`.
pub const BATCH_MAX: u32 = 1_000;

/// Different batches of a run; each thread cycles through them from its own start.
const BATCHES: u32 = 256;

/// The service to call, and the content of requests.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Service {
    /// Envoy's `RateLimitService` over gRPC.
    Rls(Question),
    /// throttlecrab's own service over gRPC, for comparison: its request carries a limit of two
    /// thousand million an hour, and nothing but the key.
    Throttlecrab,
    /// One check per request over HTTP/1.1.
    Http(HttpPath, Question),
    /// Requests through a gateway, or any server that answers 429 to requests over a limit.
    Gateway(Forwarded),
    /// Several checks per request.
    Batch {
        /// The transport.
        over: Over,
        /// The content of each check, with a key of its own.
        question: Question,
        /// Checks per request, 1 to [`BATCH_MAX`].
        size: u32,
    },
}

/// The HTTP endpoint for a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpPath {
    /// `/v1/check`.
    Check,
    /// `/json`, Envoy's protocol as JSON.
    Json,
}

/// A request to forward, without a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarded {
    /// The method, such as GET.
    pub method: Method,
    /// The path, with `{key}` for the key of each request.
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
        self.path.replace(KEY_PLACEHOLDER, &name(key))
    }
}

/// The transport of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// `ratekeeper.v1`'s `CheckBatch`.
    Grpc,
    /// `/v1/checks` over HTTP/1.1.
    Http,
}

/// throttlecrab's request.
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
    /// Decisions per request.
    #[must_use]
    pub(crate) const fn decisions_per_request(&self) -> u32 {
        match self {
            Self::Rls(_) | Self::Throttlecrab | Self::Http(..) | Self::Gateway(_) => 1,
            Self::Batch { size, .. } => *size,
        }
    }

    /// Returns true if a connection can have several requests in flight.
    #[must_use]
    pub const fn has_streams(&self) -> bool {
        match self {
            Self::Rls(_) | Self::Throttlecrab => true,
            Self::Batch { over, .. } => matches!(over, Over::Grpc),
            Self::Http(..) | Self::Gateway(_) => false,
        }
    }

    /// The name in reports.
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

    /// The path of requests; those through a gateway have their own.
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

    /// Returns true if requests can have different keys.
    pub(crate) fn has_place(&self) -> bool {
        match self {
            Self::Rls(question) | Self::Http(_, question) | Self::Batch { question, .. } => {
                question.has_place()
            }
            Self::Gateway(forwarded) => forwarded.path.contains(KEY_PLACEHOLDER),
            Self::Throttlecrab => true,
        }
    }

    /// Every request of a run, and their order.
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

/// A gRPC message frame: uncompressed flag, length, bytes.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut frame = Vec::with_capacity(5 + message.len());
    frame.push(0);
    // Messages have some hundred bytes.
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}
