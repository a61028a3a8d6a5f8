//! The demand of tenants, in a fixed amount of memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters in each row.
const WIDTH: usize = 1_024;
/// The weight of one request in a counter, so that decay loses little to rounding.
const REQUEST: u64 = 256;
/// A tenant is active if its counter holds at least this.
const ACTIVE_MIN: u64 = REQUEST / 2;
/// A tenant is over its fair share from this multiple of what the others ask for on average.
const SLACK: u64 = 4;

/// The approximate demand of each tenant.
///
/// A count-min sketch (Cormode and Muthukrishnan, 2005) of two rows that decays by 1/32 every 100 ms, i.e. over about
/// 3 s. Its error is one-sided: a tenant that shares both of its counters with others seems to ask for more than it
/// does, which happens to about one of a million pairs.
#[derive(Debug)]
pub struct TenantDemand {
    rows: [Box<[AtomicU64]>; 2],
    total: AtomicU64,
    /// Active tenants at the last decay.
    active: AtomicU64,
}

impl Default for TenantDemand {
    fn default() -> Self {
        let row = || (0..WIDTH).map(|_| AtomicU64::new(0)).collect();
        Self {
            rows: [row(), row()],
            total: AtomicU64::new(0),
            active: AtomicU64::new(0),
        }
    }
}

// Relaxed everywhere: the sketch is approximate, and a lost decay or two are made up for by the next.
impl TenantDemand {
    /// Records a request of the tenant with this hash, and returns the part of the tenant's requests that is within its
    /// fair share, in 65,536ths.
    ///
    /// A tenant is within its fair share up to four times of what the other active tenants ask for on
    /// average. A single tenant is always within it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "some bits of a hash, and a fraction below 1 in 65,536ths"
    )]
    pub fn record(&self, tenant: u64) -> u32 {
        let [first, second] = &self.rows;
        let add = |row: &[AtomicU64], index: u64| {
            let counter = &row[index as usize % WIDTH];
            counter.fetch_add(REQUEST, Ordering::Relaxed) + REQUEST
        };
        let own = add(first, tenant).min(add(second, tenant >> 32));
        let total = self.total.fetch_add(REQUEST, Ordering::Relaxed) + REQUEST;
        let others = self.active.load(Ordering::Relaxed).saturating_sub(1);
        if others == 0 {
            return 1 << 16;
        }
        let fair = (total.saturating_sub(own) / others).max(REQUEST) * SLACK;
        match own <= fair {
            true => 1 << 16,
            false => ((u128::from(fair) << 16) / u128::from(own)) as u32,
        }
    }

    /// Lets demand fade by so many times 100 ms. What any number of requests leaves is gone after some hundred.
    pub fn decay(&self, ticks: u64) {
        let fade = |counter: &AtomicU64| {
            let before = counter.load(Ordering::Relaxed);
            let mut left = before;
            for _ in 0..ticks {
                if left == 0 {
                    break;
                }
                left -= left.div_ceil(32);
            }
            counter.fetch_sub(before - left, Ordering::Relaxed);
            left
        };
        let counts = self.rows[0].iter().map(fade);
        let active = counts.filter(|count| *count >= ACTIVE_MIN).count();
        self.rows[1].iter().for_each(|counter| {
            fade(counter);
        });
        fade(&self.total);
        self.active.store(active as u64, Ordering::Relaxed);
    }

    /// The number of tenants that asked for something in the last seconds, at most 1,024.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix;

    const ALL: u32 = 1 << 16;

    fn seconds(demand: &TenantDemand, rates: &[u32]) -> Vec<u32> {
        let mut within = vec![0; rates.len()];
        for _tick in 0..100 {
            for (tenant, (per_tick, within)) in (0_u64..).zip(rates.iter().zip(&mut within)) {
                for _ in 0..*per_tick {
                    *within = demand.record(mix(tenant));
                }
            }
            demand.decay(1);
        }
        within
    }

    #[test]
    fn equal_tenants_are_within_their_share() {
        assert_eq!(seconds(&TenantDemand::default(), &[3, 3, 3, 3]), [ALL; 4]);
        assert_eq!(seconds(&TenantDemand::default(), &[50]), [ALL]);
    }

    #[test]
    fn a_storm_is_cut_to_four_times_the_average_of_the_others() {
        let within = seconds(&TenantDemand::default(), &[1, 1, 1, 1, 40]);
        assert_eq!(within[..4], [ALL; 4]);
        let kept = f64::from(within[4]) / f64::from(ALL) * 40.0;
        assert!((3.5..4.6).contains(&kept), "{kept}");
    }

    #[test]
    fn a_storm_that_has_ended_is_forgotten() {
        let demand = TenantDemand::default();
        seconds(&demand, &[1, 100]);
        seconds(&demand, &[1, 1]);
        assert_eq!(seconds(&demand, &[1, 1]), [ALL, ALL]);
    }
}
