//! The hits that a counter is asked for on a node.

use super::{CREDIT_MAX, LEAST};
use crate::Micros;

/// The hits that a counter had within a lease's time, of late: older ones weigh less, by e for each such time.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Demand {
    hits: f64,
    at: Micros,
}

impl Demand {
    /// Adds `hits` that came since the last time, evenly.
    pub fn record(&mut self, hits: u64, now: Micros, ttl: Micros) {
        let times = self.times(now, ttl);
        let kept = (-times).exp();
        let weight = if times > 0.0 {
            (1.0 - kept) / times
        } else {
            1.0
        };
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let hits = hits as f64;
        self.hits = self.hits * kept + hits * weight;
        self.at = self.at.max(now);
    }

    /// The hits within a lease's time, as of `now`.
    #[must_use]
    pub fn hits(&self, now: Micros, ttl: Micros) -> f64 {
        self.hits * (-self.times(now, ttl)).exp()
    }

    /// The hits to hold; 0 if that is not worth a call.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float that is cast saturates, and it is not negative"
    )]
    pub fn target(&self, now: Micros, ttl: Micros) -> u64 {
        let hits = self.hits(now, ttl);
        match (hits.round() as u64) < LEAST {
            true => 0,
            false => (hits.mul_add(1.25, 1.0) as u64).clamp(LEAST, CREDIT_MAX),
        }
    }

    /// The hits that come within `span`.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate; a float that is cast saturates"
    )]
    pub fn within(&self, span: Micros, now: Micros, ttl: Micros) -> u64 {
        let part = span.get() as f64 / ttl.get().max(1) as f64;
        (self.hits(now, ttl) * part).ceil() as u64
    }

    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn times(&self, now: Micros, ttl: Micros) -> f64 {
        let since = now.get().saturating_sub(self.at.get());
        since as f64 / ttl.get().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Micros = Micros::from_millis(100);

    fn at(millis: u64) -> Micros {
        Micros::from_millis(millis)
    }

    #[test]
    fn an_even_flow_is_measured_as_it_is() {
        for step in [1, 10, 100] {
            let mut demand = Demand::default();
            for number in 1..=2_000 / step {
                demand.record(step, at(number * step), TTL);
            }
            let hits = demand.hits(at(2_000), TTL);
            assert!((99.0..101.0).contains(&hits), "{hits} by {step}");
            assert!((125..=127).contains(&demand.target(at(2_000), TTL)));
            assert_eq!(demand.within(at(2), at(2_000), TTL), 2);
        }
    }

    #[test]
    fn few_hits_are_not_worth_a_call_and_old_ones_are_forgotten() {
        let mut demand = Demand::default();
        (0..3).for_each(|_| demand.record(1, at(5), TTL));
        assert_eq!(demand.target(at(5), TTL), 0);
        demand.record(1, at(5), TTL);
        assert_eq!(demand.target(at(5), TTL), 5);
        assert_eq!(demand.target(at(105), TTL), 0);
    }
}
