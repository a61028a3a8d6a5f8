//! Permits that outlive a response.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::header::UPGRADE;
use http::{Method, Request};

/// A share of a request's permit, placed in the extensions of a request that asks for another
/// protocol, such as a WebSocket: its response ends when the connection has only begun. The code
/// that serves the connection keeps a clone until it ends.
#[derive(Clone)]
pub struct Hold(#[allow(dead_code, reason = "it is held, and dropped")] Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold(..)")
    }
}

/// The permit of a request: exclusive, or shared with the code that serves its connection.
#[derive(Debug)]
pub struct HeldPermit<P>(#[allow(dead_code, reason = "it is held, and dropped")] Held<P>);

#[derive(Debug)]
enum Held<P> {
    Alone(#[allow(dead_code, reason = "it is held, and dropped")] P),
    Shared(#[allow(dead_code, reason = "it is held, and dropped")] Hold),
}

impl<P: Send + Sync + 'static> HeldPermit<P> {
    /// Wraps `permit`; `request` gets a share if its connection may outlive its response.
    pub(crate) fn new<B>(permit: P, request: &mut Request<B>) -> Self {
        let outlives =
            request.headers().contains_key(UPGRADE) || request.method() == Method::CONNECT;
        if !outlives {
            return Self(Held::Alone(permit));
        }
        let hold = Hold(Arc::new(permit));
        request.extensions_mut().insert(hold.clone());
        Self(Held::Shared(hold))
    }
}
