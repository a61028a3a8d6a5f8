//! Permits that the service may have taken without our learning of it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::calls::{Repeat, Stub};
use crate::client::Inner;
use crate::error::{Error, was_not_carried_out};

/// As many are given back at a time; what is beyond that ends at its deadline.
const CLEANERS_MAX: usize = 256;

/// So often the service is asked for one permit.
const ATTEMPTS: u32 = 6;

/// The pause before the second attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// How long one attempt may take. Nobody waits for it, so longer than a call.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bounds how many permits are given back at a time.
#[derive(Debug)]
pub(crate) struct Cleaners(Arc<Semaphore>);

impl Default for Cleaners {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CLEANERS_MAX)))
    }
}

/// A key that nobody else has; empty, which is none, where the system has no random bytes.
pub(crate) fn new_key() -> String {
    let mut bytes = [0; 16];
    let mut key = String::new();
    if getrandom::fill(&mut bytes).is_ok() {
        for byte in bytes {
            // Writing to a text cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
    }
    key
}

/// Whether the call may have been carried out all the same.
pub(crate) fn is_ambiguous(status: &Status) -> bool {
    !was_not_carried_out(status) && matches!(Error::from(status.clone()), Error::Away(_))
}

/// An acquire whose outcome is not known yet. Dropped before it is, because the answer did not
/// come or nobody waits for it any more, it gives back what was taken.
pub(crate) struct Unsettled {
    inner: Arc<Inner>,
    /// Until it is settled.
    message: Option<v1::AcquireRequest>,
    /// What it is without.
    none: v1::AcquireRequest,
}

impl Unsettled {
    pub(crate) fn new(inner: &Arc<Inner>, message: v1::AcquireRequest) -> Self {
        Self {
            inner: Arc::clone(inner),
            message: Some(message),
            none: v1::AcquireRequest::default(),
        }
    }

    pub(crate) fn message(&self) -> &v1::AcquireRequest {
        self.message.as_ref().unwrap_or(&self.none)
    }

    /// The outcome is known.
    pub(crate) fn settle(mut self) -> v1::AcquireRequest {
        self.message.take().unwrap_or_default()
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let keyed = self
            .message
            .take()
            .filter(|message| !message.idempotency_key.is_empty());
        let (Some(message), Ok(runtime)) = (keyed, Handle::try_current()) else {
            return;
        };
        if let Ok(place) = Arc::clone(&self.inner.cleaners.0).try_acquire_owned() {
            runtime.spawn(give_back(Arc::clone(&self.inner), message, place));
        }
    }
}

/// Asks again under the same key, which gets the same permit, and releases it. What was never
/// carried out is so now: its permit is held for a moment.
async fn give_back(inner: Arc<Inner>, message: v1::AcquireRequest, _place: OwnedSemaphorePermit) {
    let acquire = async |mut stub: Stub, request| stub.acquire(request).await;
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        let end = Instant::now() + PATIENCE;
        let answer = inner
            .calls
            .call_until(end, &message, Repeat::Harmless, acquire)
            .await;
        match answer {
            Ok(answer) => {
                if !answer.permit.is_empty() {
                    release(&inner, answer.permit).await;
                }
                return;
            }
            Err(status) if matches!(Error::from(status.clone()), Error::Away(_)) => {}
            // Refused: it was before, too.
            Err(_) => return,
        }
        sleep(pause).await;
        pause *= 2;
    }
}

async fn release(inner: &Inner, permit: String) {
    let message = v1::ReleaseRequest { permit };
    let release = async |mut stub: Stub, request| stub.release(request).await;
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        let end = Instant::now() + PATIENCE;
        let answer = inner
            .calls
            .call_until(end, &message, Repeat::Harmless, release)
            .await;
        if !answer.is_err_and(|status| matches!(Error::from(status), Error::Away(_))) {
            return;
        }
        sleep(pause).await;
        pause *= 2;
    }
}
