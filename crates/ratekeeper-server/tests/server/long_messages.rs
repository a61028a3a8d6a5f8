//! Messages that never end, and the room that long ones share.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest, handshake};
use h2::{RecvStream, SendStream};
use http::{Method, Request, StatusCode};
use prost::Message;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_server::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{PATIENCE, RULES, start_with};

const CHECK: &str = "/ratekeeper.v1.RateLimiterService/Check";
const CHECK_BATCH: &str = "/ratekeeper.v1.RateLimiterService/CheckBatch";
const CHECK_STREAM: &str = "/ratekeeper.v1.RateLimiterService/CheckStream";
const RLS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const OLD_REFLECTION: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// Room for one message of [`LONG`] bytes, and not for two.
const ROOM: usize = 256 << 10;
const LONG: usize = 200 << 10;

/// Short, so that tests can wait for it.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(300);

fn bounded(config: &mut ServerConfig) {
    config.bounds.long_messages_bytes_max = ROOM;
    config.bounds.request_timeout = REQUEST_TIMEOUT;
}

/// One connection.
#[derive(Clone)]
struct Client(SendRequest<Bytes>);

/// One call.
struct Call {
    answer: ResponseFuture,
    sending: SendStream<Bytes>,
    /// There once the head of the answer is.
    receiving: Option<RecvStream>,
}

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        let (client, connection) = handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    async fn call(&self, path: &str) -> Call {
        self.call_by(Method::POST, path).await
    }

    async fn call_by(&self, method: Method, path: &str) -> Call {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut client = self.0.clone().ready().await.unwrap();
        let request = request.body(()).unwrap();
        let (answer, sending) = client.send_request(request, false).unwrap();
        Call {
            answer,
            sending,
            receiving: None,
        }
    }

    /// The status of a whole call of one message.
    async fn status(&self, path: &str, message: Bytes) -> String {
        let mut call = self.call(path).await;
        call.send(message).await;
        call.sending.send_data(Bytes::new(), true).unwrap();
        call.status().await
    }
}

impl Call {
    /// Sends all of `bytes`, as fast as the server takes them.
    async fn send(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            self.sending.reserve_capacity(bytes.len());
            if self.sending.capacity() == 0 {
                let room = std::future::poll_fn(|cx| self.sending.poll_capacity(cx));
                let room = timeout(PATIENCE, room).await.expect("the server reads on");
                room.expect("it is open").unwrap();
            }
            let piece = bytes.split_to(self.sending.capacity().min(bytes.len()));
            self.sending.send_data(piece, false).unwrap();
        }
    }

    /// The next piece of the answer.
    async fn data(&mut self) -> Option<Bytes> {
        let read = async {
            if self.receiving.is_none() {
                let answer = (&mut self.answer).await.unwrap();
                if answer.headers().contains_key("grpc-status") {
                    return None;
                }
                self.receiving = Some(answer.into_body());
            }
            let receiving = self.receiving.as_mut()?;
            let data = receiving.data().await?.unwrap();
            receiving
                .flow_control()
                .release_capacity(data.len())
                .unwrap();
            Some(data)
        };
        timeout(PATIENCE, read).await.expect("it is answered")
    }

    /// The status at the end of the answer.
    async fn status(mut self) -> String {
        let read = async {
            let headers = match self.receiving.take() {
                Some(receiving) => Err(receiving),
                None => {
                    let (head, body) = (&mut self.answer).await.unwrap().into_parts();
                    match head.headers.contains_key("grpc-status") {
                        true => Ok(head.headers),
                        false => Err(body),
                    }
                }
            };
            let headers = match headers {
                Ok(headers) => headers,
                Err(mut receiving) => {
                    while let Some(data) = receiving.data().await {
                        let length = data.unwrap().len();
                        receiving.flow_control().release_capacity(length).unwrap();
                    }
                    receiving.trailers().await.unwrap().expect("a status")
                }
            };
            headers["grpc-status"].to_str().unwrap().to_owned()
        };
        timeout(PATIENCE, read).await.expect("it is answered")
    }
}

