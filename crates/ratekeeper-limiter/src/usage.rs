//! Calls of tenants by rule and minute, for billing.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::TenantHash;

/// The rows of one minute. Calls that would need more are counted together.
pub const USAGE_ROWS_MAX: usize = 100_000;

/// The minutes that are kept while nobody takes them; then the oldest goes.
const MINUTES_MAX: usize = 5;

/// The parts of the table, so that threads seldom wait for each other; a power of two.
const PARTS: usize = 16;

/// Counts the calls of tenants on this node.
#[derive(Debug, Default)]
pub struct UsageMeter {
    parts: [Mutex<Part>; PARTS],
    hasher: RandomState,
}

/// The calls of one tenant by one rule in a minute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageCount {
    /// The minute, counted from 1970 in UTC.
    pub minute: u64,
    /// The domain; empty for calls that are counted together.
    pub domain: Arc<str>,
    /// The tenant; [`None`] for calls that are counted together.
    pub tenant: Option<TenantHash>,
    /// The id of the rule; empty for calls that are counted together.
    pub rule: Arc<str>,
    /// Calls that were allowed; of a rule that is paid afterwards, the hits charged.
    pub allowed: u64,
    /// Calls that the rule denied.
    pub denied: u64,
}

#[derive(Debug, Default)]
struct Part {
    minutes: Vec<Minute>,
    /// Minutes that were given up.
    lost: u64,
}

#[derive(Debug)]
struct Minute {
    number: u64,
    counts: HashMap<(TenantHash, Arc<str>), Count>,
    others: Count,
}

#[derive(Clone, Debug, Default)]
struct Count {
    domain: Option<Arc<str>>,
    allowed: u64,
    denied: u64,
}

/// One more to count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    /// A call that was allowed.
    Allowed,
    /// A call that the rule denied.
    Denied,
    /// So many hits of a budget.
    Spent(u64),
}

impl Count {
    fn add(&mut self, counted: Counted) {
        let (count, more) = match counted {
            Counted::Allowed => (&mut self.allowed, 1),
            Counted::Spent(hits) => (&mut self.allowed, hits),
            Counted::Denied => (&mut self.denied, 1),
        };
        *count = count.saturating_add(more);
    }
}

fn minute(now: Timestamp) -> u64 {
    now.as_micros() / 60_000_000
}

impl UsageMeter {
    /// Counts a call of `tenant` that `rule` of `domain` took part in.
    pub(crate) fn count(
        &self,
        now: Timestamp,
        tenant: TenantHash,
        (domain, rule): (&Arc<str>, &Arc<str>),
        counted: Counted,
    ) {
        let hash = self.hasher.hash_one(tenant);
        // The low bits: as good as any of a keyed hash.
        let part = usize::try_from(hash % PARTS as u64).unwrap_or(0);
        let mut part = self.parts[part].lock();
        let minute = part.minute(minute(now));
        let is_full = minute.counts.len() >= USAGE_ROWS_MAX / PARTS;
        let key = (tenant, Arc::clone(rule));
        match minute.counts.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().add(counted),
            Entry::Vacant(_) if is_full => minute.others.add(counted),
            Entry::Vacant(new) => {
                let mut count = Count {
                    domain: Some(Arc::clone(domain)),
                    ..Count::default()
                };
                count.add(counted);
                new.insert(count);
            }
        }
    }

    /// All counts since their minute began, of the minutes that are kept. They stay, and grow.
    #[must_use]
    pub fn counts(&self) -> Vec<UsageCount> {
        let mut all = Vec::new();
        let mut others: HashMap<u64, Count> = HashMap::new();
        for part in &self.parts {
            for minute in &part.lock().minutes {
                all.extend(
                    minute
                        .counts
                        .iter()
                        .map(|((tenant, rule), count)| UsageCount {
                            minute: minute.number,
                            domain: count.domain.clone().unwrap_or_default(),
                            tenant: Some(*tenant),
                            rule: Arc::clone(rule),
                            allowed: count.allowed,
                            denied: count.denied,
                        }),
                );
                let other = others.entry(minute.number).or_default();
                other.allowed += minute.others.allowed;
                other.denied += minute.others.denied;
            }
        }
        let others = others
            .into_iter()
            .filter(|(_, count)| count.allowed + count.denied > 0);
        all.extend(others.map(|(minute, count)| UsageCount {
            minute,
            domain: "".into(),
            tenant: None,
            rule: "".into(),
            allowed: count.allowed,
            denied: count.denied,
        }));
        all
    }

    /// Drops the minutes that ended at least a minute before `now`, once their counts are written: no
    /// request is under way for that long.
    pub fn forget_before(&self, now: Timestamp) {
        let current = minute(now);
        for part in &self.parts {
            part.lock()
                .minutes
                .retain(|minute| minute.number + 2 > current);
        }
    }

    /// The parts of minutes that were given up because nobody took them in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.parts.iter().map(|part| part.lock().lost).sum()
    }
}

