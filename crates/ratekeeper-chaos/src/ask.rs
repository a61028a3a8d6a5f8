//! Requests to a node, over gRPC as Envoy and other clients send them, and over HTTP.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost_types::value::Kind;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratekeeper_proto::ratekeeper::v1 as own;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use crate::rules::{DOMAIN, Rule};

/// A counter to ask for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) rule: Rule,
    pub(crate) value: u64,
}

/// The answer of a node to a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) degraded: bool,
}

/// Connections to one node.
#[derive(Clone)]
pub(crate) struct Asker {
    envoy: RateLimitServiceClient<Channel>,
    own: RateLimiterServiceClient<Channel>,
    web: Client<HttpConnector, Full<Bytes>>,
    http: u16,
    patience: Duration,
}

/// A permit or a reservation, as opaque as it is to any caller.
pub(crate) struct Taken {
    pub(crate) answer: Answer,
    /// None if there is nothing to settle.
    pub(crate) token: Option<String>,
}

impl Asker {
    /// Connects lazily to the node at these ports. No call takes longer than `patience`.
    pub(crate) fn new(grpc: u16, http: u16, patience: Duration) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{grpc}"))?;
        let channel = endpoint.timeout(patience).connect_lazy();
        Ok(Self {
            envoy: RateLimitServiceClient::new(channel.clone()),
            own: RateLimiterServiceClient::new(channel),
            web: Client::builder(TokioExecutor::new()).build_http(),
            http,
            patience,
        })
    }

    /// Asks as Envoy does.
    pub(crate) async fn envoy(&self, key: &Key) -> Result<Answer> {
        let entry = WireEntry {
            key: key.rule.key().to_owned(),
            value: key.value.to_string(),
        };
        let request = RateLimitRequest {
            domain: DOMAIN.to_owned(),
            descriptors: vec![RateLimitDescriptor {
                entries: vec![entry],
                ..Default::default()
            }],
            ..Default::default()
        };
        let response = self.envoy.clone().should_rate_limit(request).await?;
        let response = response.into_inner();
        Ok(Answer {
            allowed: response.overall_code() == Code::Ok,
            degraded: is_marked(&response),
        })
    }

    /// Asks by our own protocol over gRPC.
    pub(crate) async fn grpc(&self, key: &Key) -> Result<Answer> {
        let request = own::CheckRequest {
            domain: DOMAIN.to_owned(),
            descriptors: vec![descriptor(key)],
            ..Default::default()
        };
        let response = self.own.clone().check(request).await?.into_inner();
        Ok(Answer {
            allowed: response.decision() == own::Decision::Allow,
            degraded: response.degraded,
        })
    }

    /// Takes a permit over gRPC.
    pub(crate) async fn acquire(&self, key: &Key) -> Result<Taken> {
        let request = own::AcquireRequest {
            domain: DOMAIN.to_owned(),
            descriptors: vec![descriptor(key)],
            ..Default::default()
        };
        let response = self.own.clone().acquire(request).await?.into_inner();
        Ok(Taken {
            answer: Answer {
                allowed: response.decision() == own::Decision::Allow,
                degraded: response.degraded,
            },
            token: Some(response.permit).filter(|permit| !permit.is_empty()),
        })
    }

    /// Gives a permit back over gRPC.
    pub(crate) async fn release(&self, permit: String) -> Result<()> {
        let request = own::ReleaseRequest { permit };
        self.own.clone().release(request).await?;
        Ok(())
    }

    /// Asks over HTTP.
    pub(crate) async fn http(&self, key: &Key) -> Result<Answer> {
        let body = check(key);
        read(&self.post("/v1/check", &body).await?)
    }

    /// Asks for several at once over HTTP.
    pub(crate) async fn batch(&self, keys: &[Key]) -> Result<Vec<Answer>> {
        let checks: Vec<Value> = keys.iter().map(check).collect();
        let body = self
            .post("/v1/checks", &json!({ "checks": checks }))
            .await?;
        let results = body["results"].as_array();
        let results = results.with_context(|| format!("no results in {body}"))?;
        ensure!(results.len() == keys.len(), "not as many answers as checks");
        results.iter().map(read).collect()
    }

    /// Reserves hits over HTTP.
    pub(crate) async fn reserve(&self, key: &Key, hits: u64) -> Result<Taken> {
        let mut body = check(key);
        body["hits"] = json!(hits);
        let body = self.post("/v1/reserve", &body).await?;
        Ok(Taken {
            answer: read(&body)?,
            token: body["reservation"].as_str().map(str::to_owned),
        })
    }

    /// Settles a reservation over HTTP.
    pub(crate) async fn commit(&self, reservation: &str, hits: u64) -> Result<()> {
        let body = json!({ "reservation": reservation, "hits": hits });
        self.post("/v1/commit", &body).await?;
        Ok(())
    }

    /// Asks what is left of a limit, and takes nothing. None if Redis does not answer.
    pub(crate) async fn left(&self, key: &Key) -> Result<Option<u64>> {
        let body = self.post("/v1/peek", &check(key)).await?;
        let answer = read(&body)?;
        Ok(body["remaining"].as_u64().filter(|_| !answer.degraded))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let request = http::Request::post(format!("http://127.0.0.1:{}{path}", self.http))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))?;
        let (status, text) = tokio::time::timeout(self.patience, send(&self.web, request))
            .await
            .with_context(|| format!("no answer to {path} in {:?}", self.patience))??;
        ensure!(status == 200, "{path}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }
}

/// Gets a page of a node's admin port: status and text.
pub(crate) async fn get(
    web: &Client<HttpConnector, Full<Bytes>>,
    port: u16,
    path: &str,
) -> Result<String> {
    let request =
        http::Request::get(format!("http://127.0.0.1:{port}{path}")).body(Full::default())?;
    let (status, text) = send(web, request).await?;
    match status {
        200 => Ok(text),
        _ => bail!("{path}: {status} {text}"),
    }
}

async fn send(
    web: &Client<HttpConnector, Full<Bytes>>,
    request: http::Request<Full<Bytes>>,
) -> Result<(u16, String)> {
    let response = web.request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Returns true if Envoy was told that a failure mode decided.
fn is_marked(response: &RateLimitResponse) -> bool {
    let metadata = response.dynamic_metadata.as_ref();
    let mark = metadata.and_then(|metadata| metadata.fields.get("degraded"));
    let kind = mark.and_then(|mark| mark.kind.as_ref());
    matches!(kind, Some(Kind::BoolValue(true)))
}

fn descriptor(key: &Key) -> own::Descriptor {
    let entry = WireEntry {
        key: key.rule.key().to_owned(),
        value: key.value.to_string(),
    };
    own::Descriptor {
        entries: vec![entry],
        ..Default::default()
    }
}

fn check(key: &Key) -> Value {
    let entry = json!({ "key": key.rule.key(), "value": key.value.to_string() });
    json!({ "domain": DOMAIN, "descriptors": [{ "entries": [entry] }] })
}

fn read(body: &Value) -> Result<Answer> {
    let degraded = body["degraded"].as_bool();
    Ok(Answer {
        allowed: match body["decision"].as_str() {
            Some("allow") => true,
            Some("deny") => false,
            _ => bail!("no decision in {body}"),
        },
        degraded: degraded.with_context(|| format!("no mark in {body}"))?,
    })
}
