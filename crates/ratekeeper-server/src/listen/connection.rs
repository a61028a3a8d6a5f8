//! One connection, from its first byte to its last.

mod timers;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use tracing::debug;

use timers::{Ring, Timers};

use super::activity::{Activity, Watched};
use super::bounded::Bounded;
use super::bounds::ServerBounds;
use super::drain::Drain;
use super::framing::Framing;
use super::http2::{self, DirectService};
use super::inline_executor::{InlineExecutor, Waiting};
use super::line::{Line, Requests};
use super::peer::Peer;
use super::rounds::Rounds;
use super::service::{HttpService, IsBlind, Protocol};
use super::socket::{Accepted, ForgetUnsent};
use super::stall_check::StallCheck;
use super::tls::Tls;
use super::visitor::Beginning;

/// The time that an idle HTTP/1 connection stays open after the start of the drain: a request may
/// be on its way, and is then answered with `Connection: close`. HTTP/2 has GOAWAY for that.
const LAST_REQUEST: Duration = Duration::from_millis(100);

/// The longest wait for a peer to finish when its connection is closing.
const LINGER: Duration = Duration::from_secs(1);

/// The bytes of a head that hyper reads, as a multiple of the bound, so that a head somewhat too
/// large gets an answer that says so; to a larger one hyper only answers 431.
const HEAD_ROOM: usize = 2;

/// The bytes of an untaken answer that HTTP/2 buffers, besides the piece being handed over.
pub(super) const SEND_BYTES_MAX: usize = 16 << 10;

/// The bytes that clients may send of one request, and of all requests of a connection, before any
/// are consumed.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
pub(super) const CONNECTION_WINDOW: u32 = 512 << 10;

/// The length of the HTTP/2 preface: a client that has sent less has not begun.
const PREFACE_BYTES: u64 = 24;

/// The settings that the connections of one listener share.
pub(super) struct Terms<S> {
    pub(super) service: S,
    pub(super) protocol: Protocol,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) bounds: ServerBounds,
    pub(super) drain: Arc<Drain>,
    pub(super) is_blind: IsBlind,
    /// Answers those who speak HTTP/1 where HTTP/2 is spoken.
    pub(super) http1: Option<Router>,
    /// True if only this host can reach the listener.
    pub(super) is_local: bool,
}

impl<S> Terms<S> {
    /// The same, with another service, which is spoken to over HTTP/1.
    fn over_http1(self, router: Router) -> Terms<ByHyper<Router>> {
        Terms {
            service: ByHyper(router),
            protocol: Protocol::Http1,
            tls: self.tls,
            bounds: self.bounds,
            drain: self.drain,
            is_blind: self.is_blind,
            http1: None,
            is_local: self.is_local,
        }
    }
}

/// A service, and the way its requests come to it.
pub(super) trait Served: Clone + Send + 'static {
    /// Serves requests that come over `io`, until the connection ends.
    fn serve<IO>(self, io: Watched<IO>, watch: WatchOver) -> impl Future<Output = End> + Send
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static;
}

/// A service that hyper asks.
#[derive(Clone)]
pub(super) struct ByHyper<S>(pub(super) S);

/// A service that is asked without hyper, over HTTP/2 alone.
#[derive(Clone)]
pub(super) struct Direct<S>(pub(super) S);

impl<S: HttpService> Served for ByHyper<S> {
    async fn serve<IO>(self, io: Watched<IO>, watch: WatchOver) -> End
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(io);
        let bounds = &watch.line.bounds;
        let service = Bounded::new(self.0, Arc::clone(&watch.line));
        let executor = watch.executor.clone();
        match watch.line.protocol {
            Protocol::Http1 => {
                let connection = http1(bounds).serve_connection(io, service);
                let connection = HyperConnection { connection };
                watch.drive(connection, LAST_REQUEST).await
            }
            // Listeners that speak HTTP/2 alone do without hyper.
            Protocol::Http2 | Protocol::Either => {
                let builder = either(bounds, executor);
                let connection = builder.serve_connection_with_upgrades(io, service);
                let connection = HyperConnection { connection };
                watch.drive(connection, LAST_REQUEST).await
            }
        }
    }
}

