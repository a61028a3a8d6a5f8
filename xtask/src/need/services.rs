//! Keeps Debian's server packages from starting services on installation, on the default ports of
//! real ones.

use crate::steps::succeed;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// The policy script that package installation consults before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Keeps installed packages from starting services while it lives.
#[must_use]
pub(super) struct SuppressedServices {
    is_ours: bool,
}

/// Installs a policy that denies, unless the machine has its own, which stays in force.
pub(super) fn suppress() -> Result<SuppressedServices> {
    let path = Path::new(POLICY);
    if path.exists() {
        return Ok(SuppressedServices { is_ours: false });
    }
    // Created before chmod, so that it is dropped on failure too.
    let suppressed = SuppressedServices { is_ours: true };
    // Exit code 101: action not allowed.
    std::fs::write(path, "#!/bin/sh\nexit 101\n")
        .with_context(|| format!("cannot write {POLICY}"))?;
    succeed(Command::new("chmod").args(["755", POLICY]))?;
    Ok(suppressed)
}

impl Drop for SuppressedServices {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = std::fs::remove_file(POLICY)
        {
            eprintln!(
                "{POLICY} cannot be removed ({error}): remove it, or no service starts when it is installed"
            );
        }
    }
}

/// Keeps the installed services from starting at boot. Without systemd, or a service of that name,
/// there is nothing to do.
pub(super) fn leave_out_of_the_boot(packages: &[&str]) {
    for package in packages {
        let _ = Command::new("systemctl")
            .args(["disable", "--quiet", package])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
