//! Accepts connections, bounds them, and lets them go in good order.

mod activity;
mod connection;
mod deadline;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::Service;
use tracing::{info, warn};

use crate::config::Bounds;
use crate::drain::Drain;

/// After accepting failed (no file descriptors left, most likely) the next attempt waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is spoken on a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 from the first byte: gRPC.
    Http2,
}

/// What answers the requests of a listener.
pub(crate) trait Answer:
    Service<
        Request<Incoming>,
        Response = Response<<Self as Answer>::Body>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
    /// What its answers carry.
    type Body: Body<Data: Send, Error: Into<Fault>> + Send + 'static;
}

/// Any error, as hyper takes it.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

impl<B, S> Answer for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<Fault>> + Send + 'static,
{
    type Body = B;
}

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Listener {
    /// What it is called in logs.
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    socket: TcpListener,
}

impl Listener {
    pub(crate) async fn bind(
        name: &'static str,
        protocol: Protocol,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self {
            name,
            address,
            protocol,
            socket,
        })
    }

    /// Serves until the drain begins, and then until every connection is done or the drain
    /// timeout is over. Answers how many connections were cut off.
    pub(crate) async fn serve(
        self,
        service: impl Answer,
        bounds: Bounds,
        drain: Arc<Drain>,
    ) -> usize {
        let connections_max = bounds.connections_max.max(1);
        let mut connections = JoinSet::new();
        let serve = |stream: TcpStream| {
            connection::serve(
                stream,
                self.protocol,
                service.clone(),
                bounds,
                Arc::clone(&drain),
            )
        };
        let mut accept = Accept {
            listener: &self,
            failing: false,
        };
        loop {
            while connections.try_join_next().is_some() {}
            let is_full = connections.len() >= connections_max;
            tokio::select! {
                biased;
                () = drain.begun() => break,
                _ = connections.join_next(), if is_full => {}
                stream = accept.next(), if !is_full => {
                    connections.spawn(serve(stream));
                }
            }
        }
        // Whoever has connected before the socket closes is answered as well.
        while connections.len() < connections_max
            && let Some(stream) = accept.waiting().await
        {
            connections.spawn(serve(stream));
        }
        let Self { name, socket, .. } = self;
        drop(socket);
        finish(name, connections, bounds.drain_timeout).await
    }
}

/// Accepts, and says once that it cannot.
struct Accept<'a> {
    listener: &'a Listener,
    failing: bool,
}

impl Accept<'_> {
    async fn next(&mut self) -> TcpStream {
        loop {
            match self.listener.socket.accept().await {
                Ok((stream, _)) => {
                    if std::mem::take(&mut self.failing) {
                        info!(
                            listener = self.listener.name,
                            "connections are accepted again"
                        );
                    }
                    return stream;
                }
                // The peer gave up while it waited.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        warn!(%error, listener = self.listener.name, "connections cannot be accepted");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// A connection that is there already.
    async fn waiting(&mut self) -> Option<TcpStream> {
        // Lets the runtime take notice of what the kernel has ready.
        tokio::task::yield_now().await;
        poll_fn(|cx| match self.listener.socket.poll_accept(cx) {
            Poll::Ready(Ok((stream, _))) => Poll::Ready(Some(stream)),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
        })
        .await
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

async fn finish(name: &'static str, mut connections: JoinSet<()>, patience: Duration) -> usize {
    let all_done = async { while connections.join_next().await.is_some() {} };
    if timeout(patience, all_done).await.is_ok() {
        return 0;
    }
    let cut = connections.len();
    warn!(
        listener = name,
        connections = cut,
        "connections are cut off: the drain timeout is over"
    );
    connections.shutdown().await;
    cut
}
