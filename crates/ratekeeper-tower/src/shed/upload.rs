//! The body of a request behind a `ShedLayer`, which may come slowly.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// The bit of a wait that is not over.
const WAITS: u64 = 1 << 63;

/// The longest wait for more of a body in which a service is taken to refuse the request for reasons of its own. Later, it may
/// have given up a client that sends nothing.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// The time for which a service waits for the body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    admitted: Instant,
    /// The time after it at which the last wait was over, or began, with [`WAITS`]: 0 without one.
    turned_us: AtomicU64,
}

// Relaxed everywhere: it is one number.
impl Upload {
    /// The body of a request that is admitted now.
    pub(super) fn begin() -> Arc<Self> {
        Arc::new(Self {
            admitted: Instant::now(),
            turned_us: AtomicU64::new(0),
        })
    }

    /// Records that the service waits for its client.
    fn waits(&self) {
        if self.turned_us.load(Ordering::Relaxed) & WAITS == 0 {
            let now = self.now_us();
            self.turned_us.store(now | WAITS, Ordering::Relaxed);
        }
    }

    /// Records that a part was there, or that there is no more to wait for.
    fn came(&self) {
        if self.turned_us.load(Ordering::Relaxed) & WAITS != 0 {
            self.turned_us.store(self.now_us(), Ordering::Relaxed);
        }
    }

    fn now_us(&self) -> u64 {
        let micros = self.admitted.elapsed().as_micros();
        u64::try_from(micros).unwrap_or(WAITS).min(WAITS - 1)
    }

    /// The time at which the service had all of the body that it waited for; None while it waits.
    pub(super) fn arrived(&self) -> Option<Instant> {
        let turned = self.turned_us.load(Ordering::Relaxed);
        match turned & WAITS {
            0 => self.at(turned),
            _ => None,
        }
    }

    /// The time since which a service that now refuses the request had all that it had of the body. None if it has waited
    /// so long that its client may be the reason.
    pub(super) fn refused(&self) -> Option<Instant> {
        let turned = self.turned_us.load(Ordering::Relaxed);
        let since = self.at(turned & !WAITS);
        let is_prompt = |since: &Instant| since.elapsed() <= REFUSED_WITHIN;
        self.arrived().or_else(|| since.filter(is_prompt))
    }

    fn at(&self, micros: u64) -> Option<Instant> {
        self.admitted.checked_add(Duration::from_micros(micros))
    }
}

pin_project! {
    /// The body of a request that a [`ShedService`](crate::ShedService) passes on: the service's wait for it is no part of the
    /// round trip.
    #[derive(Debug)]
    pub struct UploadBody<B> {
        #[pin]
        body: B,
        // None if no time is measured.
        upload: Option<Arc<Upload>>,
    }
}

impl<B> UploadBody<B> {
    pub(super) const fn new(body: B, upload: Option<Arc<Upload>>) -> Self {
        Self { body, upload }
    }

    /// The body itself.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body> Body for UploadBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(cx);
        if let Some(upload) = this.upload {
            match &frame {
                Poll::Ready(_) => upload.came(),
                Poll::Pending => upload.waits(),
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_wait_ends_when_something_comes() {
        let upload = Upload::begin();
        assert_eq!(upload.arrived(), Some(upload.admitted));
        upload.came();
        assert_eq!(upload.arrived(), Some(upload.admitted), "it was there");
        upload.waits();
        assert_eq!(upload.arrived(), None);
        let before = Instant::now();
        while before.elapsed().as_micros() == 0 {
            std::hint::spin_loop();
        }
        upload.came();
        let arrived = upload.arrived().expect("it came");
        assert!(arrived > upload.admitted && arrived <= Instant::now());
        upload.came();
        assert_eq!(upload.arrived(), Some(arrived), "there was no other wait");
    }

    #[test]
    fn a_refusal_is_the_services_own_at_the_beginning_of_a_wait() {
        let mut upload = Upload {
            admitted: Instant::now(),
            turned_us: AtomicU64::new(0),
        };
        assert_eq!(upload.refused(), Some(upload.admitted));
        upload.waits();
        let since = upload.refused().expect("it has just begun");
        upload.waits();
        assert_eq!(upload.refused(), Some(since), "it is the same wait");
        assert_eq!(upload.arrived(), None);
        // As if it had begun so much earlier.
        let earlier = upload.admitted.checked_sub(REFUSED_WITHIN);
        upload.admitted = earlier.expect("the machine has run for a while");
        assert_eq!(upload.refused(), None, "the client may be the reason");
        upload.came();
        assert_eq!(upload.refused(), upload.arrived());
        assert!(upload.arrived().is_some());
    }
}
