//! Sorts lines that are out of order.
//!
//! Servers write a line when a request has ended, so a long request stands behind later ones. Lines
//! are held here until a line has been read that is later by a span; the earliest goes first. A line that is further ahead
//! than that counts only once many have followed it there, since it may be by a clock that is wrong.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::{Micros, Timestamp};

use crate::parse::Format;

/// The most bytes of held lines, each counted with its overhead. Beyond it the earliest lines go on
/// early.
pub(crate) const HELD_BYTES_MAX: usize = 64 << 20;

/// A jump ahead is believed once so many lines in a row have followed it.
const CONFIRMING_LINES: u64 = 1_024;

/// Overhead of a held line in bytes.
const OVERHEAD_BYTES: usize = size_of::<Reverse<HeldLine>>();

/// A held line.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HeldLine {
    /// The time of its request.
    pub(crate) time: Timestamp,
    /// Keeps lines with the same time in the order of the log.
    number: u64,
    /// The format of its text.
    pub(crate) format: Format,
    /// The text of the line.
    pub(crate) text: Box<[u8]>,
}

/// Lines held back for earlier ones.
#[derive(Debug)]
pub(crate) struct Reorder {
    within: Micros,
    held: BinaryHeap<Reverse<HeldLine>>,
    held_bytes: usize,
    pub(crate) bytes_max: usize,
    /// The latest time that is believed.
    latest: Timestamp,
    /// The lines since then, in a row, that are later by more than the span.
    ahead: Ahead,
    order: Order,
    /// All lines so far.
    lines: u64,
}

/// Lines in a row that are far ahead of those before them: after a pause, or by a clock that is wrong.
#[derive(Debug, Default)]
struct Ahead {
    lines: u64,
    /// The time that the others among them have come to, in steps of no more than the span.
    reached: Timestamp,
}

/// Counts the lines that are earlier than one before them. A single line of the future makes none of those that follow it
/// one of them, except the next.
#[derive(Debug, Default)]
struct Order {
    latest: Timestamp,
    /// The latest time before the last jump ahead.
    before_jump: Timestamp,
    earlier_lines: u64,
}

impl Reorder {
    /// Sorts lines that are out of order by at most `within`.
    pub(crate) fn new(within: Micros) -> Self {
        Self {
            within,
            held: BinaryHeap::new(),
            held_bytes: 0,
            bytes_max: HELD_BYTES_MAX,
            latest: Timestamp::EPOCH,
            ahead: Ahead::default(),
            order: Order::default(),
            lines: 0,
        }
    }

    /// Takes the next line of the log.
    pub(crate) fn push(&mut self, time: Timestamp, format: Format, text: &[u8]) {
        self.order.add(time, self.within);
        self.believe(time);
        self.lines += 1;
        self.held_bytes += text.len() + OVERHEAD_BYTES;
        self.held.push(Reverse(HeldLine {
            time,
            number: self.lines,
            format,
            text: text.into(),
        }));
    }

    /// Moves on to `time`. Far ahead, it has to be confirmed: a line by a wrong clock would send on all that follow it
    /// unsorted.
    fn believe(&mut self, time: Timestamp) {
        let is_near = time <= self.latest.after(self.within);
        if is_near || self.within == Micros::ZERO {
            self.latest = self.latest.max(time);
            self.ahead = Ahead::default();
            return;
        }
        let Ahead { lines, reached } = &mut self.ahead;
        if *lines == 0 || time.after(self.within) < *reached {
            *reached = time;
        } else if time <= reached.after(self.within) {
            *reached = time.max(*reached);
        }
        *lines += 1;
        if *lines >= CONFIRMING_LINES {
            self.latest = *reached;
            self.ahead = Ahead::default();
        }
    }

    /// The next line that is due, if any.
    pub(crate) fn pop(&mut self) -> Option<HeldLine> {
        let Reverse(first) = self.held.peek()?;
        let is_due = first.time.after(self.within) <= self.latest;
        if is_due || self.held_bytes > self.bytes_max {
            return self.pop_any();
        }
        None
    }

    /// The earliest held line, at the end of all logs.
    pub(crate) fn pop_any(&mut self) -> Option<HeldLine> {
        let Reverse(held) = self.held.pop()?;
        self.held_bytes -= held.text.len() + OVERHEAD_BYTES;
        Some(held)
    }

