//! What stands in front of a service of others: the gateway's listener.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, Ready, pending};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming};
use prometheus_client::encoding::DescriptorEncoder;
use tower::Service;

use crate::config::Bounds;
use crate::follow::Followed;
use crate::listen::{Answer, ListenAddress};
use crate::tls::TlsConfig;

/// Where a gateway listens, and how. HTTP/1.1 and HTTP/2 are spoken there, and connections may
/// be upgraded.
#[derive(Clone, Debug)]
pub struct FrontConfig {
    /// Where.
    pub address: ListenAddress,
    /// Its certificate, where it encrypts.
    pub tls: Option<TlsConfig>,
    /// How much of everything. The time of a request and the size of its body are the
    /// [`Front`]'s to bound.
    pub bounds: Bounds,
}

/// What answers there. Served by the same worker threads as checks, each with an answer of its
/// own, so that what it keeps (connections to an upstream) crosses no threads.
pub trait Front: Telling {
    /// What one worker answers with.
    type Answer: Answer;

    /// What the next worker answers with; called once for each.
    fn answer(&self) -> Self::Answer;

    /// Files of its own that are followed as certificates are.
    fn files(&self) -> Option<Arc<dyn Followed>> {
        None
    }

    /// What it does besides answering, for as long as the server runs; on the thread that
    /// answers operators.
    fn chores(&self) -> impl Future<Output = ()> + Send + 'static {
        pending()
    }
}

/// A part of the service beside the limiter, which has metrics and faults of its own.
pub trait Telling: fmt::Debug + Send + Sync + 'static {
    /// Its metrics, as they are now.
    ///
    /// # Errors
    /// The text cannot be written.
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result;

    /// What is not as it should be, for `/readyz`.
    fn faults(&self) -> Vec<String>;

    /// What the part is, for those who are not told its faults.
    fn subject(&self) -> &'static str;
}

/// No front at all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoFront {}

/// A body that is never there.
#[derive(Debug)]
pub(crate) enum NoBody {}

impl Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match *self {}
    }
}

impl Service<Request<Incoming>> for NoFront {
    type Response = Response<NoBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match *self {}
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        match *self {}
    }
}

impl Telling for NoFront {
    fn encode(&self, _: &mut DescriptorEncoder<'_>) -> fmt::Result {
        match *self {}
    }

    fn faults(&self) -> Vec<String> {
        match *self {}
    }

    fn subject(&self) -> &'static str {
        match *self {}
    }
}

impl Front for NoFront {
    type Answer = Self;

    fn answer(&self) -> Self {
        *self
    }
}
