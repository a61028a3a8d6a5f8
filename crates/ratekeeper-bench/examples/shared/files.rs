//! Files with results.

use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file into `folder`, which is made if it is not there.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
