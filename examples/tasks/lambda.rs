use axum::{Router, routing::get};
use lambda_http::{Error, request::RequestContext, run};
use ratekeeper::{Limit, RateLimitLayer, RateLimiter};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limits =
        RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(2).burst(5))?).key(|parts| {
            match parts.extensions.get()? {
                RequestContext::ApiGatewayV2(context) => context.http.source_ip.clone(),
                RequestContext::ApiGatewayV1(context) => context.identity.source_ip.clone(),
                _ => None,
            }
        });
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(limits);
    run(app).await
}
