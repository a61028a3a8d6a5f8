//! `cargo xtask bench peers`: ours beside what else can be had, in one run. Over gRPC a plain tonic server that answers a
//! constant, throttlecrab, the limitador library behind a small server, and envoyproxy/ratelimit with the same Redis; as
//! proxies NGINX, HAProxy and Envoy with limits of their own.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use super::examples;
use super::grpc::{compare, envoyproxy_ratelimit, throttlecrab, two_processors};
use crate::need::{self, PROTOC, REDIS, SETPRIV, TASKSET};
use crate::steps::{Steps, cargo, root, succeed, target};
use anyhow::Result;

/// The server around limitador.
const LIMITADOR: &str = include_str!("peers/limitador.rs");

/// The library alone: its stores on disk and in Redis are left out.
const DEPENDENCIES: &str = r#"
limitador = { version = "=0.14.0", default-features = false }
tokio = { version = "1", features = ["macros", "net", "rt"] }
tonic = { version = "0.14", default-features = false, features = ["codegen", "server", "transport"] }
"#;

/// Builds everything, then runs the comparisons; `args` may be `--quick`.
pub(super) fn peers(args: &[String]) -> Result<()> {
    two_processors()?;
    let mut steps = Steps::new();
    steps.step("tools", "taskset, setpriv, protoc, redis-server", || {
        need::packages(&[TASKSET, SETPRIV, PROTOC, REDIS])
    })?;
    let crab = steps.step("peer", "throttlecrab", throttlecrab)?;
    let limitador = steps.step("peer", "limitador", limitador)?;
    let mut more: Vec<OsString> = vec![
        "--peers".into(),
        "--throttlecrab".into(),
        crab.into(),
        "--limitador".into(),
        limitador.into(),
    ];
    more.extend(envoyproxy_ratelimit());
    compare(&mut steps, "peers", &more, args)?;
    examples::proxies(args)
}

/// Builds the server in a project of its own, since this repository does not depend on the library.
fn limitador() -> Result<PathBuf> {
    let folder = target().join("peers-limitador");
    fs::create_dir_all(folder.join("src"))?;
    let folder = folder.canonicalize()?;
    let proto = root().join("crates/ratekeeper-proto").canonicalize()?;
    let manifest = format!(
        "[package]\nname = \"limitador-server\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]{DEPENDENCIES}\
         ratekeeper-proto = {{ path = {proto:?} }}\n\n[profile.release]\ncodegen-units = 1\nlto = \"thin\"\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/main.rs"), LIMITADOR)?;
    let mut build = cargo(["build", "--quiet", "--release"]);
    build.current_dir(&folder);
    build.arg("--target-dir").arg(folder.join("target"));
    succeed(&mut build)?;
    Ok(folder.join("target/release/limitador-server"))
}
