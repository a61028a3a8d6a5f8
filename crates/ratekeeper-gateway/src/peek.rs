//! Reads what a decision needs out of the body of a request before it is made.
//!
//! The part that came is kept, and goes to the upstream first; the rest is looked through as it passes by.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Request;
use hyper::body::Body as _;
use parking_lot::Mutex;
use ratekeeper_http::{BodyScanner, JsonPointer, rpc_id};
use ratekeeper_tower::LayerMode;

use crate::body::{KeptBytes, KeptSums, RequestBody};
use crate::fault::Fault;
use crate::media_type::{is_encoded, is_json};

/// The parts of bodies that decisions need.
#[derive(Debug)]
pub(crate) struct BodyNeeds {
    /// The places of values that descriptors have.
    pub(crate) places: Arc<[JsonPointer]>,
    /// True if denials have the id of the call.
    pub(crate) rpc_ids: bool,
    kept: Arc<Mutex<KeptSums>>,
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

    /// Begins to read the body of `request`, if there is anything to read in that mode of the limits; what is kept of it counts
    /// for `client_of` it. One that is asked for its id alone is not waited for.
    pub(crate) fn peek(
        &self,
        request: &mut Request<RequestBody>,
        mode: LayerMode,
        client_of: impl FnOnce(&Request<RequestBody>) -> Option<IpAddr>,
    ) -> Option<Peek> {
        let has_body = !request.body().is_end_stream();
        if mode == LayerMode::Off || !has_body || (self.places.is_empty() && !self.rpc_ids) {
            return None;
        }
        let kept = KeptBytes::of(&self.kept, client_of(request));
        request.body_mut().keep(kept);
        let scanner = (!self.places.is_empty()).then(|| BodyScanner::new(Arc::clone(&self.places)));
        Some(Peek {
            scanner,
            is_json: is_json(request.headers()),
            is_encoded: is_encoded(request.headers()),
            is_enforced: mode == LayerMode::On,
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
    is_encoded: bool,
    /// False if every body passes, whatever is in it.
    is_enforced: bool,
    rpc_ids: bool,
}

impl Peek {
    /// Reads on, until all values are there or the body is over. Then they are among the extensions of `request`.
    pub(crate) fn poll(
        &mut self,
        request: &mut Request<RequestBody>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        match ready!(self.read(request.body_mut(), cx)) {
            // It has no values, and passes.
            Err(fault) if !self.is_enforced && fault.is_of_limits() => self.scanner = None,
            read => read?,
        }
        if self.rpc_ids
            && let Some(id) = request.body().ahead().and_then(|data| rpc_id(data))
        {
            request.extensions_mut().insert(id);
        }
        if let Some(scanner) = self.scanner.take() {
            request.extensions_mut().insert(scanner.values());
            if self.is_enforced {
                request.body_mut().watch(scanner);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn read(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while let Some(scanner) = self.scanner.as_mut().filter(|it| !it.is_complete()) {
            if self.is_json && self.is_encoded {
                return Poll::Ready(Err(Fault::Encoded));
            }
            let Some(data) = ready!(body.poll_ahead(cx))? else {
                break;
            };
            scanner.feed(&data);
            if scanner.check().is_err() {
                return Poll::Ready(Err(Fault::BadRequest(AMBIGUOUS)));
            }
            if scanner.is_broken() {
                if self.is_json {
                    return Poll::Ready(Err(Fault::BadRequest(NO_JSON)));
                }
                // What was found in it is no value: readers need not agree on it.
                self.scanner = None;
            }
        }
        if self.scanner.is_none() && body.ahead().is_none() {
            // What has come is there at once; what has not is not waited for.
            if let Poll::Ready(Err(fault)) = body.poll_ahead(cx) {
                return Poll::Ready(Err(fault));
            }
        }
        Poll::Ready(Ok(()))
    }
}

const AMBIGUOUS: &str = "a value that limits go by is in the body twice, with different values, or behind a key in another case";
const NO_JSON: &str = "the body is no JSON, as its content-type says and limits go by";
