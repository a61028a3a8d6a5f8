//! The settings file, with a region retired in its text: comments and order stay.

use crate::settings::{self, Flags};
use anyhow::{Context, Result, bail};
use ratekeeper_core::Regions;
use ratekeeper_rules::NodeRegion;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Writes into `file` that the region is retired, and the version of `retired`. What is then read has to be that.
///
/// # Errors
/// The file cannot be read or written, or has the region in another form.
pub(super) fn retired(file: &Path, name: &str, retired: &Regions) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    let Some(changed) = changed(&text, name, retired.version()) else {
        bail!(
            "it does not say `version: …` and `{name}: {{ weight: … }}`, each in a line of `regions`"
        );
    };
    replace(file, &changed, |changed| check(changed, retired))
}

/// Puts `text` in the place of a file, or of that which it links to, with its owner and its rights, so that a service that
/// runs as somebody else still reads it. Until it passed `check` it is a file beside it, which nobody else may read: settings
/// have secrets.
fn replace(file: &Path, text: &str, check: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let file = &std::fs::canonicalize(file)?;
    let folder = file.parent().unwrap_or_else(|| Path::new("/"));
    let temporary = folder.join(format!(".ratekeeper-{}.yaml", std::process::id()));
    write_new(&temporary, text)?;
    let checked = check(&temporary);
    let moved = checked.and_then(|()| {
        let of = std::fs::metadata(file)?;
        std::os::unix::fs::chown(&temporary, Some(of.uid()), Some(of.gid()))
            .context("its owner cannot be kept; run this as the owner, or as root")?;
        std::fs::set_permissions(&temporary, of.permissions())?;
        std::fs::rename(&temporary, file).context("it cannot be replaced")
    });
    if moved.is_err() {
        // Of no use any more; if it stays, it does no harm.
        let _ = std::fs::remove_file(&temporary);
    }
    moved
}

fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    // One of a run that broke off.
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut new = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    new.write_all(text.as_bytes())
}

/// Refuses a file that is read as other regions.
fn check(file: &Path, retired: &Regions) -> Result<()> {
    let settings = settings::of_process(&Flags::of_config(Some(file.to_path_buf())))?;
    match &settings.rules.options.region {
        NodeRegion::In(read) if **read == *retired => Ok(()),
        NodeRegion::In(_) | NodeRegion::Unknown | NodeRegion::Nowhere => {
            bail!("what it says about regions is set elsewhere, too, or in another form")
        }
    }
}

/// The text with the version and the region changed; [`None`] if one of the lines is not there.
fn changed(text: &str, name: &str, version: u32) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let begin = lines
        .iter()
        .position(|line| line.trim_end() == "regions:")?;
    let inside = |line: &String| line.is_empty() || line.starts_with([' ', '#']);
    let block = &mut lines[begin + 1..];
    let end = block.iter().position(|line| !inside(line));
    let end = end.unwrap_or(block.len());
    let block = &mut block[..end];
    let at = |block: &[String], key: &str| {
        let is_it = |line: &String| line.trim_start().starts_with(&format!("{key}:"));
        block.iter().position(is_it)
    };
    let (version_at, region_at) = (at(block, "version")?, at(block, name)?);
    let indent = block[version_at].len() - block[version_at].trim_start().len();
    block[version_at] = format!("{}version: {version}", &" ".repeat(indent));
    let line = &block[region_at];
    let close = line.rfind('}').filter(|_| line.contains('{'))?;
    let (head, tail) = line.split_at(close);
    block[region_at] = format!("{}, retired: true {tail}", head.trim_end());
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::{changed, replace};
    use anyhow::bail;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    const TEXT: &str = "region: eu\nregions:  \n  version: 3\n  # the old world\n  eu: { weight: 2 }\n  ap: { weight: 1, link: \
                        ['https://ap:8081'] } # far\nstore: redis://r\n";

    #[test]
    fn only_the_version_and_the_region_are_changed() {
        let text = TEXT.replace("regions:  ", "regions:");
        let after = changed(&text, "ap", 4).expect("both are there");
        let expected = text
            .replace("version: 3", "version: 4")
            .replace("] }", "], retired: true }");
        assert_eq!(after, expected);
    }

    #[test]
    fn a_changed_file_is_as_private_as_before_and_where_it_was() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (file, link) = (
            folder.path().join("real.yaml"),
            folder.path().join("link.yaml"),
        );
        fs::write(&file, "a: secret\n").expect("it is written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        // Only root can give a file away.
        let group = chown(&file, None, Some(12_345)).map(|()| 12_345);
        symlink(&file, &link).expect("a link can be made");
        let mode = |path: &std::path::Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        let refused = replace(&link, "b: secret\n", |new| {
            assert_eq!(mode(new), 0o600);
            bail!("no")
        });
        assert!(refused.is_err());
        assert_eq!(
            fs::read_to_string(&file).expect("it is there"),
            "a: secret\n"
        );
        replace(&link, "b: secret\n", |_| Ok(())).expect("it can be replaced");
        assert_eq!(
            fs::read_to_string(&file).expect("it is there"),
            "b: secret\n"
        );
        assert!(
            fs::symlink_metadata(&link)
                .expect("it is there")
                .is_symlink()
        );
        assert_eq!(mode(&file), 0o640);
        if let Ok(group) = group {
            assert_eq!(fs::metadata(&file).expect("it is there").gid(), group);
        }
        let left = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(left, 2, "nothing stays beside it");
    }

    #[test]
    fn another_form_is_left_alone() {
        assert_eq!(changed("regions: { version: 1 }\n", "ap", 2), None);
        assert_eq!(changed(TEXT, "us", 4), None);
        assert_eq!(
            changed("regions:\n  version: 1\n  ap:\n    weight: 1\n", "ap", 2),
            None
        );
    }
}
