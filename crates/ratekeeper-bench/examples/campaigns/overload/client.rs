//! Clients with little patience, on connections that are kept.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// The time after which an answer is of no use to a client.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Answered in time, after so long.
    Good(Duration),
    /// Refused with 503.
    Shed,
    /// Not answered in time, or with an error.
    Failed,
}

/// Clients of one address, which share its idle connections.
#[derive(Clone)]
pub(crate) struct Clients {
    address: SocketAddr,
    idle: Arc<Mutex<Vec<SendRequest<Empty<Bytes>>>>>,
}

impl Clients {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let idle = Arc::default();
        Self { address, idle }
    }

    /// Sends `request`, and waits for its answer with a client's patience. A connection whose answer is not waited
    /// for is closed.
    pub(crate) async fn ask(&self, request: Request<Empty<Bytes>>) -> Outcome {
        let begun = Instant::now();
        match timeout(PATIENCE, self.answered(request)).await {
            Ok(Ok(StatusCode::OK)) => Outcome::Good(begun.elapsed()),
            Ok(Ok(StatusCode::SERVICE_UNAVAILABLE)) => Outcome::Shed,
            _ => Outcome::Failed,
        }
    }

    async fn answered(&self, request: Request<Empty<Bytes>>) -> Result<StatusCode> {
        let kept = self.idle().pop().filter(|kept| !kept.is_closed());
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        connection.ready().await?;
        let answer = connection.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        self.idle().push(connection);
        Ok(status)
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.context("the gateway listens")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its end is seen by the sender.
        tokio::spawn(async { _ = connection.await });
        Ok(sender)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Empty<Bytes>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
