//! The key of tenants' hashes that a node without a `tenant_key` setting makes for itself.

use crate::settings;
use anyhow::{Context, Result, anyhow};
use ratekeeper_rules::TenantKey;
use ratekeeper_server::make_private_folder;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Reads the key at `path`; makes a new one, and its folder, where there is none. Only this user may read it.
///
/// # Errors
/// It cannot be read or made, or is not a key.
pub(crate) fn kept(path: &Path) -> Result<TenantKey> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path)
                .with_context(|| format!("cannot make a key for tenants in {}", path.display()))?;
            read(path)
        }
        read => read,
    }
    .with_context(|| format!("cannot read the key of tenants in {}", path.display()))
    .and_then(|text| {
        let key = settings::hash_key(text.trim());
        let key = key.map_err(|error| anyhow!("{}: {error}", path.display()));
        key.map(TenantKey::from_bytes)
    })
}

/// More than a key has.
const BYTES_MAX: u64 = 100;

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Makes a key. If another process makes one at the same time, that one counts.
fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        make_private_folder(folder)?;
    }
    let beside = path.with_extension(format!("key.{}", std::process::id()));
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&beside)?;
    let key = ratekeeper_store::HashKey::random().to_bytes();
    writeln!(file, "{:032x}", u128::from_be_bytes(key))?;
    file.sync_all()?;
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_format_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tenant.key");
        let made = kept(&path).expect("it is made");
        let text = fs::read_to_string(&path).expect("it is there");
        for other in [format!("2 {text}"), text[..31].to_owned(), String::new()] {
            fs::write(&path, &other).expect("it is written");
            let said = kept(&path).expect_err("it is refused").to_string();
            assert!(said.contains("tenant.key"), "{said}");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), other);
        }
        fs::write(&path, text).expect("it is written");
        assert!(kept(&path).expect("it is read") == made);
    }
}
