//! Clients of HTTP/2 that connect and ask nothing.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// The first words of a client: the preface, and that it has no settings to make.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// That it has seen the server's settings.
const SEEN: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
/// The head of any frame.
const HEAD_BYTES: usize = 9;

/// The connections of one client address: servers bound them.
const EACH_ADDRESS: u32 = 2_000;

/// Connections that are open while this lives.
pub(crate) struct Idle {
    _connections: Vec<TcpStream>,
    _runtime: Runtime,
}

impl Idle {
    /// Opens `count` connections to the port, one after the other, each to the end of its handshake.
    pub(crate) fn open(port: u16, count: u32) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connections = runtime.block_on(async {
            let mut connections = Vec::new();
            for number in 0..count {
                connections.push(connect(port, number).await?);
            }
            anyhow::Ok(connections)
        })?;
        Ok(Self {
            _connections: connections,
            _runtime: runtime,
        })
    }
}

/// Connects from an address of this host that belongs to the `number` of the client, and shakes hands.
pub(crate) async fn connect(port: u16, number: u32) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(2 + number / EACH_ADDRESS).context("there are no more addresses")?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    stream.write_all(HELLO).await?;
    let mut head = [0; HEAD_BYTES];
    stream
        .read_exact(&mut head)
        .await
        .context("the server has no settings")?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut settings = vec![0; length as usize];
    stream.read_exact(&mut settings).await?;
    stream.write_all(SEEN).await?;
    Ok(stream)
}
