//! The words of explanations.

use ratekeeper_rules::{Entry, Matched, Rule};
use ratekeeper_store::{LeasedHits, OtherLeases, SyncedHits};

use crate::Snapshot;
use crate::switch::RuleMode;

/// A synced counter in words: how often, what is known, how much may pass, and what a change does.
pub(super) fn synced(known: &SyncedHits) -> String {
    let SyncedHits {
        interval,
        own,
        others,
        pending,
        age,
    } = *known;
    let every = interval.as_millis_ceil();
    let others = match age {
        Some(age) => format!(
            "other nodes {others} as of {} ms ago, and {pending} of its own are not added yet",
            age.as_millis_ceil()
        ),
        None => "of other nodes it knows nothing yet".to_owned(),
    };
    format!(
        "synced every {every} ms: this node admitted {own}, {others}; beyond the limit passes at most what the other \
         nodes admit in {} ms and a round trip, never more than (nodes - 1) x the limit; changing to or from \
         `consistency: synced` starts afresh",
        2 * every
    )
}

/// A synced budget of which reservations have used more than other requests.
pub(super) const RESERVED: &str =
    "this is the counter of its reservations, which are counted apart from what nodes sync";

/// The hits that a node holds of a counter, in words.
pub(super) fn leased(held: &LeasedHits, by_default: bool) -> String {
    let LeasedHits {
        leases,
        granted,
        left,
        until,
        others,
    } = *held;
    let leased = match by_default {
        true => "leased by default, because all requests share one counter of a cluster",
        false => "leased",
    };
    let until = until.as_millis_ceil();
    let mut said = match leases {
        0 => format!("{leased}: this node holds nothing now"),
        1 => {
            format!("{leased}: this node holds {left} of {granted} in a lease, until in {until} ms")
        }
        _ => format!(
            "{leased}: this node holds {left} of {granted} in {leases} leases, until in {until} ms"
        ),
    };
    let OtherLeases { nodes, hits } = others;
    match nodes {
        0 => {}
        1 => said.push_str(&format!(
            "; one other node held {hits} as of this node's last call"
        )),
        _ => said.push_str(&format!(
            "; {nodes} other nodes held {hits} as of this node's last call"
        )),
    }
    said
}

pub(super) fn why_not(rule: &Rule, mode: RuleMode, reached: bool) -> &'static str {
    let concurrency = rule
        .limited()
        .is_some_and(|limit| limit.algorithm().holds_permits());
    let is_enabled = mode != RuleMode::Disabled;
    match (reached, is_enabled) {
        (false, _) => "does not count: evaluation is leaf, and more entries follow",
        (true, false) if rule.enabled => "does not count: its switch is off",
        (true, false) => "does not count: the rule is disabled",
        (true, true) if concurrency => "does not count: nothing would release the permit here",
        (true, true) => "does not count: replaced by another rule, or by the request's own limit",
    }
}

pub(super) const fn how(how: Matched) -> &'static str {
    match how {
        Matched::Exact => "exact",
        Matched::Wildcard => "wildcard",
        Matched::KeyOnly => "key only",
    }
}

pub(super) fn shown(snapshot: &Snapshot, entry: &Entry<'_>, is_secret: bool) -> String {
    if is_secret {
        format!("{}={}", entry.key, snapshot.fingerprint(entry.value))
    } else {
        format!("{}={}", entry.key, entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Micros;

    #[test]
    fn what_a_node_holds_is_told_by_the_number_of_its_leases() {
        let said = |leases| {
            let held = LeasedHits {
                leases,
                granted: 50,
                left: 38,
                until: Micros::from_millis(60),
                ..LeasedHits::default()
            };
            leased(&held, false)
        };
        assert_eq!(said(0), "leased: this node holds nothing now");
        assert!(said(1).contains("38 of 50 in a lease,"));
        assert!(said(2).contains("38 of 50 in 2 leases,"));
    }

    #[test]
    fn a_synced_counter_tells_what_it_knows_of_other_nodes() {
        let mut known = SyncedHits {
            interval: Micros::from_millis(100),
            own: 3,
            others: 4,
            pending: 2,
            age: None,
        };
        let said = synced(&known);
        assert!(said.starts_with("synced every 100 ms: this node admitted 3,"));
        assert!(said.contains("of other nodes it knows nothing yet"));
        assert!(said.contains("admit in 200 ms"), "{said}");
        known.age = Some(Micros::from_millis(30));
        let others = "other nodes 4 as of 30 ms ago, and 2 of its own are not added yet";
        assert!(synced(&known).contains(others));
    }

    #[test]
    fn what_other_nodes_hold_is_told() {
        let mut held = LeasedHits {
            leases: 1,
            granted: 50,
            left: 38,
            until: Micros::from_millis(60),
            ..LeasedHits::default()
        };
        let own = "leased: this node holds 38 of 50 in a lease, until in 60 ms";
        assert_eq!(leased(&held, false), own);
        held.others = OtherLeases { nodes: 1, hits: 20 };
        let told = format!("{own}; one other node held 20 as of this node's last call");
        assert_eq!(leased(&held, false), told);
        held.others = OtherLeases { nodes: 3, hits: 90 };
        assert!(leased(&held, false).contains("; 3 other nodes held 90 as of"));
    }
}