impl<S: DirectService> Served for Direct<S> {
    async fn serve<IO>(self, io: Watched<IO>, watch: WatchOver) -> End
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = Bounded::new(self.0, Arc::clone(&watch.line));
        let connection = http2::open(io, service, &watch.line.bounds, watch.executor.clone());
        watch.drive(connection, Duration::ZERO).await
    }
}

/// A connection to be driven to its end.
pub(super) trait Driven: Future<Output = Result<(), Self::Fault>> {
    /// The reason it failed.
    type Fault: std::fmt::Display;

    /// Tells the peer to go, once what is under way is finished.
    fn leave(self: Pin<&mut Self>);

    /// The time until [`Self::keep_alive`] is first due; none for a connection that sends its pings itself.
    fn first_ping(&self) -> Option<Duration> {
        None
    }

    /// Asks a peer that was silent since the last call whether it is still there; `bytes_read` have come so far.
    /// Returns the time until the next call; none if the peer is gone.
    fn keep_alive(self: Pin<&mut Self>, _: &mut Context<'_>, bytes_read: u64) -> Option<Duration> {
        let _ = bytes_read;
        None
    }
}

pin_project! {
    struct HyperConnection<C> {
        #[pin]
        connection: C,
    }
}

impl<C: GracefulConnection> Future for HyperConnection<C> {
    type Output = Result<(), C::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().connection.poll(cx)
    }
}

impl<C: GracefulConnection<Error: std::fmt::Display>> Driven for HyperConnection<C> {
    type Fault = C::Error;

    fn leave(self: Pin<&mut Self>) {
        self.project().connection.graceful_shutdown();
    }
}

/// Serves one connection until either side ends it.
pub(super) async fn serve(accepted: Accepted, terms: Terms<impl Served>) {
    let stream = match accepted.stream.attach() {
        Ok(stream) => stream,
        Err(error) => {
            debug!(%error, "cannot serve a connection");
            return;
        }
    };
    let Some(tls) = terms.tls.clone() else {
        let peer = Peer::unnamed(accepted.peer, terms.is_local);
        if let Some(router) = terms.http1.clone() {
            match Beginning::of(&stream, &terms.bounds, &terms.drain).await {
                Beginning::Other => {}
                Beginning::Never => {
                    debug!("connection closed: it did not begin");
                    return;
                }
                Beginning::Http1 => {
                    let terms = terms.over_http1(router);
                    // Boxed: connections of HTTP/2 are not to carry what these need.
                    return Box::pin(speak(stream, peer, terms)).await;
                }
            }
        }
        return speak(stream, peer, terms).await;
    };
    // A client that has not finished its handshake has not sent a request either: the drain waits
    // for it no longer than for other peers to finish.
    let leaving = async {
        terms.drain.begun().await;
        sleep(LINGER).await;
    };
    let handshake = timeout(terms.bounds.handshake_timeout, tls.accept(stream));
    let secured = tokio::select! {
        secured = handshake => secured,
        () = leaving => return,
    };
    match secured {
        Ok(Ok((stream, names))) => {
            let peer = Peer {
                names,
                ..Peer::unnamed(accepted.peer, terms.is_local)
            };
            speak(stream, peer, terms).await;
        }
        Ok(Err(error)) => tls.record_failure(accepted.peer, &error),
        Err(_) => tls.record_failure(accepted.peer, &"it took too long"),
    }
}

/// Speaks HTTP with `peer`.
async fn speak<IO>(stream: IO, peer: Peer, terms: Terms<impl Served>)
where
    IO: AsyncRead + AsyncWrite + ForgetUnsent + Unpin + Send + 'static,
{
    let (bounds, protocol) = (terms.bounds, terms.protocol);
    let line = Arc::new(Line::new(
        peer,
        protocol,
        bounds,
        terms.drain,
        terms.is_blind,
    ));
    // Only what is forwarded could be read in another way by somebody else.
    let framing = (protocol == Protocol::Either)
        .then(|| Framing::new(Arc::clone(&line), head_bytes_read(&bounds)));
    let (watched, activity, back) = Watched::new(stream, framing);
    let executor = InlineExecutor::new(Arc::clone(&line));
    let watch = WatchOver {
        activity,
        line,
        executor,
    };
    let end = terms.service.serve(watched, watch).await;
    match (end, back.await) {
        (End::Done, Ok(socket)) => linger(socket).await,
        (End::Stalled, Ok(socket)) => socket.forget_unsent(),
        (End::Cut, _) | (_, Err(_)) => {}
    }
}

