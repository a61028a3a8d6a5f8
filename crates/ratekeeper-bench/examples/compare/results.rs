//! Files with the results of a comparison.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::files;

/// Writes `NAME.json` and `NAME.md` into `folder`, which is made if it is not there.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    table: &(impl Serialize + fmt::Display),
) -> Result<()> {
    let json = serde_json::to_string_pretty(table)? + "\n";
    files::write(folder, &format!("{name}.json"), &json)?;
    files::write(folder, &format!("{name}.md"), &table.to_string())
}
