//! `fixed_window`: count + n <= limit, in windows aligned to the Unix epoch or to a calendar.
//!
//! ```text
//!  limit 3   |x x x . .|x . . x x|       x admitted   . refused
//!            0         w         2w      up to 2 x limit within one w across an edge
//! ```
//!
//! The oldest scheme there is, and the one of envoyproxy/ratelimit; its trouble at the edges is
//! drawn in <https://www.figma.com/blog/an-alternative-approach-to-rate-limiting/>. Exact
//! against its own definition. Against a sliding one what is counted differs by the hits of the
//! window before, which no longer count: up to twice the limit passes within w across an edge.
//!
//! A peek is denied once the count is above the limit (denied hits were counted, or the limit was
//! lowered); at the limit it still fits.
//!
//! State: word 0 the count, word 1 the start of its window. Its time does not go back: an
//! earlier window than the one last charged is answered as that one. If the clock went back by
//! more than a window, the count moves to the window that the clock says, so that no caller waits
//! for more than two windows; a charge writes that down, one of 0 hits too.

use crate::ask::Finding;
use crate::{Ask, Limit, MAX_COUNT, Moment, Outcome, Timestamp, Words};

/// The window that applies at `at`, and the hits counted in it. A counter whose window starts up to
/// a window later than the clock stays in that window.
fn current(limit: &Limit, words: &Words, at: &Moment) -> (Timestamp, Timestamp, u64) {
    let [count, kept, ..] = *words;
    let kept = Timestamp::from_micros(kept);
    let (start, end) = window(limit, at);
    if kept < start {
        (start, end, 0)
    } else if kept < end {
        // Inside the window rather than at its start: the calendar's edges have moved.
        (kept, end, count)
    } else if is_ahead(limit, words, at.now) {
        (start, end, count)
    } else {
        (kept, end_of(limit, kept, at), count)
    }
}

/// Returns true if the counter's window begins more than a window from now.
pub(crate) fn is_ahead(limit: &Limit, words: &Words, now: Timestamp) -> bool {
    Timestamp::from_micros(words[1]).since(now) > limit.window()
}

/// The window by the clock.
#[inline]
fn window(limit: &Limit, at: &Moment) -> (Timestamp, Timestamp) {
    match at.calendar {
        Some(bounds) if at.now >= bounds.end => (bounds.end, bounds.next_end),
        Some(bounds) => (bounds.start, bounds.end),
        None => {
            let start = at.now.as_micros() - at.now.as_micros() % limit.window().get();
            let start = Timestamp::from_micros(start);
            (start, start.after(limit.window()))
        }
    }
}

/// The start of the window that applies at `at`.
pub(crate) fn current_start(limit: &Limit, words: &Words, at: &Moment) -> Timestamp {
    current(limit, words, at).0
}

/// The end of the window that applies at `at`.
pub(crate) fn current_end(limit: &Limit, words: &Words, at: &Moment) -> Timestamp {
    current(limit, words, at).1
}

/// The start of the window by the clock.
pub(crate) fn start_at(limit: &Limit, at: &Moment) -> Timestamp {
    window(limit, at).0
}

/// Returns true if `taken_at` is in the window of `at`.
pub(crate) fn is_same(limit: &Limit, taken_at: Timestamp, at: &Moment) -> bool {
    let (start, end) = window(limit, at);
    start <= taken_at && taken_at < end
}

/// The end of the window that starts at `kept`. If the calendar of this moment does not cover it,
/// the longest possible end.
fn end_of(limit: &Limit, kept: Timestamp, at: &Moment) -> Timestamp {
    match at.calendar {
        Some(bounds) if kept < bounds.start => kept.after(limit.window()).min(bounds.start),
        Some(bounds) if kept < bounds.end => bounds.end,
        Some(bounds) if kept < bounds.next_end => bounds.next_end,
        _ => kept.after(limit.window()),
    }
}

pub(crate) fn test(limit: &Limit, words: &Words, ask: Ask, at: &Moment) -> Outcome {
    let (_, end, count) = current(limit, words, at);
    // Hits that are given back were counted here.
    let count = count.saturating_sub(ask.refund());
    let count = count.saturating_add(limit.elsewhere);
    let room = limit.quota().saturating_sub(count);
    let until_end = end.since(at.now);
    let finding = Finding {
        capacity: limit.quota(),
        room,
        full_after: until_end,
    };
    let outcome = finding.outcome(ask, |_| until_end, |_| until_end);
    if ask.hits == 0 && count.saturating_add(ask.taken) > limit.quota() {
        // Denied hits were counted, or the limit was lowered: count + 0 <= limit does not hold.
        return outcome.overdrawn(limit.quota());
    }
    outcome
}

