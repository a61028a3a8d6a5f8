use std::num::NonZeroU32;

use governor::clock::{Clock, DefaultClock};
use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;

fn main() {
    let limiter = RateLimiter::keyed(Quota::per_minute(nonzero!(10u32)));
    for pages in [4, 4, 4, 11].into_iter().filter_map(NonZeroU32::new) {
        match limiter.check_key_n(&"ada", pages) {
            Ok(Ok(())) => println!("printed {pages}"),
            Ok(Err(denied)) => {
                let wait = denied.wait_time_from(DefaultClock::default().now());
                println!("{pages} later, in {wait:?}");
            }
            Err(_) => println!("{pages} never"),
        }
    }
}
