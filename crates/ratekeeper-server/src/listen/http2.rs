//! HTTP/2 spoken without a server library in between: what such a library does for any service (a task and a boxed
//! body for each request, buffers, a date) costs several times as much as most decisions.
//!
//! A [`DirectService`] gets each request as it comes off its stream. Requests are answered within the connection's
//! task, once all input that has arrived is read, so that their answers leave together.

mod answer;
mod request;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Ping, PingPong, RecvStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::bounded::Bounded;
use super::bounds::ServerBounds;
use super::connection::Driven;
use super::inline_executor::InlineExecutor;
use super::service::Fault;

pub(crate) use answer::{DirectBody, Whole};
pub(crate) use request::{Gathered, RequestBody};

/// The requests of a batch that a connection keeps room for.
const ACCEPTED_KEPT: usize = 16;

/// A service that is asked straight from a connection's streams: always ready, and cheap to clone.
pub(crate) trait DirectService: Clone + Send + Sync + 'static {
    /// The body of answers that are not whole.
    type Body: hyper::body::Body<Data = Bytes, Error: Into<Fault> + Send> + Send + 'static;

    /// Answers `request`, which stays where it is, as each step would copy it otherwise. Nothing of it is to be relied on
    /// afterwards.
    fn answer(
        &self,
        request: &mut Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<DirectBody<Self::Body>>, Infallible>> + Send;
}

/// One connection: reads requests, and has `exchange` answer each.
pub(super) struct Http2<IO, E, F> {
    state: State<IO>,
    exchange: E,
    executor: InlineExecutor,
    /// Requests that were read, and are answered once nothing more is there to be read.
    accepted: Vec<(Request<RecvStream>, SendResponse<Bytes>)>,
    /// The allocation of a request that was answered at once, for the next one.
    spare: Option<Pin<Box<F>>>,
    pings: KeepAlive,
    is_leaving: bool,
}

enum State<IO> {
    Handshake(Handshake<IO, Bytes>),
    Open(Connection<IO, Bytes>),
}

/// Finds out whether a silent peer is still there.
struct KeepAlive {
    interval: Duration,
    timeout: Duration,
    /// There once the connection is open.
    pings: Option<PingPong>,
    /// The bytes that had come at the last look.
    bytes_read: u64,
    is_asked: bool,
}

/// Opens a connection over `io` whose requests `service` answers.
pub(super) fn open<IO, S>(
    io: IO,
    service: Bounded<S>,
    bounds: &ServerBounds,
    executor: InlineExecutor,
) -> impl Driven<Fault = h2::Error> + Send + use<IO, S>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    S: DirectService,
{
    let service = Arc::new(service);
    let exchange = move |request, reply| exchange(Arc::clone(&service), request, reply);
    Http2 {
        state: State::Handshake(builder(bounds).handshake(io)),
        exchange,
        executor,
        accepted: Vec::new(),
        spare: None,
        pings: KeepAlive {
            interval: bounds.ping_interval,
            timeout: bounds.ping_timeout,
            pings: None,
            bytes_read: 0,
            is_asked: false,
        },
        is_leaving: false,
    }
}

fn builder(bounds: &ServerBounds) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.streams_max)
        .max_header_list_size(bounds.head_bytes_max)
        .max_send_buffer_size(super::connection::SEND_BYTES_MAX)
        .initial_window_size(super::connection::STREAM_WINDOW)
        .initial_connection_window_size(super::connection::CONNECTION_WINDOW);
    builder
}

/// Answers one request, unless its client gives it up.
async fn exchange<S: DirectService>(
    service: Arc<Bounded<S>>,
    request: Request<RecvStream>,
    mut reply: SendResponse<Bytes>,
) {
    let answer = {
        // Its stream is not held while the answer is taken.
        let mut request = request.map(RequestBody::new);
        let answering = service.begin(&mut request, |service, request| service.answer(request));
        let mut answering = pin!(answering);
        poll_fn(|cx| match answering.as_mut().poll(cx) {
            Poll::Ready(Ok(answer)) => Poll::Ready(Some(answer)),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => reply.poll_reset(cx).map(|_| None),
        })
        .await
    };
    let Some(answer) = answer else { return };
    let sent = match answer::send(answer, &mut reply) {
        Ok(None) => Ok(()),
        // Boxed: most requests are not to carry what few need.
        Ok(Some(rest)) => Box::pin(answer::send_rest(rest)).await,
        Err(error) => Err(error),
    };
    if let Err(error) = sent {
        debug!(%error, "an answer was not sent");
    }
}

impl<IO, E, F> Http2<IO, E, F>
where
    E: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    /// Tries to answer what was accepted; what has to wait is the executor's.
    fn answer(&mut self, cx: &mut Context<'_>) {
        for (request, reply) in self.accepted.drain(..) {
            let exchange = (self.exchange)(request, reply);
            let mut exchange = match self.spare.take() {
                None => Box::pin(exchange),
                Some(mut spare) => {
                    spare.set(exchange);
                    spare
                }
            };
            if self.executor.is_done(exchange.as_mut(), cx) {
                self.spare = Some(exchange);
            } else {
                self.executor.wait_for(exchange);
            }
        }
        self.accepted.shrink_to(ACCEPTED_KEPT);
    }
}

impl<IO, E, F> Future for Http2<IO, E, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    E: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Unpin,
    F: Future<Output = ()> + Send + 'static,
{
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let connection = match &mut this.state {
                State::Open(connection) => connection,
                State::Handshake(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    this.pings.pings = connection.ping_pong();
                    if this.is_leaving {
                        connection.graceful_shutdown();
                    }
                    this.state = State::Open(connection);
                    continue;
                }
            };
            match connection.poll_accept(cx) {
                Poll::Ready(Some(request)) => this.accepted.push(request?),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    this.answer(cx);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<IO, E, F> Driven for Http2<IO, E, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    E: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Unpin,
    F: Future<Output = ()> + Send + 'static,
{
    type Fault = h2::Error;

    fn leave(mut self: Pin<&mut Self>) {
        self.is_leaving = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    fn first_ping(&self) -> Option<Duration> {
        Some(self.pings.interval)
    }

    fn keep_alive(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes_read: u64,
    ) -> Option<Duration> {
        self.pings.look(cx, bytes_read)
    }
}

impl KeepAlive {
    /// Returns the time until the next look; none if the peer has not answered in time.
    fn look(&mut self, cx: &mut Context<'_>, bytes_read: u64) -> Option<Duration> {
        let Some(pings) = &mut self.pings else {
            return Some(self.interval);
        };
        let is_silent = std::mem::replace(&mut self.bytes_read, bytes_read) == bytes_read;
        if std::mem::take(&mut self.is_asked) {
            return match pings.poll_pong(cx) {
                Poll::Ready(Ok(_)) => Some(self.interval),
                Poll::Ready(Err(_)) | Poll::Pending => None,
            };
        }
        if !is_silent || pings.send_ping(Ping::opaque()).is_err() {
            return Some(self.interval);
        }
        self.is_asked = true;
        Some(self.timeout)
    }
}
