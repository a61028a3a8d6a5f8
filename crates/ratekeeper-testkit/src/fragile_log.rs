//! A log that makes who writes to it panic: the mistake of ours that a test can bring about in any task.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// The log of this thread until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct FragileLog {
    _guard: DefaultGuard,
}

impl FragileLog {
    /// Panics once, when a message with `part` in it is written.
    pub fn panicking_at(part: &'static str) -> Self {
        let broke = AtomicBool::new(false);
        let guard = tracing::subscriber::set_default(Fragile { part, broke });
        Self { _guard: guard }
    }
}

struct Fragile {
    part: &'static str,
    broke: AtomicBool,
}

impl Subscriber for Fragile {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        if message.0.contains(self.part) && !self.broke.swap(true, Ordering::Relaxed) {
            panic!("a mistake of ours");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
