//! Programs from `go install`: `cargo xtask compat` needs them, and `bench redis` uses one if Go is
//! available.

use crate::steps::{succeed, target};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// A program from `go install`.
pub(crate) struct GoTool {
    /// The comparison's option for its path.
    pub(crate) flag: &'static str,
    /// The package to install.
    pub(crate) package: &'static str,
    /// The version with which this repository is compared.
    pub(crate) version: &'static str,
}

impl GoTool {
    /// The program is called by the last part of the package's path.
    const fn new(flag: &'static str, package: &'static str, version: &'static str) -> Self {
        Self {
            flag,
            package,
            version,
        }
    }

    fn name(&self) -> &'static str {
        self.package.rsplit('/').next().unwrap_or(self.package)
    }
}

/// The latest version of envoyproxy/ratelimit in Go's proxy; the project makes no releases.
const ENVOYPROXY_RATELIMIT: &str = "v1.4.1-0.20260122083618-3fb702589d36";

/// envoyproxy/ratelimit itself.
const SERVICE: GoTool = GoTool::new(
    "--envoyproxy-ratelimit",
    "github.com/envoyproxy/ratelimit/src/service_cmd",
    ENVOYPROXY_RATELIMIT,
);

/// The peer of `cargo xtask bench redis`, if Go is available.
pub(crate) const FOR_BENCH: [GoTool; 1] = [SERVICE];

/// The programs that `cargo xtask compat` starts: envoyproxy/ratelimit, its rules checker, and
/// clients.
pub(crate) const FOR_COMPAT: [GoTool; 4] = [
    SERVICE,
    GoTool::new(
        "--checker",
        "github.com/envoyproxy/ratelimit/src/config_check_cmd",
        ENVOYPROXY_RATELIMIT,
    ),
    GoTool::new(
        "--grpcurl",
        "github.com/fullstorydev/grpcurl/cmd/grpcurl",
        "v1.9.4",
    ),
    GoTool::new("--ghz", "github.com/bojand/ghz/cmd/ghz", "v0.93.0"),
];

/// The control plane of `cargo xtask compat envoy-gateway`.
pub(crate) const FOR_ENVOY_GATEWAY: [GoTool; 1] = [GoTool::new(
    "--envoy-gateway",
    "github.com/envoyproxy/gateway/cmd/envoy-gateway",
    "v1.9.1",
)];

/// Checkers of the files in `deploy` and of the workflows: helm, the reader of compose files, actionlint.
pub(crate) const FOR_MANIFESTS: [GoTool; 3] = [
    GoTool::new("--helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    GoTool::new(
        "--compose",
        "github.com/compose-spec/compose-go/v2/cmd",
        "v2.16.2",
    ),
    GoTool::new(
        "--actionlint",
        "github.com/rhysd/actionlint/cmd/actionlint",
        "v1.7.12",
    ),
];

/// The conformance tests of HTTP/2 that `cargo xtask attack` runs.
pub(crate) const FOR_ATTACK: [GoTool; 1] = [GoTool::new(
    "--h2spec",
    "github.com/summerwind/h2spec/cmd/h2spec",
    "v2.2.1+incompatible",
)];

/// As [`install`] if Go is available; otherwise prints the tools that are left out.
pub(crate) fn install_if_there(tools: &[GoTool]) -> Result<Vec<(&'static str, PathBuf)>> {
    if super::on_path("go") {
        return install(tools);
    }
    for tool in tools {
        eprintln!("Go is missing: {} is left out", tool.name());
    }
    Ok(Vec::new())
}

/// Installs all of `tools` below the target folder; returns each one's option and path.
pub(crate) fn install(tools: &[GoTool]) -> Result<Vec<(&'static str, PathBuf)>> {
    let install = |tool: &GoTool| Ok((tool.flag, one(tool)?));
    tools.iter().map(install).collect()
}

fn one(tool: &GoTool) -> Result<PathBuf> {
    let GoTool {
        package, version, ..
    } = tool;
    let name = tool.name();
    // A folder for each version, into which go puts the program atomically.
    let folder = target().join("tools/go").join(version);
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    if !super::on_path("go") {
        bail!(
            "Go is missing, which {name} is built with: install it from https://go.dev/dl and run this again"
        );
    }
    eprintln!("installing {name} {version} with go install, once; this takes a minute or two");
    let what = format!("{package}@{version}");
    std::fs::create_dir_all(&folder)?;
    succeed(
        Command::new("go")
            .args(["install", &what])
            .env("GOBIN", folder.canonicalize()?),
    )
    .with_context(|| format!("go install {what} failed"))?;
    Ok(program)
}
