//! Tells others what a layer learns about requests: who sent them, and which ones it denied.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::{Extensions, HeaderMap, Method, Request, Uri};
use ratekeeper_http::answer::Denial;

/// A request that a layer denied.
#[derive(Clone, Copy, Debug)]
pub struct DeniedByLayer<'a> {
    /// The limit that denies it.
    pub denial: &'a Denial,
    /// False in shadow mode, in which the request passes all the same.
    pub is_enforced: bool,
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions, with anything that services outside the layer added.
    pub extensions: &'a Extensions,
}

impl<'a> DeniedByLayer<'a> {
    pub(crate) fn new<B>(denial: &'a Denial, is_enforced: bool, request: &'a Request<B>) -> Self {
        Self {
            denial,
            is_enforced,
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

/// Is told of every request that a layer denies.
#[derive(Clone)]
pub(crate) struct DenialObserver(pub(crate) Arc<dyn Fn(DeniedByLayer<'_>) + Send + Sync>);

impl fmt::Debug for DenialObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DenialObserver(..)")
    }
}

/// A place in a request's extensions into which the layer writes the request's caller: `api_key:~1f0c83aa5b92d07e`.
///
/// A service outside the layer that wants to log callers puts an empty slot there and keeps a clone. It stays empty if
/// the layer is off or the caller cannot be identified.
#[derive(Clone, Debug, Default)]
pub struct CallerSlot(Arc<OnceLock<Box<str>>>);

impl CallerSlot {
    /// The caller; secrets are fingerprints.
    #[must_use]
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(|caller| &**caller)
    }

    pub(crate) fn set(&self, caller: String) {
        // A request that is asked about twice has the same caller.
        let _ = self.0.set(caller.into());
    }
}
