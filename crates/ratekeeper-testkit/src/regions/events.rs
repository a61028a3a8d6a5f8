//! The events of a world, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::region::loans::{TimedAnswer, TimedAsk, WindowAnswer, WindowAsk};

/// A message between regions. An ask may recall what the asker has lent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    AskWindows(WindowAsk, u64),
    AnswerWindows(WindowAnswer),
    AskTimed(TimedAsk, u64),
    AnswerTimed(TimedAnswer),
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request comes to a region.
    Request(usize),
    /// The traffic of a region is looked at again.
    Wake(usize),
    /// The nodes of a region look after their loans.
    Tick(usize),
    /// A message from one region to another.
    Message(usize, usize, Message),
    /// The fault of that number.
    Fault(usize),
    /// All have reported to a region that it may own more, from that window on.
    Grow(usize, u64),
}

/// Events that are yet to happen; of two at one time, the one that was put first.
#[derive(Debug, Default)]
pub(super) struct Events {
    order: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Event>,
}

impl Events {
    pub(super) fn put(&mut self, at: u64, event: Event) {
        self.order.push(Reverse((at, self.events.len())));
        self.events.push(event);
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, number)) = self.order.pop()?;
        Some((at, self.events[number]))
    }
}
