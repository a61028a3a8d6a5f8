//! A primary, its replicas, and the sentinels that monitor them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::server::{encrypting, program};
use super::{Client, Server, hosts};
use crate::process::{Process, eventually, free_port};

/// The name of the primary in the sentinels.
pub const PRIMARY: &str = "main";

/// A running set of servers and sentinels; killed on drop.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    ports: Vec<u16>,
    tls_ports: Vec<u16>,
    sentinels: Vec<Process>,
    folder: TempDir,
}

impl Sentinels {
    /// Starts a primary, two replicas and three sentinels, which fail over when the primary is gone
    /// for half a second.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::with_down_after(Duration::from_millis(500))
    }

    /// Starts the same set with failover after this time, or at once on request.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn with_down_after(down_after: Duration) -> Self {
        Self::made_of(down_after, None, &Server::with)
    }

    /// Starts the same set, with servers whose clocks can be [set](Server::set_clock).
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn clocked(down_after: Duration) -> Self {
        Self::made_of(down_after, None, &Server::clocked)
    }

    /// Starts a set without failover, of [encrypted](Server::encrypted) servers and sentinels, with
    /// additional lines in the settings of the sentinels.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn encrypted(files: &Path, lines: &[&str]) -> Self {
        let server = |options: &[&str]| Server::encrypted(files, options);
        Self::made_of(Duration::from_secs(3_600), Some((files, lines)), &server)
    }

    fn made_of(
        down_after: Duration,
        encrypted: Option<(&Path, &[&str])>,
        server: &dyn Fn(&[&str]) -> Server,
    ) -> Self {
        let port = |server: &Server| match encrypted {
            Some(_) => server.tls_port(),
            None => server.port(),
        };
        let primary = server(&[]);
        let primary_port = port(&primary);
        let named = primary_port.to_string();
        let options = [
            "--repl-diskless-sync-delay",
            "0",
            "--replicaof",
            "127.0.0.1",
            &named,
        ];
        let replicas = (0..2).map(|_| server(&options));
        let servers: Vec<Server> = std::iter::once(primary).chain(replicas).collect();
        servers[1..].iter().for_each(Server::catch_up);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut set = Self {
            servers,
            ports: Vec::new(),
            tls_ports: Vec::new(),
            sentinels: Vec::new(),
            folder,
        };
        for _ in 0..3 {
            set.watch(primary_port, down_after, encrypted);
        }
        set.wait();
        set
    }

    /// Starts a sentinel.
    fn watch(&mut self, primary: u16, down_after: Duration, encrypted: Option<(&Path, &[&str])>) {
        let (port, folder) = (free_port(), self.folder.path());
        let mut lines = vec![
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", folder.display()),
            format!("sentinel monitor {PRIMARY} 127.0.0.1 {primary} 2"),
            format!(
                "sentinel down-after-milliseconds {PRIMARY} {}",
                down_after.as_millis()
            ),
            format!("sentinel failover-timeout {PRIMARY} 3000"),
        ];
        if let Some((files, more)) = encrypted {
            let tls_port = free_port();
            self.tls_ports.push(tls_port);
            let encrypting = encrypting(files, tls_port);
            let encrypting = encrypting.map(|option| option.join(" ").split_off("--".len()));
            lines.extend(encrypting);
            lines.extend(more.iter().map(|line| (*line).to_owned()));
        }
        let file = settings(port, folder);
        fs::write(&file, lines.join("\n")).expect("a file can be written");
        self.ports.push(port);
        self.sentinels.push(launch(port, folder));
    }

    /// The ports of the sentinels.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The URL of their primary.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{PRIMARY}", hosts(&self.ports))
    }

    /// The ports on which they listen for TLS, if any.
    #[must_use]
    pub fn tls_ports(&self) -> &[u16] {
        &self.tls_ports
    }

    /// The servers; the first started as the primary.
    pub fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// The sentinels, to pause or kill.
    pub fn sentinels(&mut self) -> &mut [Process] {
        &mut self.sentinels
    }

    /// The servers, and the sentinels.
    pub fn parts(&mut self) -> (&mut [Server], &mut [Process]) {
        (&mut self.servers, &mut self.sentinels)
    }

    /// Restarts sentinels that were killed, and waits until they know each other.
    ///
    /// # Panics
    /// If they do not start.
    pub fn restart_sentinels(&mut self) {
        for (port, process) in self.ports.iter().zip(&mut self.sentinels) {
            if process.ended().is_some() {
                *process = launch(*port, self.folder.path());
            }
        }
        self.wait();
    }

    /// The port of the primary, according to the sentinels.
    #[must_use]
    pub fn primary(&self) -> u16 {
        let mut client = Client::connect(self.ports[0]);
        let reply = client.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY]);
        let super::Reply::Array(parts) = reply else {
            panic!("{reply:?} is not an address");
        };
        parts[1].text().parse().expect("a port is a number")
    }

    /// Waits until every sentinel knows the others and the replicas: without that they cannot agree
    /// on a failover.
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

/// The settings file of the sentinel on that port, which it rewrites itself.
fn settings(port: u16, folder: &Path) -> PathBuf {
    folder.join(format!("sentinel-{port}.conf"))
}

fn launch(port: u16, folder: &Path) -> Process {
    let mut command = program();
    command.arg(settings(port, folder)).arg("--sentinel");
    let mut process = Process::spawn(&format!("sentinel on port {port}"), command);
    process.wait_for_port(port);
    process
}
