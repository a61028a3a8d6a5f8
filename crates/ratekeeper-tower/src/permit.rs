//! What a request holds of concurrency limits until it has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::{HoldError, Limiter, Slots};
use ratekeeper_store::Store;
use tokio::runtime::Handle;

use crate::{Renew, Renewal};

/// A place in each concurrency limit that a request is held to: renewed while it is held, given back when it is dropped,
/// in whichever way the request ends. Of a process that is killed, the store takes it back at its deadline.
#[derive(Debug)]
pub struct Permit<S: Store> {
    held: Arc<Held<S>>,
    /// None outside of a runtime, where nobody could renew it.
    renewal: Option<Renewal>,
}

#[derive(Debug)]
struct Held<S: Store> {
    limiter: Arc<Limiter<S>>,
    slots: Slots,
}

impl<S: Store> Permit<S> {
    pub(crate) fn new(limiter: Arc<Limiter<S>>, slots: Slots) -> Self {
        let held = Arc::new(Held { limiter, slots });
        let expires_after = held.expires_after();
        Self {
            renewal: Renewal::begin(held.clone(), expires_after),
            held,
        }
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        // First: what is given back is not to be taken for lost.
        self.renewal = None;
        release(&self.held.limiter, &self.held.slots);
    }
}

impl<S: Store> Held<S> {
    fn expires_after(&self) -> Duration {
        Duration::from_micros(self.slots.expires_after().get())
    }
}

impl<S: Store> Renew for Held<S> {
    fn renew(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send>> {
        Box::pin(async move {
            match self.slots.renew(&self.limiter).await {
                // After a fault of the store it may be held still.
                Ok(()) | Err(HoldError::Store(_)) => Some(self.expires_after()),
                Err(_) => None,
            }
        })
    }
}

/// Gives slots back: at once, or in the background.
pub(crate) fn release<S: Store>(limiter: &Limiter<S>, slots: &Slots) {
    send(slots.release(limiter));
}

/// Has a store asked in the background for what nobody waits for.
pub(crate) fn send<T: Future + Send + 'static>(ticket: Option<T>)
where
    T::Output: Send,
{
    if let Some(ticket) = ticket
        && let Ok(runtime) = Handle::try_current()
    {
        // A store forgets what nobody waits for.
        runtime.spawn(ticket);
    }
}
