//! The copy of the quotas that a node saves, for a start while the database is away.
//!
//! A file of JSON lines: a head, a line for each tenant, and the SHA-256 of all that. Tenants are in it by
//! their keyed hash alone.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use ratekeeper_rules::{TenantHash, TenantIndex, TenantKey, TenantQuotas};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The format of the file.
const FORMAT: u32 = 1;

/// The longest line to read: the quotas of one tenant.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The reason why a saved copy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is damaged, or not such a file.
    #[error("it is damaged")]
    Damaged,
    /// The file was written by a different version.
    #[error("it was written by a different version")]
    OtherFormat,
    /// The tenants in it were hashed under another key.
    #[error("its tenants were hashed under another tenant_key")]
    OtherKey,
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    key: String,
    version: u64,
    tenants: usize,
}

#[derive(Serialize, Deserialize)]
struct Line {
    domain: String,
    tenant: String,
    quotas: TenantQuotas,
}

fn fingerprint(key: &TenantKey) -> String {
    key.hash("\0ratekeeper: is this the key?").to_string()
}

/// Saves the tenants and the number of their last change; blocks. Whoever reads meanwhile sees the earlier
/// file or this one.
pub(crate) fn save(path: &Path, index: &TenantIndex, version: u64) -> Result<(), SavedError> {
    let beside = path.with_extension("new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = Hashing {
        inner: BufWriter::new(options.open(&beside)?),
        hash: Sha256::new(),
    };
    let head = Head {
        format: FORMAT,
        key: fingerprint(index.key()),
        version,
        tenants: index.len(),
    };
    line(&mut file, &head)?;
    for (domain, tenant, quotas) in index.iter() {
        let tenant = Line {
            domain: domain.to_owned(),
            tenant: tenant.to_string(),
            quotas,
        };
        line(&mut file, &tenant)?;
    }
    let digest = hex(&file.hash.finalize());
    let mut inner = file.inner;
    writeln!(inner, "{digest}")?;
    let file = inner.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(())
}

fn line(file: &mut Hashing<impl Write>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}

/// Loads what was saved; blocks. [`None`] if there is no file.
pub(crate) fn load(path: &Path, key: &TenantKey) -> Result<Option<(TenantIndex, u64)>, SavedError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut lines = Lines {
        file: BufReader::new(file),
        hash: Sha256::new(),
    };
    let head: Head = lines.next()?;
    if head.format != FORMAT {
        return Err(SavedError::OtherFormat);
    }
    if head.key != fingerprint(key) {
        return Err(SavedError::OtherKey);
    }
    let mut index = TenantIndex::new(key.clone());
    for _ in 0..head.tenants {
        let line: Line = lines.next()?;
        let hash: TenantHash = line.tenant.parse().map_err(|_| SavedError::Damaged)?;
        index.put(&line.domain, hash, &line.quotas);
    }
    let expected = hex(&lines.hash.clone().finalize());
    let found = lines.text()?;
    match found.trim_end() == expected {
        true => Ok(Some((index, head.version))),
        false => Err(SavedError::Damaged),
    }
}

struct Lines {
    file: BufReader<File>,
    hash: Sha256,
}

impl Lines {
    fn text(&mut self) -> Result<String, SavedError> {
        let mut text = String::new();
        let mut bounded = (&mut self.file).take(LINE_BYTES_MAX);
        match bounded.read_line(&mut text) {
            Ok(_) if text.ends_with('\n') => Ok(text),
            Ok(_) => Err(SavedError::Damaged),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(SavedError::Damaged),
            Err(error) => Err(error.into()),
        }
    }

    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, SavedError> {
        let text = self.text()?;
        self.hash.update(text.as_bytes());
        serde_json::from_str(&text).map_err(|_| SavedError::Damaged)
    }
}

/// Passes bytes on, and hashes them.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
