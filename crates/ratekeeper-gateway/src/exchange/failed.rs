//! The ways in which a request gets no answer.

use std::error::Error;
use std::io::{self, ErrorKind};

use h2::Reason;
use http::Request;
use hyper::client::conn::TrySendError;

use crate::body::RequestBody;
use crate::head;

/// A request that got no answer.
pub(super) enum Failed {
    /// It was not sent.
    Unsent(Box<Request<RequestBody>>),
    /// It was, but the upstream says that it did not look at it (RFC 9113, section 8.7).
    Unseen(hyper::Error),
    /// It may have been.
    Sent(hyper::Error),
    TooSlow,
}

impl Failed {
    /// Returns true if the connection takes no more requests. If it refused one, it may take others.
    pub(super) fn is_of_connection(&self) -> bool {
        match self {
            Self::Unsent(_) => true,
            Self::Unseen(error) | Self::Sent(error) => {
                of_http2(error).is_none_or(|error| error.is_go_away() || error.is_io())
            }
            Self::TooSlow => false,
        }
    }
}

/// Classifies an error: a request that hyper gives back was not sent, and may go over either protocol next.
pub(super) fn failed(mut error: TrySendError<Request<RequestBody>>) -> Failed {
    match error.take_message() {
        Some(mut request) => {
            head::as_http1(&mut request);
            Failed::Unsent(Box::new(request))
        }
        None => {
            let error = error.into_error();
            match is_unseen(&error) {
                true => Failed::Unseen(error),
                false => Failed::Sent(error),
            }
        }
    }
}

/// Returns true if the upstream refused the stream, or ended its connection before it: then whatever was sent has had no
/// effect.
fn is_unseen(error: &hyper::Error) -> bool {
    of_http2(error)
        .filter(|it| it.is_remote())
        .is_some_and(|error| {
            let reason = error.reason();
            error.is_go_away() && reason == Some(Reason::NO_ERROR)
                || error.is_reset() && reason == Some(Reason::REFUSED_STREAM)
        })
}

fn of_http2(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

/// The root cause of an error, for people.
pub(super) fn innermost(error: &hyper::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns true if the connection was over before an answer came.
pub(super) fn is_over(error: &hyper::Error) -> bool {
    error.is_incomplete_message() || error.is_closed() || is_reset(error)
}

fn is_reset(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    source.is_some_and(|error| kinds.contains(&error.kind()))
}