/// Closes a socket so that the last answers arrive: if it were closed with unread bytes, the kernel
/// would reset the connection, and the peer would lose what it had not read yet. So our half is
/// closed first, and what the peer still sends is discarded until it closes its own.
async fn linger(mut socket: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = timeout(LINGER, async {
        socket.shutdown().await?;
        let mut waste = [0; 1024];
        while socket.read(&mut waste).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}

fn head_bytes_read(bounds: &ServerBounds) -> usize {
    bounds.head_bytes_max as usize * HEAD_ROOM
}

/// The longest time from an answer over HTTP/1 to the end of the next head: hyper does not tell the wait for its first byte
/// from the rest, and a client may be idle for longer than a head may take. The first head is measured here.
fn next_head(bounds: &ServerBounds) -> Duration {
    bounds.idle_timeout.saturating_add(bounds.head_timeout)
}

fn http1(bounds: &ServerBounds) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(next_head(bounds))
        .max_buf_size(head_bytes_read(bounds))
        .half_close(bounds.half_close);
    builder
}

/// Reads as many bytes as it takes to tell. Anything but the HTTP/2 preface is HTTP/1.
fn either(bounds: &ServerBounds, executor: InlineExecutor) -> auto::Builder<InlineExecutor> {
    let mut builder = auto::Builder::new(executor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(next_head(bounds))
        .max_buf_size(head_bytes_read(bounds))
        .half_close(bounds.half_close)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams_max)
        .max_header_list_size(bounds.head_bytes_max)
        .max_send_buf_size(SEND_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(bounds.ping_interval)
        .keep_alive_timeout(bounds.ping_timeout);
    builder
}

/// The way a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Ended as the protocol has it.
    Done,
    /// Cut off: nothing moved on it for too long, or it did not close when told to.
    Cut,
    /// Stalled: its peer did not take what it had asked for.
    Stalled,
}

/// Ends a connection for reasons other than its peers: the drain, timers, stalls.
pub(super) struct WatchOver {
    activity: Activity,
    line: Arc<Line>,
    executor: InlineExecutor,
}

impl WatchOver {
    /// Drives the connection to its end.
    async fn drive<C: Driven>(self, connection: C, last_request: Duration) -> End {
        let mut connection = pin!(connection);
        let mut waiting = Waiting::default();
        let mut begun = pin!(async {
            self.line.drain.begun().await;
            sleep(last_request).await;
        });
        let mut timers = pin!(Timers::new(&self.line, connection.first_ping()));
        let mut looks = StallCheck::new(&self.activity, &self.line.bounds);
        let mut requests = self.line.requests();
        let mut is_drained = false;
        let rounds = Rounds::new();
        loop {
            let ring = tokio::select! {
                biased;
                end = poll_fn(|cx| rounds.poll(cx, |cx| {
                    let end = connection.as_mut().poll(cx);
                    if end.is_pending() {
                        self.executor.run(&mut waiting, cx);
                    }
                    end
                })) => return self.ended(end),
                () = &mut begun, if !is_drained => Ring::Leave,
                ring = poll_fn(|cx| timers.as_mut().poll(cx)) => ring,
            };
            match ring {
                Ring::Leave => {
                    is_drained = true;
                    timers.as_mut().leave(None);
                    timers.as_mut().linger_after(LINGER);
                    connection.as_mut().leave();
                    requests = self.line.requests();
                }
                Ring::Linger => {
                    if self.is_unasked_since(&mut requests) && !self.activity.is_blocked() {
                        debug!("connection closed: nothing is asked on it, and it does not go");
                        return End::Done;
                    }
                    timers.as_mut().linger_after(LINGER);
                }
                Ring::Old => {
                    let grace = self.line.bounds.connection_age_grace;
                    timers.as_mut().leave(Some(grace));
                    connection.as_mut().leave();
                }
                Ring::Idle => {
                    if self.is_unasked_since(&mut requests) {
                        // What its client has not taken by then, it does not want.
                        let grace = self.line.bounds.connection_age_grace.min(IDLE_GRACE);
                        timers.as_mut().leave(Some(grace));
                        connection.as_mut().leave();
                    }
                }
                Ring::HeadDue if self.lacks_a_head() => {
                    debug!("connection closed: its first request took too long");
                    return End::Cut;
                }
                Ring::HeadDue => {}
                Ring::GraceOver => {
                    debug!("connection closed: it did not end after GOAWAY");
                    return End::Cut;
                }
                Ring::Ping => {
                    let bytes_read = self.activity.bytes_read();
                    let look = |cx: &mut Context<'_>| {
                        Poll::Ready(connection.as_mut().keep_alive(cx, bytes_read))
                    };
                    match poll_fn(look).await {
                        Some(wait) => timers.as_mut().ping_after(wait),
                        None => return self.silent(),
                    }
                }
                Ring::Look(now) => {
                    let elapsed = looks.elapsed(now);
                    if let Some(end) = self.look(&mut looks, &mut waiting, elapsed) {
                        return end;
                    }
                }
            }
        }
    }

    /// Returns true if nothing is being asked, nor was since `last`, which becomes now.
    fn is_unasked_since(&self, last: &mut Requests) -> bool {
        let before = std::mem::replace(last, self.line.requests());
        *last == before && last.are_done()
    }

    /// Returns true if not even the head of a first request is there.
    fn lacks_a_head(&self) -> bool {
        self.line.requests().are_none() && !self.has_begun_http2()
    }

    /// The way a connection ends whose peer answers no ping.
    fn silent(&self) -> End {
        debug!("a connection is closed: its peer answers no ping");
        match self.activity.is_blocked() {
            true => End::Stalled,
            false => End::Done,
        }
    }

    /// The way a connection ended that has come to its end.
    fn ended<E: std::fmt::Display>(&self, end: Result<(), E>) -> End {
        let Err(error) = end else {
            return End::Done;
        };
        debug!(%error, "a connection ended with an error");
        match self.activity.is_blocked() {
            true => End::Stalled,
            false => End::Done,
        }
    }

    /// Checks what has moved in the time `elapsed`, and ends the connection or requests that stand still.
    fn look(
        &self,
        looks: &mut StallCheck,
        waiting: &mut Waiting,
        elapsed: Duration,
    ) -> Option<End> {
        if let Some(why) = looks.end(&self.activity, elapsed, self.is_waited_for()) {
            debug!("a connection is closed: {why}");
            return Some(match self.activity.is_blocked() {
                true => End::Stalled,
                // Its peer is told: over TLS one that is only cut looks like an attack.
                false if self.line.requests().are_done() => End::Done,
                false => End::Cut,
            });
        }
        let stalled = waiting.end_stalled(elapsed);
        if stalled > 0 {
            debug!(
                stalled,
                "requests ended: their clients do not read the answers"
            );
        }
        None
    }

    /// Returns true if the peer waits for a gateway, which bounds the time of its requests itself.
    fn is_waited_for(&self) -> bool {
        self.line.protocol == Protocol::Either && !self.line.requests().are_done()
    }

    /// Returns true if the peer speaks HTTP/2, and may wait for as long as it likes before it asks.
    fn has_begun_http2(&self) -> bool {
        match self.line.protocol {
            // What we say first there does not wait for the peer.
            Protocol::Http2 => self.activity.bytes_read() >= PREFACE_BYTES,
            // Over HTTP/1 there is nothing to say before a request.
            Protocol::Http1 | Protocol::Either => self.activity.bytes_written() > 0,
        }
    }
}

/// The longest that a connection without requests may take to close once it is told to go.
const IDLE_GRACE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
