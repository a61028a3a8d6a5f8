//! The store, as obvious as can be: the script does the same in Redis.

use std::collections::BTreeMap;

use ratekeeper_core::Timestamp;
use ratekeeper_core::synced::{Addition, StoredSum};

/// A protection that a run may be without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// Numbers that are not above the mark's are ignored.
    Number,
    /// The store adds the difference from the mark's total.
    Mark,
    /// Marks whose sum is gone are dropped, and a sum whose marks are gone.
    Lost,
}

/// The count of one (sub-)window.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sum {
    /// [`None`] if it was never counted, or is lost.
    pub(crate) value: Option<i64>,
    /// The number and the total of each node's last addition.
    pub(crate) marks: BTreeMap<u64, (u64, i64)>,
}

pub(crate) type Sums = BTreeMap<Timestamp, Sum>;

/// Carries out the additions of a node; the answer to each.
pub(crate) fn add(
    sums: &mut Sums,
    node: u64,
    additions: &[Addition],
    without: Option<Guard>,
) -> Vec<StoredSum> {
    let answers = additions.iter().map(|addition| {
        let sum = sums.entry(addition.start).or_default();
        let is_lost = sum.value.is_none() || sum.marks.is_empty();
        if is_lost && without != Some(Guard::Lost) {
            *sum = Sum::default();
        }
        let was_there = sum.value.is_some();
        let mark = sum.marks.get(&node).copied();
        let (number, total) = mark.unwrap_or_default();
        let mut marked = number;
        if addition.number > number || without == Some(Guard::Number) {
            let before = match without {
                Some(Guard::Mark) => 0,
                _ => total,
            };
            let difference = addition.total - before;
            if difference != 0 {
                let value = sum.value.unwrap_or(0) + difference;
                sum.value = Some(value.max(0));
            }
            if difference != 0 || (mark.is_none() && was_there) {
                sum.marks.insert(node, (addition.number, addition.total));
                marked = addition.number;
            }
        }
        StoredSum {
            sum: sum.value.unwrap_or(0).unsigned_abs(),
            marked_before: number,
            marked,
        }
    });
    answers.collect()
}
