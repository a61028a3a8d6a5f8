//! Peers that try to fill the log.

use std::io::{Read, Write};

use ratekeeper_testkit::http2::{ACK, PING, PREFACE, SETTINGS, frame};

use crate::support::{Gateway, Upstream, ok};

/// Frames without a reason, each of which the HTTP/2 library below warns of.
const FLOOD: usize = 20_000;

#[test]
fn unrequested_ping_acks_write_no_log_lines() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let mut stream = gateway.connect();
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    let ack = frame(PING, ACK, 0, b"nobody's");
    (0..FLOOD).for_each(|_| bytes.extend(&ack));
    bytes.extend(frame(PING, 0, 0, b"the last"));
    stream.write_all(&bytes).expect("it is read from");
    // Frames are handled in order: once the last is answered, so were all before it.
    let mut answers: Vec<u8> = Vec::new();
    let mut piece = [0; 4096];
    while !answers.windows(8).any(|window| window == b"the last") {
        let read = stream.read(&mut piece).expect("it answers");
        assert_ne!(read, 0, "the connection stays open");
        answers.extend(&piece[..read]);
    }
    let output = gateway.process.output();
    let lines = output.lines().count();
    assert!(lines < 50, "{lines} lines: {}", &output[..1_000]);
}
