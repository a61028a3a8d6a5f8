//! Real etcd servers for tests, each in its own folder and on free ports.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Process, free_port, output_of, system};

/// A running server; ended on drop.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    process: Process,
    tls: Option<Tls>,
}

/// The files of a server that wants its clients' certificates.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The server's own certificate.
    pub certificate: std::path::PathBuf,
    /// Its private key.
    pub key: std::path::PathBuf,
    /// The authority of the clients' certificates.
    pub authority: std::path::PathBuf,
}

impl Server {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with(None)
    }

    /// Starts a server that is asked over TLS, if there are files for it.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn with(tls: Option<Tls>) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let port = free_port();
        Self {
            port,
            process: launch(port, folder.path(), tls.as_ref()),
            folder,
            tls,
        }
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs `etcdctl` with these arguments, and returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn control(&self, args: &[&str]) -> String {
        let mut command = system("etcdctl");
        command.env("ETCDCTL_API", "3").args(args);
        let scheme = match &self.tls {
            None => "http",
            Some(tls) => {
                command.arg("--cacert").arg(&tls.authority);
                command.arg("--cert").arg(&tls.certificate);
                command.arg("--key").arg(&tls.key);
                "https"
            }
        };
        let endpoint = format!("{scheme}://127.0.0.1:{}", self.port);
        output_of(command.args(["--endpoints", &endpoint]))
    }

    /// Kills it; its keys are kept.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port after it was killed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process = launch(self.port, self.folder.path(), self.tls.as_ref());
    }
}

fn launch(port: u16, folder: &Path, tls: Option<&Tls>) -> Process {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let clients = format!("{scheme}://127.0.0.1:{port}");
    let peers = format!("http://127.0.0.1:{}", free_port());
    let mut command: Command = system("etcd");
    command
        .args(["--name", "only", "--data-dir"])
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("only={peers}")])
        .args(["--log-level", "warn"]);
    if let Some(tls) = tls {
        command.arg("--cert-file").arg(&tls.certificate);
        command.arg("--key-file").arg(&tls.key);
        command.arg("--trusted-ca-file").arg(&tls.authority);
        command.arg("--client-cert-auth");
    }
    let mut process = Process::spawn(&format!("etcd on port {port}"), command);
    // It listens before it knows its leader; what is asked until then waits.
    process.wait_for_port(port);
    process
}
