use actix_governor::{Governor, GovernorConfigBuilder};
use actix_web::{App, HttpServer, web};

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = GovernorConfigBuilder::default()
        .milliseconds_per_request(500)
        .burst_size(5)
        .finish()
        .ok_or("neither is zero")?;
    let app = move || {
        App::new()
            .wrap(Governor::new(&config))
            .route("/", web::get().to(async || "hello"))
    };
    Ok(HttpServer::new(app).bind("127.0.0.1:3000")?.run().await?)
}
