//! A leaky bucket as it is for callers who wait for so long and no longer.

use std::sync::OnceLock;

use ratekeeper_core::{Limit, Micros};

/// The most lengths that are kept: each caller's settings have one, and a full waiting room another.
const LENGTHS_MAX: usize = 8;

/// The limit for each length that was asked with, made when it first was: steps borrow it, so it
/// stays where it is as long as the rules do.
#[derive(Debug, Default)]
pub(crate) struct Within([OnceLock<Box<(Micros, Limit)>>; LENGTHS_MAX]);

impl Within {
    /// `limit` for callers who wait for `most`; in `spare` if too many lengths are kept already.
    pub(crate) fn get<'a>(&'a self, most: Micros, limit: &Limit, spare: &'a Spare) -> &'a Limit {
        let kept = self.0.iter().find_map(|place| {
            let made = place.get_or_init(|| Box::new((most, limit.with_delay_max(most))));
            (made.0 == most).then_some(&made.1)
        });
        kept.unwrap_or_else(|| spare.keep(limit.with_delay_max(most)))
    }
}

/// Limits that are made for one check: a list, since those that steps borrow must not move.
#[derive(Debug, Default)]
pub(crate) struct Spare(OnceLock<Box<(Limit, Self)>>);

impl Spare {
    fn keep(&self, limit: Limit) -> &Limit {
        let mut end = self;
        while let Some(taken) = end.0.get() {
            end = &taken.1;
        }
        &end.0.get_or_init(|| Box::new((limit, Self::default()))).0
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, LimitSpec};

    use super::*;

    #[test]
    fn every_length_has_its_limit_and_so_many_are_kept() {
        let spec = LimitSpec::new(Algorithm::LeakyBucket, 60, Micros::from_secs(60));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let (within, spare) = (Within::default(), Spare::default());
        let get = |secs| within.get(Micros::from_secs(secs), &limit, &spare);
        let made: Vec<_> = (0..12).chain(0..8).map(|secs| (secs, get(secs))).collect();
        for (secs, made) in made {
            assert_eq!(made.delay_max(), Micros::from_secs(secs));
        }
        assert!(std::ptr::eq(get(7), get(7)), "kept");
        assert!(!std::ptr::eq(get(8), get(8)), "made for each check");
    }
}
