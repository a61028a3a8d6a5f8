//! The reasons why a request is refused, or has no answer of an upstream.

use http::StatusCode;

/// The reason why a request gets an answer of the gateway's own instead of an upstream's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The request is malformed or ambiguous.
    BadRequest(&'static str),
    /// The method is CONNECT: the gateway is not a forward proxy.
    NoTunnel,
    /// Its body is larger than this many bytes.
    TooLarge(u64),
    /// So many bytes of its body have not told what the limits go by.
    Unread(usize),
    /// Its body is compressed, so that it cannot be read what the limits go by.
    Encoded,
    /// Too much of bodies is kept until they have told what the limits go by.
    NoRoomForBody,
    /// It took too long to arrive.
    BodyTooSlow,
    /// Its body broke off, or its encoding was invalid.
    BadBody,
    /// No route matches its host and path.
    NoRoute,
    /// No address of the upstream could be connected to.
    Unreachable { upstream: Box<str>, why: Box<str> },
    /// The upstream closed the connection, or its answer was not valid HTTP.
    Broken { upstream: Box<str>, why: Box<str> },
    /// The upstream has as many requests as it may, and its queue is full; or the client's address has its share of them.
    Full { upstream: Box<str> },
    /// The upstream could not be connected to in time.
    ConnectTimeout { upstream: Box<str> },
    /// The upstream did not begin its answer in time.
    ResponseTimeout { upstream: Box<str> },
}

impl Fault {
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::BadBody => StatusCode::BAD_REQUEST,
            Self::NoTunnel => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge(_) | Self::Unread(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Unreachable { .. } | Self::Broken { .. } => StatusCode::BAD_GATEWAY,
            Self::Full { .. } | Self::NoRoomForBody => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout { .. } | Self::ResponseTimeout { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// The machine-readable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BAD_REQUEST",
            Self::BadBody => "BAD_BODY",
            Self::NoTunnel => "METHOD_NOT_ALLOWED",
            Self::TooLarge(_) | Self::Unread(_) => "TOO_LARGE",
            Self::Encoded => "UNSUPPORTED_MEDIA_TYPE",
            Self::NoRoomForBody => "OVERLOADED",
            Self::BodyTooSlow => "TIMEOUT",
            Self::NoRoute => "NO_ROUTE",
            Self::Unreachable { .. } => "UPSTREAM_UNREACHABLE",
            Self::Broken { .. } => "UPSTREAM_BROKE_OFF",
            Self::Full { .. } => "UPSTREAM_FULL",
            Self::ConnectTimeout { .. } => "UPSTREAM_CONNECT_TIMEOUT",
            Self::ResponseTimeout { .. } => "UPSTREAM_TIMEOUT",
        }
    }

    /// Returns true if the upstream did not answer, whatever the reason.
    pub(crate) fn is_of_upstream(&self) -> bool {
        self.upstream().is_some()
    }

    /// Returns true if it is refused because the limits cannot be decided by its body.
    pub(crate) const fn is_of_limits(&self) -> bool {
        matches!(
            self,
            Self::BadRequest(_) | Self::Unread(_) | Self::Encoded | Self::NoRoomForBody
        )
    }

    pub(crate) fn upstream(&self) -> Option<&str> {
        match self {
            Self::Unreachable { upstream, .. }
            | Self::Broken { upstream, .. }
            | Self::Full { upstream }
            | Self::ConnectTimeout { upstream }
            | Self::ResponseTimeout { upstream } => Some(upstream),
            _ => None,
        }
    }

    /// The decision about the request, in a word; None if the limits decided, which let it pass.
    pub(crate) const fn decision(&self) -> Option<&'static str> {
        match self {
            Self::BadRequest(_)
            | Self::NoTunnel
            | Self::TooLarge(_)
            | Self::Unread(_)
            | Self::Encoded
            | Self::BodyTooSlow
            | Self::BadBody => Some("refuse"),
            Self::NoRoomForBody | Self::Full { .. } => Some("shed"),
            Self::NoRoute
            | Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::ConnectTimeout { .. }
            | Self::ResponseTimeout { .. } => None,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::BadRequest(why) => (*why).to_owned(),
            Self::NoTunnel => "CONNECT is not answered: this is not a forward proxy".to_owned(),
            Self::TooLarge(max) => format!("the body is larger than {max} bytes"),
            Self::Unread(max) => format!(
                "a value that limits go by is not in the first {max} bytes of the body; send it first"
            ),
            Self::Encoded => {
                "limits go by a value in the body, which is compressed; send it without content-encoding".to_owned()
            }
            Self::NoRoomForBody => {
                "too many bodies are being read for the values that limits go by".to_owned()
            }
            Self::BodyTooSlow => "the body took too long to arrive".to_owned(),
            Self::BadBody => "the body broke off, or is not encoded as its headers say".to_owned(),
            Self::NoRoute => "no route leads anywhere for this host and path".to_owned(),
            Self::Unreachable { why, .. } => format!("the upstream cannot be reached: {why}"),
            Self::Broken { why, .. } => format!("the upstream gave no answer: {why}"),
            Self::Full { .. } => {
                "the upstream has as many requests as it may, or as many of this address".to_owned()
            }
            Self::ConnectTimeout { .. } => {
                "the upstream could not be connected to in time".to_owned()
            }
            Self::ResponseTimeout { .. } => {
                "the upstream did not begin its answer in time".to_owned()
            }
        }
    }

    /// Returns true if more of the request may be on its way, so that the connection cannot be reused.
    pub(crate) const fn leaves_rest(&self) -> bool {
        matches!(
            self,
            Self::BadRequest(_)
                | Self::NoTunnel
                | Self::TooLarge(_)
                | Self::Unread(_)
                | Self::Encoded
                | Self::NoRoomForBody
                | Self::BodyTooSlow
                | Self::BadBody
        )
    }
}
