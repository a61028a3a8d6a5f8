//! Health, reflection, and what hostile or broken gRPC clients get.

use crate::certificates::put;
use crate::support::{PATIENCE, RULES, Running, request, start, start_with};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper_server::{OnUnreadable, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

async fn channel(running: &Running) -> Channel {
    let address = format!("http://{}", running.addresses.grpc);
    Channel::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap()
}

fn named(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn health_answers_to_envoyproxy_ratelimits_name_and_to_none() {
    let running = start(RULES).await;
    let mut client = HealthClient::new(channel(&running).await);
    for service in ["", "ratelimit"] {
        let answer = client.check(named(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    let error = client.check(named("other")).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    running.stop().await;
}

#[tokio::test]
async fn health_watchers_see_rules_come_and_the_shutdown() {
    let running = start("domain: [").await;
    let mut client = HealthClient::new(channel(&running).await);
    let mut watch = client.watch(named("ratelimit")).await.unwrap().into_inner();
    let next = async |watch: &mut tonic::Streaming<_>| {
        let answer: Option<tonic_health::pb::HealthCheckResponse> =
            timeout(PATIENCE, watch.message()).await.unwrap().unwrap();
        answer.map(|answer| answer.status())
    };
    assert_eq!(next(&mut watch).await, Some(ServingStatus::NotServing));
    put(&running.dir.path().join("rules.yaml"), RULES);
    assert_eq!(next(&mut watch).await, Some(ServingStatus::Serving));
    let (task, _dir) = running.begin_shutdown();
    // The stream ends, so that it does not keep the drain waiting; the last word may be lost
    // between the two, the end cannot.
    let last = next(&mut watch).await;
    assert!(
        matches!(last, None | Some(ServingStatus::NotServing)),
        "{last:?}"
    );
    assert_eq!(timeout(PATIENCE, task).await.unwrap().unwrap().cut, 0);
}

#[tokio::test]
async fn reflection_knows_the_services() {
    let running = start(RULES).await;
    let mut client = ServerReflectionClient::new(channel(&running).await);
    let ask = |message| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let requests = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "envoy.service.ratelimit.v3.RateLimitService".to_owned(),
        )),
    ];
    let mut answers = client
        .server_reflection_info(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let services = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let MessageResponse::ListServicesResponse(services) = services else {
        panic!("{services:?}")
    };
    let mut names: Vec<_> = services
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    names.sort();
    assert!(
        names.contains(&"envoy.service.ratelimit.v3.RateLimitService".to_owned()),
        "{names:?}"
    );
    assert!(
        names.contains(&"grpc.health.v1.Health".to_owned()),
        "{names:?}"
    );
    let file = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    assert!(
        matches!(file, MessageResponse::FileDescriptorResponse(_)),
        "{file:?}"
    );
    running.stop().await;
}

/// Sends bytes as a message of `ShouldRateLimit`; answers status and message.
async fn send(running: &Running, path: &str, body: Vec<u8>) -> (String, String) {
    let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let request = ::http::Request::post(format!("http://{}{path}", running.addresses.grpc))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.into()))
        .unwrap();
    let response = client.request(request).await.unwrap();
    let (head, body) = response.into_parts();
    let trailers = body
        .collect()
        .await
        .unwrap()
        .trailers()
        .cloned()
        .unwrap_or_default();
    let get = |name: &str| {
        let value = head.headers.get(name).or_else(|| trailers.get(name));
        value
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    };
    (get("grpc-status"), get("grpc-message"))
}

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const INVALID_ARGUMENT: &str = "3";

/// A gRPC frame around `message`.
fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    frame
}

/// Has errors in place of denials.
fn with_errors(config: &mut ServerConfig) {
    config.on_unreadable = OnUnreadable::Error;
}

#[tokio::test]
async fn what_is_no_message_is_refused_by_field() {
    let running = start_with(RULES, with_errors).await;
    // Field 1, `domain`, of a wrong wire type; then with bytes that are no UTF-8; then cut off.
    for (message, names) in [
        (&b"\x08\x01"[..], "RateLimitRequest.domain"),
        (b"\x0a\x01\xff", "RateLimitRequest.domain"),
        (b"\x0a\x05d", "RateLimitRequest.domain"),
        (b"\x12\x02\x0a\x09", "RateLimitRequest.descriptors"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "varint"),
    ] {
        let (status, found) = send(&running, PATH, framed(message)).await;
        assert_eq!(status, INVALID_ARGUMENT, "{message:x?} {found}");
        assert!(found.contains(names), "{found}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused() {
    let running = start_with(RULES, |config| {
        with_errors(config);
        config.bounds.message_bytes_max = 1_000;
    })
    .await;
    let (status, message) = send(&running, PATH, framed(&vec![0; 1_001])).await;
    assert_eq!(status, INVALID_ARGUMENT);
    assert!(
        message.contains("1001%20bytes") || message.contains("1001 bytes"),
        "{message}"
    );
    // The connection and the service go on.
    running
        .grpc()
        .await
        .should_rate_limit(request("d", &[("user", "a")]))
        .await
        .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let running = start(RULES).await;
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/Nothing",
        "/nothing.Service/Method",
    ] {
        assert_eq!(send(&running, path, framed(b"")).await.0, "12", "{path}");
    }
    running.stop().await;
}

#[tokio::test]
async fn messages_and_streams_are_bounded_by_default() {
    let running = start_with(RULES, with_errors).await;
    for (path, max) in [(PATH, 4 << 20), ("/grpc.health.v1.Health/Check", 64 << 10)] {
        // An unknown field of so many bytes, which is skipped.
        let message = |bytes: usize| {
            let length = bytes - 6;
            let digits = [0, 7, 14, 21].map(|shift| u8::try_from(length >> shift & 0x7f).unwrap());
            let mut message = vec![0xfa, 0x07];
            message.extend([
                digits[0] | 0x80,
                digits[1] | 0x80,
                digits[2] | 0x80,
                digits[3],
            ]);
            message.resize(bytes, 0);
            framed(&message)
        };
        let size = format!("{}", max);
        let (_, found) = send(&running, path, message(max)).await;
        assert!(!found.contains(&size), "{path} {found}");
        let (status, found) = send(&running, path, message(max + 1)).await;
        assert!(
            status == INVALID_ARGUMENT || status == "11",
            "{path} {status} {found}"
        );
        assert!(found.contains(&size), "{path} {found}");
    }

    let mut stream = TcpStream::connect(running.addresses.grpc).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame is SETTINGS");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    // MAX_CONCURRENT_STREAMS is number 3 (RFC 9113, section 6.5.2).
    assert!(
        settings
            .chunks(6)
            .any(|setting| setting == [0, 3, 0, 0, 1, 0]),
        "{settings:x?}"
    );
    drop(stream);
    running.stop().await;
}
