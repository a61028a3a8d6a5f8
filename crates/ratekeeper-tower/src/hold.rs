//! Permits that outlive a response.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::Request;

/// A share of a request's permit, in the extensions of every request that holds one. A handler whose work may outlive the
/// request keeps a clone until that work has ended: a task of its own, which goes on when the client is gone, or a
/// connection that becomes another protocol. The permit is released once all shares and the response are dropped.
///
/// ```
/// use http::Request;
/// use ratekeeper_tower::Hold;
///
/// fn begin_report<B>(request: &Request<B>) {
///     let hold = request.extensions().get::<Hold>().cloned();
///     std::thread::spawn(move || {
///         // The work that the client does not wait for.
///         drop(hold);
///     });
/// }
/// # begin_report(&Request::new(()));
/// ```
#[derive(Clone)]
pub struct Hold(#[allow(dead_code, reason = "it is held, and dropped")] Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold(..)")
    }
}

impl Hold {
    /// Shares `permit` with `request`.
    pub(crate) fn new<P, B>(permit: P, request: &mut Request<B>) -> Self
    where
        P: Send + Sync + 'static,
    {
        let hold = Self(Arc::new(permit));
        request.extensions_mut().insert(hold.clone());
        hold
    }
}
