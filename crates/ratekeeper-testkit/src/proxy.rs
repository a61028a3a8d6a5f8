//! A TCP proxy that delays, holds, swallows and cuts, for tests with a bad network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The most chunks in flight in one direction of a connection; the sender waits beyond that.
const PIECES_MAX: usize = 1_024;

/// A proxy on a free loopback port. Its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: AtomicU16,
    /// The delay of each chunk in microseconds.
    delay: AtomicU64,
    swallows: AtomicBool,
    swallows_replies: AtomicBool,
    /// The bytes to replace, and their replacement of the same length.
    replaced: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    hold: Mutex<Hold>,
    /// Wakes those that are held.
    let_go: Condvar,
    is_closed: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

/// Chunks that wait.
#[derive(Debug, Default)]
struct Hold {
    /// Bytes of the chunks that are held; [`None`] holds none.
    marker: Option<Vec<u8>>,
    /// The number of chunks that are held now.
    held: usize,
}

impl Proxy {
    /// Starts a proxy to that port, which forwards everything.
    ///
    /// # Panics
    /// If no port can be listened on.
    #[must_use]
    pub fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let shared = Arc::new(Shared {
            to: AtomicU16::new(to),
            delay: AtomicU64::new(0),
            swallows: AtomicBool::new(false),
            swallows_replies: AtomicBool::new(false),
            replaced: Mutex::new(None),
            hold: Mutex::default(),
            let_go: Condvar::new(),
            is_closed: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let kept = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &kept));
        Self { port, shared }
    }

    /// The port on which it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Forwards connections that are made from now on to that port: for servers that have to know the proxy's own before
    /// they start.
    pub fn lead_to(&self, port: u16) {
        self.shared.to.store(port, Ordering::Relaxed);
    }

    /// Delays every chunk by this much in each direction. Chunks do not wait for each other: the
    /// latency grows, the bandwidth does not shrink.
    pub fn delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay.store(micros, Ordering::Relaxed);
    }

    /// Swallows everything while connections stay open, or stops doing so. Swallowed bytes never
    /// arrive.
    pub fn swallow(&self, swallows: bool) {
        self.shared.swallows.store(swallows, Ordering::Relaxed);
    }

    /// Swallows the server's replies, whose requests it has executed, or stops doing so. Swallowed
    /// bytes never arrive.
    pub fn swallow_replies(&self, swallows: bool) {
        let swallowed = &self.shared.swallows_replies;
        swallowed.store(swallows, Ordering::Relaxed);
    }

    /// Replaces `this` by `with` in every chunk; both have the same length.
    ///
    /// # Panics
    /// If their lengths differ, which would corrupt length-prefixed protocols.
    pub fn replace(&self, this: &str, with: &str) {
        assert_eq!(this.len(), with.len(), "a piece stays as long as it is");
        let replaced = Some((this.into(), with.into()));
        *self.shared.replaced.lock() = replaced;
    }

    /// Forwards everything unchanged again.
    pub fn replace_nothing(&self) {
        *self.shared.replaced.lock() = None;
    }

    /// Holds every chunk to the server with this text in it, and what follows it, until [`Self::let_go`].
    pub fn hold(&self, marker: &str) {
        self.shared.hold.lock().marker = Some(marker.into());
    }

    /// Returns true while a chunk is held.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.shared.hold.lock().held > 0
    }

    /// Forwards what is held, and holds nothing more.
    pub fn let_go(&self) {
        self.shared.hold.lock().marker = None;
        self.shared.let_go.notify_all();
    }

    /// Cuts the oldest connection. False if there is none.
    pub fn cut_one(&self) -> bool {
        let mut streams = self.shared.streams.lock();
        if streams.is_empty() {
            return false;
        }
        let _ = streams.remove(0).shutdown(Shutdown::Both);
        true
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        while self.cut_one() {}
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.let_go();
        // Wakes the accepting thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.cut_all();
    }
}

impl Shared {
    /// Waits while a chunk with these bytes is to be held.
    fn wait_to_go(&self, piece: &[u8]) {
        let is_held = |hold: &mut Hold| {
            let marker = hold.marker.as_deref().filter(|marker| !marker.is_empty());
            marker.is_some_and(|marker| piece.windows(marker.len()).any(|bytes| bytes == marker))
        };
        let mut hold = self.hold.lock();
        if is_held(&mut hold) {
            hold.held += 1;
            self.let_go.wait_while(&mut hold, is_held);
            hold.held -= 1;
        }
    }

    fn rewrite(&self, piece: &mut [u8]) {
        if let Some((this, with)) = &*self.replaced.lock() {
            for start in 0..=piece.len().saturating_sub(this.len()) {
                if piece[start..].starts_with(this) {
                    piece[start..start + with.len()].copy_from_slice(with);
                }
            }
        }
    }

    /// Forwards bytes until one of the ends is gone.
    fn pump(&self, mut from: TcpStream, to: TcpStream, direction: Direction) {
        let (sender, pieces) = sync_channel(PIECES_MAX);
        let writer = thread::spawn(move || deliver(&pieces, to));
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            let delay = Duration::from_micros(self.delay.load(Ordering::Relaxed));
            let due = Instant::now() + delay;
            let mut piece = bytes[..read].to_vec();
            self.rewrite(&mut piece);
            if direction == Direction::There {
                self.wait_to_go(&piece);
            }
            if !self.swallows(direction) && sender.send((due, piece)).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        drop(sender);
        let _ = writer.join();
    }

    fn swallows(&self, direction: Direction) -> bool {
        self.swallows.load(Ordering::Relaxed)
            || direction == Direction::Back && self.swallows_replies.load(Ordering::Relaxed)
    }
}

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// To the server.
    There,
    /// From the server.
    Back,
}

/// Writes each chunk when it is due.
fn deliver(pieces: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    for (due, piece) in pieces {
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            thread::sleep(early);
        }
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.is_closed.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(client) = client {
            // A client whose server is unreachable is cut off, as by a network.
            let _ = join(client, shared);
        }
    }
}

fn join(client: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.to.load(Ordering::Relaxed)))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    shared.streams.lock().push(client.try_clone()?);
    let (there, back) = (Arc::clone(shared), Arc::clone(shared));
    let (client_again, server_again) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || there.pump(client, server, Direction::There));
    thread::spawn(move || back.pump(server_again, client_again, Direction::Back));
    Ok(())
}
