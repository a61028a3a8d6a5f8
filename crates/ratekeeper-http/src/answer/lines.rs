//! Header lines whose values lie in one buffer.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Names and values, each name once.
pub type HeaderLines = Vec<(HeaderName, HeaderValue)>;

/// More than the default headers take, so that their text does not have to grow.
const TEXT_BYTES: usize = 192;

/// Lines that are being written. An answer has five or more, and an allocation for the value of each would cost more than
/// to decide about its request: they share one.
pub(super) struct Writer {
    /// The values, one after the other.
    text: String,
    /// Names, and where in the text their values end.
    ends: SmallVec<[(&'static HeaderName, usize); 8]>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self {
            text: String::with_capacity(TEXT_BYTES),
            ends: SmallVec::new(),
        }
    }

    /// Adds the line whose value `write` appends to a text; none if it appends nothing.
    pub(super) fn put(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut String)) {
        let begin = self.text.len();
        write(&mut self.text);
        if self.text.len() > begin {
            self.ends.push((name, self.text.len()));
        }
    }

    pub(super) fn text(&mut self, name: &'static HeaderName, value: &str) {
        self.put(name, |text| text.push_str(value));
    }

    pub(super) fn number(&mut self, name: &'static HeaderName, value: u64) {
        self.text(name, itoa::Buffer::new().format(value));
    }

    /// The lines whose values are printable ASCII, which all are that we write.
    pub(super) fn finish(self) -> HeaderLines {
        let text = Bytes::from(self.text);
        let mut begin = 0;
        let mut lines = HeaderLines::with_capacity(self.ends.len());
        for (name, end) in self.ends {
            if let Ok(value) = HeaderValue::from_maybe_shared(text.slice(begin..end)) {
                lines.push((name.clone(), value));
            }
            begin = end;
        }
        lines
    }
}
