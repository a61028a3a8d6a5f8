use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{DuplexStream, ReadBuf, duplex, join};
use tokio::time::sleep;

use super::*;

const SILENCE: Duration = Duration::from_secs(600);

/// A side, and the peer of it.
fn side() -> (DuplexStream, DuplexStream) {
    duplex(1 << 10)
}

/// The time for which bytes are carried between them.
async fn carried<C, U>(client: C, upstream: U) -> Duration
where
    C: AsyncRead + AsyncWrite,
    U: AsyncRead + AsyncWrite,
{
    let begun = Instant::now();
    carry(client, upstream, SILENCE, Patience::default()).await;
    begun.elapsed()
}

/// A stream that its peer has reset.
struct Reset;

fn reset<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for Reset {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        reset()
    }
}

impl AsyncWrite for Reset {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        reset()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        reset()
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        reset()
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_at_once_when_one_side_has_broken_off() {
    let (mut client, near) = side();
    let (_upstream, far) = side();
    let unread = carried(near, join(Reset, far)).await;
    assert!(unread.is_zero(), "{unread:?}");
    assert_eq!(client.read(&mut [0]).await.expect("it is closed"), 0);

    let (_client, near) = side();
    let (mut upstream, far) = side();
    upstream.write_all(b"x").await.expect("there is room");
    let unwritten = carried(join(near, Reset), far).await;
    assert!(unwritten.is_zero(), "{unwritten:?}");
}

#[tokio::test(start_paused = true)]
async fn it_ends_soon_after_one_side_has_closed_and_the_other_is_silent() {
    let (mut client, near) = side();
    let (_upstream, far) = side();
    client.shutdown().await.expect("it can be closed");
    let took = carried(near, far).await;
    assert!(took < 2 * CLOSING_SILENCE_MAX, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_arrives_after_the_other_side_has_closed() {
    const PIECES: u32 = 10;
    let (mut client, near) = side();
    let (mut upstream, far) = side();
    client.write_all(b"?").await.expect("there is room");
    client.shutdown().await.expect("it can be closed");
    let answer = async {
        let mut asked = Vec::new();
        upstream.read_to_end(&mut asked).await.expect("it comes");
        assert_eq!(asked, b"?");
        for _ in 0..PIECES {
            sleep(CLOSING_SILENCE_MAX / 2).await;
            upstream.write_all(b"!").await.expect("it goes on");
        }
        drop(upstream);
    };
    let (took, ()) = tokio::join!(carried(near, far), answer);
    assert_eq!(took, PIECES * CLOSING_SILENCE_MAX / 2);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("it came");
    assert_eq!(answer.len(), PIECES as usize);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_closed_its_half_may_be_slow_to_read() {
    const BYTES: usize = PIECE;
    let (mut client, near) = side();
    let (mut upstream, far) = duplex(BYTES);
    client.shutdown().await.expect("it can be closed");
    let answer = vec![b'!'; BYTES];
    upstream.write_all(&answer).await.expect("there is room");
    let reading = async {
        sleep(3 * CLOSING_SILENCE_MAX).await;
        let mut answer = vec![0; BYTES];
        client.read_exact(&mut answer).await
    };
    let (took, read) = tokio::join!(carried(near, far), reading);
    assert_eq!(read.expect("all of it comes"), BYTES);
    assert_eq!(took, 4 * CLOSING_SILENCE_MAX);
}

#[tokio::test(start_paused = true)]
async fn it_may_be_silent_for_a_while() {
    let (_client, near) = side();
    let (_upstream, far) = side();
    assert_eq!(carried(near, far).await, SILENCE);
}
