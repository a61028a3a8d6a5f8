//! Runs the example and sends it requests over a socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use ratekeeper_testkit::process::Process;

/// Sends a request and returns the whole response.
fn get(address: &str, path: &str, key: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: shop\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn the_sixth_request_of_an_hour_is_denied() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_example-axum"));
    command.env_clear().arg("127.0.0.1:0");
    let mut example = Process::spawn("example-axum", command);
    let said = example.wait_for_output("listening on http://");
    let address = said.trim().rsplit('/').next().expect("an address");
    for _ in 0..5 {
        let answer = get(address, "/orders", "ada");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let told =
            r#"ratelimit-policy: "shop.api_key";q=5;w=3600, "shop.api_key#concurrency";q=2;"#;
        assert!(answer.contains(told), "{answer}");
    }
    let denied = get(address, "/orders", "ada");
    assert!(
        denied.starts_with("HTTP/1.1 429 Too Many Requests\r\n"),
        "{denied}"
    );
    assert!(denied.contains("retry-after: "), "{denied}");
    assert!(
        denied.contains(r#"{"error":{"code":"RATE_LIMITED""#),
        "{denied}"
    );
    let other = get(address, "/reports", "bob");
    assert!(other.ends_with("nothing to report\n"), "{other}");
}
