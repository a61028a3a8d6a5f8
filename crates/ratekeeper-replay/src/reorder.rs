//! Sorts lines that are out of order.
//!
//! Servers write a line when a request has ended, so a long request stands behind later ones. Lines
//! are held here until a line has been read that is later by a span; the earliest goes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::{Micros, Timestamp};

use crate::parse::Format;

/// The most bytes of held lines, each counted with its overhead. Beyond it the earliest lines go on
/// early.
const HELD_BYTES_MAX: usize = 64 << 20;

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
    bytes_max: usize,
    /// The latest time of all lines so far.
    latest: Timestamp,
    /// All lines so far.
    lines: u64,
    /// Lines that were earlier than one before them.
    out_of_order: u64,
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
            lines: 0,
            out_of_order: 0,
        }
    }

    /// Takes the next line of the log.
    pub(crate) fn push(&mut self, time: Timestamp, format: Format, text: &[u8]) {
        self.out_of_order += u64::from(time < self.latest);
        self.latest = self.latest.max(time);
        self.lines += 1;
        self.held_bytes += text.len() + OVERHEAD_BYTES;
        self.held.push(Reverse(HeldLine {
            time,
            number: self.lines,
            format,
            text: text.into(),
        }));
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
        self.out_of_order
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

    #[test]
    fn a_span_of_nothing_leaves_the_order_of_the_log() {
        assert_eq!(order(0, &[5, 3, 4, 4, 9], usize::MAX).0, [5, 3, 4, 4, 9]);
    }
}
