//! The listener of gRPC and a plain tonic server of the same services: the same random calls get the same answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::Request as AxumRequest;
use axum::middleware::map_request;
use bytes::Bytes;
use fastrand::Rng;
use h2::client::{SendRequest, handshake};
use h2::{Reason, SendStream};
use http::header::DATE;
use http::{HeaderMap, Request};
use prost::Message;
use ratekeeper_core::Timestamp;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_server::{OnUnreadable, Peer, PeerAddress};
use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{Answer, HashKey, MemoryStore, Request as Steps};
use ratekeeper_stores::{SharedStore, StoreReply};
use ratekeeper_testkit::process::tool_folder;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use crate::support::{PATIENCE, RULES, Running, descriptor, memory, request, shared, start_on};

/// The calls of one test; each needs some ten milliseconds of an unoptimised server.
const CALLS: usize = 400;

/// The bound on messages: more than a short one has, so that there are long ones too.
const MESSAGE_BYTES_MAX: usize = 100 << 10;

/// A store at which it is always the same moment, and which answers every other request later.
#[derive(Debug)]
struct Frozen {
    inner: MemoryStore,
    asked: AtomicU32,
}

impl SharedStore for Frozen {
    fn ask(&self, _: CounterSlot, request: &Steps<'_>) -> Answer<StoreReply> {
        let now = Timestamp::from_micros(1_900_000_000_000_000);
        let decided = self.inner.decide_now(&Steps { now, ..*request });
        if self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return Answer::Decided(decided);
        }
        let (mut sender, reply) = StoreReply::new();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            sender.answer(Ok(decided));
        });
        Answer::Pending(reply)
    }

    fn hash_key(&self) -> Option<HashKey> {
        None
    }
}

/// Calls each method in its arguments, one of a whole batch at a time and with what changes the way over the wire.
const GRPCIO: &str = "
import sys, grpc

def said(call):
    try:
        answer = call.result()
    except grpc.RpcError as error:
        return f'{error.code().name} {error.details()}'
    told = [pair for pair in call.initial_metadata() if pair[0] != 'date']
    heads = [sorted(told), sorted(call.trailing_metadata())]
    return f'{call.code().name} {answer.hex()} {heads}'

channel = grpc.insecure_channel(sys.argv[1])
for pair in sys.argv[2:]:
    path, message = pair.split('=')
    method, message = channel.unary_unary(path), bytes.fromhex(message)
    for more in [
        {},
        {'timeout': 60},
        {'timeout': 60, 'metadata': [('authorization', 'Bearer nobody'), ('x-bin', b'\\0\\xff')]},
        {'compression': grpc.Compression.Gzip},
        {'compression': grpc.Compression.NoCompression},
        {'wait_for_ready': True},
    ]:
        print(path, more.keys(), said(method.future(message, **more)))
    together = [method.future(message) for _ in range(100)]
    print(path, 'together', sorted(said(call) for call in together))
";

async fn serve(on_unreadable: OnUnreadable) -> Running {
    let store = Frozen {
        inner: memory(),
        asked: AtomicU32::new(0),
    };
    start_on(shared(store), RULES, |config| {
        config.on_unreadable = on_unreadable;
        config.bounds.message_bytes_max = MESSAGE_BYTES_MAX;
        // With it, requests are not read in place.
        config.rls.dynamic_metadata = on_unreadable == OnUnreadable::Error;
    })
    .await
}

/// Serves the same services as tonic does by itself, at the returned address.
async fn serve_by_tonic(running: &Running) -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    let peer = Peer {
        address: PeerAddress::Tcp(address),
        names: Arc::new([]),
        by_local_listener: true,
    };
    let with_peer = map_request(move |mut request: AxumRequest| {
        request.extensions_mut().insert(peer.clone());
        std::future::ready(request)
    });
    let services = running.grpc_services.clone().layer(with_peer);
    let server = tonic::transport::Server::builder().add_routes(Routes::from(services));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(socket)));
    address
}

/// One call, frame by frame.
#[derive(Clone, Debug)]
struct Call {
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    chunks: Vec<Bytes>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    WithLast,
    AfterLast,
    Trailers,
    /// The call is given up after it was sent.
    Cancelled,
}

/// All that a client can see of an answer.
#[derive(PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are two at a time, to compare"
)]
enum Seen {
    Answer {
        status: u16,
        headers: HeaderMap,
        data: Bytes,
        trailers: Option<HeaderMap>,
    },
    Reset(Option<Reason>),
    GivenUp,
}

