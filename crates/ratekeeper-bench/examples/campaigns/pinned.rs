//! Programs pinned to processors.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ratekeeper_testkit::process::{Process, system, tool};

/// The words by which a program is pinned to one processor, and ends with this program.
pub(crate) const fn prefix(core: &str) -> [&str; 6] {
    ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", core]
}

/// A command pinned to one processor, which ends with this program.
pub(crate) fn pinned(core: &str, program: impl AsRef<OsStr>) -> Command {
    let [first, rest @ ..] = prefix(core);
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// Starts NGINX with these `server` blocks, and waits until it listens on `port`.
pub(crate) fn nginx(
    folder: &Path,
    name: &str,
    servers: &str,
    core: &str,
    port: u16,
) -> Result<Process> {
    let config = format!(
        "master_process off; daemon off; pid {name}.pid; error_log stderr error; events {{ worker_connections 20000; }}
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {name}1; proxy_temp_path {name}2;
           fastcgi_temp_path {name}3; uwsgi_temp_path {name}4; scgi_temp_path {name}5; {servers} }}"
    );
    let file = folder.join(format!("{name}.conf"));
    std::fs::write(&file, config)?;
    let program = system("nginx");
    let mut command = pinned(core, program.get_program());
    command.arg("-p").arg(folder).arg("-c").arg(file);
    let mut process = Process::spawn(name, command);
    process.wait_for_port(port);
    Ok(process)
}

/// Starts Envoy with one worker and this configuration, and waits until it listens on `port`.
pub(crate) fn envoy(folder: &Path, config: &str, core: &str, port: u16) -> Result<Process> {
    let file = folder.join("envoy.yaml");
    std::fs::write(&file, config)?;
    let mut command = pinned(core, tool("envoy").get_program());
    command.args(["--concurrency", "1", "--log-level", "error"]);
    command
        .args(["--disable-hot-restart", "--config-path"])
        .arg(file);
    let mut process = Process::spawn("envoy", command);
    process.wait_for_port(port);
    Ok(process)
}
