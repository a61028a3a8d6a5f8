//! An axum service with rate limits.
//!
//! ```sh
//! cargo run -p example-axum &
//! until curl -so /dev/null http://127.0.0.1:3000/; do sleep 1; done
//! curl -i -H 'x-api-key: ada' http://127.0.0.1:3000/orders
//! ```
//!
//! The sixth request within an hour gets a 429, and every response has the remaining requests. When the service cannot keep up,
//! the least important requests get a 503, by `shed:` in the rules.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use ratekeeper::tower::{Hop, RulesLayer, ShedLayer};
use tokio::net::TcpListener;

const RULES: &str = include_str!("../rules.yaml");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");

    let limiter = Arc::new(ratekeeper::from_yaml(RULES)?);
    let limits = RulesLayer::new(limiter, "shop").peer(|extensions| {
        let ConnectInfo(peer) = extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(Hop::Address(peer.ip()))
    });
    let app = Router::new()
        .route("/orders", get(async || "no orders yet\n"))
        .route("/reports", get(report))
        .layer(ShedLayer::default())
        .layer(limits);

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

async fn report() -> &'static str {
    tokio::time::sleep(Duration::from_millis(200)).await;
    "nothing to report\n"
}
