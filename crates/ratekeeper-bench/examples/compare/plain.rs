//! A service as anybody would write it with tonic, which answers a constant: what gRPC costs in Rust without a limiter.
//!
//! This program is its own server: `compare plain HOST:PORT ANSWER`, the answer in hexadecimal digits.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use prost::Message;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The first argument of the program as a server.
pub(crate) const NAME: &str = "plain";

struct Constant(RateLimitResponse);

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.0.clone()))
    }
}

/// Serves until it is killed.
pub(crate) fn serve(args: &[String]) -> Result<()> {
    let [address, answer] = args else {
        bail!("usage: compare {NAME} HOST:PORT ANSWER");
    };
    let address: SocketAddr = address.parse().context("no address to listen on")?;
    let answer =
        RateLimitResponse::decode(&*bytes(answer)?).context("no answer of the protocol")?;
    // One thread, as each worker of a server has.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let service = RateLimitServiceServer::new(Constant(answer));
    let served = Server::builder().add_service(service).serve(address);
    runtime.block_on(served).context("it cannot be served")
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok();
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    digits
        .map(|pair| byte(pair).context("the answer is not in hexadecimal digits"))
        .collect()
}
