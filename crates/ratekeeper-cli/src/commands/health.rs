//! `ratekeeper health`.

use crate::cli::Health;
use crate::client::{self, Request};
use crate::output;
use crate::settings::{self, Flags};
use anyhow::{Result, bail};
use ratekeeper_server::ListenAddress;
use ratekeeper_tls::TlsFiles;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

/// The longest that an answer may take: probes of containers give up after a second or a few.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) fn run(args: &Health) -> Result<ExitCode> {
    let address = match &args.url {
        Some(url) => url.clone(),
        None => own(args)?,
    };
    let files = TlsFiles {
        authorities: args.ca.clone(),
        identity: None,
    };
    let asked = Request {
        method: "GET",
        path: "/readyz",
        body: "",
        token: None,
        condition: None,
        patience: PATIENCE,
    };
    let answer = client::send(&address, &files, &asked)?;
    if !args.quiet {
        output::print(&format!("{}\n", answer.body.trim_end()))?;
    }
    Ok(match answer.status {
        200 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The HTTP listener of a service with the same settings, on this host.
fn own(args: &Health) -> Result<String> {
    let settings = settings::of_process(&Flags::of_config(args.config.clone()))?;
    if settings.tls.http.is_some() {
        bail!(
            "the HTTP listener encrypts: name it as its certificate does, https://NAME:PORT, and its authority with --ca"
        );
    }
    Ok(match &*settings.values.http {
        ListenAddress::Tcp(address) => reachable(*address).to_string(),
        unix => unix.to_string(),
    })
}

/// The address at which this host reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
