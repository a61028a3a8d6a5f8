//! The latest denials, some of each tenant and rule.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::admin_json::DeniedRequest;

/// The denials that are kept.
const KEPT_MAX: usize = 1_000;

/// The most of them that are of one tenant and rule.
const OF_PAIR_MAX: usize = 100;

/// Denials of one tenant and rule that are kept in each second, whatever others do.
const OF_SECOND: u8 = 2;

/// A domain, a rule, and the entry of its descriptor that names the tenant.
type PairName<'a> = (&'a str, &'a str, &'a str);

/// The latest denials. If there are too many, one goes of the rule with the most, and there of the tenant with the most:
/// a flood makes room for the next one of its own.
#[derive(Debug, Default)]
pub(super) struct RecentDenials {
    pairs: HashMap<u64, Pair>,
    /// Denials by rule.
    rules: HashMap<Arc<str>, usize>,
    total: usize,
    /// Denials that were ever kept.
    made: u64,
    hasher: RandomState,
}

/// The denials of one tenant by one rule.
#[derive(Debug)]
struct Pair {
    rule: Arc<str>,
    /// The oldest first, each with its number.
    denials: VecDeque<(u64, DeniedRequest)>,
    second: u64,
    of_second: u8,
}

impl RecentDenials {
    /// Returns true if fewer of this tenant and rule are kept of `second` than there may be.
    pub(super) fn lacks(&self, pair: PairName<'_>, second: u64) -> bool {
        let pair = self.pairs.get(&self.hasher.hash_one(pair));
        pair.is_none_or(|pair| pair.second != second || pair.of_second < OF_SECOND)
    }

    /// Keeps a denial of `second`.
    pub(super) fn keep(&mut self, denied: DeniedRequest, second: u64) {
        let name = (&*denied.domain, &*denied.rule, &*denied.key);
        let hash = self.hasher.hash_one(name);
        let pair = self.pairs.entry(hash).or_insert_with(|| Pair {
            rule: (*denied.rule).into(),
            denials: VecDeque::new(),
            second,
            of_second: 0,
        });
        if pair.second != second {
            (pair.second, pair.of_second) = (second, 0);
        }
        pair.of_second = pair.of_second.saturating_add(1);
        pair.denials.push_back((self.made, denied));
        self.made += 1;
        if pair.denials.len() > OF_PAIR_MAX {
            pair.denials.pop_front();
            return;
        }
        *self.rules.entry(Arc::clone(&pair.rule)).or_default() += 1;
        self.total += 1;
        if self.total > KEPT_MAX {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        let most = self.rules.iter().max_by_key(|(_, denials)| **denials);
        let Some(rule) = most.map(|(rule, _)| Arc::clone(rule)) else {
            return;
        };
        let of_rule = self.pairs.iter().filter(|(_, pair)| pair.rule == rule);
        // Of those with as many, the one that was not denied for the longest time.
        let largest = of_rule.max_by_key(|(_, pair)| {
            let last = pair.denials.back().map(|(number, _)| *number);
            (pair.denials.len(), Reverse(last))
        });
        let Some(hash) = largest.map(|(hash, _)| *hash) else {
            return;
        };
        if let Some(pair) = self.pairs.get_mut(&hash) {
            pair.denials.pop_front();
            if pair.denials.is_empty() {
                self.pairs.remove(&hash);
            }
        }
        self.total -= 1;
        match self.rules.get_mut(&rule) {
            Some(1) | None => _ = self.rules.remove(&rule),
            Some(denials) => *denials -= 1,
        }
    }

    /// The latest denials that `is_wanted` selects, the last first.
    pub(super) fn latest(
        &self,
        most: usize,
        is_wanted: impl Fn(&DeniedRequest) -> bool,
    ) -> Vec<DeniedRequest> {
        let all = self.pairs.values().flat_map(|pair| &pair.denials);
        let mut wanted: Vec<_> = all.filter(|(_, denied)| is_wanted(denied)).collect();
        wanted.sort_unstable_by_key(|(number, _)| Reverse(*number));
        let wanted = wanted.into_iter().take(most);
        wanted.map(|(_, denied)| denied.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(rule: &str, tenant: &str) -> DeniedRequest {
        DeniedRequest {
            time: String::new(),
            request_id: String::new(),
            protocol: "http".to_owned(),
            domain: "d".to_owned(),
            key: format!("customer:{tenant}"),
            tenant: tenant.to_owned(),
            rule: rule.to_owned(),
            limit: "1 per 1m".to_owned(),
            scope: format!("customer:{tenant}"),
            method: None,
            path: None,
            retry_after_ms: None,
            degraded: false,
            enforced: true,
        }
    }

    fn number_of(kept: &RecentDenials, tenant: &str) -> usize {
        let all = kept.latest(usize::MAX, |denied| denied.tenant == tenant);
        all.len()
    }

    #[test]
    fn a_flood_leaves_the_last_denials_of_others() {
        let mut kept = RecentDenials::default();
        for _ in 0..5 {
            kept.keep(denied("d.a", "quiet"), 0);
        }
        for second in 0..5_000 {
            kept.keep(denied("d.a", "noisy"), second);
            // Another rule, with ever new tenants.
            kept.keep(denied("d.b", &second.to_string()), second);
        }
        assert_eq!(kept.total, KEPT_MAX);
        assert_eq!(number_of(&kept, "quiet"), 5);
        assert_eq!(number_of(&kept, "noisy"), OF_PAIR_MAX);
        let pairs = kept.pairs.values().map(|pair| pair.denials.len());
        assert_eq!(pairs.sum::<usize>(), KEPT_MAX);
        assert_eq!(kept.rules.values().sum::<usize>(), KEPT_MAX);
        let latest = kept.latest(2, |_| true);
        let latest: Vec<_> = latest.iter().map(|it| &*it.tenant).collect();
        assert_eq!(latest, ["4999", "noisy"], "the last first");
    }

    #[test]
    fn some_of_each_second_are_kept_of_each_tenant() {
        let mut kept = RecentDenials::default();
        let pair = ("d", "d.a", "customer:acme");
        assert!(kept.lacks(pair, 0));
        for _ in 0..OF_SECOND {
            assert!(kept.lacks(pair, 0));
            kept.keep(denied("d.a", "acme"), 0);
        }
        assert!(!kept.lacks(pair, 0));
        assert!(kept.lacks(pair, 1));
        assert!(kept.lacks(("d", "d.a", "customer:beta"), 0));
    }
}
