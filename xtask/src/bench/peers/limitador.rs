//! Envoy's rate limit service around the limitador library, as its own server asks it: the descriptors' entries become a
//! list that conditions and variables of limits read, and one call decides and counts.
//!
//! Its argument is the address to listen on.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::{Request, Response, Status};

/// The counters that it has room for.
const COUNTERS: u64 = 1_000_000;

struct Service(RateLimiter);

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let descriptors = request.descriptors.into_iter().map(|descriptor| {
            let entries = descriptor.entries.into_iter();
            entries.map(|entry| (entry.key, entry.value)).collect()
        });
        let descriptors: Vec<HashMap<String, String>> = descriptors.collect();
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), descriptors);
        let hits = u64::from(request.hits_addend.max(1));
        let domain = Namespace::from(request.domain);
        let decided = self.0.check_rate_limited_and_update(&domain, &context, hits);
        let is_limited = decided.map_err(|error| Status::unavailable(error.to_string()))?.limited;
        let code = if is_limited { Code::OverLimit } else { Code::Ok };
        Ok(Response::new(RateLimitResponse {
            overall_code: code.into(),
            ..Default::default()
        }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("say where to listen: HOST:PORT")?;
    let address: SocketAddr = address.parse()?;
    let limiter = RateLimiter::new(COUNTERS);
    limiter.add_limit(Limit::new(
        "bench",
        490_000,
        1,
        vec!["descriptors[0].endpoint == 'POST /api/v1/orders'".try_into()?],
        vec!["descriptors[0].api_key".try_into()?],
    ));
    let service = RateLimitServiceServer::new(Service(limiter));
    tonic::transport::Server::builder()
        .add_service(service)
        .serve(address)
        .await?;
    Ok(())
}
