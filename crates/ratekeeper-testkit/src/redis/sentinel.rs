//! A primary, its replicas, and the sentinels that watch over them.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::{Client, Server, server::program};
use crate::process::{Process, eventually, free_port};

/// What the sentinels call the primary.
pub const PRIMARY: &str = "main";

/// A running set; killed when this is dropped.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    ports: Vec<u16>,
    _sentinels: Vec<Process>,
    _folder: TempDir,
}

impl Sentinels {
    /// One primary, two replicas and three sentinels, which fail over a primary that is gone for half a second.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::with_down_after(Duration::from_millis(500))
    }

    /// The same, which fail over a primary that is gone for so long, or at once when they are told to.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn with_down_after(down_after: Duration) -> Self {
        let primary = Server::start();
        let port = primary.port().to_string();
        let options = [
            "--repl-diskless-sync-delay",
            "0",
            "--replicaof",
            "127.0.0.1",
            &port,
        ];
        let replicas = (0..2).map(|_| Server::with(&options));
        let servers: Vec<Server> = std::iter::once(primary).chain(replicas).collect();
        for replica in &servers[1..] {
            let mut client = replica.client();
            eventually("a replica has caught up", || {
                let info = client.ask(&["INFO", "replication"]).text();
                info.contains("master_link_status:up")
            });
        }
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (ports, sentinels) = (0..3)
            .map(|_| sentinel(&folder, servers[0].port(), down_after))
            .unzip();
        let set = Self {
            servers,
            ports,
            _sentinels: sentinels,
            _folder: folder,
        };
        set.wait();
        set
    }

    /// The ports of the sentinels.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The servers: the first began as the primary.
    pub fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// Where the sentinels say that the primary is.
    #[must_use]
    pub fn primary(&self) -> u16 {
        let mut client = Client::connect(self.ports[0]);
        let reply = client.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY]);
        let super::Reply::Array(parts) = reply else {
            panic!("{reply:?} is no address");
        };
        parts[1].text().parse().expect("a port is a number")
    }

    /// Waits until every sentinel knows the others and the replicas: only then a failover can be agreed on.
    fn wait(&self) {
        for port in &self.ports {
            let mut client = Client::connect(*port);
            eventually("the sentinels know each other", || {
                let info = client.ask(&["INFO", "sentinel"]).text();
                info.contains("slaves=2,sentinels=3")
            });
        }
    }
}

fn sentinel(folder: &TempDir, primary: u16, down_after: Duration) -> (u16, Process) {
    let port = free_port();
    let file = folder.path().join(format!("sentinel-{port}.conf"));
    let lines = [
        format!("port {port}"),
        "bind 127.0.0.1".to_owned(),
        format!("dir {}", folder.path().display()),
        format!("sentinel monitor {PRIMARY} 127.0.0.1 {primary} 2"),
        format!(
            "sentinel down-after-milliseconds {PRIMARY} {}",
            down_after.as_millis()
        ),
        format!("sentinel failover-timeout {PRIMARY} 3000"),
    ];
    fs::write(&file, lines.join("\n")).expect("a file can be written");
    let mut command = program();
    command.arg(&file).arg("--sentinel");
    let mut process = Process::spawn(&format!("sentinel on port {port}"), command);
    process.wait_for_port(port);
    (port, process)
}
