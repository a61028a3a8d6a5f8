//! Installs packages with pip below the target folder: Schemathesis, which tests an HTTP API by its OpenAPI document, and
//! what the Python client is checked with, and the clients of gRPC and of OpenAI. Nothing is installed into the system or
//! its Python.

use crate::steps::{succeed, target};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Packages of Python: what they are, every one of them with its version as pip reads it, and the tool that they become.
pub(crate) struct PipTool(&'static str, &'static str, &'static str);

/// A compiler of C that has musl for every processor, and what gives it to cargo.
pub(crate) const ZIGBUILD: PipTool = PipTool(
    "zig and cargo-zigbuild",
    "cargo-zigbuild==0.24.1\nziglang==0.17.1\n",
    "zigbuild",
);
/// Checks a CloudFormation template.
pub(crate) const CFN_LINT: PipTool =
    PipTool("cfn-lint", include_str!("cloudformation.txt"), "cfn-lint");
/// Libraries that the tests use: what tests an HTTP API by its document, what the Python client is checked, tested and
/// compared with, what holds manifests to the schemas of Kubernetes, OpenAI's client, which calls models behind the
/// gateway, and gRPC's library in C, with which a server's answers are compared.
pub(crate) const PYTHON_FOR_TESTS: [PipTool; 5] = [
    PipTool(
        "Schemathesis",
        include_str!("schemathesis.txt"),
        "schemathesis",
    ),
    PipTool(
        "libraries for the Python client",
        include_str!("../../../clients/tools/requirements.txt"),
        "clients-python",
    ),
    PipTool(
        "kubernetes-validate",
        include_str!("kubernetes.txt"),
        "kubernetes-validate",
    ),
    PipTool("OpenAI's client", include_str!("openai.txt"), "openai"),
    PipTool(
        "grpcio",
        "grpcio==1.85.3\ntyping_extensions==4.16.0\n",
        "grpcio",
    ),
];

/// Installs the packages of a tool, unless they are there; returns their folder.
///
/// # Errors
/// They cannot be fetched.
pub(crate) fn install(PipTool(what, list, tool): &PipTool) -> Result<PathBuf> {
    let tools = target().join("tools");
    let folder = tools.join(tool);
    let lib = || Ok(folder.join("lib").canonicalize()?);
    // Some packages are built for one version of Python.
    let installed = format!("{}\n{list}", python_version()?);
    let marker = folder.join("installed.txt");
    if std::fs::read_to_string(&marker).is_ok_and(|have| have == installed) {
        return lib();
    }
    eprintln!("installing {what} with pip into {}, once", folder.display());
    // Installed beside its place and moved there whole, so that an interrupted run leaves no partial result.
    let fresh = tools.join(format!("{tool}.new"));
    super::remove(&fresh)?;
    std::fs::create_dir_all(&fresh).with_context(|| format!("cannot make {}", fresh.display()))?;
    let requirements = fresh.join("requirements.txt");
    std::fs::write(&requirements, list)?;
    succeed(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args([
                "--only-binary",
                ":all:",
                "--disable-pip-version-check",
                "--target",
            ])
            .arg(fresh.join("lib"))
            .arg("--requirement")
            .arg(&requirements),
    )
    .with_context(|| format!("{what} cannot be fetched; tests need it"))?;
    std::fs::write(fresh.join("installed.txt"), installed)?;
    super::remove(&folder)?;
    std::fs::rename(&fresh, &folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    lib()
}

fn python_version() -> Result<String> {
    let output = Command::new("python3")
        .arg("--version")
        .output()
        .context("cannot start python3")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
