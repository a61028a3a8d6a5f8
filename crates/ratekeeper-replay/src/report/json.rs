//! The figures besides the rules' counts, as JSON.

use ratekeeper_core::Timestamp;
use serde::{Serialize, Serializer};

use super::Summary;
use super::words::time_text;

#[derive(Serialize)]
struct SummaryJson<'a> {
    domain: &'a str,
    /// Null if no line was a request.
    format: Option<&'static str>,
    span: Option<Span>,
    requests: Requests,
    sorted: u64,
    late: u64,
    notes: &'a [String],
}

/// The first and the last time of what was read.
#[derive(Serialize)]
pub(crate) struct Span {
    first: String,
    last: String,
}

impl Span {
    pub(crate) fn new((first, last): (Timestamp, Timestamp)) -> Self {
        Self {
            first: time_text(first),
            last: time_text(last),
        }
    }
}

#[derive(Serialize)]
struct Requests {
    allowed: u64,
    denied: u64,
    refused: u64,
    unmatched: u64,
    uncounted: u64,
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = SummaryJson {
            domain: &self.domain,
            format: self.format.map(crate::Format::name),
            span: self.span.map(Span::new),
            requests: Requests {
                allowed: self.allowed,
                denied: self.denied,
                refused: self.refused,
                unmatched: self.unmatched,
                uncounted: self.uncounted,
            },
            sorted: self.sorted,
            late: self.late,
            notes: &self.notes,
        };
        json.serialize(serializer)
    }
}
