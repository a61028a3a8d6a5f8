//! A leaky bucket as it is for callers who wait for so long and no longer.

use std::sync::OnceLock;

use ratekeeper_core::{Limit, Micros};

/// The most lengths that are told apart: each caller's settings have one, and a full waiting
/// room another.
const LENGTHS_MAX: usize = 8;

/// The limit for each length that was asked with, made when it first was: steps borrow it, so it
/// stays where it is as long as the rules do.
#[derive(Debug, Default)]
pub(crate) struct Within([OnceLock<Box<(Micros, Limit)>>; LENGTHS_MAX]);

impl Within {
    /// `limit` for callers who wait for `most`; itself if there are too many lengths already.
    pub(crate) fn get<'a>(&'a self, most: Micros, limit: &'a Limit) -> &'a Limit {
        let made = self.0.iter().find_map(|place| {
            let made = place.get_or_init(|| Box::new((most, limit.with_delay_max(most))));
            (made.0 == most).then_some(&made.1)
        });
        made.unwrap_or(limit)
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, LimitSpec};

    use super::*;

    #[test]
    fn each_length_has_its_limit_and_there_are_only_so_many() {
        let spec = LimitSpec::new(Algorithm::LeakyBucket, 60, Micros::from_secs(60));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let within = Within::default();
        for secs in (0..8).chain(0..8) {
            let most = Micros::from_secs(secs);
            assert_eq!(within.get(most, &limit).delay_max(), most);
        }
        assert_eq!(*within.get(Micros::from_secs(8), &limit), limit);
    }
}
