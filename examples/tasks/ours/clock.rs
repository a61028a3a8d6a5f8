use std::time::Duration;

use ratekeeper::{Limit, ManualClock, RateLimiter};

fn main() -> Result<(), ratekeeper::Error> {
    let clock = ManualClock::new();
    let limit = Limit::per_minute(1);
    let limiter = RateLimiter::builder(limit).clock(&clock).build()?;
    assert!(limiter.check("ada").allowed);
    assert!(!limiter.check("ada").allowed);
    clock.advance(Duration::from_secs(60));
    assert!(limiter.check("ada").allowed);
    Ok(())
}
