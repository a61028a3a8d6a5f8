//! Limits and refunds in Envoy's protocol need a permission wherever other hosts can ask.

use std::net::{Ipv4Addr, SocketAddr};

use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_server::{Caller, EnvoyCallers, Powers, Proof, ServerConfig};
use sha2::{Digest, Sha256};
use tonic::Request;
use tonic::transport::Channel;

use crate::support::{RULES, Running, envoy, request, start, start_with};

/// Listens where other hosts can reach it, and knows one caller.
fn open(config: &mut ServerConfig) {
    let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    config.grpc = Some(everywhere.into());
    config.http = Some(everywhere.into());
    let caller = |name: &str, token: &str, may| Caller {
        name: name.into(),
        proof: Proof::TokenSha256(Sha256::digest(token).into()),
        may,
        role: None,
    };
    let all = Powers {
        overrides: true,
        refund: true,
        ..Powers::default()
    };
    config.callers = vec![
        caller("envoy", "secret", all),
        caller("watcher", "looks", Powers::default()),
    ];
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

async fn grpc(running: &Running) -> RateLimitServiceClient<Channel> {
    let to = local(running.addresses.grpc.port());
    RateLimitServiceClient::connect(format!("http://{to}"))
        .await
        .unwrap()
}

/// A request that brings a limit along.
fn with_limit() -> RateLimitRequest {
    let mut asked = request("d", &[("user", "own")]);
    asked.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 1_000,
        unit: 6,
    });
    asked
}

/// A request that gives hits back.
fn with_refund() -> RateLimitRequest {
    let mut asked = request("d", &[("user", "ada")]);
    asked.descriptors[0].is_negative_hits = true;
    asked
}

fn shown(asked: RateLimitRequest, token: &str) -> Request<RateLimitRequest> {
    let mut asked = Request::new(asked);
    let header = format!("Bearer {token}").parse().unwrap();
    asked.metadata_mut().insert("authorization", header);
    asked
}

#[tokio::test]
async fn strangers_bring_no_limits_and_give_nothing_back_over_grpc() {
    let running = start_with(RULES, open).await;
    let mut client = grpc(&running).await;
    for _ in 0..3 {
        let plain = request("d", &[("user", "ada")]);
        let answer = client.should_rate_limit(plain).await.unwrap().into_inner();
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    for asked in [with_limit(), with_refund()] {
        let refused = client.should_rate_limit(asked.clone()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused:?}");
        let refused = client.should_rate_limit(shown(asked.clone(), "looks"));
        let refused = refused.await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused:?}");
        let refused = client.should_rate_limit(shown(asked, "guess"));
        let refused = refused.await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused:?}");
    }
    // Nothing was given back.
    let plain = || request("d", &[("user", "ada")]);
    let answer = client.should_rate_limit(plain()).await.unwrap();
    assert_eq!(answer.into_inner().overall_code(), Code::OverLimit);
    for asked in [with_limit(), with_refund()] {
        let answer = client.should_rate_limit(shown(asked, "secret"));
        assert_eq!(answer.await.unwrap().into_inner().overall_code(), Code::Ok);
    }
    let answer = client.should_rate_limit(plain()).await.unwrap();
    assert_eq!(answer.into_inner().overall_code(), Code::Ok);
    running.stop().await;
}

#[tokio::test]
async fn under_the_envoy_profile_everybody_may_as_there() {
    let running = start_with(RULES, |config| {
        open(config);
        envoy(config);
    })
    .await;
    let mut client = grpc(&running).await;
    for asked in [with_limit(), with_refund()] {
        let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    let to = local(running.addresses.http.port());
    let form = [("content-type", "text/plain")];
    for body in [PLAIN, LIMIT, REFUND] {
        let (status, answer) = running.send(to, "POST", "/json", &form, body).await;
        assert_eq!(status, 200, "{answer}");
    }
    running.stop().await;
}

const PLAIN: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"eve"}]}]}"#;
const LIMIT: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"eve"}],
    "limit":{"requestsPerUnit":1000,"unit":"YEAR"}}]}"#;
const REFUND: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"eve"}],
    "isNegativeHits":true}]}"#;

#[tokio::test]
async fn strangers_bring_no_limits_and_give_nothing_back_over_json() {
    let running = start_with(RULES, open).await;
    let to = local(running.addresses.http.port());
    let json = ("content-type", "application/json");
    let token = ("authorization", "Bearer secret");
    let known = ("authorization", "Bearer looks");
    let cases: [(u16, &[_], &str); 8] = [
        (200, &[json], PLAIN),
        (401, &[json], LIMIT),
        (401, &[json], REFUND),
        (403, &[json, known], LIMIT),
        (200, &[json, token], LIMIT),
        (200, &[json, token], REFUND),
        // A page can have a browser post these without asking first.
        (415, &[("content-type", "text/plain")], PLAIN),
        (415, &[], PLAIN),
    ];
    for (expected, headers, body) in cases {
        let (status, answer) = running.send(to, "POST", "/json", headers, body).await;
        assert_eq!(status, expected, "{headers:?} {body}: {answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn on_this_host_alone_no_permission_is_needed_except_by_web_pages() {
    let running = start(RULES).await;
    let mut client = running.grpc().await;
    for asked in [with_limit(), with_refund()] {
        let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    let mut of_a_page = Request::new(with_refund());
    let origin = "https://evil.example".parse().unwrap();
    of_a_page.metadata_mut().insert("origin", origin);
    let refused = client.should_rate_limit(of_a_page).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    let to = running.addresses.http;
    let json = ("content-type", "application/json");
    let page = ("origin", "https://evil.example");
    for body in [LIMIT, REFUND] {
        let (status, answer) = running.send(to, "POST", "/json", &[json], body).await;
        assert_eq!(status, 200, "{answer}");
        let (status, _) = running.send(to, "POST", "/json", &[json, page], body).await;
        assert_eq!(status, 403);
        let plain = [("content-type", "text/plain"), page];
        let (status, _) = running.send(to, "POST", "/json", &plain, body).await;
        assert_eq!(status, 415);
    }
    running.stop().await;
}

#[tokio::test]
async fn where_callers_are_required_strangers_are_not_even_answered() {
    let running = start_with(RULES, |config| {
        open(config);
        config.rls.callers = Some(EnvoyCallers::Required);
    })
    .await;
    let mut client = grpc(&running).await;
    let plain = || request("d", &[("user", "ada")]);
    let refused = client.should_rate_limit(plain()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    let answer = client.should_rate_limit(shown(plain(), "looks")).await;
    assert_eq!(answer.unwrap().into_inner().overall_code(), Code::Ok);
    let to = local(running.addresses.http.port());
    let json = ("content-type", "application/json");
    let token = ("authorization", "Bearer looks");
    let (status, _) = running.send(to, "POST", "/json", &[json], PLAIN).await;
    assert_eq!(status, 401);
    let shown = [json, token];
    let (status, answer) = running.send(to, "POST", "/json", &shown, PLAIN).await;
    assert_eq!(status, 200, "{answer}");
    running.stop().await;
}
