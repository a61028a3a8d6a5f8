//! The data folder, which other users have no business in.

use std::path::Path;

use tracing::warn;

/// Warns of a data folder that other users can look into: one that was made by hand, or by an earlier version.
#[cfg(unix)]
pub(super) fn warn_if_shared(folder: Option<&Path>) {
    use std::os::unix::fs::PermissionsExt as _;
    let found = folder.and_then(|folder| Some((folder, std::fs::metadata(folder).ok()?)));
    let Some((folder, found)) = found else {
        return;
    };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let folder = folder.display();
        warn!(
            "--data-dir {folder}: other users can look into it (mode {mode:o}): run `chmod 700 {folder}`"
        );
    }
}

/// Folders have no modes here.
#[cfg(not(unix))]
pub(super) fn warn_if_shared(_: Option<&Path>) {}
