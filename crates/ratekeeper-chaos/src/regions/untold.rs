//! The bound of limits that regions count together: hits that the others could not know of yet.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Way;
use super::callers::Answer;

/// The longest time for which others do not know of a hit: between two posts, until the counter is looked at, and on its
/// way; and what answers take to come to callers, who tell the time here.
const UNTOLD_MAX: Duration = Duration::from_millis(1_000 + 100 + 10 + 80 + 100);

/// The hits of `counted` beyond `limit`, by window, less those that other regions had admitted shortly before the last one:
/// the region that admitted that knew of all others.
pub(super) fn beyond_bound(answers: &[Answer], limit: u64) -> u64 {
    let mut windows: BTreeMap<u64, Vec<&Answer>> = BTreeMap::new();
    let admitted = answers
        .iter()
        .filter(|it| it.way == Way::Counted && it.is_allowed);
    for answer in admitted {
        windows.entry(answer.window).or_default().push(answer);
    }
    let beyond = windows.values().map(|admitted| {
        let over = (admitted.len() as u64).saturating_sub(limit);
        let last = admitted.iter().max_by_key(|it| it.done);
        over.saturating_sub(last.map_or(0, |last| untold(admitted, last)))
    });
    beyond.sum()
}

/// The hits that the region that admitted `last` could not know of.
fn untold(admitted: &[&Answer], last: &Answer) -> u64 {
    let of_others = admitted.iter().filter(|it| it.region != last.region);
    of_others
        .filter(|it| it.done + UNTOLD_MAX >= last.done)
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(region: usize, done_ms: u64) -> Answer {
        Answer {
            way: Way::Counted,
            region,
            sent: Duration::ZERO,
            done: Duration::from_millis(done_ms),
            window: 7,
            is_allowed: true,
            is_degraded: false,
        }
    }

    #[test]
    fn hits_beyond_the_limit_are_explained_by_those_of_others_shortly_before() {
        let late = [
            admitted(0, 0),
            admitted(0, 5_000),
            admitted(1, 5_100),
            admitted(0, 5_200),
        ];
        assert_eq!(beyond_bound(&late, 4), 0);
        assert_eq!(beyond_bound(&late, 3), 0, "region 0 cannot know of one hit");
        assert_eq!(beyond_bound(&late, 2), 1, "it knows of its own");
        let early = [admitted(1, 0), admitted(0, 5_000)];
        assert_eq!(beyond_bound(&early, 1), 1, "it was told long ago");
    }
}
