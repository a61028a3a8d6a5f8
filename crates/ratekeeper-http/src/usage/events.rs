//! Event streams, as the HTML standard has them: the data of each event is JSON of its own.

use super::json::{JsonScanner, Places};
use super::slots::UsageTarget;

/// The field whose lines are read.
const FIELD: &[u8] = b"data";

/// Reads the data of an event stream, line by line.
#[derive(Clone, Debug)]
pub(super) struct EventScanner {
    line: Line,
    /// True behind a carriage return, which a line feed may follow.
    after_return: bool,
    /// True if the event has data so far.
    has_data: bool,
    /// Events with data so far.
    count: u64,
    /// The number of events when something was found last.
    told_at: Option<u64>,
    json: JsonScanner,
}

/// The place within a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// So many bytes of the field's name were read.
    Name(u8),
    /// Behind its colon, which a space may follow.
    Colon,
    /// In its value.
    Data,
    /// In a line that is of no interest.
    Other,
}

impl EventScanner {
    pub(super) fn new(places: Places) -> Self {
        Self {
            line: Line::Name(0),
            after_return: false,
            has_data: false,
            count: 0,
            told_at: None,
            json: JsonScanner::new(places),
        }
    }

    /// Events with data so far, the one under way included.
    pub(super) fn count(&self) -> u64 {
        self.count + u64::from(self.has_data)
    }

    /// Returns true if the last event tells the usage, or the last but one: a mark of the end may follow.
    pub(super) fn is_told_at_end(&self) -> bool {
        self.told_at.is_some_and(|at| self.count() <= at + 1)
    }

    pub(super) fn feed(&mut self, mut piece: &[u8], target: &mut UsageTarget<'_>) {
        while let Some((&byte, rest)) = piece.split_first() {
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                piece = rest;
                continue;
            }
            if matches!(byte, b'\r' | b'\n') {
                self.after_return = byte == b'\r';
                self.end_line(target);
                piece = rest;
                continue;
            }
            match self.line {
                Line::Name(count) => {
                    self.name(count, byte);
                    piece = rest;
                }
                Line::Colon if byte == b' ' => {
                    self.line = Line::Data;
                    piece = rest;
                }
                Line::Colon => self.line = Line::Data,
                Line::Data | Line::Other => {
                    let end = memchr::memchr2(b'\r', b'\n', piece).unwrap_or(piece.len());
                    let (value, rest) = piece.split_at(end);
                    if self.line == Line::Data {
                        self.has_data = true;
                        let before = target.slots.puts;
                        self.json.feed(value, target);
                        if target.slots.puts > before {
                            self.told_at = Some(self.count());
                        }
                    }
                    piece = rest;
                }
            }
        }
    }

    fn name(&mut self, count: u8, byte: u8) {
        let at = usize::from(count);
        self.line = match FIELD.get(at) {
            Some(expected) if *expected == byte => Line::Name(count + 1),
            None if byte == b':' => Line::Colon,
            // A byte order mark before the first line makes it one of another name, and such a line begins no usage.
            _ => Line::Other,
        };
    }

    fn end_line(&mut self, target: &mut UsageTarget<'_>) {
        match std::mem::replace(&mut self.line, Line::Name(0)) {
            // An empty line ends the event.
            Line::Name(0) => {
                self.count += u64::from(std::mem::take(&mut self.has_data));
                self.json.begin();
            }
            // The lines of a value are joined by line feeds, which end no number early.
            Line::Data => self.json.feed(b"\n", target),
            Line::Name(_) | Line::Colon | Line::Other => {}
        }
    }
}
