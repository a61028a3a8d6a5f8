use std::net::SocketAddr;

use axum::{Router, extract::ConnectInfo, routing::get};
use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(2).burst(5))?)
        .key(|parts| Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(limits);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app).await?)
}
