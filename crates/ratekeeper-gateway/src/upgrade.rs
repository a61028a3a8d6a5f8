//! Upgraded connections: WebSockets, and any other protocol that both sides agree on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use ratekeeper_server::{Pace, Patience};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::body::HeldSlot;
use crate::shared::Shared;

/// A client's request to upgrade its connection.
#[derive(Debug)]
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Upgrade {
    /// The upgrade that `request` asks for, if any. Upgrades to HTTP/2 in the clear are ignored:
    /// requests on such a connection would pass unseen (RFC 9113 has dropped it as well).
    pub(crate) fn of<B>(request: &mut Request<B>) -> Option<Self> {
        let headers = request.headers();
        let mut protocols = headers.get_all(UPGRADE).iter();
        let protocol = protocols.next().filter(|_| protocols.next().is_none())?;
        let names_h2c = protocol.as_bytes().split(|byte| *byte == b',').any(|name| {
            let name = name.trim_ascii();
            name.eq_ignore_ascii_case(b"h2c") || name.eq_ignore_ascii_case(b"h2")
        });
        if request.version() != Version::HTTP_11 || !is_asked_for(headers) || names_h2c {
            return None;
        }
        Some(Self {
            protocol: protocol.clone(),
            client: hyper::upgrade::on(&mut *request),
        })
    }

    /// Asks the upstream for the same upgrade.
    pub(crate) fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
    }

    /// Begins the upgrade that the upstream agreed to: tells the client, and carries bytes both ways
    /// until one side is done, both were silent for too long, or one does not take what the other
    /// sends. It keeps its `slot` at the upstream, and its permits, until then.
    pub(crate) fn begin<B>(
        self,
        answer: &mut Response<B>,
        shared: &Shared,
        slot: Option<HeldSlot>,
    ) {
        let (silence, patience) = (shared.tunnel_silence_max, shared.patience);
        let upstream = hyper::upgrade::on(&mut *answer);
        let agreed = answer.headers().get(UPGRADE).cloned();
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, agreed.unwrap_or(self.protocol));
        tokio::spawn(async move {
            match tokio::try_join!(self.client, upstream) {
                Ok((client, upstream)) => carry(client, upstream, silence, patience).await,
                Err(error) => debug!(%error, "a connection was not upgraded"),
            }
            if let Some(slot) = slot {
                slot.done();
            }
        });
    }
}

fn is_asked_for(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter();
    let mut names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// The bytes carried at a time.
const PIECE: usize = 16 << 10;

async fn carry(client: Upgraded, upstream: Upgraded, silence: Duration, patience: Patience) {
    let (from_client, to_client) = split(TokioIo::new(client));
    let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
    let moved = Arc::new(watch::Sender::new(()));
    let mut watched = moved.subscribe();
    let both = async {
        tokio::try_join!(
            one_way(from_client, to_upstream, &moved, patience),
            one_way(from_upstream, to_client, &moved, patience),
        )
    };
    let silent = async { while timeout(silence, watched.changed()).await.is_ok() {} };
    tokio::select! {
        carried = both => if carried.is_err() {
            debug!("upgraded connection closed: one side does not read");
        },
        () = silent => debug!("upgraded connection closed: both sides were silent"),
    }
}

/// A peer that does not take what it is sent.
struct Stalled;

async fn one_way<R, W>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    moved: &watch::Sender<()>,
    patience: Patience,
) -> Result<(), Stalled>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let mut piece = vec![0; PIECE];
    let mut pace = Pace::new(patience);
    let mut since = Instant::now();
    loop {
        match from.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                moved.send_replace(());
                let begun = Instant::now();
                pace.rested(begun.saturating_duration_since(since));
                pace.handed(length as u64);
                let written = timeout(pace.left(), write(&mut to, &piece[..length])).await;
                since = Instant::now();
                pace.waited(since.saturating_duration_since(begun));
                match written {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => break,
                    Err(_) => return Err(Stalled),
                }
            }
        }
    }
    // The other direction goes on: an answer may still be on its way.
    let _ = to.shutdown().await;
    Ok(())
}

async fn write<W: AsyncWrite>(to: &mut WriteHalf<W>, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
