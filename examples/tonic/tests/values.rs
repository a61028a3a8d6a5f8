//! The layer of limits as values around a gRPC service, by the address of the peer.

use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn calls_are_limited_by_their_peer() {
    let limiter = RateLimiter::keyed(Limit::per_hour(2)).expect("a valid limit");
    let layer = RateLimitLayer::new(limiter.clone())
        .key(|parts| parts.extensions.get::<TcpConnectInfo>()?.remote_addr());
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let server = Server::builder().layer(layer).add_service(health);
    let served = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    let mut client = HealthClient::new(endpoint.connect().await.expect("it listens"));
    let asked = || HealthCheckRequest::default();
    for left in ["1", "0"] {
        let answer = client.check(asked()).await.expect("it passes");
        let told = answer.metadata().get("x-ratelimit-remaining");
        assert_eq!(told.and_then(|told| told.to_str().ok()), Some(left));
    }
    let denied = client
        .check(asked())
        .await
        .expect_err("the third is denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.message().contains("retry after"), "{denied}");
    assert!(denied.metadata().contains_key("retry-after"));
    assert!(!limiter.peek(address).allowed, "keyed by the address alone");
    served.abort();
}