impl Part {
    fn minute(&mut self, number: u64) -> &mut Minute {
        let known = self
            .minutes
            .iter()
            .position(|minute| minute.number == number);
        let at = known.unwrap_or_else(|| {
            if self.minutes.len() >= MINUTES_MAX {
                self.minutes.remove(0);
                self.lost += 1;
            }
            self.minutes.push(Minute {
                number,
                counts: HashMap::new(),
                others: Count::default(),
            });
            self.minutes.len() - 1
        });
        &mut self.minutes[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_rules::TenantKey;

    fn at(minute: u64) -> Timestamp {
        Timestamp::from_secs(minute * 60 + 30)
    }

    #[test]
    fn counts_are_absolute_and_bounded() {
        let (meter, key) = (UsageMeter::default(), TenantKey::from_bytes([1; 16]));
        let (domain, rule): (Arc<str>, Arc<str>) = ("d".into(), "d.customer".into());
        let call = |tenant: &str, minute, allowed| {
            let counted = match allowed {
                true => Counted::Allowed,
                false => Counted::Denied,
            };
            meter.count(at(minute), key.hash(tenant), (&domain, &rule), counted);
        };
        call("acme", 1, true);
        call("acme", 1, true);
        call("acme", 1, false);
        call("acme", 2, true);
        let told = |meter: &UsageMeter| {
            let mut counts: Vec<_> = meter
                .counts()
                .iter()
                .map(|count| {
                    (
                        count.minute,
                        count.tenant.is_some(),
                        count.allowed,
                        count.denied,
                    )
                })
                .collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(told(&meter), [(1, true, 2, 1), (2, true, 1, 0)]);
        call("acme", 1, true);
        assert_eq!(
            told(&meter),
            [(1, true, 3, 1), (2, true, 1, 0)],
            "taking takes nothing"
        );
        meter.forget_before(at(2));
        assert_eq!(
            told(&meter).len(),
            2,
            "late answers of the last minute still count"
        );
        meter.forget_before(at(3));
        assert_eq!(told(&meter), [(2, true, 1, 0)]);

        for number in 0..(USAGE_ROWS_MAX as u64 * 3 / 2) {
            call(&number.to_string(), 3, true);
        }
        let of_third: Vec<_> = meter
            .counts()
            .into_iter()
            .filter(|count| count.minute == 3)
            .collect();
        assert!(of_third.len() <= USAGE_ROWS_MAX + 1, "{}", of_third.len());
        assert_eq!(
            of_third.iter().map(|count| count.allowed).sum::<u64>(),
            150_000
        );
        assert_eq!(
            of_third
                .iter()
                .filter(|count| count.tenant.is_none())
                .count(),
            1
        );
        // A database that is away for long costs old minutes, not memory.
        (4..20).for_each(|minute| call("acme", minute, true));
        assert!(meter.lost() > 0);
        let minutes: std::collections::HashSet<_> = meter
            .counts()
            .iter()
            .filter(|count| count.minute >= 4)
            .map(|count| count.minute)
            .collect();
        assert_eq!(minutes.len(), MINUTES_MAX);
    }
}
