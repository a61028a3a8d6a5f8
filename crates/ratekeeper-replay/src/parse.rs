//! Parses lines of access logs into [`Record`]s.

mod access;
mod json;
mod request;
mod text;

use crate::fields::Fields;
use crate::record::{MalformedLine, Record};
use crate::time::TimeReader;

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// Common Log Format: `host ident user [time] "request" status bytes`.
    Common,
    /// [`Self::Common`] followed by `"referer" "user agent"`: the default of Apache and NGINX.
    /// Parsed like [`Self::Common`], using the fields that a line has; more may follow.
    Combined,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::Json => "json",
        }
    }

    /// The format with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Common, Self::Combined, Self::Json]
            .into_iter()
            .find(|format| format.name() == name)
    }
}

/// Parses the lines of one log.
///
/// ```
/// use ratekeeper_replay::{Fields, LineParser};
///
/// let mut parser = LineParser::new(None, Fields::default());
/// let line = br#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 5"#;
/// let record = parser.parse(line)?;
/// assert_eq!(record.remote_address, "192.0.2.7");
/// assert_eq!(record.path.as_deref(), Some("/a"));
/// # Ok::<(), ratekeeper_replay::MalformedLine>(())
/// ```
#[derive(Debug)]
pub struct LineParser {
    format: Option<Format>,
    fields: Fields,
    time: TimeReader,
}

impl LineParser {
    /// A parser for `format`, or for the format of the first line that can be parsed. `fields` has
    /// the paths of values in JSON lines.
    #[must_use]
    pub fn new(format: Option<Format>, fields: Fields) -> Self {
        Self {
            format,
            fields,
            time: TimeReader::new(),
        }
    }

    /// The format, once it is known.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Parses one line, without its line end.
    ///
    /// A line with a time and an address is a request, whatever the rest of it holds. Allocates
    /// only for values with escapes or invalid UTF-8, and for extra fields.
    ///
    /// # Errors
    /// [`MalformedLine`] if it has no time or no address.
    pub fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Record<'a>, MalformedLine> {
        match self.format {
            Some(Format::Json) => json::parse(line, &self.fields, &mut self.time),
            Some(Format::Common | Format::Combined) => access::parse(line, &mut self.time),
            None => self.detect(line),
        }
    }

    /// Parses a line that is known to have `format`.
    pub(crate) fn parse_as<'a>(
        &mut self,
        format: Format,
        line: &'a [u8],
    ) -> Result<Record<'a>, MalformedLine> {
        self.format = Some(format);
        self.parse(line)
    }

    fn detect<'a>(&mut self, line: &'a [u8]) -> Result<Record<'a>, MalformedLine> {
        let (format, record) = if line.trim_ascii_start().starts_with(b"{") {
            (
                Format::Json,
                json::parse(line, &self.fields, &mut self.time)?,
            )
        } else {
            let record = access::parse(line, &mut self.time)?;
            let is_common = line
                .last()
                .is_some_and(|last| *last == b'-' || last.is_ascii_digit());
            (
                if is_common {
                    Format::Common
                } else {
                    Format::Combined
                },
                record,
            )
        };
        self.format = Some(format);
        Ok(record)
    }
}

#[cfg(test)]
mod tests;
