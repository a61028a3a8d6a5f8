//! Reads what a decision needs out of the body of a request before it is made.
//!
//! The part that came is kept, and goes to the upstream first; the rest is looked through as it passes by.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, ready};

use http::Request;
use hyper::body::Body as _;
use ratekeeper_http::{BodyScanner, JsonPointer, rpc_id};

use crate::body::{KeptBytes, RequestBody};
use crate::fault::Fault;
use crate::media_type::is_json;

/// The parts of bodies that decisions need.
#[derive(Debug)]
pub(crate) struct BodyNeeds {
    /// The places of values that descriptors have.
    pub(crate) places: Arc<[JsonPointer]>,
    /// True if denials have the id of the call.
    pub(crate) rpc_ids: bool,
    /// The bytes that are kept of all bodies.
    kept: Arc<AtomicUsize>,
}

impl BodyNeeds {
    pub(crate) fn new(places: Arc<[JsonPointer]>, rpc_ids: bool) -> Self {
        let kept = Arc::default();
        Self {
            places,
            rpc_ids,
            kept,
        }
    }

    /// Begins to read the body of `request`, if there is anything to read. One that is asked for its id alone is not waited
    /// for.
    pub(crate) fn peek(&self, request: &mut Request<RequestBody>) -> Option<Peek> {
        let has_body = !request.body().is_end_stream();
        if !has_body || (self.places.is_empty() && !self.rpc_ids) {
            return None;
        }
        let is_json = is_json(request.headers());
        let scanner = (!self.places.is_empty()).then(|| BodyScanner::new(Arc::clone(&self.places)));
        request.body_mut().keep(KeptBytes::of(&self.kept));
        Some(Peek {
            scanner,
            is_json,
            rpc_ids: self.rpc_ids,
        })
    }
}

/// A request whose body is being read.
#[derive(Debug)]
pub(crate) struct Peek {
    /// None if nothing is waited for.
    scanner: Option<BodyScanner>,
    is_json: bool,
    rpc_ids: bool,
}

impl Peek {
    /// Reads on, until all values are there or the body is over. Then they are among the extensions of `request`.
    pub(crate) fn poll(
        &mut self,
        request: &mut Request<RequestBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        while let Some(scanner) = self.scanner.as_mut().filter(|it| !it.is_complete()) {
            let Some(data) = ready!(request.body_mut().poll_ahead(cx))? else {
                break;
            };
            scanner.feed(&data);
            if scanner.check().is_err() {
                return Poll::Ready(Err(Fault::BadRequest(TWICE)));
            }
            if scanner.is_broken() {
                if self.is_json {
                    return Poll::Ready(Err(Fault::BadRequest(NO_JSON)));
                }
                // What was found in it is no value: readers need not agree on it.
                self.scanner = None;
            }
        }
        if self.scanner.is_none() && request.body().ahead().is_none() {
            // What has come is there at once; what has not is not waited for.
            if let Poll::Ready(Err(fault)) = request.body_mut().poll_ahead(cx) {
                return Poll::Ready(Err(fault));
            }
        }
        if self.rpc_ids
            && let Some(id) = request.body().ahead().and_then(|data| rpc_id(data))
        {
            request.extensions_mut().insert(id);
        }
        if let Some(scanner) = self.scanner.take() {
            request.extensions_mut().insert(scanner.values());
            request.body_mut().watch(scanner);
        }
        Poll::Ready(Ok(()))
    }
}

const TWICE: &str = "a value that limits go by is in the body twice, with different values";
const NO_JSON: &str = "the body is no JSON, as its content-type says and limits go by";
