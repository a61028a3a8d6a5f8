//! The tenants that were denied in the last hour, and the rules that denied them: each tenant and rule has a case, however few its denials are.
//!
//! ```text
//! stripes (1 s, 512 keys each) --> cases: at most 4,096 of an hour
//! ```
//!
//! A flood takes no case from others: if there are too many, the rule with the most cases loses those that lasted for one
//! second only, the oldest first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::Rule;

use super::TopDecision;
use crate::Scope;
use crate::scope::SecretValue;
use crate::stats::shortened;

/// The most cases that are kept.
pub const CASES_MAX: usize = 4_096;

/// Cases that go at once when there are too many, so that this happens rarely.
const ROOM: usize = CASES_MAX / 16;

/// The most keys of a stripe and second that have a case. Naming one costs about a microsecond.
const KEYS_MAX: usize = 512;

/// The time without a denial after which a case ends, in seconds.
const KEPT_SECS: u64 = 3_600;

/// The seconds of a slot.
const SLOT_SECS: u64 = 300;

/// The slots of an hour, the open one included.
const SLOTS: usize = 13;

/// The denials of one tenant by one rule, in the last hour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DenialCase {
    /// The domain of the rule.
    pub domain: Arc<str>,
    /// The id of the rule.
    pub rule: Arc<str>,
    /// [`TopDecision::Denied`], or [`TopDecision::Shadowed`] of requests that would have been denied.
    pub kind: TopDecision,
    /// The entry that names the tenant, or the first one of the descriptor if none does; a secret is a fingerprint.
    pub subject: Arc<str>,
    /// Denials in the last 60 to 65 minutes.
    pub count: u64,
    /// The first of them, to the second: there was no hour without one since.
    pub since: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// The value of the tenant, if it is a secret: to look at its limits, and never to be shown.
    pub secret: Option<SecretValue>,
}

impl DenialCase {
    /// A case without denials.
    pub(super) fn new(rule: &Rule, kind: TopDecision, scope: &Scope) -> Self {
        Self {
            domain: rule.domain.clone(),
            rule: rule.id.clone(),
            kind,
            subject: shortened(scope.subject()).into(),
            count: 0,
            since: Timestamp::default(),
            last: Timestamp::default(),
            secret: scope.secret().cloned(),
        }
    }

    fn name(&self) -> CaseName {
        let is_shadow = self.kind == TopDecision::Shadowed;
        (self.rule.clone(), self.subject.clone(), is_shadow)
    }
}

/// A rule, a tenant, and whether the rule was in shadow.
type CaseName = (Arc<str>, Arc<str>, bool);

/// A descriptor under a rule by its keyed hash, and whether the rule is in shadow.
type SeenKey = (u64, bool);

/// The keys that some threads have denied in this second.
#[derive(Debug, Default)]
pub(super) struct CasesOfSecond {
    seen: HashMap<SeenKey, DenialCase, BuildHasherDefault<ByHash>>,
}

impl CasesOfSecond {
    /// Counts a denial, whose case `name` makes if it is the first of its key; returns true if so.
    pub(super) fn add(&mut self, key: SeenKey, name: impl FnOnce() -> DenialCase) -> bool {
        let is_full = self.seen.len() >= KEYS_MAX;
        match self.seen.entry(key) {
            Entry::Occupied(mut known) => {
                known.get_mut().count += 1;
                false
            }
            Entry::Vacant(_) if is_full => false,
            Entry::Vacant(new) => {
                new.insert(name()).count = 1;
                true
            }
        }
    }
}

/// Passes on a number that is a keyed hash already.
#[derive(Debug, Default)]
pub(super) struct ByHash(u64);

impl Hasher for ByHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u8(&mut self, flag: u8) {
        self.0 ^= u64::from(flag);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 ^= hash;
    }
}

/// A case, with its denials by slot.
#[derive(Debug)]
struct Kept {
    case: DenialCase,
    /// The slot of the last denial, counted since 1970.
    slot: u64,
    /// By slot, modulo the number of them.
    counts: [u64; SLOTS],
    /// True if it had denials in more than one second.
    lasts: bool,
}

/// The cases of the last hour.
#[derive(Debug, Default)]
pub(super) struct Cases {
    kept: HashMap<CaseName, Kept>,
}

