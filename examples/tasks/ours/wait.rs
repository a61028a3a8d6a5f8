use ratekeeper::{Limit, RateLimiter};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::unkeyed(Limit::per_second(5).burst(1))?;
    for call in 0..4 {
        limiter.until_allowed().await?;
        println!("call {call}");
    }
    Ok(())
}
