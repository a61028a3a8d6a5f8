//! A gateway that is told to go answers what it was asked.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Gateway, Upstream, ok};
use ratekeeper_testkit::process::eventually;

/// For less than the gateway keeps an idle connection for a request that is on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(90);

/// Clients that keep their connections ask while the gateway goes: every request that was written to a connection it
/// had not closed is answered. Clients that this machine keeps from writing for longer than the gateway waits for them
/// count for nothing, nor do those whose connection the kernel took between the last look at what waits to be accepted and
/// the closing of the socket: it resets them.
#[test]
fn no_request_fails_when_it_is_told_to_stop() {
    let upstream = Upstream::start(|_| {
        std::thread::sleep(Duration::from_millis(2));
        ok("done")
    });
    let mut gateway = Gateway::start(&upstream.url(), &["--worker-threads", "2"]);
    let (port, answered) = (gateway.port, Arc::new(AtomicUsize::new(0)));
    let failed = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (answered, failed, is_over) = (
                Arc::clone(&answered),
                Arc::clone(&failed),
                Arc::clone(&is_over),
            );
            std::thread::spawn(move || ask_until_closed(port, &answered, &failed, &is_over))
        })
        .collect();
    eventually("load is running", || answered.load(Ordering::Relaxed) > 200);
    assert!(gateway.process.terminate().success());
    is_over.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().expect("clients do not panic"));
    assert_eq!(failed.load(Ordering::Relaxed), 0);
    assert!(
        gateway
            .process
            .output()
            .contains("every request was answered")
    );
}

/// Asks over kept connections, and over new ones once those are closed in good order, until the port is closed.
fn ask_until_closed(port: u16, answered: &AtomicUsize, failed: &AtomicUsize, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        // Idle since then at most: nothing was asked or answered earlier.
        let mut idle_since = Instant::now();
        let mut is_accepted = false;
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            return;
        };
        loop {
            let begun = Instant::now();
            match ask(&mut stream) {
                Told::Answer { is_last } => {
                    answered.fetch_add(1, Ordering::Relaxed);
                    is_accepted = true;
                    if is_last {
                        break;
                    }
                }
                Told::NotAsked => break,
                Told::Nothing { written, is_reset } => {
                    let is_late = written.duration_since(idle_since) >= ON_ITS_WAY;
                    if !is_late && (is_accepted || !is_reset) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    break;
                }
            }
            idle_since = begun;
        }
    }
}

enum Told {
    Answer {
        is_last: bool,
    },
    /// The connection was closed before the request was written.
    NotAsked,
    Nothing {
        written: Instant,
        is_reset: bool,
    },
}

fn ask(stream: &mut TcpStream) -> Told {
    // A connection that is closed shows that before anything is written to it.
    let _ = stream.set_nonblocking(true);
    let is_closed = matches!(stream.peek(&mut [0]), Ok(0));
    let _ = stream.set_nonblocking(false);
    if is_closed
        || stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .is_err()
    {
        return Told::NotAsked;
    }
    let written = Instant::now();
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    while !text.ends_with(b"\r\n\r\ndone") {
        match stream.read(&mut piece) {
            Ok(length @ 1..) => text.extend_from_slice(&piece[..length]),
            end => {
                let is_reset = end.is_err_and(|it| it.kind() == ErrorKind::ConnectionReset);
                return Told::Nothing { written, is_reset };
            }
        }
    }
    let head = String::from_utf8_lossy(&text).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    Told::Answer {
        is_last: head.contains("connection: close"),
    }
}
