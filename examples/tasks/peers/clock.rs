use std::time::Duration;

use governor::{Quota, RateLimiter, clock::FakeRelativeClock};
use nonzero_ext::nonzero;

fn main() {
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_minute(nonzero!(1u32));
    let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
    assert!(limiter.check().is_ok());
    assert!(limiter.check().is_err());
    clock.advance(Duration::from_secs(60));
    assert!(limiter.check().is_ok());
}
