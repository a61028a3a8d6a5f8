//! `/` of the gRPC listener, for visitors with curl or a browser, who mostly speak HTTP/1.

use axum::Router;
use axum::routing::get;
use http::StatusCode;

pub(super) const PATH: &str = "/";

/// The services, and where to read on.
const TEXT: &str = "Ratekeeper decides whether requests may pass. This port speaks gRPC (HTTP/2).

envoy.service.ratelimit.v3.RateLimitService   Envoy's rate limit protocol
ratekeeper.v1.RateLimiterService              checks, permits, reservations, limits by identifier
grpc.health.v1.Health                         for the service \"\" or \"ratelimit\"
grpc.reflection.v1.ServerReflection           every field: grpcurl -plaintext HOST:PORT describe

Manual: https://github.com/ratekeeper/ratekeeper/blob/main/docs/api.md
The HTTP listener answers the same questions as JSON, and has /openapi.json.
";

/// Answers everything that comes over HTTP/1.
pub(crate) fn over_http1() -> Router {
    add(Router::new().fallback(async || (StatusCode::NOT_FOUND, TEXT)))
}

/// Adds `/`.
pub(super) fn add(router: Router) -> Router {
    router.route(PATH, get(async || TEXT))
}
