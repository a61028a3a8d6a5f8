//! One connection, from its first byte to its last.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};
use tracing::debug;

use super::activity::{Activity, Watched};
use super::deadline::Deadline;
use super::{Answer, Protocol};
use crate::config::Bounds;
use crate::drain::Drain;

/// For so long after the drain began an idle HTTP/1 connection stays open: a request may be on
/// its way, which is then answered with `Connection: close`. HTTP/2 has GOAWAY for that.
const LAST_REQUEST: Duration = Duration::from_millis(100);

/// For so long at most.
const LINGER: Duration = Duration::from_secs(1);

/// Serves one connection until either side ends it.
pub(super) async fn serve(
    stream: TcpStream,
    protocol: Protocol,
    service: impl Answer,
    bounds: Bounds,
    drain: Arc<Drain>,
) {
    // Decisions are small and awaited: none waits to be sent together with the next. A socket
    // that refuses this is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let (watched, activity, back) = Watched::new(stream);
    let io = TokioIo::new(watched);
    let service = Deadline::new(
        service,
        protocol,
        bounds.request_timeout,
        Arc::clone(&drain),
    );
    let watch = WatchOver {
        activity,
        // A period of zero is a panic.
        idle_timeout: bounds.idle_timeout.max(Duration::from_millis(1)),
        drain,
    };
    let end = match protocol {
        Protocol::Http1 => {
            let connection = http1(&bounds).serve_connection(io, service);
            watch.drive(connection, LAST_REQUEST).await
        }
        Protocol::Http2 => {
            let connection = http2(&bounds).serve_connection(io, service);
            watch.drive(connection, Duration::ZERO).await
        }
    };
    if let (End::Done, Ok(socket)) = (end, back.await) {
        linger(socket).await;
    }
}

/// Closes a socket so that the last answers arrive: closed with bytes unread, the kernel would
/// reset the connection, and the peer lose what it had not read yet. So our half is closed
/// first, and what the peer still sends is thrown away, until it closes its own.
async fn linger(mut socket: TcpStream) {
    let _ = timeout(LINGER, async {
        socket.shutdown().await?;
        let mut waste = [0; 1024];
        while socket.read(&mut waste).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}

fn http1(bounds: &Bounds) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_header_size(bounds.head_bytes_max as usize)
        // Pipelined requests are answered one by one, so half a closed connection is a whole one.
        .half_close(false);
    builder
}

fn http2(bounds: &Bounds) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.streams_max)
        .max_header_list_size(bounds.head_bytes_max)
        .keep_alive_interval(bounds.ping_interval)
        .keep_alive_timeout(bounds.ping_timeout);
    builder
}

/// How a connection ended.
enum End {
    /// As the protocol has it.
    Done,
    /// Nothing moved on it for too long.
    Idle,
}

/// What ends a connection other than its peers.
struct WatchOver {
    activity: Activity,
    idle_timeout: Duration,
    drain: Arc<Drain>,
}

impl WatchOver {
    async fn drive<C>(self, connection: C, last_request: Duration) -> End
    where
        C: GracefulConnection<Error: std::fmt::Display>,
    {
        let mut connection = pin!(connection);
        let mut begun = pin!(async {
            self.drain.begun().await;
            sleep(last_request).await;
        });
        let mut is_draining = false;
        let start = tokio::time::Instant::now() + self.idle_timeout;
        let mut idle = interval_at(start, self.idle_timeout);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = self.activity.count();
        loop {
            tokio::select! {
                biased;
                end = connection.as_mut() => {
                    if let Err(error) = end {
                        debug!(%error, "a connection ended badly");
                    }
                    return End::Done;
                }
                () = &mut begun, if !is_draining => {
                    is_draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = idle.tick() => {
                    let now = self.activity.count();
                    if now == seen {
                        debug!("a connection is closed: nothing moved on it");
                        return End::Idle;
                    }
                    seen = now;
                }
            }
        }
    }
}
