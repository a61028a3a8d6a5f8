//! HTTP/2 connections, each of which takes as many requests at once as the upstream's settings say.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::{ConnectError, Open, READ_BYTES_MAX};
use crate::body::RequestBody;

/// The bytes that an upstream may send of one HTTP/2 answer before its client takes any of it.
const STREAM_WINDOW: u32 = 64 << 10;

/// The bytes that it may send of all answers: enough for a thousand stalled ones, so that they do not
/// hold up the others on their connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// The bytes buffered of an HTTP/2 request that an upstream does not take, besides the piece that is
/// being handed over.
const SEND_BYTES_MAX: usize = 64 << 10;

/// A share of an HTTP/2 connection, for one request.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) sender: http2::SendRequest<RequestBody>,
    streams_max: Arc<dyn Fn() -> usize + Send + Sync>,
    stream: Stream,
}

/// A request on an HTTP/2 connection, counted until dropped.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Arc<()>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// A share of an open connection, which takes `streams_max` requests at once.
    pub(crate) fn new(
        sender: http2::SendRequest<RequestBody>,
        streams_max: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        Self {
            sender,
            streams_max: Arc::new(streams_max),
            stream: Stream(Arc::default()),
        }
    }

    /// Opens a connection over `io`, and waits for the upstream's settings: before them, nobody knows how many requests
    /// it takes.
    pub(super) async fn open<IO>(io: IO, open: Open) -> Result<Self, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settling = Arc::new(Settling::default());
        let mut builder = http2::Builder::new(Spawner(Arc::clone(&settling)));
        builder
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(READ_BYTES_MAX).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(0)
            .max_send_buf_size(SEND_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        let connection = Arc::new(Mutex::new(connection));
        // It is closed once its task drops it.
        let weak = Arc::downgrade(&connection);
        let spawner = Spawner(Arc::clone(&settling));
        spawner.execute(async move {
            // Errors on it reach the requests under way.
            let _ = poll_fn(|cx| Pin::new(&mut *connection.lock()).poll(cx)).await;
            drop(open);
        });
        let shared = Self::new(sender, move || {
            let connection = weak.upgrade();
            connection.map_or(0, |it| it.lock().current_max_send_streams())
        });
        settling.wait(&shared).await?;
        Ok(shared)
    }

    /// The number of requests under way, if a pool keeps a share that none uses.
    pub(super) fn streams(&self) -> usize {
        Arc::strong_count(&self.stream.0) - 1
    }

    /// Returns true if the upstream takes another request at once.
    pub(super) fn has_room(&self) -> bool {
        self.streams() < (self.streams_max)()
    }

    /// Returns true if both are shares of one connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stream.0, &other.stream.0)
    }

    /// Goes on to count the request once it has been sent.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }
}

/// A connection whose settings have not come yet.
#[derive(Debug, Default)]
struct Settling {
    /// Notified when any task of the connection has run.
    has_run: Notify,
    is_over: AtomicBool,
}

impl Settling {
    async fn wait(&self, shared: &Shared) -> Result<(), ConnectError> {
        loop {
            let mut has_run = pin!(self.has_run.notified());
            has_run.as_mut().enable();
            if (shared.streams_max)() > 0 {
                self.is_over.store(true, Ordering::Relaxed);
                return Ok(());
            }
            if shared.sender.is_closed() {
                let why = "the connection ended before its HTTP/2 settings came";
                return Err(ConnectError::Failed(why.into()));
            }
            has_run.await;
        }
    }
}

/// Spawns the tasks of a connection.
#[derive(Clone, Debug)]
struct Spawner(Arc<Settling>);

impl<F> Executor<F> for Spawner
where
    F: Future + Send + 'static,
{
    fn execute(&self, task: F) {
        let settling = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                let polled = task.as_mut().poll(cx).map(drop);
                if !settling.is_over.load(Ordering::Relaxed) {
                    settling.has_run.notify_waiters();
                }
                polled
            })
            .await;
        });
    }
}
