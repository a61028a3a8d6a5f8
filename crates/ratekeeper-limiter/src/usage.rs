//! Calls of tenants, for billing: by rule and minute, and each call once by hour.

mod names;

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{Rule, RuleSet, TenantHash};
use smallvec::SmallVec;

pub use names::MeteredCaller;
use names::{NamedTenants, Names};

/// The rows of one minute, and those of one hour. Calls that would need more are counted together.
pub const USAGE_ROWS_MAX: usize = 100_000;

/// The minutes that are kept while no reader takes them; then the oldest goes.
const MINUTES_MAX: usize = 5;

/// The hours that are kept likewise.
const HOURS_MAX: usize = 3;

/// The parts of the table, so that threads seldom wait for each other; a power of two.
const PARTS: usize = 16;

/// Counts the calls of tenants on this node.
#[derive(Debug, Default)]
pub struct UsageMeter {
    parts: [Mutex<Shard>; PARTS],
    known: NamedTenants,
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

/// The calls of one tenant in an hour, each once, whatever number of rules it matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallCount {
    /// The hour, counted from 1970 in UTC.
    pub hour: u64,
    /// The domain; empty for calls that are counted together.
    pub domain: Arc<str>,
    /// The tenant; [`None`] for calls that are counted together.
    pub tenant: Option<TenantHash>,
    /// Calls that were allowed.
    pub allowed: u64,
    /// Calls that a limit of the tenant denied.
    pub denied: u64,
}

#[derive(Debug, Default)]
struct Shard {
    minutes: Vec<Minute>,
    hours: Vec<Hour>,
    names: Names,
    /// Minutes and hours that were given up.
    lost: u64,
}

#[derive(Debug)]
struct Hour {
    number: u64,
    calls: HashMap<(TenantHash, Arc<str>), Calls>,
    others: Calls,
    /// The part of the others that was told last, and is written next.
    others_told: Tally,
}

/// The calls of an hour, and how many of them were written.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    count: Tally,
    written: Tally,
}

/// Calls by their answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Tally {
    allowed: u64,
    denied: u64,
}

#[derive(Debug)]
struct Minute {
    number: u64,
    counts: HashMap<(TenantHash, Arc<str>), Count>,
    others: Tally,
}

#[derive(Clone, Debug, Default)]
struct Count {
    domain: Option<Arc<str>>,
    tally: Tally,
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

impl Counted {
    /// A call that was allowed, or denied.
    pub(crate) const fn answered(allowed: bool) -> Self {
        match allowed {
            true => Self::Allowed,
            false => Self::Denied,
        }
    }
}

impl Tally {
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

fn hour(now: Timestamp) -> u64 {
    now.as_micros() / 3_600_000_000
}

impl UsageMeter {
    fn part(&self, tenant: TenantHash) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(tenant);
        // The low bits: as good as any of a keyed hash.
        let part = usize::try_from(hash % PARTS as u64).unwrap_or(0);
        &self.parts[part]
    }

