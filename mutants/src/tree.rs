//! The copy of the repository that is changed.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes `tree` what the repository at `root` is, ignored files apart. Files that are the same keep their times, so that
/// cargo builds little again.
pub(crate) fn copy(root: &Path, tree: &Path) -> Result<()> {
    let files = files(root)?;
    for file in &files {
        let text = fs::read(root.join(file));
        write(
            &tree.join(file),
            &text.with_context(|| format!("cannot read {}", file.display()))?,
        )?;
    }
    remove_others(tree, Path::new(""), &files)
}

/// Writes a file with its folder, unless it is there with this content.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, content))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The files that git knows, and new ones that it does not ignore.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others"]);
    command.arg("--exclude-standard").current_dir(root);
    let output = command.output().context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let files = names.split_terminator('\0').map(PathBuf::from);
    // Links, and files that were deleted, are not changed by anybody.
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}

fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(tree.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(tree, &path, files)?;
        } else if !files.contains(&path) {
            fs::remove_file(tree.join(&path))?;
        }
    }
    Ok(())
}
