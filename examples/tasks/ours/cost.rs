use ratekeeper::{Limit, RateLimiter};

fn main() -> Result<(), ratekeeper::Error> {
    let limiter = RateLimiter::keyed(Limit::per_minute(10))?;
    for pages in [4, 4, 4, 11] {
        let answer = limiter.check_n("ada", pages);
        match answer.retry_after {
            _ if answer.allowed => println!("printed {pages}, {} left", answer.remaining),
            Some(wait) => println!("{pages} later, in {wait:?}"),
            None => println!("{pages} never"),
        }
    }
    Ok(())
}
