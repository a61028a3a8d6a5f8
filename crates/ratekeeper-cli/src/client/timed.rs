//! Connections that give up at a deadline. A timeout of each read alone never ends while a byte comes now and then.

use rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A connection of any kind.
pub(super) trait Stream: Read + Write + Send {
    /// Gives all that follows as much time as the start had.
    fn renew(&mut self);
}

/// A socket, with the time until which all that is read and written has to be over.
pub(super) struct Timed<S> {
    socket: S,
    patience: Duration,
    until: Instant,
}

/// The timeouts of a socket.
pub(super) trait Socket: Read + Write + Send {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Socket for UnixStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl<S: Socket> Timed<S> {
    /// Does `work` with what is left of the time.
    fn within<T>(&mut self, work: impl FnOnce(&mut S) -> io::Result<T>) -> io::Result<T> {
        let late = too_late(self.patience);
        let left = left(self.until).ok_or(late)?;
        self.socket.set_timeouts(left)?;
        work(&mut self.socket).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => too_late(self.patience),
            _ => error,
        })
    }
}

impl<S: Socket> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within(|socket| socket.read(buffer))
    }
}

impl<S: Socket> Write for Timed<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.within(|socket| socket.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.within(Write::flush)
    }
}

impl<S: Socket> Stream for Timed<S> {
    fn renew(&mut self) {
        self.until = Instant::now() + self.patience;
    }
}

impl<S: Socket> Stream for StreamOwned<ClientConnection, Timed<S>> {
    fn renew(&mut self) {
        self.sock.renew();
    }
}

/// The time until then; [`None`] if it is over.
fn left(until: Instant) -> Option<Duration> {
    let left = until.checked_duration_since(Instant::now())?;
    (!left.is_zero()).then_some(left)
}

fn too_late(patience: Duration) -> io::Error {
    let message = format!("no answer within {patience:?}");
    io::Error::new(ErrorKind::TimedOut, message)
}

/// A connection to `host`, for an exchange that takes no longer than `patience`. The addresses of a name share that time.
pub(super) fn connect(host: &str, patience: Duration) -> io::Result<Timed<TcpStream>> {
    let until = Instant::now() + patience;
    let mut failed = io::Error::from(ErrorKind::NotFound);
    let addresses: Vec<_> = host.to_socket_addrs()?.collect();
    for (at, address) in addresses.iter().enumerate() {
        let others = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        let part = left(until).ok_or_else(|| too_late(patience))? / others;
        match TcpStream::connect_timeout(address, part.max(Duration::from_millis(1))) {
            Ok(socket) => {
                return Ok(Timed {
                    socket,
                    patience,
                    until,
                });
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => failed = too_late(patience),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A connection to the Unix socket at `path`, for an exchange that takes no longer than `patience`.
pub(super) fn connect_unix(path: &str, patience: Duration) -> io::Result<Timed<UnixStream>> {
    let until = Instant::now() + patience;
    let (sender, receiver) = mpsc::sync_channel(1);
    let path = path.to_owned();
    // It waits for as long as the queue of the listener is full. The thread ends with the process then.
    thread::spawn(move || sender.send(UnixStream::connect(path)));
    let socket = receiver.recv_timeout(patience);
    let socket = socket.map_err(|_| too_late(patience))??;
    Ok(Timed {
        socket,
        patience,
        until,
    })
}
