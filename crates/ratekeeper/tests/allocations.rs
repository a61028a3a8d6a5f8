//! A check in memory allocates nothing.

use std::net::IpAddr;

use ratekeeper::{Checked, Limit, RateLimiter};

fn allocations(ask: impl Fn() -> Checked) -> u64 {
    // The first finds the counter's place.
    ask();
    let info = allocation_counter::measure(|| {
        ask();
    });
    info.count_total
}

#[test]
fn a_check_in_memory_allocates_nothing() {
    let limits = [Limit::per_minute(5), Limit::per_hour(100).burst(9)];
    let limiter = RateLimiter::keyed(limits).expect("valid limits");
    let address: IpAddr = "2001:db8:1:2::3".parse().expect("an address");
    assert_eq!(allocations(|| limiter.check("ada")), 0);
    assert_eq!(allocations(|| limiter.check_n(42_u64, 2)), 0);
    assert_eq!(allocations(|| limiter.check(address)), 0);
    assert_eq!(allocations(|| limiter.check(("ada", address))), 0);
    assert_eq!(allocations(|| limiter.peek("ada")), 0);
    assert_eq!(allocations(|| limiter.refund("ada", 1)), 0);
}