const RLS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const PATHS: [(u8, &str); 12] = [
    (40, RLS),
    (12, "/ratekeeper.v1.RateLimiterService/Check"),
    (8, "/ratekeeper.v1.RateLimiterService/CheckBatch"),
    (5, "/ratekeeper.v1.RateLimiterService/Limit"),
    (5, "/ratekeeper.v1.RateLimiterService/LimitBatch"),
    (3, "/ratekeeper.v1.RateLimiterService/Peek"),
    (3, "/ratekeeper.v1.RateLimiterService/CheckStream"),
    (3, "/ratekeeper.v1.RateLimiterService/Nothing"),
    (
        3,
        "/envoy.service.ratelimit.v3.RateLimitService/shouldRateLimit",
    ),
    (3, "/grpc.health.v1.Health/Check"),
    (3, "/nobody.Service/Method"),
    (3, "/"),
];

fn weighted<T: Copy>(rng: &mut Rng, choices: &[(u8, T)]) -> T {
    let total: u32 = choices.iter().map(|(weight, _)| u32::from(*weight)).sum();
    let mut left = rng.u32(..total);
    for (weight, choice) in choices {
        match left.checked_sub(u32::from(*weight)) {
            Some(rest) => left = rest,
            None => return *choice,
        }
    }
    unreachable!("the weights add up")
}

fn pairs(rng: &mut Rng) -> Vec<(&'static str, String)> {
    let keys = [
        "user", "free", "plain", "other", "odd", "watched", "unknown",
    ];
    let pair = |rng: &mut Rng| {
        let length = weighted(rng, &[(50, 1), (3, 3_000), (1, 66_000)]);
        let value = rng.u8(b'a'..=b'e') as char;
        (
            keys[rng.usize(..keys.len())],
            value.to_string().repeat(length),
        )
    };
    (0..weighted(rng, &[(3, 0), (60, 1), (20, 2), (3, 101)]))
        .map(|_| pair(rng))
        .collect()
}

fn check(rng: &mut Rng) -> v1::CheckRequest {
    let entry = |(key, value): &(&str, String)| WireEntry {
        key: (*key).to_owned(),
        value: value.clone(),
    };
    let descriptor = |pair: &(&str, String)| v1::Descriptor {
        entries: vec![entry(pair)],
        ..Default::default()
    };
    v1::CheckRequest {
        domain: weighted(rng, &[(20, "d"), (1, "")]).to_owned(),
        descriptors: pairs(rng).iter().map(descriptor).collect(),
        statuses: rng.bool(),
        ..Default::default()
    }
}

fn message(rng: &mut Rng, path: &str) -> Vec<u8> {
    match path.rsplit('/').next() {
        Some("CheckBatch" | "CheckStream") => v1::CheckBatchRequest {
            checks: (0..rng.usize(..100)).map(|_| check(rng)).collect(),
        }
        .encode_to_vec(),
        Some("Check" | "Peek") => check(rng).encode_to_vec(),
        Some("Limit" | "LimitBatch") => {
            let limit = v1::LimitRequest {
                identifier: "a".to_owned(),
                limit: weighted(rng, &[(9, 100), (1, 0)]),
                duration_ms: 3_600_000,
                ..Default::default()
            };
            match path.ends_with("Batch") {
                true => v1::LimitBatchRequest {
                    limits: vec![limit; rng.usize(..4)],
                }
                .encode_to_vec(),
                false => limit.encode_to_vec(),
            }
        }
        _ => {
            let pairs = pairs(rng);
            let mut asked = RateLimitRequest {
                domain: weighted(rng, &[(20, "d"), (1, "")]).to_owned(),
                descriptors: pairs
                    .iter()
                    .map(|(key, value)| descriptor(&[(*key, value.as_str())]))
                    .collect(),
                hits_addend: weighted(rng, &[(10, 0), (3, 2), (1, u32::MAX)]),
            };
            for descriptor in &mut asked.descriptors {
                descriptor.is_negative_hits = rng.u8(..40) == 0;
                descriptor.hits_addend = (rng.u8(..20) == 0).then(|| rng.u64(..));
            }
            asked.encode_to_vec()
        }
    }
}

