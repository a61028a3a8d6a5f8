//! What outlives an answer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::header::UPGRADE;
use http::{Method, Request};

/// A share of what a request holds of concurrency limits, among the extensions of a request that asks for another
/// protocol, such as a WebSocket: its answer ends when the connection only begins. Whoever carries on keeps a clone until
/// that ends.
#[derive(Clone)]
pub struct Hold(#[allow(dead_code, reason = "it is held, and dropped")] Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold(..)")
    }
}

/// What a request holds: by itself, or together with who carries on.
#[derive(Debug)]
pub(crate) enum Held<P> {
    Alone(#[allow(dead_code, reason = "it is held, and dropped")] P),
    Shared(#[allow(dead_code, reason = "it is held, and dropped")] Hold),
}

impl<P: Send + Sync + 'static> Held<P> {
    /// `permit`, of which `request` gets a share if its connection may outlive its answer.
    pub(crate) fn new<B>(permit: P, request: &mut Request<B>) -> Self {
        let outlives =
            request.headers().contains_key(UPGRADE) || request.method() == Method::CONNECT;
        if !outlives {
            return Self::Alone(permit);
        }
        let hold = Hold(Arc::new(permit));
        request.extensions_mut().insert(hold.clone());
        Self::Shared(hold)
    }
}
