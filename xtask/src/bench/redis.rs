//! `cargo xtask bench redis`: measures counters in Redis, at the store's interface and over gRPC.

use std::ffi::OsString;

use super::grpc::{compare, envoyproxy_ratelimit};
use super::of_package;
use crate::need::{self, REDIS, REDIS_BENCHMARK, SETPRIV, TASKSET};
use crate::steps::Steps;
use anyhow::{Result, bail};

/// The parts of the store's benchmark.
const STORE: [&str; 7] = [
    "many",
    "hot",
    "mechanisms",
    "latency",
    "load",
    "neighbours",
    "cluster",
];

/// Runs all parts, or the given ones: `scripts`, those of the store, `grpc`.
pub(super) fn redis(args: &[String]) -> Result<()> {
    let (flags, parts): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with("--"));
    let is_quick = match flags.as_slice() {
        [] => false,
        [flag] if *flag == "--quick" => true,
        _ => bail!("there is one flag: --quick"),
    };
    let known = |part: &&&String| {
        STORE.contains(&part.as_str()) || ["scripts", "grpc"].contains(&part.as_str())
    };
    if let Some(other) = parts.iter().find(|part| !known(part)) {
        bail!(
            "there is no part {other:?}; there are scripts, {} and grpc",
            STORE.join(", ")
        );
    }
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| *wanted == part);
    let mut steps = Steps::new();
    steps.step("tools", "redis-server, redis-benchmark, taskset", || {
        need::packages(&[REDIS, REDIS_BENCHMARK, TASKSET, SETPRIV])
    })?;
    if wants("scripts") {
        steps.command(
            "scripts",
            &mut of_package("ratekeeper-store-redis", "scripts"),
        )?;
    }
    let of_store: Vec<&str> = STORE.into_iter().filter(|part| wants(part)).collect();
    if !of_store.is_empty() {
        let mut command = of_package("ratekeeper-store-redis", "store");
        command.args(of_store);
        command.args(is_quick.then_some("--quick"));
        steps.command("store", &mut command)?;
    }
    if wants("grpc") {
        let mut more: Vec<OsString> = vec!["--redis".into()];
        more.extend(envoyproxy_ratelimit());
        let quick: &[String] = if is_quick {
            &["--quick".to_owned()]
        } else {
            &[]
        };
        compare(&mut steps, "redis", &more, quick)?;
    }
    steps.finish("bench redis");
    Ok(())
}