/// The message as it comes over the wire, often with a mistake.
fn framed(rng: &mut Rng, mut message: Vec<u8>) -> Vec<u8> {
    match rng.u8(..30) {
        0 => message = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
        1 => message.truncate(rng.usize(..=message.len())),
        2 if !message.is_empty() => {
            let at = rng.usize(..message.len());
            message[at] ^= 1 << rng.u8(..8);
        }
        3 => message = vec![b'x'; MESSAGE_BYTES_MAX + rng.usize(..3)],
        _ => {}
    }
    let length = u32::try_from(message.len()).unwrap();
    let length = weighted(
        rng,
        &[
            (40, length),
            (1, length + 1),
            (1, length / 2),
            (1, u32::MAX),
        ],
    );
    let flag = weighted(rng, &[(40, 0), (1, 1), (1, 2), (1, 255)]);
    let mut bytes = [&[flag], &length.to_be_bytes()[..], &*message].concat();
    match rng.u8(..40) {
        0 => bytes.extend_from_within(..),
        1 => bytes.truncate(rng.usize(..6)),
        _ => {}
    }
    bytes
}

fn random_call(rng: &mut Rng) -> Call {
    let path = weighted(rng, &PATHS);
    let bytes = Bytes::from({
        let message = message(rng, path);
        framed(rng, message)
    });
    let mut cuts: Vec<usize> = (0..weighted(rng, &[(10, 0), (3, 1), (1, 5)]))
        .map(|_| rng.usize(..=bytes.len()))
        .collect();
    cuts.sort_unstable();
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let chunks = starts
        .zip(ends)
        .map(|(start, end)| bytes.slice(start..end))
        .collect();
    let mut headers = vec![("content-type", "application/grpc"), ("te", "trailers")];
    for (one_in, header) in [
        (20, ("grpc-encoding", "gzip")),
        (10, ("grpc-encoding", "identity")),
        (5, ("grpc-accept-encoding", "identity,deflate,gzip")),
        // Others are the listener's: tonic answers them in its own way.
        (5, ("grpc-timeout", "50S")),
        (10, ("authorization", "Bearer nobody")),
        (10, ("origin", "https://example.com")),
        (5, ("x-request-id", "7")),
    ] {
        if rng.u8(..one_in) == 0 {
            headers.push(header);
        }
    }
    let end = weighted(
        rng,
        &[
            (20, End::WithLast),
            (10, End::AfterLast),
            (2, End::Trailers),
            (1, End::Cancelled),
        ],
    );
    Call {
        method: weighted(rng, &[(30, "POST"), (1, "GET"), (1, "PUT")]),
        path,
        headers,
        chunks,
        end,
    }
}

struct Client(SendRequest<Bytes>);

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.unwrap();
        let (client, connection) = handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    async fn ask(&mut self, call: &Call) -> Seen {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("http://localhost{}", call.path));
        for (name, value) in &call.headers {
            request = request.header(*name, *value);
        }
        let mut client = self.0.clone().ready().await.unwrap();
        let (answer, mut stream) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        // What is refused early is not read to its end: sending the rest may then fail.
        let _ = send(&mut stream, call).await;
        if call.end == End::Cancelled {
            stream.send_reset(Reason::CANCEL);
            return Seen::GivenUp;
        }
        let seen = async {
            let (mut head, mut body) = answer.await?.into_parts();
            // tonic tells it, and the listener does not.
            head.headers.remove(DATE);
            let mut data = Vec::new();
            while let Some(chunk) = complete(body.data().await.transpose())? {
                body.flow_control().release_capacity(chunk.len())?;
                data.extend_from_slice(&chunk);
            }
            Ok::<_, h2::Error>(Seen::Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                data: without_time(call.path, data).into(),
                trailers: complete(body.trailers().await)?,
            })
        };
        let seen = timeout(PATIENCE, seen).await;
        let seen = seen.unwrap_or_else(|_| panic!("no answer to {call:?}"));
        seen.unwrap_or_else(|error| Seen::Reset(error.reason()))
    }
}

/// The answer without the time of day, which short checks tell by the node's own clock.
fn without_time(path: &str, data: Vec<u8>) -> Vec<u8> {
    let Some((prefix, message)) = data.split_at_checked(5) else {
        return data;
    };
    let message = match path.rsplit('/').next() {
        Some("Limit") => {
            let mut answer = v1::LimitResponse::decode(message).unwrap();
            answer.reset_at_ms = 0;
            answer.encode_to_vec()
        }
        Some("LimitBatch") => {
            let mut answer = v1::LimitBatchResponse::decode(message).unwrap();
            for answer in &mut answer.results {
                answer.reset_at_ms = 0;
            }
            answer.encode_to_vec()
        }
        _ => message.to_vec(),
    };
    [prefix, &*message].concat()
}

/// After an early answer the rest of a request is refused, which is no error: RFC 9113, section 8.1.
fn complete<T>(read: Result<Option<T>, h2::Error>) -> Result<Option<T>, h2::Error> {
    match read {
        Err(error) if error.reason() == Some(Reason::NO_ERROR) => Ok(None),
        read => read,
    }
}

