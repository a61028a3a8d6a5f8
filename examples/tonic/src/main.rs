//! A gRPC service with rate limits.
//!
//! ```sh
//! cargo run -p example-tonic
//! ```
//!
//! In another shell, once it listens:
//!
//! ```sh
//! grpcurl -plaintext -H 'x-api-key: ada' 127.0.0.1:3001 grpc.health.v1.Health/Check
//! ```
//!
//! The third call within an hour fails with `RESOURCE_EXHAUSTED`, and its details have the retry
//! time.

use std::error::Error;
use std::sync::Arc;

use ratekeeper::tower::{Hop, RulesLayer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;

const RULES: &str = "
domain: shop
descriptors:
  - key: api_key
    rate_limit: { window: 1h, limit: 2 }
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3001");

    let limiter = Arc::new(ratekeeper::from_yaml(RULES)?);
    let limits = RulesLayer::new(limiter, "shop").peer(|extensions| {
        let peer = extensions.get::<TcpConnectInfo>()?.remote_addr()?;
        Some(Hop::Address(peer.ip()))
    });
    // Any service would do; this one comes with tonic.
    let (_, health) = tonic_health::server::health_reporter();

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let served = Server::builder().layer(limits).add_service(health);
    Ok(served
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?)
}
