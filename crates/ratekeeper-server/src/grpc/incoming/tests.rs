use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::StreamBody as Frames;
use hyper::body::Frame;
use tokio::time::{Instant, sleep};

use super::*;

const WITHIN: Duration = Duration::from_secs(10);

fn bounds(room: &ReadingRoom) -> MessageBounds {
    MessageBounds {
        bytes_max: 4 << 20,
        within: WITHIN,
        room: room.clone(),
    }
}

/// A message of so many bytes, with its prefix.
fn message(bytes: usize) -> Vec<u8> {
    let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
    [&[0], &length[..], &vec![7; bytes]].concat()
}

/// A body of `data` in pieces, which never ends.
fn open(data: &[u8], piece: usize) -> impl Body<Data = Bytes, Error = Fault> + Unpin + use<> {
    let pieces: Vec<_> = data.chunks(piece).map(Bytes::copy_from_slice).collect();
    let pieces = stream::iter(pieces).map(|piece| Ok::<_, Fault>(Frame::data(piece)));
    Frames::new(pieces.chain(stream::pending()))
}

#[tokio::test]
async fn messages_are_read_however_they_are_cut() {
    let room = ReadingRoom::new(100 << 10);
    let lengths = [300, 0, 70_000, 3];
    let data = lengths.map(message).concat();
    for piece in [1, 2, 3, 5, 7, 1_000, 16_384, data.len()] {
        let mut incoming = Incoming::new(open(&data, piece), bounds(&room));
        for length in lengths {
            let read = incoming.next().await.expect("it is plain");
            let read = read.expect("a message");
            assert_eq!(read.bytes, message(length), "{length} in {piece}");
            assert!(read.is_plain);
        }
        assert!(incoming.next().now_or_never().is_none());
        assert!(incoming.rest.is_empty());
    }
}

/// Also where the beginning of the next one came along with its end.
#[tokio::test]
async fn a_long_message_has_room_until_it_is_dropped() {
    let room = ReadingRoom::new(100 << 10);
    let data = [message(90 << 10), message(90 << 10)].concat();
    let mut incoming = Incoming::new(open(&data, 16_384), bounds(&room));
    let first = incoming.next().await.expect("there is room");
    let refused = incoming.next().await.err().expect("there is no room");
    assert_eq!(refused.code(), Code::OutOfRange);
    drop((first, incoming));
    let mut incoming = Incoming::new(open(&data, 16_384), bounds(&room));
    for _ in 0..2 {
        assert!(incoming.next().await.expect("there is room").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_begun_has_its_time_and_silence_has_none() {
    let room = ReadingRoom::new(100 << 10);
    let second = message(90 << 10);
    let data = [message(3), second[..80 << 10].to_vec()].concat();
    let mut incoming = Incoming::new(open(&data, 16_384), bounds(&room));
    assert!(incoming.next().await.expect("it is plain").is_some());
    sleep(WITHIN * 2).await;
    let begun = Instant::now();
    let late = incoming.next().await.err().expect("it never ends");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(begun.elapsed().as_secs(), WITHIN.as_secs());
    assert!(room.take_none().grow(100 << 10).is_ok(), "it has no room");
}

/// More of it gives it no more time.
#[tokio::test(start_paused = true)]
async fn a_message_that_trickles_has_no_more_time() {
    let room = ReadingRoom::new(100 << 10);
    let trickle = stream::iter(message(3_000)).then(async |byte| {
        sleep(WITHIN / 100).await;
        Ok::<_, Fault>(Frame::data(Bytes::from(vec![byte])))
    });
    let mut incoming = Incoming::new(Frames::new(Box::pin(trickle)), bounds(&room));
    let begun = Instant::now();
    let late = incoming.next().await.err().expect("it takes too long");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(begun.elapsed().as_secs(), WITHIN.as_secs());
}

/// The answer before it goes first: while its client takes none, nobody would look at the message's time.
#[tokio::test]
async fn a_message_in_pieces_takes_room_from_the_second_look_on() {
    let room = ReadingRoom::new(100 << 10);
    let data = [message(3), message(99 << 10)[..90 << 10].to_vec()].concat();
    let mut incoming = Incoming::new(open(&data, 16_384), bounds(&room));
    assert!(incoming.next().await.expect("it is plain").is_some());
    let mut next = Box::pin(incoming.next());
    for is_free in [true, false] {
        assert!(next.as_mut().now_or_never().is_none());
        assert_eq!(room.take_none().grow(100 << 10).is_ok(), is_free);
    }
}
