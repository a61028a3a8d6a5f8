//! A span that has ended.

use std::time::{Duration, Instant, SystemTime};

/// The most characters of a text in a span.
const TEXT_MAX: usize = 256;

/// A span that has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceSpan {
    /// The trace it belongs to.
    pub trace_id: u128,
    /// Its id; never 0.
    pub span_id: u64,
    /// The span that it is a part of; [`None`] if the trace begins with it.
    pub parent: Option<u64>,
    /// True if that span is of another process.
    pub parent_is_remote: bool,
    /// Its role.
    pub kind: SpanKind,
    /// Its name.
    pub name: &'static str,
    /// Its start, by the wall clock.
    pub start: SystemTime,
    /// Its end: the start and the time that passed.
    pub end: SystemTime,
    /// True if something went wrong in it. A denial is no error.
    pub is_error: bool,
    /// Facts about it.
    pub attributes: Vec<(&'static str, SpanValue)>,
}

/// The role of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    /// Answers a request of another process.
    Server,
    /// Waits for the answer of another process.
    Client,
    /// Neither.
    Internal,
}

/// A call that asks for a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedCall {
    /// The method, which names the span.
    pub method: TracedMethod,
    /// The protocol it came over.
    pub protocol: &'static str,
}

impl TracedCall {
    /// A check over `protocol`.
    #[must_use]
    pub const fn check(protocol: &'static str) -> Self {
        let method = TracedMethod::Check;
        Self { method, protocol }
    }
}

/// A method that decides, or reads the state of limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TracedMethod {
    /// Decides and charges.
    Check,
    /// Reads, and charges nothing.
    Peek,
    /// Decides, and takes permits.
    Acquire,
    /// Decides, and charges the most that a request may cost.
    Reserve,
}

impl TracedMethod {
    /// The name of its span.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Acquire => "acquire",
            Self::Reserve => "reserve",
        }
    }
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpanValue {
    /// True or false.
    Bool(bool),
    /// A number.
    Number(u64),
    /// A fixed text.
    Word(&'static str),
    /// A text, cut at 256 bytes.
    Text(Box<str>),
}

impl SpanValue {
    /// The text, or as much of it as a span holds.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text[..text.floor_char_boundary(TEXT_MAX)].into())
    }
}

/// The clock of a span: wall time where it starts, and the time that passes from then on, which never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanClock {
    wall: SystemTime,
    begun: Instant,
}

impl SpanClock {
    pub(crate) fn start() -> Self {
        Self {
            wall: SystemTime::now(),
            begun: Instant::now(),
        }
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The wall time so long after the start.
    pub(crate) fn at(&self, elapsed: Duration) -> SystemTime {
        self.wall + elapsed
    }

    /// The wall time at `instant`; the start if that was later.
    pub(crate) fn at_instant(&self, instant: Instant) -> SystemTime {
        self.at(instant.saturating_duration_since(self.begun))
    }
}