    /// The number of lines that were earlier than one before them.
    pub(crate) const fn out_of_order(&self) -> u64 {
        self.order.earlier_lines
    }
}

impl Order {
    fn add(&mut self, time: Timestamp, within: Micros) {
        if time < self.latest {
            self.earlier_lines += 1;
            // Back near the time before the jump, which was no pause then.
            if time <= self.before_jump.after(within) {
                self.latest = self.before_jump.max(time);
            }
        } else {
            if time > self.latest.after(within) {
                self.before_jump = self.latest;
            }
            self.latest = time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(within: u64, times: &[u64], bytes_max: usize) -> (Vec<u64>, usize) {
        let mut reorder = Reorder::new(Micros::new(within));
        reorder.bytes_max = bytes_max;
        let (mut order, mut most) = (Vec::new(), 0);
        for time in times {
            reorder.push(Timestamp::from_micros(*time), Format::Common, b"a line");
            while let Some(held) = reorder.pop() {
                order.push(held.time.as_micros());
            }
            most = most.max(reorder.held_bytes);
        }
        while let Some(held) = reorder.pop_any() {
            order.push(held.time.as_micros());
        }
        assert_eq!(reorder.held_bytes, 0);
        (order, most)
    }

    proptest! {
        /// Lines out of order by no more than the span are sorted, and no line is lost.
        #[test]
        fn sorts_what_is_out_of_order_by_no_more_than_its_span(
            steps in prop::collection::vec((0..50_u64, 0..=30_u64), 0..200),
        ) {
            let mut now = 100;
            let times = steps.into_iter().map(|(step, late)| {
                now += step;
                now - late
            });
            let times: Vec<u64> = times.collect();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            prop_assert_eq!(order(30, &times, usize::MAX).0, sorted.clone());
            let (mut few, most) = order(30, &times, 4 * OVERHEAD_BYTES);
            prop_assert!(most <= 4 * OVERHEAD_BYTES);
            few.sort_unstable();
            prop_assert_eq!(few, sorted);
        }
    }

    /// A clock that is wrong for some lines, or one wrong server among several, does not end the sorting of the others.
    #[test]
    fn a_few_lines_of_the_future_leave_the_others_sorted() {
        let times = (1_000..6_000).map(|line: u64| match line {
            1_005 | 2_000..2_100 => 1_000_000,
            _ if line.is_multiple_of(10) => 1_000_000 + line,
            _ if line.is_multiple_of(2) => line - 8,
            _ => line,
        });
        let times: Vec<u64> = times.collect();
        let mut sorted = times.clone();
        sorted.sort_unstable();
        assert!(order(30, &times, usize::MAX).0 == sorted);
    }

    #[test]
    fn a_pause_ends_once_many_lines_have_followed_it() {
        let pauses = (0..5 * CONFIRMING_LINES).map(|line| 1_000 * (line / 3) + line % 3);
        let pauses: Vec<u64> = pauses.collect();
        let (order, most) = order(30, &pauses, usize::MAX);
        assert!(order == pauses);
        let line = OVERHEAD_BYTES + "a line".len();
        let most = u64::try_from(most / line).expect("a few");
        assert!(most <= 2 * CONFIRMING_LINES + 3, "{most}");
    }

    #[test]
    fn only_lines_that_are_early_count_as_out_of_order() {
        let counted = |times: &[u64]| {
            let mut reorder = Reorder::new(Micros::new(60));
            let push = |time: &u64| {
                reorder.push(Timestamp::from_micros(*time), Format::Common, b"a line");
            };
            times.iter().for_each(push);
            reorder.out_of_order()
        };
        assert_eq!(counted(&[0, 1, 160, 161, 100, 101, 220]), 2);
        assert_eq!(counted(&[0, 100, 200, 10, 300, 310]), 1);
        assert_eq!(counted(&[0, 8, 1_000_000, 9, 10, 11, 12]), 1);
        assert_eq!(counted(&[0, 1_000, 1_001, 1, 1_002, 2, 1_003]), 2);
    }

    #[test]
    fn a_span_of_nothing_leaves_the_order_of_the_log() {
        assert_eq!(order(0, &[5, 3, 4, 4, 9], usize::MAX).0, [5, 3, 4, 4, 9]);
    }
}