impl Cases {
    /// Adds what was denied in the second that ends `now`.
    pub(super) fn add(&mut self, second: CasesOfSecond, now: Timestamp) {
        for case in second.seen.into_values() {
            match self.kept.entry(case.name()) {
                Entry::Occupied(known) => known.into_mut().add(case.count, now),
                Entry::Vacant(new) => new.insert(Kept::new(case, now)).add_to_slot(now),
            }
        }
    }

    /// Ends cases that are over, and makes room.
    pub(super) fn tidy(&mut self, now: Timestamp) {
        if self.kept.len() <= CASES_MAX {
            // A look through all of them now and then is enough.
            if seconds(now).is_multiple_of(60) {
                self.kept.retain(|_, kept| !kept.is_over(now));
            }
            return;
        }
        self.kept.retain(|_, kept| !kept.is_over(now));
        while self.kept.len() > CASES_MAX - ROOM {
            self.shrink(self.kept.len() - (CASES_MAX - ROOM));
        }
    }

    /// Takes away up to `most` cases of the rule that has the most.
    fn shrink(&mut self, most: usize) {
        // Those that may go first are the least: what was denied in one second only, long ago.
        type Ranked = (bool, Timestamp, CaseName);
        let mut by_rule: HashMap<_, Vec<Ranked>> = HashMap::new();
        for (name, kept) in &self.kept {
            let rule = (name.0.clone(), name.2);
            let cases = by_rule.entry(rule).or_default();
            cases.push((kept.lasts, kept.case.last, name.clone()));
        }
        let mut sizes: Vec<_> = by_rule.values().map(Vec::len).collect();
        sizes.sort_unstable();
        // Down to the size of the next rule, and at least a few.
        let next = sizes.iter().rev().nth(1).copied().unwrap_or(0);
        let Some(mut largest) = by_rule.into_values().max_by_key(Vec::len) else {
            return;
        };
        let surplus = largest.len().saturating_sub(next).max(ROOM);
        largest.sort_unstable();
        for (_, _, name) in largest.into_iter().take(most.min(surplus)) {
            self.kept.remove(&name);
        }
    }

    /// The cases that `is_wanted` selects, the latest first.
    pub(super) fn list(
        &self,
        now: Timestamp,
        is_wanted: impl Fn(&DenialCase) -> bool,
    ) -> Vec<DenialCase> {
        let live = self.kept.values().filter(|kept| !kept.is_over(now));
        let wanted = live.filter(|kept| is_wanted(&kept.case));
        let mut cases: Vec<_> = wanted.map(|kept| kept.at(now)).collect();
        cases.sort_unstable_by(|a, b| {
            let order = (b.last, b.count).cmp(&(a.last, a.count));
            order.then_with(|| (&a.rule, &a.subject).cmp(&(&b.rule, &b.subject)))
        });
        cases
    }
}

impl Kept {
    fn new(case: DenialCase, now: Timestamp) -> Self {
        Self {
            case: DenialCase {
                since: now,
                last: now,
                ..case
            },
            slot: seconds(now) / SLOT_SECS,
            counts: [0; SLOTS],
            lasts: false,
        }
    }

    /// Puts the count that a new case begins with into its slot.
    fn add_to_slot(&mut self, now: Timestamp) {
        let count = std::mem::take(&mut self.case.count);
        self.add(count, now);
    }

    fn add(&mut self, count: u64, now: Timestamp) {
        if self.is_over(now) {
            (self.case.since, self.lasts) = (now, false);
        }
        self.lasts |= seconds(self.case.since) != seconds(now);
        let now = now.max(self.case.last);
        let slot = seconds(now) / SLOT_SECS;
        let passed = slot.saturating_sub(self.slot).min(SLOTS as u64);
        for gone in 0..passed {
            self.counts[place(slot - gone)] = 0;
        }
        (self.slot, self.case.last) = (slot, now);
        let open = &mut self.counts[place(slot)];
        *open = open.saturating_add(count);
    }

    fn is_over(&self, now: Timestamp) -> bool {
        seconds(now).saturating_sub(seconds(self.case.last)) > KEPT_SECS
    }

    /// The case with the denials of the hour before `now`.
    fn at(&self, now: Timestamp) -> DenialCase {
        let open = (seconds(now) / SLOT_SECS).max(self.slot);
        let slots = (0..SLOTS as u64).filter_map(|back| self.slot.checked_sub(back));
        let of_hour = slots.filter(|slot| open - slot < SLOTS as u64);
        DenialCase {
            count: of_hour.map(|slot| self.counts[place(slot)]).sum(),
            ..self.case.clone()
        }
    }
}

const fn seconds(time: Timestamp) -> u64 {
    time.as_micros() / 1_000_000
}

