//! Runs a connection's requests within the task that reads and writes it.
//!
//! hyper hands each HTTP/2 request to an executor. A task for each would cost more than most of our
//! decisions, which are immediate. So requests are set aside until all input that has arrived is
//! read, and then polled together; one that has to wait is polled again when it is woken, still
//! within the connection's task: answers of a store that arrive together wake one task instead of
//! many. Since the connection is written after that, they leave together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use parking_lot::Mutex;

use super::line::{Line, Taking};
use super::pace::Pace;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests of one connection that were read and not tried yet, or tried and have to wait: as many as it may have
/// under way at most.
#[derive(Clone)]
pub(super) struct InlineExecutor {
    queues: Arc<Mutex<Queues>>,
    line: Arc<Line>,
}

#[derive(Default)]
struct Queues {
    untried: Vec<Request>,
    tried: Vec<Paced>,
}

/// The requests of one connection that wait for something. They end with it.
#[derive(Default)]
pub(super) struct Waiting(FuturesUnordered<Paced>);

/// A request that waits, and the time that its client has to take the answer.
struct Paced {
    request: Request,
    line: Arc<Line>,
    pace: Pace,
    taking: Taking,
}

impl Future for Paced {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.line.begin_taking();
        let outcome = self.request.as_mut().poll(cx);
        let taking = self.line.taking();
        self.taking.go_on(taking);
        outcome
    }
}

impl Waiting {
    /// Ends the requests whose clients take nothing of what is ready for them, or too little,
    /// `elapsed` after the last look. Returns their number.
    pub(super) fn end_stalled(&mut self, elapsed: Duration) -> usize {
        let mut stalled = 0;
        for paced in self.0.iter_mut() {
            stalled += usize::from(paced.is_over(elapsed));
        }
        if stalled > 0 {
            // There is no way to take out some. This is rare, and no work on those that stay.
            let all = std::mem::take(&mut self.0);
            self.0
                .extend(all.into_iter().filter(|it| !it.pace.left().is_zero()));
        }
        stalled
    }
}

impl Paced {
    fn is_over(&mut self, elapsed: Duration) -> bool {
        self.pace.handed(std::mem::take(&mut self.taking.bytes));
        match self.taking.is_stalled {
            true => self.pace.waited(elapsed),
            false => {
                self.pace.rested(elapsed);
                false
            }
        }
    }
}

impl<F> Executor<F> for InlineExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        self.queues.lock().untried.push(Box::pin(request));
    }
}

impl InlineExecutor {
    pub(super) fn new(line: Arc<Line>) -> Self {
        let queues = Arc::default();
        Self { queues, line }
    }

    /// Tries all of them, and those that were `waiting` and were woken. What is not done at once
    /// joins these.
    pub(super) fn run(&self, waiting: &mut Waiting, cx: &mut Context<'_>) {
        // Not held while they run: they may hand in others.
        while let Some(Queues { untried, tried }) = self.take() {
            waiting.0.extend(tried);
            for mut request in untried {
                if !self.is_done(request.as_mut(), cx) {
                    waiting.0.push(self.paced(request));
                }
            }
        }
        // What has just joined is polled again here, so that its own waker is known.
        while let Poll::Ready(Some(())) = waiting.0.poll_next_unpin(cx) {}
    }

    /// Tries one request.
    pub(super) fn is_done<F>(&self, request: Pin<&mut F>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()> + ?Sized,
    {
        self.line.begin_taking();
        request.poll(cx).is_ready()
    }

    /// Has `request` wait, which was just tried.
    pub(super) fn wait_for<F>(&self, request: Pin<Box<F>>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let paced = self.paced(request);
        self.queues.lock().tried.push(paced);
    }

    fn paced(&self, request: Request) -> Paced {
        Paced {
            request,
            line: Arc::clone(&self.line),
            pace: Pace::new(self.line.bounds.patience),
            taking: self.line.taking(),
        }
    }

    fn take(&self) -> Option<Queues> {
        let mut queues = self.queues.lock();
        let is_empty = queues.untried.is_empty() && queues.tried.is_empty();
        (!is_empty).then(|| std::mem::take(&mut *queues))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::sync::oneshot;

    use super::*;
    use crate::listen::ServerBounds;
    use crate::listen::drain::Drain;
    use crate::listen::{Peer, PeerAddress, Protocol};

    /// Counts how often a connection's task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn line() -> Arc<Line> {
        let peer = Peer::unnamed(PeerAddress::Unix, true);
        let drain = Arc::new(Drain::new());
        let line = Line::new(
            peer,
            Protocol::Http2,
            ServerBounds::default(),
            drain,
            |_| false,
        );
        Arc::new(line)
    }

    #[test]
    fn requests_that_wait_wake_their_connection_once_and_end_with_it() {
        let (executor, mut waiting) = (InlineExecutor::new(line()), Waiting::default());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let served = Arc::new(AtomicUsize::new(0));
        let mut answers = Vec::new();
        for _ in 0..3 {
            let (answer, wait) = oneshot::channel::<()>();
            answers.push(answer);
            let served = Arc::clone(&served);
            executor.execute(async move {
                if wait.await.is_ok() {
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let at_once = Arc::clone(&served);
        executor.execute(async move {
            at_once.fetch_add(10, Ordering::Relaxed);
        });
        executor.run(&mut waiting, &mut cx);
        assert_eq!(served.load(Ordering::Relaxed), 10, "one had not to wait");
        assert_eq!(waiting.0.len(), 3);

        let before = wakes.0.load(Ordering::Relaxed);
        for answer in answers.drain(..2) {
            answer.send(()).expect("it is waited for");
        }
        let woken = wakes.0.load(Ordering::Relaxed) - before;
        assert_eq!(woken, 1, "two answers are one reason to look");
        executor.run(&mut waiting, &mut cx);
        assert_eq!(served.load(Ordering::Relaxed), 12);

        drop(waiting);
        assert!(answers.iter().all(oneshot::Sender::is_closed));
    }
}
