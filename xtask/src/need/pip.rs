//! Installs packages with pip below the target folder: Schemathesis, which tests an HTTP API by its OpenAPI document, and
//! what the Python client is checked with, and the clients of gRPC and of OpenAI. Nothing is installed into the system or
//! its Python.

use crate::steps::{succeed, target};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Every package that Schemathesis is and needs, with its version, as pip reads it.
const SCHEMATHESIS: &str = include_str!("schemathesis.txt");
/// The same for what holds manifests to the schemas of Kubernetes.
const KUBERNETES: &str = include_str!("kubernetes.txt");
/// The same for what checks a CloudFormation template.
const CLOUDFORMATION: &str = include_str!("cloudformation.txt");
/// A compiler of C that has musl for every processor, and what gives it to cargo.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.1\nziglang==0.17.1\n";
/// The same for the Python client.
const CLIENTS: &str = include_str!("../../../clients/tools/requirements.txt");
/// gRPC's library in C, for Python, and what it needs.
const GRPCIO: &str = "grpcio==1.85.3\ntyping_extensions==4.16.0\n";

/// OpenAI's client, which calls models behind the gateway.
const OPENAI: &str = include_str!("openai.txt");

/// Installs OpenAI's client for Python.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn openai() -> Result<()> {
    listed("OpenAI's client", OPENAI, "openai")
}

/// Installs Schemathesis in the version of the list, unless it is there.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn schemathesis() -> Result<()> {
    listed("Schemathesis", SCHEMATHESIS, "schemathesis")
}

/// Installs what the Python client is checked, tested and compared with.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn clients_python() -> Result<()> {
    listed("libraries for the Python client", CLIENTS, "clients-python")
}

/// Installs what holds manifests to the schemas of Kubernetes.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn kubernetes_validate() -> Result<()> {
    listed("kubernetes-validate", KUBERNETES, "kubernetes-validate")
}

/// Installs what checks a CloudFormation template; returns its folder.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn cfn_lint() -> Result<PathBuf> {
    listed("cfn-lint", CLOUDFORMATION, "cfn-lint")?;
    Ok(target().join("tools/cfn-lint/lib").canonicalize()?)
}

/// Installs a compiler for other processors, and cargo's command that uses it; returns its folder.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn zigbuild() -> Result<PathBuf> {
    listed("zig and cargo-zigbuild", ZIGBUILD, "zigbuild")?;
    Ok(target().join("tools/zigbuild/lib").canonicalize()?)
}

/// Installs the gRPC client with which a server's answers are compared.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn grpcio() -> Result<()> {
    listed("grpcio", GRPCIO, "grpcio")
}

/// Installs the packages of a list as the tool `tool`, unless they are there.
fn listed(what: &str, list: &str, tool: &str) -> Result<()> {
    let tools = target().join("tools");
    let folder = tools.join(tool);
    // Some packages are built for one version of Python.
    let installed = format!("{}\n{list}", python_version()?);
    let marker = folder.join("installed.txt");
    if std::fs::read_to_string(&marker).is_ok_and(|have| have == installed) {
        return Ok(());
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
    std::fs::rename(&fresh, &folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn python_version() -> Result<String> {
    let output = Command::new("python3")
        .arg("--version")
        .output()
        .context("cannot start python3")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
