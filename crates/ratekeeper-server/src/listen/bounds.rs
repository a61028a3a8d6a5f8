//! The bounds of connections and requests.

use std::time::Duration;

use ratekeeper_proto::MESSAGE_BYTES_MAX;

use super::pace::Patience;

/// The bounds that keep one client from taking everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerBounds {
    /// The most connections of one listener, at least 1; more wait to be accepted.
    pub connections_max: usize,
    /// The most of those from one address of another host, or from one IPv6 /64, which a host often
    /// has to itself; at least 1. More are closed at once. Trusted proxies may have any number.
    pub connections_per_address_max: usize,
    /// The most concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// The most bytes of a gRPC message.
    pub message_bytes_max: usize,
    /// The most bytes of long messages and bodies that are being read, over all connections; what is beyond it cannot
    /// be read. Those of up to 64 KiB do not count.
    pub long_messages_bytes_max: usize,
    /// The most bytes of a request's body over HTTP/1, where a connection has one at a time.
    pub body_bytes_max: usize,
    /// The most bytes of untaken answers to `/v1/checks` of more than a few checks, all together;
    /// beyond it, such requests are refused before anything is decided.
    pub long_answers_bytes_max: usize,
    /// The most bytes of a request's head.
    pub head_bytes_max: u32,
    /// The longest time the first head of a connection may take to arrive.
    pub head_timeout: Duration,
    /// The longest time a request may take, reading its body included; on a gRPC stream, the longest that one message may
    /// take to come.
    pub request_timeout: Duration,
    /// The time without a byte in either direction after which a connection is closed, or up to a
    /// quarter of the stall timeout later; at least 1 ms. A gateway's client may be silent while it waits for an answer. Over
    /// HTTP/1, the next head has to be there no later than `head_timeout` after it.
    pub idle_timeout: Duration,
    /// True if an HTTP/1 client that has closed its sending side still gets its answer. Such a
    /// client cannot be told from one that has gone, so turn this off where requests are expensive
    /// to serve.
    pub half_close: bool,
    /// The slowest that a peer may take an answer.
    pub patience: Patience,
    /// The longest time a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The age, give or take a tenth, at which an HTTP/2 connection is told to go, so that clients
    /// spread over new instances; requests under way are finished.
    pub connection_age_max: Option<Duration>,
    /// The longest time those requests may take; then the connection is cut off.
    pub connection_age_grace: Duration,
    /// The time without a request after which an HTTP/2 connection is told to go, or up to twice
    /// that.
    pub connection_idle_max: Option<Duration>,
    /// The interval at which a silent HTTP/2 peer is sent a ping.
    pub ping_interval: Duration,
    /// The longest time the peer may take to answer a ping.
    pub ping_timeout: Duration,
    /// The longest time requests under way may take to finish after the start of a shutdown.
    pub drain_timeout: Duration,
}

impl Default for ServerBounds {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: 2_500,
            streams_max: 256,
            message_bytes_max: MESSAGE_BYTES_MAX,
            long_messages_bytes_max: 64 << 20,
            body_bytes_max: 1 << 20,
            long_answers_bytes_max: 64 << 20,
            head_bytes_max: 16 << 10,
            head_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            half_close: true,
            patience: Patience::default(),
            handshake_timeout: Duration::from_secs(10),
            connection_age_max: Some(Duration::from_secs(24 * 3_600)),
            connection_age_grace: Duration::from_secs(3_600),
            connection_idle_max: None,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(20),
        }
    }
}
