//! `cargo xtask matrix`: runs the Redis store's tests, and the service's under Redis failures, with
//! every supported server.

use crate::need::{self, REDIS_6, VALKEY_8, VALKEY_9, Wheel};
use crate::steps::{Steps, cargo};
use anyhow::{Result, bail};

/// A server to run the tests with.
struct Server {
    name: &'static str,
    /// None for the one from the system's packages.
    wheel: Option<Wheel>,
    /// Substrings of the names of tests that need features it lacks.
    lacks: &'static [&'static str],
}

impl Server {
    const fn new(name: &'static str, wheel: Option<Wheel>, lacks: &'static [&'static str]) -> Self {
        Self { name, wheel, lacks }
    }
}

/// The builds in wheels have no TLS.
const TLS: [&str; 3] = [
    "encrypted",
    "servers_that_want_a_certificate",
    "files_that_change_count",
];

/// Redis before version 7 cannot report a user's permissions either.
const TLS_AND_RIGHTS: [&str; 5] = [
    TLS[0],
    TLS[1],
    TLS[2],
    "cluster::rights",
    "a_user_of_an_acl",
];

const SERVERS: [Server; 4] = [
    Server::new("redis-6.2", Some(REDIS_6), &TLS_AND_RIGHTS),
    Server::new("redis-7", None, &[]),
    Server::new("valkey-8", Some(VALKEY_8), &TLS),
    Server::new("valkey-9", Some(VALKEY_9), &TLS),
];

/// Fetches the servers and runs the tests with each, or with the given one.
pub(crate) fn matrix(args: &[String]) -> Result<()> {
    let wanted: Vec<&Server> = match args {
        [] => SERVERS.iter().collect(),
        [name] => SERVERS.iter().filter(|it| it.name == name).collect(),
        _ => bail!("give at most one name"),
    };
    if wanted.is_empty() {
        let names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
        bail!("there is no such server; there are {}", names.join(", "));
    }
    let mut steps = Steps::new();
    for server in wanted {
        match &server.wheel {
            Some(wheel) => steps.step(server.name, "fetch", || need::program(wheel))?,
            None => steps.step(server.name, "redis-server", || {
                need::packages(&[need::REDIS])
            })?,
        }
        let skips = server.lacks.iter().flat_map(|lacking| ["--skip", lacking]);
        let script = vec!["--workspace", "--test", "script"];
        let store = ["--workspace", "--test", "store", "--"];
        let store = store.into_iter().chain(skips).collect();
        let chaos = vec!["--workspace", "--test", "chaos"];
        for tests in [script, store, chaos] {
            let mut command = cargo(["test", "--locked"]);
            command.args(tests);
            if let Some(wheel) = &server.wheel {
                command.env("RATEKEEPER_TEST_REDIS", wheel.program());
            }
            steps.command(server.name, &mut command)?;
        }
    }
    steps.finish("matrix");
    Ok(())
}