pub(crate) fn charge(limit: &Limit, words: &mut Words, hits: i64, at: &Moment) {
    let (start, _, count) = current(limit, words, at);
    words[0] = count.saturating_add_signed(hits).min(MAX_COUNT);
    words[1] = start.as_micros();
}

pub(crate) fn expires_at(limit: &Limit, words: &Words, at: &Moment) -> Timestamp {
    end_of(limit, Timestamp::from_micros(words[1]), at)
}

#[cfg(test)]
mod tests {
    use crate::{
        Algorithm, Bounds, Limit, LimitSpec, Micros, Moment, Outcome, State, Timestamp, Verdict,
    };

    /// A round number of ten seconds since the epoch.
    const EDGE: u64 = 1_700_000_010_000_000;

    fn limit() -> Limit {
        let spec = LimitSpec::new(Algorithm::FixedWindow, 2, Micros::from_secs(10));
        Limit::try_new(spec).expect("a valid limit")
    }

    fn step(limit: &Limit, state: &mut State, hits: i64, micros: u64) -> Outcome {
        limit.step(state, hits, &Moment::at(Timestamp::from_micros(micros)))
    }

    #[test]
    fn hits_come_back_within_their_window_only() {
        let counts = |taken: u64, now: u64| {
            let at = Moment::at(Timestamp::from_micros(now));
            limit().still_counts(Timestamp::from_micros(taken), &at)
        };
        assert!(counts(EDGE, EDGE + 9_999_999));
        assert!(!counts(EDGE - 1, EDGE));
        assert!(!counts(EDGE, EDGE + 10_000_000));
        assert!(!counts(EDGE + 10_000_000, EDGE), "the clock went back");
    }

    /// Windows of a calendar may be shorter than the longest one, which is the limit's.
    #[test]
    fn a_kept_window_ends_with_the_one_of_the_calendar() {
        let [start, end, next_end] = [EDGE, EDGE + 6_000_000, EDGE + 13_000_000];
        let time = Timestamp::from_micros;
        let at = Moment {
            now: time(start),
            calendar: Some(Bounds {
                start: time(start),
                end: time(end),
                next_end: time(next_end),
            }),
        };
        let limit = limit();
        for (kept, ends) in [
            (start - 10_000_001, start - 1),
            (start - 1, start),
            (start, end),
            (end - 1, end),
            (end, next_end),
            (next_end - 1, next_end),
            (next_end, next_end + 10_000_000),
        ] {
            assert_eq!(super::end_of(&limit, time(kept), &at), time(ends), "{kept}");
        }
    }

    #[test]
    fn the_count_restarts_at_the_edge() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        assert_eq!(
            step(&limit, &mut state, 0, EDGE - 3).reset_after,
            Micros::ZERO,
            "untouched"
        );
        assert_eq!(
            step(&limit, &mut state, 2, EDGE - 2).reset_after,
            Micros::new(2)
        );
        let denied = step(&limit, &mut state, 1, EDGE - 1);
        assert_eq!(
            (denied.verdict, denied.retry_after),
            (Verdict::Later, Micros::new(1))
        );
        let first = step(&limit, &mut state, 1, EDGE);
        assert_eq!(
            (first.remaining, first.reset_after),
            (1, Micros::from_secs(10))
        );
        let second = step(&limit, &mut state, 1, EDGE + 1);
        assert_eq!(
            (second.remaining, second.reset_after),
            (0, Micros::new(9_999_999))
        );
    }

    #[test]
    fn a_clock_that_goes_back_by_more_than_a_window_takes_the_count_along() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 2, EDGE + 20_000_000);
        // A whole window ahead, and a microsecond more.
        let denied = step(&limit, &mut state.clone(), 1, EDGE + 10_000_000);
        assert_eq!(denied.retry_after, Micros::from_secs(20));
        let denied = step(&limit, &mut state, 1, EDGE + 9_999_999);
        assert_eq!(
            (denied.verdict, denied.retry_after),
            (Verdict::Later, Micros::new(1))
        );
        assert_eq!(
            step(&limit, &mut state, 2, EDGE + 10_000_000).verdict,
            Verdict::Fits,
            "the denial wrote down where the count is now"
        );
    }

    #[test]
    fn a_clock_that_goes_back_finds_the_later_window() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 2, EDGE);
        let denied = step(&limit, &mut state, 1, EDGE - 1);
        assert_eq!(
            (denied.verdict, denied.retry_after),
            (Verdict::Later, Micros::new(10_000_001))
        );
    }
}
