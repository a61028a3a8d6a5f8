//! Debian's packages of servers start them when they are installed, on the ports of a real one. Nobody asked for that.

use crate::steps::succeed;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// What installing asks before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// As long as this lives, no package that is installed starts its service.
#[must_use]
pub(super) struct HeldBack {
    is_ours: bool,
}

/// Writes a policy that says no, unless the machine has a policy of its own, which stays in force.
pub(super) fn hold_back() -> Result<HeldBack> {
    let path = Path::new(POLICY);
    if path.exists() {
        return Ok(HeldBack { is_ours: false });
    }
    // Dropped on the way out too if the second call fails.
    let held_back = HeldBack { is_ours: true };
    // 101: the action is not allowed.
    std::fs::write(path, "#!/bin/sh\nexit 101\n")
        .with_context(|| format!("cannot write {POLICY}"))?;
    succeed(Command::new("chmod").args(["755", POLICY]))?;
    Ok(held_back)
}

impl Drop for HeldBack {
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

/// The packages that were just installed are not to start with the machine either. Where there is no systemd, or no
/// service of that name, nothing has to be done.
pub(super) fn leave_out_of_the_boot(packages: &[&str]) {
    for package in packages {
        let _ = Command::new("systemctl")
            .args(["disable", "--quiet", package])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