#[expect(clippy::cast_possible_truncation, reason = "below 13")]
const fn place(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_800_000_000;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(START + second)
    }

    fn case(rule: &str, subject: &str) -> DenialCase {
        DenialCase {
            domain: "d".into(),
            rule: rule.into(),
            kind: TopDecision::Denied,
            subject: subject.into(),
            count: 0,
            since: Timestamp::default(),
            last: Timestamp::default(),
            secret: None,
        }
    }

    /// One denial each, in one second.
    fn second<'a>(keys: impl IntoIterator<Item = (&'a str, String)>) -> CasesOfSecond {
        let mut second = CasesOfSecond::default();
        for (number, (rule, subject)) in (0..).zip(keys) {
            second.add((number, false), || case(rule, &subject));
        }
        second
    }

    fn all(cases: &Cases, now: u64) -> Vec<(String, u64)> {
        let list = cases.list(at(now), |_| true);
        let told = list.iter().map(|it| (it.subject.to_string(), it.count));
        told.collect()
    }

    #[test]
    fn a_case_counts_the_denials_of_an_hour_and_knows_since_when() {
        let mut cases = Cases::default();
        for now in [0, 10, 1_800, 3_590] {
            cases.add(second([("d.r", "acme".to_owned())]), at(now));
        }
        let told = cases.list(at(3_600), |_| true);
        assert_eq!((told[0].count, told[0].since), (4, at(0)));
        assert_eq!(told[0].last, at(3_590));
        assert_eq!(all(&cases, 5_000), [("acme".to_owned(), 2)]);
        assert_eq!(all(&cases, 3_590 + 3_600), [("acme".to_owned(), 1)]);
        assert_eq!(all(&cases, 3_591 + 3_600), []);
        // After an hour of peace it is another case.
        cases.add(second([("d.r", "acme".to_owned())]), at(10_000));
        let told = cases.list(at(10_000), |_| true);
        assert_eq!((told[0].count, told[0].since), (1, at(10_000)));
        // What was denied thirteen slots ago is not of the last hour.
        cases.add(second([("d.r", "late".to_owned())]), at(12_000));
        cases.add(second([("d.r", "late".to_owned())]), at(15_600));
        assert!(all(&cases, 15_600).contains(&("late".to_owned(), 2)));
        assert!(all(&cases, 15_900).contains(&("late".to_owned(), 1)));
    }

    #[test]
    fn cases_that_are_over_go_once_a_minute() {
        let mut cases = Cases::default();
        cases.add(second([("d.r", "early".to_owned())]), at(0));
        cases.add(second([("d.r", "late".to_owned())]), at(60));
        for (now, kept) in [(3_600, 2), (3_601, 2), (3_660, 1), (3_720, 0)] {
            cases.tidy(at(now));
            assert_eq!(cases.kept.len(), kept, "after {now} s");
        }
    }

    #[test]
    fn a_flood_of_keys_takes_no_case_from_another_rule_nor_from_one_that_lasts() {
        let mut cases = Cases::default();
        cases.add(second([("d.quiet", "one".to_owned())]), at(0));
        for now in [1, 2] {
            cases.add(second([("d.flood", "regular".to_owned())]), at(now));
        }
        let mut number = 0;
        for now in 3..203 {
            let keys = (0..300).map(|_| {
                number += 1;
                ("d.flood", number.to_string())
            });
            cases.add(second(keys), at(now));
            cases.tidy(at(now));
            assert!(cases.kept.len() <= CASES_MAX, "after {now} s");
        }
        assert!(number > 10 * CASES_MAX);
        let kept = all(&cases, 203);
        for quiet in [("one", 1), ("regular", 2)] {
            let quiet = (quiet.0.to_owned(), quiet.1);
            assert!(kept.contains(&quiet), "{quiet:?}");
        }
        // Of the flood, the latest.
        assert!(kept.contains(&(number.to_string(), 1)));
    }

    #[test]
    fn a_second_has_a_bounded_number_of_keys() {
        let keys = |most: usize| (0..most).map(|number| ("d.r", number.to_string()));
        let mut seen = second(keys(KEYS_MAX + 5));
        assert_eq!(seen.seen.len(), KEYS_MAX);
        assert!(!seen.add((3, false), || unreachable!("it is known")));
        let mut cases = Cases::default();
        cases.add(seen, at(0));
        assert!(all(&cases, 0).contains(&("3".to_owned(), 2)));
    }
}
