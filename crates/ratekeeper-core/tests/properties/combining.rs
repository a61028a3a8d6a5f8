//! The combined answer follows a table of the descriptors.

use proptest::prelude::*;
use ratekeeper_core::{Mode, Vote, combine};
use std::collections::BTreeMap;

fn votes() -> impl Strategy<Value = Vec<Vote>> {
    let vote = (any::<bool>(), 0..4_u16, any::<bool>(), any::<bool>());
    let votes = prop::collection::vec(vote, 0..10);
    votes.prop_map(|mut votes| {
        votes.sort_by_key(|(_, descriptor, ..)| *descriptor);
        let votes = votes.into_iter();
        let vote = votes.map(|(fits, descriptor, shadow, quota_mode)| Vote {
            fits,
            descriptor,
            shadow,
            quota_mode,
        });
        vote.collect()
    })
}

fn allowed(votes: &[Vote], mode: Mode) -> bool {
    let over = |vote: &&Vote| !vote.fits && !vote.shadow;
    let enforced_over = votes
        .iter()
        .filter(|vote| !vote.quota_mode)
        .any(|vote| over(&vote));
    let mut quota_descriptors = BTreeMap::new();
    for vote in votes.iter().filter(|vote| vote.quota_mode) {
        *quota_descriptors.entry(vote.descriptor).or_insert(false) |= over(&vote);
    }
    let some = !quota_descriptors.is_empty() && !mode.idle_quota;
    let quota_over = some && quota_descriptors.values().all(|over| *over);
    mode.shadow || (!enforced_over && !quota_over && !mode.denied)
}

proptest! {
    #[test]
    fn follows_the_table(votes in votes(), (shadow, idle_quota, denied) in any::<(bool, bool, bool)>()) {
        let mode = Mode { shadow, idle_quota, denied };
        prop_assert_eq!(combine(votes.iter().copied(), mode), allowed(&votes, mode));
    }
}