async fn send(stream: &mut SendStream<Bytes>, call: &Call) -> Result<(), h2::Error> {
    for (number, chunk) in call.chunks.iter().enumerate() {
        let is_last = number + 1 == call.chunks.len() && call.end == End::WithLast;
        stream.send_data(chunk.clone(), is_last)?;
        if number % 2 == 0 {
            // Some pieces come together, others by themselves.
            tokio::task::yield_now().await;
        }
    }
    match call.end {
        End::AfterLast => stream.send_data(Bytes::new(), true)?,
        End::Trailers => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-request-id", "8".parse().unwrap());
            stream.send_trailers(trailers)?;
        }
        End::WithLast | End::Cancelled => {}
    }
    Ok(())
}

/// The counts of what was decided, without those that a call may have that was given up.
async fn counts(running: &Running) -> Vec<String> {
    let (_, metrics) = running.admin("/metrics").await;
    let is_count = |line: &&str| {
        line.starts_with("ratelimit_decisions_total") || line.starts_with("ratelimit_unreadable")
    };
    metrics
        .lines()
        .filter(is_count)
        .map(str::to_owned)
        .collect()
}

async fn compare(seed: u64, on_unreadable: OnUnreadable) {
    let direct = serve(on_unreadable).await;
    let tonic = serve(on_unreadable).await;
    let mut directly = Client::connect(direct.addresses.grpc).await;
    let mut by_tonic = Client::connect(serve_by_tonic(&tonic).await).await;
    let mut rng = Rng::with_seed(seed);
    let mut answers = 0;
    for number in 0..CALLS {
        let mut call = random_call(&mut rng);
        if call.end == End::Cancelled {
            // It may be decided or not: nothing depends on that.
            call.path = "/grpc.health.v1.Health/Check";
        }
        let seen = directly.ask(&call).await;
        let expected = by_tonic.ask(&call).await;
        assert_eq!(seen, expected, "seed {seed}, call {number}: {call:?}");
        answers += usize::from(matches!(&seen, Seen::Answer { data, .. } if !data.is_empty()));
    }
    assert!(
        answers > CALLS / 4,
        "{answers} of {CALLS} calls have an answer to compare"
    );
    assert_eq!(counts(&direct).await, counts(&tonic).await, "seed {seed}");
    direct.stop().await;
    tonic.stop().await;
}

#[tokio::test]
async fn both_ways_give_the_same_answers() {
    let seed = fastrand::u64(..);
    for seed in [1, 2, seed] {
        compare(seed, OnUnreadable::Deny).await;
    }
}

#[tokio::test]
async fn both_ways_give_the_same_errors() {
    compare(3, OnUnreadable::Error).await;
}

/// Returns the answers to `calls` as gRPC's own library in C reads them.
async fn by_grpcio(server: SocketAddr, calls: &[(&str, Vec<u8>)]) -> String {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let mut python = Command::new("python3");
    python.args(["-c", GRPCIO, &server.to_string()]);
    python.args(
        calls
            .iter()
            .map(|(path, message)| format!("{path}={}", hex(message))),
    );
    python.env("PYTHONPATH", tool_folder("grpcio").join("lib"));
    let output = tokio::task::spawn_blocking(move || python.output());
    let output = output.await.unwrap().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn grpcio_gets_the_same_answers_both_ways() {
    let direct = serve(OnUnreadable::Deny).await;
    let tonic = serve(OnUnreadable::Deny).await;
    let asked = request("d", &[("free", "a"), ("watched", "b")]);
    let check = v1::CheckRequest {
        domain: "d".to_owned(),
        ..Default::default()
    };
    let calls = [
        (RLS, asked.encode_to_vec()),
        (RLS, vec![0xff]),
        (
            "/ratekeeper.v1.RateLimiterService/Check",
            check.encode_to_vec(),
        ),
        ("/grpc.health.v1.Health/Check", Vec::new()),
        ("/nobody.Service/Method", Vec::new()),
    ];
    let seen = by_grpcio(direct.addresses.grpc, &calls).await;
    let expected = by_grpcio(serve_by_tonic(&tonic).await, &calls).await;
    assert_eq!(seen, expected);
    let count = |code: &str| seen.lines().filter(|line| line.contains(code)).count();
    assert!(count(" OK ") > 10, "{seen}");
    assert!(
        count("UNIMPLEMENTED Content is compressed with `gzip`") >= 3,
        "{seen}"
    );
    direct.stop().await;
    tonic.stop().await;
}
