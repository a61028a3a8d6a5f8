//! The permit that a request holds until it has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::{HeldSlots, HoldError, Limiter};
use ratekeeper_store::Store;
use tokio::runtime::Handle;

use crate::{Renew, Renewal};

/// A slot in each concurrency limit of a request: renewed while it is held, released when dropped,
/// however the request ends. If the process is killed, the store reclaims it at its deadline.
#[derive(Debug)]
pub struct Permit<S: Store> {
    held: Arc<PermitState<S>>,
    /// None outside a runtime, where it cannot be renewed.
    renewal: Option<Renewal>,
    /// It may be dropped in a thread that has no runtime.
    home: Home,
}

#[derive(Debug)]
struct PermitState<S: Store> {
    limiter: Arc<Limiter<S>>,
    slots: HeldSlots,
}

impl<S: Store> Permit<S> {
    pub(crate) fn new(limiter: Arc<Limiter<S>>, slots: HeldSlots) -> Self {
        let held = Arc::new(PermitState { limiter, slots });
        let expires_after = held.expires_after();
        Self {
            renewal: Renewal::begin(held.clone(), expires_after),
            held,
            home: Home::here(),
        }
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        // First, so that the renewal does not take the released permit for a lost one.
        self.renewal = None;
        let PermitState { limiter, slots } = &*self.held;
        self.home.send(slots.release(limiter));
    }
}

impl<S: Store> PermitState<S> {
    fn expires_after(&self) -> Duration {
        Duration::from_micros(self.slots.expires_after().get())
    }
}

impl<S: Store> Renew for PermitState<S> {
    fn renew(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send>> {
        Box::pin(async move {
            match self.slots.renew(&self.limiter).await {
                Ok(()) => Some(self.expires_after()),
                // It may still be held.
                Err(HoldError::Store(_)) => Some(Renewal::unanswered(self.expires_after())),
                Err(_) => None,
            }
        })
    }
}

/// Releases slots: at once, or in the background.
pub(crate) fn release<S: Store>(limiter: &Limiter<S>, slots: &HeldSlots) {
    send(slots.release(limiter));
}

/// Completes a store's request in the background of the caller's runtime.
pub(crate) fn send<T: Future + Send + 'static>(ticket: Option<T>)
where
    T::Output: Send,
{
    Home(None).send(ticket);
}

/// The runtime in which something began, for what is left to do when it ends elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Home(Option<Handle>);

impl Home {
    /// That of the caller, if it is in one.
    pub(crate) fn here() -> Self {
        Self(Handle::try_current().ok())
    }

    /// Completes a store's request in the background: of the caller's runtime, which is there for sure, or else of this one.
    pub(crate) fn send<T: Future + Send + 'static>(&self, ticket: Option<T>)
    where
        T::Output: Send,
    {
        let runtime = || Handle::try_current().ok().or_else(|| self.0.clone());
        if let Some(ticket) = ticket
            && let Some(runtime) = runtime()
        {
            // Without polling, a store drops the request.
            runtime.spawn(ticket);
        }
    }
}
