//! Files with the results of a comparison.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Writes `NAME.json` and `NAME.md` into `folder`, which is made if it is not there.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    table: &(impl Serialize + fmt::Display),
) -> Result<()> {
    let write = |extension: &str, text: String| {
        let path = folder.join(name).with_extension(extension);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write("json", serde_json::to_string_pretty(table)? + "\n")?;
    write("md", table.to_string())
}
