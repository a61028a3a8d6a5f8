//! What a request holds of concurrency limits until it has ended.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::{HoldError, Limiter, Slots};
use ratekeeper_store::Store;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Of its time, a permit is renewed when so much has passed: two renewals may be lost.
const RENEWED_AFTER: u32 = 3;

/// The shortest pause between two renewals.
const PAUSE_LEAST: Duration = Duration::from_millis(10);

/// A place in each concurrency limit that a request is held to: renewed while it is held, given back when it is dropped,
/// in whichever way the request ends. Of a process that is killed, the store takes it back at its deadline.
#[derive(Debug)]
pub struct Permit<S: Store> {
    limiter: Arc<Limiter<S>>,
    slots: Slots,
    /// None outside of a runtime, where nobody could renew it.
    renewing: Option<AbortHandle>,
}

impl<S: Store> Permit<S> {
    pub(crate) fn new(limiter: Arc<Limiter<S>>, slots: Slots) -> Self {
        let renewing = Handle::try_current().ok().map(|runtime| {
            let renewal = renew(Arc::clone(&limiter), slots.clone());
            runtime.spawn(renewal).abort_handle()
        });
        Self {
            limiter,
            slots,
            renewing,
        }
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        if let Some(renewing) = &self.renewing {
            renewing.abort();
        }
        release(&self.limiter, &self.slots);
    }
}

/// Gives slots back: at once, or in the background.
pub(crate) fn release<S: Store>(limiter: &Limiter<S>, slots: &Slots) {
    send(limiter.release_slots(slots));
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

/// Renews until it is aborted, or the permit is lost.
async fn renew<S: Store>(limiter: Arc<Limiter<S>>, slots: Slots) {
    let pause = Duration::from_micros(slots.expires_after().get()) / RENEWED_AFTER;
    loop {
        tokio::time::sleep(pause.max(PAUSE_LEAST)).await;
        match limiter.renew_slots(&slots).await {
            // Again after as long: it may be held still.
            Ok(()) | Err(HoldError::Store(_)) => {}
            Err(_) => return,
        }
    }
}
