//! Tells others what a layer learns about requests: who sent them, and which ones it denied.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ratekeeper_http::answer::HttpDenial;

/// Is told of every request that a layer denies.
#[derive(Clone)]
pub(crate) struct DenialObserver(pub(crate) Arc<dyn Fn(HttpDenial<'_>) + Send + Sync>);

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
