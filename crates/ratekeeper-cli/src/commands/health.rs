//! `ratekeeper health`.

use crate::cli::Health;
use crate::client::{self, Request};
use crate::output;
use crate::settings::{self, Flags, Settings};
use anyhow::{Result, bail};
use ratekeeper_server::ListenAddress;
use ratekeeper_tls::TlsFiles;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

/// The longest that an answer may take: probes of containers give up after a second or a few.
const PATIENCE: Duration = Duration::from_secs(3);

/// The addresses that tell the state of a node.
const ASKS_AT: &str = "the HTTP or the admin address";

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
        path: if args.alive { "/livez" } else { "/readyz" },
        body: "",
        token: None,
        condition: None,
        patience: PATIENCE,
        asks_at: ASKS_AT,
    };
    let answer = client::send(&address, &files, &asked)?;
    let is_told = match args.alive {
        true => answer.body.trim_end() == "OK",
        false => tells_state(&answer.body),
    };
    if !is_told {
        bail!(
            "{address} answers {}, which does not say if a node is ready: is it {ASKS_AT}? At the address of a gateway its \
             upstream answers",
            answer.status
        );
    }
    if !args.quiet {
        output::print(&format!("{}\n", answer.body.trim_end()))?;
    }
    Ok(match answer.status {
        200 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Returns true for what `/readyz` of a node answers, ready or not.
fn tells_state(body: &str) -> bool {
    let told: Option<serde_json::Value> = serde_json::from_str(body).ok();
    told.is_some_and(|told| told["state"].is_string())
}

/// Returns true if the settings are those of a gateway.
fn is_gateway(settings: &Settings) -> bool {
    let values = &settings.values;
    let said = [&values.upstream.said, &values.routes.said];
    said.into_iter().any(|said| !said.is_default())
}

/// The HTTP listener of a service with the same settings, on this host; the admin listener of a gateway that opens no other.
fn own(args: &Health) -> Result<String> {
    let settings = settings::of_process(&Flags::of_config(args.config.clone()))?;
    let values = &settings.values;
    let (name, address, tls) = match is_gateway(&settings) && values.http.said.is_default() {
        true => ("admin", &*values.admin, settings.tls.admin.is_some()),
        false => ("HTTP", &*values.http, settings.tls.http.is_some()),
    };
    if tls {
        bail!(
            "the {name} listener encrypts: name it as its certificate does, https://NAME:PORT, and its authority with --ca"
        );
    }
    Ok(match address {
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
