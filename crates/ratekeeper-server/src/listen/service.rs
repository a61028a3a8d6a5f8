//! The services that listeners ask, and the protocols that they speak.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use tower::Service;

/// The protocol spoken on a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 from the first byte: gRPC.
    Http2,
    /// Either, as the client begins: for a gateway, which does not know what its clients speak.
    Either,
}

/// Returns true if the service at a path ignores who sends the request. Looking up the sender costs
/// an allocation, which the one hot path avoids.
pub(crate) type IsBlind = fn(path: &str) -> bool;

/// A service that answers the requests of a listener: always ready, and cheap to clone.
pub trait HttpService:
    Service<
        Request<Incoming>,
        Response = Response<<Self as HttpService>::Body>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<Fault>> + Send + 'static;
}

/// Any error, as hyper takes it.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

impl<B, S> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<Fault>> + Send + 'static,
{
    type Body = B;
}