    /// Counts what `tenant` used of `matched`, limits of it; and the call once, if it is `allowed` or not.
    pub(crate) fn count<'a>(
        &self,
        now: Timestamp,
        tenant: TenantHash,
        (rules, matched): (&'a RuleSet, impl Iterator<Item = (&'a Rule, Counted)>),
        allowed: Option<bool>,
    ) {
        let mut matched = matched.peekable();
        if matched.peek().is_none() {
            return;
        }
        let mut part = self.part(tenant).lock();
        let mut domains: SmallVec<[&Arc<str>; 2]> = SmallVec::new();
        let minute = part.minute(minute(now));
        for (rule, counted) in matched {
            let domain = rules.tenants_domain_of(rule);
            minute.add((tenant, &rule.id), domain, counted);
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        let Some(allowed) = allowed else {
            return;
        };
        let (hour, counted) = (part.hour(hour(now)), Counted::answered(allowed));
        domains
            .into_iter()
            .for_each(|domain| hour.add((tenant, domain), counted));
    }

    /// Records the name of a tenant that calls, unless it did in this hour.
    #[inline]
    pub(crate) fn name(
        &self,
        now: Timestamp,
        tenant: TenantHash,
        name: impl FnOnce() -> Option<(Arc<str>, Box<str>)>,
    ) {
        let hour = hour(now);
        if self.known.has(tenant, hour) {
            return;
        }
        self.known.observe(tenant, hour);
        if let Some((domain, shown)) = name() {
            let mut part = self.part(tenant).lock();
            part.names
                .observe(hour, (domain, tenant), shown, USAGE_ROWS_MAX / PARTS);
        }
    }

    /// Takes the names of tenants that called since the last time.
    #[must_use]
    pub fn take_names(&self) -> Vec<MeteredCaller> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.lock().names.take()).collect()
    }

    /// Puts names back that could not be written, as many as one hour may have; others are told when they call again.
    pub fn put_back(&self, names: Vec<MeteredCaller>) {
        for name in names {
            let mut part = self.part(name.tenant).lock();
            part.names.put_back(name, USAGE_ROWS_MAX / PARTS);
        }
    }

    /// The calls by hour, where there are more than were [written](Self::written).
    #[must_use]
    pub fn calls(&self) -> Vec<CallCount> {
        let mut all = Vec::new();
        let mut others: HashMap<u64, Calls> = HashMap::new();
        for part in &self.parts {
            for hour in &mut part.lock().hours {
                let changed = hour.calls.iter().filter(|(_, calls)| calls.are_unwritten());
                all.extend(changed.map(|((tenant, domain), calls)| CallCount {
                    hour: hour.number,
                    domain: Arc::clone(domain),
                    tenant: Some(*tenant),
                    allowed: calls.count.allowed,
                    denied: calls.count.denied,
                }));
                others.entry(hour.number).or_default().merge(hour.others);
                hour.others_told = hour.others.count;
            }
        }
        let changed = others
            .into_iter()
            .filter(|(_, calls)| calls.are_unwritten());
        all.extend(changed.map(|(hour, calls)| CallCount {
            hour,
            domain: "".into(),
            tenant: None,
            allowed: calls.count.allowed,
            denied: calls.count.denied,
        }));
        all
    }

    /// Records that these calls are written.
    pub fn written(&self, calls: &[CallCount]) {
        for count in calls {
            match count.tenant {
                Some(tenant) => {
                    let mut part = self.part(tenant).lock();
                    let key = (tenant, Arc::clone(&count.domain));
                    let of_hour = part.hours.iter_mut();
                    let mut of_hour = of_hour.filter(|hour| hour.number == count.hour);
                    if let Some(known) = of_hour.find_map(|hour| hour.calls.get_mut(&key)) {
                        known.written = Tally {
                            allowed: count.allowed,
                            denied: count.denied,
                        };
                    }
                }
                None => self.parts.iter().for_each(|part| {
                    let mut part = part.lock();
                    let hours = part.hours.iter_mut();
                    hours
                        .filter(|hour| hour.number == count.hour)
                        .for_each(|hour| hour.others.written = hour.others_told);
                }),
            }
        }
    }

    /// All counts since their minute began, of the minutes that are kept. They stay, and grow.
    #[must_use]
    pub fn counts(&self) -> Vec<UsageCount> {
        let mut all = Vec::new();
        let mut others: HashMap<u64, Tally> = HashMap::new();
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
                            allowed: count.tally.allowed,
                            denied: count.tally.denied,
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

    /// Drops the minutes, and the hours that are [written](Self::written), that ended at least a minute before `now`, once
    /// their counts are written: no request is under way for that long.
    pub fn forget_before(&self, now: Timestamp) {
        let current = minute(now);
        let is_over = |hour: &Hour| (hour.number + 1) * 60 < current;
        // All parts are held: those that are counted together are the sum of all, so an hour goes from all of them or from none.
        let mut parts: Vec<_> = self.parts.iter().map(Mutex::lock).collect();
        let hours = parts.iter().flat_map(|part| &part.hours);
        let unwritten = hours.filter(|hour| is_over(hour) && hour.is_unwritten());
        let unwritten: Vec<u64> = unwritten.map(|hour| hour.number).collect();
        for part in &mut parts {
            part.minutes.retain(|minute| minute.number + 2 > current);
            part.hours
                .retain(|hour| !is_over(hour) || unwritten.contains(&hour.number));
        }
    }

    /// The parts of minutes and hours that were given up because no reader took them in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.parts.iter().map(|part| part.lock().lost).sum()
    }
}

impl Minute {
    fn add(
        &mut self,
        (tenant, rule): (TenantHash, &Arc<str>),
        domain: &Arc<str>,
        counted: Counted,
    ) {
        let is_full = self.counts.len() >= USAGE_ROWS_MAX / PARTS;
        match self.counts.entry((tenant, Arc::clone(rule))) {
            Entry::Occupied(mut known) => known.get_mut().tally.add(counted),
            Entry::Vacant(_) if is_full => self.others.add(counted),
            Entry::Vacant(new) => {
                let mut count = Count {
                    domain: Some(Arc::clone(domain)),
                    ..Count::default()
                };
                count.tally.add(counted);
                new.insert(count);
            }
        }
    }
}

impl Hour {
    fn add(&mut self, (tenant, domain): (TenantHash, &Arc<str>), counted: Counted) {
        let is_full = self.calls.len() >= USAGE_ROWS_MAX / PARTS;
        let calls = match self.calls.entry((tenant, Arc::clone(domain))) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => &mut self.others,
            Entry::Vacant(new) => new.insert(Calls::default()),
        };
        calls.count.add(counted);
    }

    fn is_unwritten(&self) -> bool {
        let mut calls = self.calls.values();
        self.others.are_unwritten() || calls.any(Calls::are_unwritten)
    }
}

impl Calls {
    fn are_unwritten(&self) -> bool {
        self.count != self.written
    }

    const fn merge(&mut self, other: Self) {
        self.count.allowed += other.count.allowed;
        self.count.denied += other.count.denied;
        self.written.allowed += other.written.allowed;
        self.written.denied += other.written.denied;
    }
}

impl Shard {
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
                others: Tally::default(),
            });
            self.minutes.len() - 1
        });
        &mut self.minutes[at]
    }

    fn hour(&mut self, number: u64) -> &mut Hour {
        let known = self.hours.iter().position(|hour| hour.number == number);
        let at = known.unwrap_or_else(|| {
            if self.hours.len() >= HOURS_MAX {
                self.hours.remove(0);
                self.lost += 1;
            }
            self.hours.push(Hour {
                number,
                calls: HashMap::new(),
                others: Calls::default(),
                others_told: Tally::default(),
            });
            self.hours.len() - 1
        });
        &mut self.hours[at]
    }
}

#[cfg(test)]
mod tests;
