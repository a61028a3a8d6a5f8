//! The request of one log line.

use std::borrow::Cow;
use std::fmt;

use ratekeeper_core::Timestamp;
use smallvec::SmallVec;

/// A value of a log line that rules can be given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogField {
    /// The client's address, without the port. Every parsed line has one.
    RemoteAddress,
    /// The method, as it was sent.
    Method,
    /// The path without its query; escapes are kept.
    Path,
    /// The `User-Agent` header.
    UserAgent,
    /// The response status.
    Status,
    /// The requested host.
    Host,
    /// The authenticated user.
    User,
    /// The `Referer` header.
    Referer,
    /// The query without the question mark; escapes are kept.
    Query,
    /// An additional field from `--fields`, counted from 0.
    Extra(u8),
}

impl LogField {
    /// The fields that any log may have, with their names.
    pub const NAMED: [(&'static str, Self); 9] = [
        ("remote_address", Self::RemoteAddress),
        ("method", Self::Method),
        ("path", Self::Path),
        ("user_agent", Self::UserAgent),
        ("status", Self::Status),
        ("host", Self::Host),
        ("user", Self::User),
        ("referer", Self::Referer),
        ("query", Self::Query),
    ];

    /// The field with that name, additional ones excluded.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED
            .into_iter()
            .find_map(|(known, field)| (known == name).then_some(field))
    }
}

/// The request of one log line.
///
/// Values borrow from the line; only those with escapes, or that are not UTF-8, are
/// copied. An empty value and `-` count as absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The time in the log.
    pub time: Timestamp,
    /// [`LogField::RemoteAddress`]
    pub remote_address: Cow<'a, str>,
    /// [`LogField::Method`]
    pub method: Option<Cow<'a, str>>,
    /// [`LogField::Path`]
    pub path: Option<Cow<'a, str>>,
    /// [`LogField::UserAgent`]
    pub user_agent: Option<Cow<'a, str>>,
    /// [`LogField::Status`]
    pub status: Option<Cow<'a, str>>,
    /// [`LogField::Host`]
    pub host: Option<Cow<'a, str>>,
    /// [`LogField::User`]
    pub user: Option<Cow<'a, str>>,
    /// [`LogField::Referer`]
    pub referer: Option<Cow<'a, str>>,
    /// [`LogField::Query`]
    pub query: Option<Cow<'a, str>>,
    /// [`LogField::Extra`], in the order of `--fields`; empty where the format has none.
    pub extra: SmallVec<[Option<Cow<'a, str>>; 1]>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(time: Timestamp, remote_address: Cow<'a, str>) -> Self {
        Self {
            time,
            remote_address,
            method: None,
            path: None,
            user_agent: None,
            status: None,
            host: None,
            user: None,
            referer: None,
            query: None,
            extra: SmallVec::new(),
        }
    }

    /// The value of `field`, if the line has it.
    #[must_use]
    pub fn get(&self, field: LogField) -> Option<&str> {
        match field {
            LogField::RemoteAddress => Some(&self.remote_address),
            LogField::Method => self.method.as_deref(),
            LogField::Path => self.path.as_deref(),
            LogField::UserAgent => self.user_agent.as_deref(),
            LogField::Status => self.status.as_deref(),
            LogField::Host => self.host.as_deref(),
            LogField::User => self.user.as_deref(),
            LogField::Referer => self.referer.as_deref(),
            LogField::Query => self.query.as_deref(),
            LogField::Extra(index) => self.extra.get(usize::from(index))?.as_deref(),
        }
    }
}

/// The reason why a line is not a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum MalformedLine {
    /// The line has no client address, or `-` in its place.
    #[error("no client address")]
    NoAddress,
    /// The line has no time at the place where its format has one.
    #[error("no time")]
    NoTime,
    /// The text at the place of the time is not a time.
    #[error("an unreadable time")]
    BadTime,
    /// The line is not a complete JSON object.
    #[error("not a JSON object")]
    NotJson,
    /// The line is not one of CSV.
    #[error("not CSV")]
    NotCsv,
    /// A column of tokens has no whole number of 0 to 2^53 - 1.
    #[error("no number of tokens")]
    NoTokens,
    /// The line is longer than [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    #[error("longer than 1 MiB")]
    TooLong,
}

/// A line that could not be parsed, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// The line's number in its log, from 1.
    pub number: u64,
    /// The reason why it is not a request.
    pub reason: MalformedLine,
    /// The start of the line: at most [`BadLine::EXCERPT_BYTES`], with everything but printable
    /// ASCII escaped, so that it cannot harm a terminal.
    pub excerpt: String,
}

impl BadLine {
    /// The most bytes of a line to show.
    pub const EXCERPT_BYTES: usize = 80;

    pub(crate) fn new(number: u64, reason: MalformedLine, line: &[u8]) -> Self {
        let clipped = line.get(..Self::EXCERPT_BYTES).unwrap_or(line);
        let mut excerpt = clipped.escape_ascii().to_string().replace("\\\"", "\"");
        if clipped.len() < line.len() {
            excerpt.push_str("...");
        }
        Self {
            number,
            reason,
            excerpt,
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.number, self.reason, self.excerpt)
    }
}