/// A check for any method, made `bytes` long by a field that nobody knows.
fn message(path: &str, bytes: usize) -> Bytes {
    let check = v1::CheckRequest {
        domain: "d".to_owned(),
        descriptors: vec![v1::Descriptor {
            entries: vec![WireEntry {
                key: "free".to_owned(),
                value: "a".to_owned(),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut message = match path {
        CHECK => check.encode_to_vec(),
        _ => v1::CheckBatchRequest {
            checks: vec![check],
        }
        .encode_to_vec(),
    };
    if let Some(left) = bytes.checked_sub(message.len()).filter(|left| *left > 10) {
        prost::encoding::bytes::encode(15, &vec![b'x'; left - 5], &mut message);
    }
    let length = u32::try_from(message.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], &message].concat().into()
}

/// All but the last bytes of a message.
fn unfinished(path: &str, bytes: usize) -> Bytes {
    let mut message = message(path, bytes);
    message.truncate(message.len() - 10);
    message
}

#[tokio::test]
async fn a_message_that_never_ends_ends_its_stream_and_holds_no_room_any_more() {
    let running = start_with(RULES, bounded).await;
    let client = Client::connect(running.addresses.grpc).await;
    let mut endless = client.call(CHECK_STREAM).await;
    endless.send(unfinished(CHECK_STREAM, LONG)).await;
    // The stream holds up no short message on its connection, and no long one once its time is over.
    assert_eq!(client.status(CHECK, message(CHECK, 0)).await, "0");
    assert_eq!(endless.status().await, "4");
    let long = message(CHECK_BATCH, LONG);
    assert_eq!(client.status(CHECK_BATCH, long).await, "0");
    running.stop().await;
}

/// gRPC has calls by POST alone, and what is refused takes no room.
#[tokio::test]
async fn a_call_by_another_method_is_refused_before_its_messages() {
    let running = start_with(RULES, |config| {
        config.bounds.long_messages_bytes_max = ROOM;
    })
    .await;
    let client = Client::connect(running.addresses.grpc).await;
    let mut kept = Vec::new();
    for (method, path) in [
        (Method::PUT, CHECK_STREAM),
        (Method::PUT, CHECK_BATCH),
        (Method::PUT, RLS),
        (Method::PUT, REFLECTION),
        (Method::PUT, HEALTH),
        (Method::PUT, "/nowhere.Service/Call"),
        (Method::GET, CHECK_STREAM),
        (Method::OPTIONS, CHECK),
    ] {
        let what = format!("{method} {path}");
        let mut call = client.call_by(method, path).await;
        let long = unfinished(path, LONG);
        call.sending.send_data(long, false).unwrap();
        kept.push(call.sending);
        let answer = timeout(PATIENCE, call.answer).await.expect("an answer");
        let (head, _) = answer.unwrap().into_parts();
        assert_eq!(head.status, StatusCode::METHOD_NOT_ALLOWED, "{what}");
        assert_eq!(head.headers["allow"], "POST", "{what}");
    }
    let long = message(CHECK_BATCH, LONG);
    assert_eq!(client.status(CHECK_BATCH, long).await, "0");
    running.stop().await;
}

/// Bytes by and by give it no more time.
#[tokio::test]
async fn a_message_that_trickles_ends_its_stream() {
    let running = start_with(RULES, bounded).await;
    let client = Client::connect(running.addresses.grpc).await;
    let mut trickle = client.call(CHECK_STREAM).await;
    let mut sent = 0;
    let mut ticks = tokio::time::interval(REQUEST_TIMEOUT / 30);
    for byte in message(CHECK_STREAM, 1_000) {
        ticks.tick().await;
        if trickle.sending.send_data(vec![byte].into(), false).is_err() {
            break;
        }
        sent += 1;
    }
    assert!((2..900).contains(&sent), "{sent} bytes");
    assert_eq!(trickle.status().await, "4");
    running.stop().await;
}

#[tokio::test]
async fn no_stream_of_reflection_waits_for_the_end_of_a_message() {
    let running = start_with(RULES, bounded).await;
    let client = Client::connect(running.addresses.grpc).await;
    for path in [REFLECTION, OLD_REFLECTION] {
        let mut endless = client.call(path).await;
        endless.send(unfinished(path, 60_000)).await;
        // Whatever ends its messages ends it well, in tonic's reflection.
        assert_eq!(endless.status().await, "0", "{path}");
        // One that is whole is answered, however it is cut.
        let mut call = client.call(path).await;
        for byte in *b"\0\0\0\0\x02\x3a\x00" {
            call.send(vec![byte].into()).await;
            tokio::task::yield_now().await;
        }
        let data = call.data().await.expect("an answer");
        let list = b"ratekeeper.v1.RateLimiterService";
        assert!(data.windows(list.len()).any(|part| part == list));
    }
    running.stop().await;
}

#[tokio::test]
async fn a_stream_may_be_silent_between_messages() {
    let running = start_with(RULES, bounded).await;
    let client = Client::connect(running.addresses.grpc).await;
    let mut silent = client.call(CHECK_STREAM).await;
    for bytes in [0, LONG, 0] {
        silent.send(message(CHECK_STREAM, bytes)).await;
        assert!(silent.data().await.is_some());
        // This one waits for as long as no message may.
        let mut endless = client.call(CHECK_STREAM).await;
        endless.send(unfinished(CHECK_STREAM, 100)).await;
        assert_eq!(endless.status().await, "4");
    }
    silent.sending.send_data(Bytes::new(), true).unwrap();
    assert_eq!(silent.status().await, "0");
    running.stop().await;
}

/// Its message is kept until then.
#[tokio::test]
async fn a_call_holds_room_until_it_ends() {
    let running = start_with(RULES, |config| {
        config.bounds.long_messages_bytes_max = ROOM;
    })
    .await;
    let client = Client::connect(running.addresses.grpc).await;
    let mut open = client.call(CHECK_BATCH).await;
    open.send(message(CHECK_BATCH, LONG)).await;
    assert_eq!(client.status(CHECK, message(CHECK, 0)).await, "0");
    let long = message(CHECK_BATCH, LONG);
    assert_eq!(client.status(CHECK_BATCH, long.clone()).await, "3");
    open.sending.send_data(Bytes::new(), true).unwrap();
    assert_eq!(open.status().await, "0");
    assert_eq!(client.status(CHECK_BATCH, long).await, "0");
    running.stop().await;
}
