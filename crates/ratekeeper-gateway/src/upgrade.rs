//! Upgraded connections: WebSockets, and any other protocol that both sides agree on.

use std::io;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, Version};
use hyper::upgrade::OnUpgrade;
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
    /// until one side is done and the other has no more to say, one breaks off or does not take what the other
    /// sends, or both were silent for too long. It keeps its `slot` at the upstream, and its permits, until then.
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
                Ok((client, upstream)) => {
                    let (client, upstream) = (TokioIo::new(client), TokioIo::new(upstream));
                    carry(client, upstream, silence, patience).await;
                }
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

/// The time without a byte after which an upgraded connection ends whose one side has closed.
const CLOSING_SILENCE_MAX: Duration = Duration::from_secs(5);

/// The bytes carried at a time.
const PIECE: usize = 16 << 10;

async fn carry<C, U>(client: C, upstream: U, silence: Duration, patience: Patience)
where
    C: AsyncRead + AsyncWrite,
    U: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = split(client);
    let (from_upstream, to_upstream) = split(upstream);
    let state = watch::Sender::new(State::default());
    let mut watched = state.subscribe();
    let both = async {
        tokio::try_join!(
            one_way(from_client, to_upstream, &state, patience),
            one_way(from_upstream, to_client, &state, patience),
        )
    };
    let silent = async {
        loop {
            let silence = watched.borrow_and_update().silence_max(silence);
            if timeout(silence, watched.changed()).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        carried = both => match carried {
            Err(End::Broken) => debug!("upgraded connection closed: one side broke off"),
            Err(End::Stalled) => debug!("upgraded connection closed: one side does not read"),
            Ok(_) => {}
        },
        () = silent => debug!("upgraded connection closed: both sides were silent"),
    }
}

/// The state of both directions.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// True once one side has closed.
    is_half_closed: bool,
    /// The pieces that are being written: those who do not take them are waited for in another way.
    writes: u8,
}

impl State {
    /// The longest time for which nothing may change.
    fn silence_max(self, usual: Duration) -> Duration {
        match self.is_half_closed && self.writes == 0 {
            true => usual.min(CLOSING_SILENCE_MAX),
            false => usual,
        }
    }
}

/// The end of both directions, because of one.
enum End {
    /// A peer broke off.
    Broken,
    /// A peer does not take what it is sent.
    Stalled,
}

/// Carries bytes until `from` closes.
async fn one_way<R, W>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    state: &watch::Sender<State>,
    patience: Patience,
) -> Result<(), End>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let mut piece = vec![0; PIECE];
    let mut pace = Pace::new(patience);
    let mut since = Instant::now();
    loop {
        match from.read(&mut piece).await {
            Ok(0) => break,
            Err(_) => return Err(End::Broken),
            Ok(length) => {
                state.send_modify(|state| state.writes += 1);
                let begun = Instant::now();
                pace.rested(begun.saturating_duration_since(since));
                pace.handed(length as u64);
                let written = timeout(pace.left(), write(&mut to, &piece[..length])).await;
                since = Instant::now();
                pace.waited(since.saturating_duration_since(begun));
                state.send_if_modified(|state| {
                    state.writes -= 1;
                    state.is_half_closed
                });
                match written {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(End::Broken),
                    Err(_) => return Err(End::Stalled),
                }
            }
        }
    }
    // The other direction goes on for a while: an answer may still be on its way.
    state.send_modify(|state| state.is_half_closed = true);
    let _ = to.shutdown().await;
    Ok(())
}

async fn write<W: AsyncWrite>(to: &mut WriteHalf<W>, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

#[cfg(test)]
mod tests;
