//! Small files of the data folder that outlive a restart. They are replaced whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ratekeeper_core::formats::{OtherVersion, StoredFormat};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most bytes of such a file that are read.
const BYTES_MAX: u64 = 4 << 20;

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadFile {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Version(#[from] OtherVersion),
}

/// Reads the content of a JSON file; [`None`] where there is none.
///
/// # Errors
/// It cannot be read, is of another version, or is damaged.
pub(crate) fn load<T: DeserializeOwned>(
    path: &Path,
    format: StoredFormat,
) -> Result<Option<T>, BadFile> {
    load_up_to(path, format, BYTES_MAX)
}

/// Reads the content of a JSON file of at most so many bytes, as [`load`] does.
///
/// # Errors
/// As those of [`load`].
pub(crate) fn load_up_to<T: DeserializeOwned>(
    path: &Path,
    format: StoredFormat,
    bytes_max: u64,
) -> Result<Option<T>, BadFile> {
    let Some(bytes) = read_up_to(path, bytes_max)? else {
        return Ok(None);
    };
    check_version(&bytes, format)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Reads a file; [`None`] where there is none.
///
/// # Errors
/// It cannot be read, or is too large to be one of ours.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    read_up_to(path, BYTES_MAX)
}

/// Reads a file of at most so many bytes; [`None`] where there is none.
///
/// # Errors
/// As those of [`read`].
pub(crate) fn read_up_to(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        let message = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(Some(bytes))
}

/// Makes the folder, and those that it lies in, for this user alone. One that is there keeps its permissions.
///
/// # Errors
/// It cannot be made.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Replaces the file, which only its owner may read, and makes its folder where there is none. After a
/// crash the file has its old content or the new one.
///
/// # Errors
/// The folder cannot be made, or the file cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    make_private_folder(folder)?;
    let new = beside(path, ".new");
    // One that a crash left behind may have other permissions.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The new name has to outlive a power cut as well.
    File::open(folder)?.sync_all()
}

/// Moves a file that cannot be used out of the way, so that it can be looked into; answers its new path.
///
/// # Errors
/// It cannot be moved.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = beside(path, ".damaged");
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Checks the `version` of a JSON file, before anything else of it is read: a later version may have other fields. A file
/// that tells none is damaged, which is found when it is read.
///
/// # Errors
/// The version is not read.
pub(crate) fn check_version(bytes: &[u8], format: StoredFormat) -> Result<(), OtherVersion> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    match serde_json::from_slice::<Head>(bytes) {
        Ok(head) => format.check(head.version),
        Err(_) => Ok(()),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/er/file.json");
        assert_eq!(read(&path).expect("none is fine"), None);
        for text in ["one", "two, and longer"] {
            write(&path, text.as_bytes()).expect("it is written");
            assert_eq!(read(&path).expect("it is there"), Some(text.into()));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&path).expect("it is there").permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
        let names = fs::read_dir(path.parent().expect("a folder")).expect("it is there");
        assert_eq!(names.count(), 1, "nothing is left beside it");
        let aside = set_aside(&path).expect("it is moved");
        assert_eq!(
            read(&aside).expect("it is there"),
            Some("two, and longer".into())
        );
        assert_eq!(read(&path).expect("it is gone"), None);
    }

    #[test]
    fn what_cannot_be_ours_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(read(folder.path()).is_err());
        let large = folder.path().join("large");
        File::create(&large)
            .and_then(|file| file.set_len(BYTES_MAX + 1))
            .expect("it is made");
        assert!(read(&large).is_err());
    }
}
