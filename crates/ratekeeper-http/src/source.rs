//! Sources of entry values.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use ratekeeper_rules::secret::is_secret_by_default;
use ratekeeper_rules::{
    BadPointer, JsonPointer, PathFolding, PathForm, PathPattern, PathPatternError,
};

use crate::Malformed;
use crate::spelling;

/// A part of a request. An absent or empty part is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// `remote_address`: the client's address; for IPv6 its network, with the mapping's prefix.
    RemoteAddress,
    /// `method`: `GET`.
    Method,
    /// `path`: the whole path, normalized ([`Target`](crate::Target)).
    Path,
    /// `endpoint`: the method, a space and the path: `POST /orders`.
    Endpoint,
    /// `path_segment:2`: one segment, counted from 1.
    PathSegment(u16),
    /// `path:/v1/organizations/{org}/**`: the value of the variable, for paths that match.
    PathVariable(PathPattern),
    /// `host`: the host without its port, in lower case.
    Host,
    /// `scheme`: `https`.
    Scheme,
    /// `header:x-api-key`.
    Header(HeaderName),
    /// `query:key`: a parameter of the query, decoded as forms are.
    Query(Box<str>),
    /// `cookie:session`.
    Cookie(Box<str>),
    /// `body:/model`: a value in a body of JSON, by a JSON pointer, where bodies are read.
    Body(JsonPointer),
    /// `bearer`: the token of `Authorization: Bearer`.
    Bearer,
    /// `claim:sub`: a claim of a verified bearer token; `claim:/org/id` is a JSON pointer.
    Claim(Box<str>),
    /// `country`: two letters, from a header of the edge or an address database.
    Country,
    /// `client`: the name of the API key that the request has.
    Client,
    /// `identity`: the caller, by the first part of the request that identifies it
    /// ([`Identity`](crate::Identity)).
    Identity,
}

/// The fault of a [`ValueSource`] in settings. Its text says what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueSourceError {
    /// A request has no such part.
    #[error("`{0}` is not a part of a request; write {KNOWN}")]
    Unknown(Box<str>),
    /// The name or number of the part is missing.
    #[error("`{text}` lacks something; write {part}:{argument}")]
    Incomplete {
        /// The text.
        text: Box<str>,
        /// The part of a request.
        part: Box<str>,
        /// The placeholder of the name or number that has to follow: `NAME` or `N`.
        argument: &'static str,
    },
    /// There is no segment of this number.
    #[error("`{0}`: segments are counted from 1, as in path_segment:1")]
    Segment(Box<str>),
    /// No header can have this name.
    #[error("`{0}` cannot be the name of a header")]
    HeaderName(Box<str>),
    /// The pattern of a path is malformed.
    #[error("`{text}`: {fault}")]
    Pattern {
        /// The text.
        text: Box<str>,
        /// The fault of the pattern.
        fault: PathPatternError,
    },
    /// The pointer into a body is malformed.
    #[error("`{text}`: {fault}; write body:/model")]
    Pointer {
        /// The text.
        text: Box<str>,
        /// The fault of the pointer.
        fault: BadPointer,
    },
    /// The pattern of a path has no variable, or several.
    #[error(
        "`{text}`: the pattern has {count} variables instead of one; write path:/v1/organizations/{{org}}/**"
    )]
    Variables {
        /// The text.
        text: Box<str>,
        /// Their number.
        count: usize,
    },
}

const KNOWN: &str = "remote_address, method, path, path:PATTERN, endpoint, path_segment:N, host, scheme, header:NAME, \
                     query:NAME, cookie:NAME, body:POINTER, bearer, claim:NAME, country, client or identity";

impl FromStr for ValueSource {
    type Err = ValueSourceError;

