//! One client address leaves places at an upstream for all others.

use std::io::Write;
use std::net::TcpStream;

use ratekeeper_testkit::http2::{
    END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame,
};
use ratekeeper_testkit::process::eventually;

use crate::support::{Act, Gateway, RULES, Upstream, ok};

const STREAMS: u32 = 50;

/// Streams that an upstream never answers, of one client behind a trusted proxy.
fn hanging_streams(gateway: &Gateway, address: &str) -> TcpStream {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/hang"),
        ("x-forwarded-for", address),
    ];
    for number in 0..STREAMS {
        let flags = END_HEADERS | END_STREAM;
        bytes.extend(frame(HEADERS, flags, 2 * number + 1, &block(&fields)));
    }
    let mut stream = gateway.connect();
    stream.write_all(&bytes).expect("it is read from");
    stream
}

fn in_front_of(upstream: &Upstream, rules: &str, more: &str) -> Gateway {
    let settings = format!("upstream_requests_max: 20\nupstream_queue_max: 20\n{more}");
    Gateway::start_with(rules, &settings, &["--upstream", &upstream.url()])
}

fn hangs_up_to(most: usize, rules: &str, settings: &str) -> (Upstream, Gateway, Vec<TcpStream>) {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /hang") {
        true => Act::Hang,
        false => ok("here"),
    });
    let gateway = in_front_of(&upstream, rules, settings);
    // All hosts of one IPv6 network are one client.
    let clients = (0..4).map(|host| hanging_streams(&gateway, &format!("2001:db8:7::{host:x}")));
    let clients = clients.collect();
    eventually("it has its share", || upstream.asked().len() == most);
    let refused = r#"ratelimit_gateway_requests_total{upstream="",status="5xx"} "#;
    let of_others = 4 * STREAMS as usize - most;
    gateway.tells("/metrics", &format!("{refused}{of_others}\n"));
    (upstream, gateway, clients)
}

#[test]
fn an_address_with_many_connections_has_half_of_an_upstream() {
    // A share is none of the shedders' business: the upstream is not overloaded.
    let shed = format!("{RULES}shed: {{ adaptive: {{ min: 100, max: 100 }} }}\n");
    for rules in [RULES, &shed] {
        let (upstream, gateway, _clients) = hangs_up_to(10, rules, "");
        for number in 0..10 {
            let answer = gateway.get("/", &[&format!("X-Forwarded-For: 203.0.113.{number}")]);
            assert_eq!((answer.status, answer.body.as_str()), (200, "here"));
        }
        let own = gateway.get("/", &["X-Forwarded-For: 2001:db8:7::9"]);
        assert_eq!(own.status, 503, "{own:?}");
        assert!(own.body.contains("UPSTREAM_FULL"), "{own:?}");
        assert_eq!(upstream.asked().len(), 20);
    }
}

#[test]
fn the_share_is_a_setting_and_a_proxy_that_names_no_client_has_none() {
    let (_upstream, gateway, clients) = hangs_up_to(5, RULES, "upstream_address_share: 25%\n");
    drop(clients);
    eventually("all places are free", || {
        let told = gateway.told("/metrics");
        told.contains("ratelimit_gateway_upstream_connections{upstream=\"upstream\"} 0\n")
    });
    let upstream = Upstream::start(|_| Act::Hang);
    let gateway = in_front_of(&upstream, RULES, "");
    let hang = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let _clients: Vec<_> = (0..20).map(|_| gateway.open(hang)).collect();
    eventually("this host is a proxy", || upstream.asked().len() == 20);
}
