//! Runs a connection's requests within the task that reads and writes it.
//!
//! hyper hands each HTTP/2 request to an executor. A task for each costs more than most of our
//! decisions do, which are there at once. So requests are kept aside until what has arrived is
//! read, then all of them are tried, and only what has to wait becomes a task. Since the
//! connection is written after that, their answers leave together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use hyper::rt::Executor;
use parking_lot::Mutex;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests of one connection that were read and not tried yet: as many as it may have
/// under way at most.
#[derive(Clone, Default)]
pub(super) struct Aside(Arc<Mutex<Vec<Request>>>);

impl<F> Executor<F> for Aside
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        self.0.lock().push(Box::pin(request));
    }
}

impl Aside {
    /// Tries all of them. What is not done at once becomes a task, which polls it again with
    /// its own waker.
    pub(super) fn run(&self, cx: &mut Context<'_>) {
        // Not held while they run: they may hand in others.
        while let Some(requests) = self.take() {
            for mut request in requests {
                if request.as_mut().poll(cx).is_pending() {
                    tokio::spawn(request);
                }
            }
        }
    }

    fn take(&self) -> Option<Vec<Request>> {
        let mut requests = self.0.lock();
        (!requests.is_empty()).then(|| std::mem::take(&mut *requests))
    }
}
