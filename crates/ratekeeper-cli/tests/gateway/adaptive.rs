//! The adaptive limit of an upstream whose clients are slow, or give up, or ask in vain.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

use ratekeeper_testkit::process::eventually;

use crate::support::{Act, Gateway, Upstream, ok};

const RULES: &str = "domain: api\nshed: { adaptive: {} }\n";

/// The round trip of an upstream that is never as slow as that.
const LONG: Duration = Duration::from_millis(200);

/// A gateway that has learnt how quickly its upstream answers.
fn in_front_of(url: &str) -> Gateway {
    let settings = "upstream_address_share: 100%\n";
    let gateway = Gateway::start_with(RULES, settings, &["--upstream", url]);
    eventually("the round trip is known", || {
        (0..50).for_each(|_| ask(&gateway));
        seconds(&gateway, "unloaded") > 0.0
    });
    gateway
}

fn ask(gateway: &Gateway) {
    assert_eq!(gateway.get("/", &[]).status, 200);
}

/// The value that follows `name` in the metrics.
fn metric(gateway: &Gateway, name: &str) -> f64 {
    let told = gateway.told("/metrics");
    let line = told.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|value| value.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {told}"))
}

fn limit(gateway: &Gateway) -> f64 {
    metric(gateway, "ratelimit_shed_limit{upstream=\"upstream\"}")
}

/// The round trip of this kind.
fn seconds(gateway: &Gateway, kind: &str) -> f64 {
    let name = "ratelimit_shed_round_trip_seconds";
    metric(
        gateway,
        &format!("{name}{{upstream=\"upstream\",kind=\"{kind}\"}}"),
    )
}

/// An upload of which a half is there.
const HALF: &str =
    "POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab";

#[test]
fn clients_that_give_up_on_a_silent_upstream_lower_the_limit() {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /silent") {
        true => Act::Hang,
        false => ok("done"),
    });
    let gateway = in_front_of(&upstream.url());
    let before = limit(&gateway);
    eventually("it falls", || {
        let silent = "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n";
        let clients: Vec<_> = (0..15).map(|_| gateway.open(silent)).collect();
        // Their patience.
        sleep(LONG);
        drop(clients);
        limit(&gateway) < 0.8 * before
    });
}

#[test]
fn slow_uploads_are_no_long_round_trips() {
    let upstream = Upstream::start(|_| ok("done"));
    let gateway = in_front_of(&upstream.url());
    // Few enough that the upstream counts as unloaded.
    for _ in 0..20 {
        let clients: Vec<_> = (0..8).map(|_| gateway.open(HALF)).collect();
        // The time that they take for the rest.
        sleep(LONG);
        clients.into_iter().for_each(finish);
    }
    let half = LONG.as_secs_f64() / 2.0;
    for kind in ["unloaded", "average"] {
        let told = seconds(&gateway, kind);
        assert!(told > 0.0 && told < half, "{kind}: {told}");
    }
}

/// Sends the rest of an upload.
fn finish(mut client: TcpStream) {
    client.write_all(b"cd").expect("it is read from");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// An upstream that refuses uploads, and does not read them; returns its URL.
fn refusing_uploads() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    // Ends with the process.
    spawn(move || {
        for stream in listener.incoming().flatten() {
            spawn(move || serve(stream));
        }
    });
    format!("http://127.0.0.1:{port}")
}

fn serve(mut stream: TcpStream) {
    let reader = stream.try_clone().expect("it can be shared");
    let mut lines = BufReader::new(reader).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let answer = match first.starts_with("POST") {
            true => {
                // It was in a queue meanwhile.
                sleep(LONG);
                "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            }
            false => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone",
        };
        let is_taken = stream.write_all(answer.as_bytes()).is_ok();
        if !is_taken || answer.contains("close") {
            return;
        }
    }
}

#[test]
fn uploads_that_are_refused_before_they_are_whole_lower_the_limit() {
    let gateway = in_front_of(&refusing_uploads());
    let before = limit(&gateway);
    eventually("it falls", || {
        let clients: Vec<_> = (0..5).map(|_| gateway.open(HALF)).collect();
        for mut client in clients {
            let mut answer = [0; 12];
            client.read_exact(&mut answer).expect("it is answered");
            assert_eq!(&answer, b"HTTP/1.1 503");
        }
        // Round trips are known, as others are answered.
        (0..10).for_each(|_| ask(&gateway));
        limit(&gateway) < 0.8 * before
    });
}
