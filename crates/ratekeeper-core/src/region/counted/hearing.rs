//! The times at which a region was heard, by the boot clock of a node.

use crate::Micros;

/// The least time without a word that can be a silence: three of the least intervals.
const GAP_MIN: Micros = Micros::from_secs(3);

/// The least time for which a region that is heard again still counts as silent: until then links are made in both
/// directions, and everything that it has counted meanwhile has come.
const CATCH_UP_MIN: Micros = Micros::from_secs(10);

/// The time for which the longest of several gaps counts: longer than any rule waits.
const GAPS_TOGETHER: Micros = Micros::from_secs(200);

/// The times at which a node has heard a region: whole messages of any kind.
///
/// ```text
///  heard . . . .                  . . . . . . . . . . .
///              |- after -|########################|         silent
///                                 |-- catch up ---|
/// ```
///
/// A region that was never heard is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hearing {
    started: Micros,
    last: Option<Micros>,
    /// The last time at which it was heard again, and the time without a word before that.
    again: Option<(Micros, Micros)>,
}

impl Hearing {
    /// A node that starts `now`, and has heard nothing.
    #[must_use]
    pub const fn new(now: Micros) -> Self {
        Self {
            started: now,
            last: None,
            again: None,
        }
    }

    /// Records a whole message.
    pub fn hear(&mut self, now: Micros) {
        // Since a node started, when links are made anyway, it is not a silence at once.
        let gap = span(self.last.unwrap_or(self.started), now);
        if gap > GAP_MIN {
            let gap = match (self.last, self.again) {
                (None, _) => Micros::MAX,
                (_, Some((at, before))) if span(at, now) < GAPS_TOGETHER => before.max(gap),
                _ => gap,
            };
            self.again = Some((now, gap));
        }
        self.last = self.last.max(Some(now));
    }

    /// The time since it was last heard; [`None`] if it never was.
    #[must_use]
    pub fn unheard(&self, now: Micros) -> Option<Micros> {
        self.last.map(|last| span(last, now))
    }

    /// True if it was not heard for longer than `after`, or so a while ago that not everything that it has counted meanwhile
    /// has come.
    #[must_use]
    pub fn is_silent(&self, after: Micros, now: Micros) -> bool {
        let is_unheard = self.unheard(now).is_none_or(|unheard| unheard > after);
        let catches_up = self
            .again
            .is_some_and(|(at, gap)| gap > after && span(at, now) < after.max(CATCH_UP_MIN));
        is_unheard || catches_up
    }
}

const fn span(from: Micros, to: Micros) -> Micros {
    Micros::new(to.get().saturating_sub(from.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent_at(
        hearing: &Hearing,
        after: u64,
        seconds: impl IntoIterator<Item = u64>,
    ) -> Vec<u64> {
        let is_silent =
            |second: &u64| hearing.is_silent(Micros::from_secs(after), Micros::from_secs(*second));
        seconds.into_iter().filter(is_silent).collect()
    }

    fn heard_at(seconds: &[u64]) -> Hearing {
        let mut hearing = Hearing::new(Micros::from_secs(100));
        for second in seconds {
            hearing.hear(Micros::from_secs(*second));
        }
        hearing
    }

    #[test]
    fn a_region_is_silent_once_it_was_not_heard_for_longer_than_that() {
        let hearing = heard_at(&[101]);
        assert_eq!(silent_at(&hearing, 3, 100..108), [105, 106, 107]);
        assert_eq!(silent_at(&hearing, 30, [131, 132]), [132]);
        let unheard = hearing.unheard(Micros::from_secs(131));
        assert_eq!(unheard, Some(Micros::from_secs(30)));
    }

    #[test]
    fn one_that_is_heard_again_is_silent_until_it_has_caught_up() {
        let heard: Vec<u64> = (100..=110).chain(120..200).collect();
        let hearing = heard_at(&heard);
        assert_eq!(silent_at(&hearing, 3, 120..200), Vec::from_iter(120..130));
        // The rule that waits longer has not taken it for silent.
        assert_eq!(silent_at(&hearing, 10, 120..200), []);
        let heard: Vec<u64> = (100..=110).chain(160..260).collect();
        assert_eq!(
            silent_at(&heard_at(&heard), 30, 160..260),
            Vec::from_iter(160..190)
        );
    }

    /// A link that comes and goes: the longest gap counts, from the last one on.
    #[test]
    fn gaps_are_taken_together() {
        let heard: Vec<u64> = (100..=110).chain(150..=152).chain(157..300).collect();
        let hearing = heard_at(&heard);
        assert_eq!(silent_at(&hearing, 30, 157..300), Vec::from_iter(157..187));
        let heard: Vec<u64> = (100..=110).chain(150..=400).chain(405..500).collect();
        assert_eq!(silent_at(&heard_at(&heard), 30, 405..500), []);
    }

    #[test]
    fn one_that_was_never_heard_is_silent() {
        let never = heard_at(&[]);
        assert_eq!(silent_at(&never, 60, [100, 101]), [100, 101]);
        assert_eq!(never.unheard(Micros::from_secs(100)), None);
        // The link of a node that has just started is there soon.
        assert_eq!(silent_at(&heard_at(&[103]), 3, [103, 104]), []);
        let late: Vec<u64> = (104..200).collect();
        assert_eq!(
            silent_at(&heard_at(&late), 60, 104..200),
            Vec::from_iter(104..164)
        );
    }
}
