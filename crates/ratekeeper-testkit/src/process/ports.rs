//! Ports for the programs of tests, each given to one test on the machine.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

/// The first port to give.
const FIRST: u16 = 12_000;

/// The number of ports in a block. A process reserves whole blocks, for fewer open files.
const BLOCK: u16 = 20;

/// The number of blocks.
const BLOCKS: u16 = 500;

/// Distance of a port to the one on which a node of a cluster of Redis 6.2 talks to the other nodes.
const BUS: u16 = 10_000;

/// A port of the loopback interface that nothing listens on. No other call returns it, in this process or in another
/// one, until this process ends.
///
/// It is below the range of ephemeral ports, so that no connection of a concurrent test can get it, and so is the port
/// 10,000 above it, which is never returned: nodes of a cluster of Redis 6.2 talk to each other there.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    static PORTS: Mutex<Option<Ports>> = Mutex::new(None);
    PORTS.lock().get_or_insert_with(Ports::new).give()
}

/// Blocks of ports that are reserved while it lives.
struct Ports {
    /// The block to try next.
    next: u16,
    /// The blocks that were not tried.
    untried: u16,
    reserved: Vec<Reservation>,
    /// The ports of the last reserved block that were not given yet.
    left: Range<u16>,
}

impl Ports {
    fn new() -> Self {
        // Several processes search at once, so each starts at a different block.
        let start = RandomState::new().hash_one(0) % u64::from(BLOCKS);
        Self {
            next: start as u16,
            untried: BLOCKS,
            reserved: Vec::new(),
            left: 0..0,
        }
    }

    fn give(&mut self) -> u16 {
        loop {
            match self.left.next() {
                Some(port) if is_free(port) && is_free(port + BUS) => return port,
                Some(_) => {}
                None => self.reserve(),
            }
        }
    }

    fn reserve(&mut self) {
        while self.untried > 0 {
            let block = self.next;
            self.next = (block + 1) % BLOCKS;
            self.untried -= 1;
            if let Some(reservation) = Reservation::of(block) {
                self.reserved.push(reservation);
                let first = FIRST + block * BLOCK;
                self.left = first..first + BLOCK;
                return;
            }
        }
        panic!("no port from {FIRST} on is free");
    }
}

/// Returns true if a server could listen on that port. Nothing listens on it meanwhile: who waits for a server must not
/// be answered by a search for ports.
pub(super) fn is_free(port: u16) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let bound = socket.and_then(|socket| {
        // As servers do: connections that have ended occupy no port.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    });
    bound.is_ok()
}

/// A block that no other process has while this lives: a socket with the block's name.
///
/// The name is no file, so that nothing is left of it after the process, and holds in one network namespace, as ports
/// do.
#[cfg(target_os = "linux")]
struct Reservation {
    _socket: std::os::unix::net::UnixDatagram,
}

#[cfg(target_os = "linux")]
impl Reservation {
    fn of(block: u16) -> Option<Self> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let name = format!("ratekeeper-test-ports-{block}");
        let address = SocketAddr::from_abstract_name(name).expect("the name is short");
        let _socket = UnixDatagram::bind_addr(&address).ok()?;
        Some(Self { _socket })
    }
}

/// A block of ports. Elsewhere than on Linux other processes may get the same one.
#[cfg(not(target_os = "linux"))]
struct Reservation;

#[cfg(not(target_os = "linux"))]
impl Reservation {
    fn of(_block: u16) -> Option<Self> {
        Some(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn ports_are_free_and_not_given_twice() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| *port < FIRST + BUS));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn two_processes_get_different_ports() {
        let (mut one, mut two) = (Ports::new(), Ports::new());
        two.next = one.next;
        let give = |ports: &mut Ports| (0..50).map(|_| ports.give()).collect::<BTreeSet<u16>>();
        let (one, two) = (give(&mut one), give(&mut two));
        assert!(one.is_disjoint(&two), "{one:?} and {two:?}");
    }

    #[test]
    fn a_port_in_use_is_not_free_and_looking_at_it_answers_no_client() {
        let port = free_port();
        assert!(is_free(port));
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        connected.expect_err("the port is closed");
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
        assert!(!is_free(port));
    }
}