    fn from_str(text: &str) -> Result<Self, ValueSourceError> {
        let (word, argument) = match text.split_once(':') {
            Some((word, argument)) => (word, Some(argument)),
            None => (text, None),
        };
        let incomplete = |argument| ValueSourceError::Incomplete {
            text: text.into(),
            part: word.into(),
            argument,
        };
        Ok(match (word, argument) {
            ("remote_address", None) => Self::RemoteAddress,
            ("method", None) => Self::Method,
            ("path", None) => Self::Path,
            ("endpoint", None) => Self::Endpoint,
            ("host", None) => Self::Host,
            ("scheme", None) => Self::Scheme,
            ("bearer", None) => Self::Bearer,
            ("identity", None) => Self::Identity,
            ("country", None) => Self::Country,
            ("client", None) => Self::Client,
            ("claim", Some(name)) if !name.is_empty() => Self::Claim(name.into()),
            ("path", Some(pattern)) => Self::PathVariable(path_variable(text, pattern)?),
            ("path_segment", Some(number)) => match number.parse() {
                Ok(number) if number > 0 => Self::PathSegment(number),
                _ => {
                    return Err(ValueSourceError::Segment(text.into()));
                }
            },
            ("header", Some(name)) if !name.is_empty() => Self::Header(
                HeaderName::from_str(name)
                    .map_err(|_| ValueSourceError::HeaderName(name.into()))?,
            ),
            ("query", Some(name)) if !name.is_empty() => Self::Query(name.into()),
            ("cookie", Some(name)) if !name.is_empty() => Self::Cookie(name.into()),
            ("body", Some(pointer)) if !pointer.is_empty() => {
                let pointer = JsonPointer::parse(pointer);
                Self::Body(pointer.map_err(|fault| ValueSourceError::Pointer {
                    text: text.into(),
                    fault,
                })?)
            }
            ("body", _) => return Err(incomplete("POINTER")),
            ("header" | "query" | "cookie" | "claim", _) => return Err(incomplete("NAME")),
            ("path_segment", None) => return Err(incomplete("N")),
            _ => return Err(ValueSourceError::Unknown(text.into())),
        })
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoteAddress => f.write_str("remote_address"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("path"),
            Self::Endpoint => f.write_str("endpoint"),
            Self::PathSegment(number) => write!(f, "path_segment:{number}"),
            Self::Host => f.write_str("host"),
            Self::Scheme => f.write_str("scheme"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::Bearer => f.write_str("bearer"),
            Self::Identity => f.write_str("identity"),
            Self::Country => f.write_str("country"),
            Self::Client => f.write_str("client"),
            Self::Claim(name) => write!(f, "claim:{name}"),
            Self::PathVariable(pattern) => write!(f, "path:{}", pattern.as_str()),
        }
    }
}

/// Parses a pattern with exactly one variable.
fn path_variable(text: &str, pattern: &str) -> Result<PathPattern, ValueSourceError> {
    let pattern = PathPattern::parse(pattern).map_err(|fault| ValueSourceError::Pattern {
        text: text.into(),
        fault,
    })?;
    match pattern.variables().count() {
        1 => Ok(pattern),
        count => Err(ValueSourceError::Variables {
            text: text.into(),
            count,
        }),
    }
}

impl ValueSource {
    /// Returns true if its values are secrets, with which a holder can act as somebody else.
    pub(crate) fn is_secret(&self) -> bool {
        match self {
            Self::Bearer | Self::Cookie(_) => true,
            Self::Header(name) => is_secret_by_default(name.as_str()),
            Self::Query(name) => {
                is_secret_by_default(name)
                    || matches!(&**name, "key" | "secret" | "signature" | "sig")
            }
            _ => false,
        }
    }

    /// Returns true if it is the path or a part of it.
    pub(crate) const fn is_of_path(&self) -> bool {
        self.path_form().is_some()
    }

    /// The form of its values, if it is the path or a part of it.
    pub(crate) const fn path_form(&self) -> Option<PathForm> {
        match self {
            Self::Path => Some(PathForm::Path),
            Self::Endpoint => Some(PathForm::Endpoint),
            Self::PathSegment(_) | Self::PathVariable(_) => Some(PathForm::Segment),
            _ => None,
        }
    }

    /// The form under which `value` is counted.
    pub(crate) fn counted<'a>(&self, value: Cow<'a, str>, folding: PathFolding) -> Cow<'a, str> {
        match self.path_form() {
            Some(form) => spelling::folded(folding, form, value),
            None => value,
        }
    }

    /// Returns true if callers can choose the value freely, unlike an address.
    pub(crate) const fn is_said(&self) -> bool {
        !matches!(self, Self::RemoteAddress | Self::Country | Self::Client)
    }
}

/// A path segment that identifies a caller.
///
/// Escapes left in a normalized path stand for a slash, a percent sign, a control character or
/// invalid UTF-8. The upstream may decode them and read another name, or another path.
pub(crate) fn name_in_path(segment: &str) -> Result<&str, Malformed> {
    match segment.contains('%') {
        false => Ok(segment),
        true => Err(Malformed {
            place: "path".to_owned(),
            message: format!(
                "the segment {} names somebody, and has an encoded slash, percent sign, control character or bytes \
                 that are no UTF-8",
                crate::malformed::excerpt(segment.as_bytes())
            ),
        }),
    }
}
