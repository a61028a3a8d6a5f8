//! Messages over gRPC that do not come to their end.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest, handshake};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tokio::net::TcpStream;

use crate::support::{RULES, Running, request, start_with};

const RLS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const STREAMS: usize = 100;

/// The bytes of each message that are sent.
const SENT: usize = 60_000;

/// The room in these tests.
const ROOM: usize = 1 << 20;

/// What a connection may send before any is consumed.
const WINDOW: usize = 512 << 10;

/// What each message needs no room for.
const FREE: usize = 4 << 10;

/// The rounds without a byte more after which no more is expected.
const IDLE_ROUNDS: usize = 10;

/// A message under way, and its bytes that the window did not admit yet.
struct Begun {
    stream: SendStream<Bytes>,
    left: Bytes,
    _answer: ResponseFuture,
}

impl Begun {
    async fn new(client: &SendRequest<Bytes>, announced: usize) -> Self {
        let request = Request::post(format!("http://localhost{RLS}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut ready = client.clone().ready().await.unwrap();
        let (answer, stream) = ready.send_request(request, false).unwrap();
        let length = u32::try_from(announced).unwrap().to_be_bytes();
        let left = [&[0], &length[..], &[0; SENT]].concat();
        Self {
            stream,
            left: left.into(),
            _answer: answer,
        }
    }

    /// Sends what the window admits; returns its length.
    fn send(&mut self) -> usize {
        self.stream.reserve_capacity(self.left.len());
        let admitted = self.stream.capacity().min(self.left.len());
        if admitted > 0 {
            let piece = self.left.split_to(admitted);
            self.stream.send_data(piece, false).unwrap();
        }
        admitted
    }
}

/// The bytes that a node takes of messages of which it is never sent the last ones. They stay as long as what is returned
/// beside them.
async fn taken(running: &Running, announced: usize) -> (usize, Vec<Begun>) {
    let stream = TcpStream::connect(running.addresses.grpc).await.unwrap();
    let (client, mut connection) = handshake(stream).await.unwrap();
    let mut pings: PingPong = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let mut begun = Vec::new();
    for _ in 0..STREAMS {
        begun.push(Begun::new(&client, announced).await);
    }
    let (mut sent, mut idle) = (0, 0);
    while idle < IDLE_ROUNDS {
        let more: usize = begun.iter_mut().map(Begun::send).sum();
        idle = if more == 0 { idle + 1 } else { 0 };
        sent += more;
        // The node has read what came before it.
        pings.ping(Ping::opaque()).await.unwrap();
    }
    (sent, begun)
}

/// Short ones are gathered by this service, and long ones by tonic, which are short as well until the rest has come.
#[tokio::test]
async fn messages_without_an_end_take_a_bounded_room_and_affect_no_others() {
    let running = start_with(RULES, |config| config.bounds.long_messages_bytes_max = ROOM).await;
    for announced in [SENT + 1, 100_000] {
        let (sent, begun) = taken(&running, announced).await;
        assert!(sent >= WINDOW, "{sent} bytes");
        let most = ROOM + WINDOW + STREAMS * FREE;
        assert!(sent <= most, "{sent} of {most} bytes");
        // A longer one of somebody else, for which no room is left.
        let mut other = running.grpc().await;
        let value = "x".repeat(40_000);
        let question = request("d", &[("user", &value)]);
        let answer = other.should_rate_limit(question).await.unwrap();
        assert_eq!(answer.into_inner().overall_code(), Code::Ok);
        drop(begun);
    }
    running.stop().await;
}
