//! The tenants that were denied in the last hour, as a node tells the others.

use std::collections::HashMap;

use ratekeeper_limiter::{DenialCase, TopDecision};
use serde::{Deserialize, Serialize};

/// The most cases of a list.
const CASES_MAX: usize = 512;

/// The most bytes of them, by and large: a place for lists takes no longer ones.
const BYTES_MAX: usize = 96 * 1024;

/// Bytes of a case besides its texts.
const BYTES_OF_CASE: usize = 64;

/// The most bytes of each text of a case of another node.
const TEXT_BYTES_MAX: usize = 512;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The cases that a node tells.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CaseList {
    pub(crate) cases: Vec<CaseEntry>,
    /// Cases that have no room in the list.
    pub(crate) left_out: u64,
}

/// The denials of one tenant by one rule, in the last hour. Written without the names of its fields.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "WrittenCase", into = "WrittenCase")]
pub(crate) struct CaseEntry {
    pub(crate) domain: Box<str>,
    pub(crate) rule: Box<str>,
    /// The entry that names the tenant; a secret is a fingerprint, which is the same on all nodes.
    pub(crate) key: Box<str>,
    /// True if the requests would have been denied, were the rule enforced.
    pub(crate) is_shadow: bool,
    pub(crate) count: u64,
    /// Seconds since 1970, of the first and of the last denial.
    pub(crate) since: u64,
    pub(crate) last: u64,
}

type WrittenCase = (Box<str>, Box<str>, Box<str>, bool, u64, u64, u64);

impl From<WrittenCase> for CaseEntry {
    fn from((domain, rule, key, is_shadow, count, since, last): WrittenCase) -> Self {
        Self {
            domain,
            rule,
            key,
            is_shadow,
            count,
            since,
            last,
        }
    }
}

impl From<CaseEntry> for WrittenCase {
    fn from(it: CaseEntry) -> Self {
        (
            it.domain,
            it.rule,
            it.key,
            it.is_shadow,
            it.count,
            it.since,
            it.last,
        )
    }
}

impl From<&DenialCase> for CaseEntry {
    fn from(case: &DenialCase) -> Self {
        Self {
            domain: (*case.domain).into(),
            rule: (*case.rule).into(),
            key: (*case.subject).into(),
            is_shadow: case.kind == TopDecision::Shadowed,
            count: case.count,
            since: case.since.as_micros() / MICROS_PER_SECOND,
            last: case.last.as_micros() / MICROS_PER_SECOND,
        }
    }
}

impl CaseEntry {
    fn bytes(&self) -> usize {
        BYTES_OF_CASE + self.domain.len() + self.rule.len() + self.key.len()
    }
}

impl CaseList {
    /// As many of `cases` as have room, which come with the latest first: of each rule the latest, then of each rule the
    /// next, so that a flood of one hides no other.
    pub(crate) fn fair(cases: Vec<DenialCase>) -> Self {
        let mut of_rule: HashMap<(&str, bool), usize> = HashMap::new();
        let ranked = cases.iter().map(|case| {
            let is_shadow = case.kind == TopDecision::Shadowed;
            let number = of_rule.entry((&case.rule, is_shadow)).or_default();
            *number += 1;
            (*number, case)
        });
        let mut ranked: Vec<_> = ranked.collect();
        // Stable: of equal rank, the latest first.
        ranked.sort_by_key(|(number, _)| *number);
        let mut bytes = 0;
        let all = ranked.into_iter().map(|(_, case)| CaseEntry::from(case));
        let told = all.take(CASES_MAX).take_while(|case| {
            bytes += case.bytes();
            bytes <= BYTES_MAX
        });
        let told: Vec<_> = told.collect();
        Self {
            left_out: (cases.len() - told.len()) as u64,
            cases: told,
        }
    }

    /// Takes away what no node of ours would tell.
    pub(crate) fn bound(&mut self) {
        self.cases.truncate(CASES_MAX);
        self.cases.retain(|case| {
            let texts = [&case.domain, &case.rule, &case.key];
            texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Timestamp;

    fn case(rule: &str, tenant: &str) -> DenialCase {
        DenialCase {
            domain: "d".into(),
            rule: rule.into(),
            kind: TopDecision::Denied,
            subject: format!("customer:{tenant}").into(),
            count: 1,
            since: Timestamp::from_secs(1),
            last: Timestamp::from_secs(2),
            secret: None,
        }
    }

    #[test]
    fn a_flood_of_one_rule_hides_no_other() {
        let mut cases: Vec<_> = (0..4_000)
            .map(|it| case("d.flood", &it.to_string()))
            .collect();
        cases.push(case("d.quiet", "acme"));
        let list = CaseList::fair(cases);
        assert_eq!((list.cases.len(), list.left_out), (CASES_MAX, 3_489));
        assert_eq!(
            (&*list.cases[0].key, &*list.cases[1].key),
            ("customer:0", "customer:acme")
        );
    }

    #[test]
    fn a_list_is_bounded_in_bytes_and_read_as_it_was_written() {
        let long = "x".repeat(400);
        let cases = (0..CASES_MAX).map(|it| case("d.r", &format!("{long}{it}")));
        let list = CaseList::fair(cases.collect());
        assert!(list.left_out > 0);
        let text = serde_json::to_string(&list).expect("texts and numbers");
        assert!(text.len() < BYTES_MAX + 4_096, "{}", text.len());
        let mut read: CaseList = serde_json::from_str(&text).expect("it was written here");
        read.bound();
        assert_eq!(read, list);
        read.cases[0].key = "x".repeat(TEXT_BYTES_MAX + 1).into();
        read.bound();
        assert_eq!(read.cases.len(), list.cases.len() - 1);
    }
}
