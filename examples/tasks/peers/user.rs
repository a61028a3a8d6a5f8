use axum::{Router, http::Request, routing::get};
use tokio::net::TcpListener;
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer, governor::GovernorConfigBuilder};

#[derive(Clone)]
struct User;

impl KeyExtractor for User {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let user = request.headers().get("x-user");
        let user = user.and_then(|user| user.to_str().ok());
        user.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = GovernorConfigBuilder::default()
        .per_millisecond(500)
        .burst_size(5)
        .key_extractor(User)
        .finish()
        .ok_or("neither is zero")?;
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(GovernorLayer::new(config));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app).await?)
}
