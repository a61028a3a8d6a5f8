//! Releases permits in the background: those that the service may have granted without the client's knowledge, and those
//! that were dropped.

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
use crate::error::{Error, has_no_rules, was_not_carried_out};

/// The most permits being released at a time; any others end at their deadline.
const RELEASE_TASKS_MAX: usize = 256;

/// Attempts for one permit.
const ATTEMPTS: u32 = 6;

/// The pause before the second attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Timeout of one attempt. No caller waits for it, so it is longer than a call's.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bounds the number of permits being released at a time.
#[derive(Debug)]
pub(crate) struct ReleaseTasks(Arc<Semaphore>);

impl Default for ReleaseTasks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(RELEASE_TASKS_MAX)))
    }
}

/// A unique key; empty, which means no key, if the system has no random bytes.
pub(crate) fn new_key() -> String {
    let mut bytes = [0; 16];
    let mut key = String::new();
    if getrandom::fill(&mut bytes).is_ok() {
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
        }
    }
    key
}

/// Returns true if the failed call may have been executed.
pub(crate) fn is_ambiguous(status: &Status) -> bool {
    let is_certain = was_not_carried_out(status) || has_no_rules(status);
    !is_certain && matches!(Error::from(status.clone()), Error::Away(_))
}

/// An acquire whose outcome is unknown so far. If it is dropped in that state, because the answer
/// did not come or the caller stopped waiting, it releases the granted permits.
pub(crate) struct Unsettled {
    inner: Arc<Inner>,
    /// The request; none once the outcome is known.
    message: Option<v1::AcquireRequest>,
    /// An empty request, lent out once there is no other.
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

    /// Marks the outcome as known.
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
        if let Ok(slot) = Arc::clone(&self.inner.release_tasks.0).try_acquire_owned() {
            runtime.spawn(release_later(Arc::clone(&self.inner), message, slot));
        }
    }
}

/// Repeats the call under the same key, which yields the same permit, and releases it. A call that
/// was never executed is executed now: its permit is held for a moment.
async fn release_later(
    inner: Arc<Inner>,
    message: v1::AcquireRequest,
    _slot: OwnedSemaphorePermit,
) {
    let acquire = async |mut stub: Stub, request| stub.acquire(request).await;
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        let end = Instant::now() + ATTEMPT_TIMEOUT;
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
            // Refused: then the first call was refused as well.
            Err(_) => return,
        }
        sleep(pause).await;
        pause *= 2;
    }
}

/// Releases a permit that was dropped. The first attempt is a call as any other; the others are bounded in number.
pub(crate) async fn release_dropped(inner: Arc<Inner>, permit: String) {
    if let Err(Error::Away(_)) = inner.release(&permit).await
        && let Ok(_slot) = Arc::clone(&inner.release_tasks.0).try_acquire_owned()
    {
        sleep(PAUSE).await;
        release(&inner, permit).await;
    }
}

async fn release(inner: &Inner, permit: String) {
    let message = v1::ReleaseRequest { permit };
    let release = async |mut stub: Stub, request| stub.release(request).await;
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        let end = Instant::now() + ATTEMPT_TIMEOUT;
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
