use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;

#[tokio::main]
async fn main() {
    let quota = Quota::per_second(nonzero!(5u32)).allow_burst(nonzero!(1u32));
    let limiter = RateLimiter::direct(quota);
    for call in 0..4 {
        limiter.until_ready().await;
        println!("call {call}");
    }
}
