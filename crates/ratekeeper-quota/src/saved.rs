//! The copy of the quotas that a node saves, for a start while the database is away.
//!
//! A file of JSON lines: a head, a line for each tenant, and the SHA-256 of all that. Tenants are in it by
//! their keyed hash alone.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use ratekeeper_core::formats::{OtherVersion, QUOTA_COPY};
use ratekeeper_rules::{Dated, TenantHash, TenantIndex, TenantKey, TenantPlan, TenantQuotas, Term};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::audited::UndatedLimit;
use crate::store::fingerprint;

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
    #[error(transparent)]
    OtherFormat(#[from] OtherVersion),
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
    quotas: SavedQuotas,
    /// True if the database has the tenant, though without plans and overrides; otherwise those that have none are traces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_bare: bool,
}

/// The quotas of a tenant in a line, each part behind its time.
#[derive(Serialize, Deserialize)]
struct SavedQuotas {
    plans: Vec<(Term, Box<str>)>,
    overrides: Vec<(Term, UndatedLimit)>,
    epoch: u32,
}

impl From<TenantQuotas> for SavedQuotas {
    fn from(quotas: TenantQuotas) -> Self {
        let plans = quotas.plans.into_iter();
        let overrides = quotas.overrides.iter();
        Self {
            plans: plans.map(termed).collect(),
            overrides: overrides
                .map(|own| (own.term(), UndatedLimit::of(own)))
                .collect(),
            epoch: quotas.epoch,
        }
    }
}

/// The plan's name behind its time. No other field of a plan is left out: the copy would be without it.
fn termed(plan: TenantPlan) -> (Term, Box<str>) {
    let term = plan.term();
    let TenantPlan {
        plan,
        effective_at: _,
        expires_at: _,
    } = plan;
    (term, plan)
}

impl From<SavedQuotas> for TenantQuotas {
    fn from(saved: SavedQuotas) -> Self {
        let plans = saved.plans.into_iter();
        let overrides = saved.overrides.into_iter();
        Self {
            plans: plans
                .map(|(term, plan)| TenantPlan::new(plan).during(term))
                .collect(),
            overrides: overrides.map(|(term, own)| own.0.during(term)).collect(),
            epoch: saved.epoch,
        }
    }
}

/// Returns true if there are neither plans nor overrides.
const fn is_bare(quotas: &TenantQuotas) -> bool {
    quotas.plans.is_empty() && quotas.overrides.is_empty()
}

/// Saves the tenants and the number of their last change; blocks. Whoever reads meanwhile sees the earlier
/// file or this one.
pub(crate) fn save(path: &Path, index: &TenantIndex, version: u64) -> Result<(), SavedError> {
    if let Ok(Some(mut lines)) = Lines::open(path)
        && let Err(error @ SavedError::OtherFormat(_)) = lines.head()
    {
        // One of a later version stays for that one.
        return Err(error);
    }
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
        format: QUOTA_COPY.version,
        key: fingerprint(index.key()),
        version,
        tenants: index.len(),
    };
    line(&mut file, &head)?;
    for (domain, tenant, quotas) in index.iter() {
        let tenant = Line {
            domain: domain.to_owned(),
            tenant: tenant.to_string(),
            is_bare: is_bare(&quotas) && !index.is_trace(domain, tenant),
            quotas: quotas.into(),
        };
        line(&mut file, &tenant)?;
    }
    let digest = hex::encode(file.hash.finalize());
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
    let Some(mut lines) = Lines::open(path)? else {
        return Ok(None);
    };
    let head = lines.head()?;
    if head.key != fingerprint(key) {
        return Err(SavedError::OtherKey);
    }
    let mut index = TenantIndex::new(key.clone());
    for _ in 0..head.tenants {
        let line: Line = lines.next()?;
        let hash: TenantHash = line.tenant.parse().map_err(|_| SavedError::Damaged)?;
        let quotas: TenantQuotas = line.quotas.into();
        match is_bare(&quotas) && !line.is_bare {
            true => index.put_trace(&line.domain, hash, quotas.epoch),
            false => index.put(&line.domain, hash, &quotas),
        }
    }
    let expected = hex::encode(lines.hash.clone().finalize());
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
    /// Opens the file; [`None`] if there is none.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self {
                file: BufReader::new(file),
                hash: Sha256::new(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the head, its format before anything else: a later version may have other fields.
    fn head(&mut self) -> Result<Head, SavedError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let text = self.line()?;
        if let Ok(Format { format }) = serde_json::from_str(&text) {
            QUOTA_COPY.check(format)?;
        }
        serde_json::from_str(&text).map_err(|_| SavedError::Damaged)
    }

    fn line(&mut self) -> Result<String, SavedError> {
        let text = self.text()?;
        self.hash.update(text.as_bytes());
        Ok(text)
    }

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
        serde_json::from_str(&self.line()?).map_err(|_| SavedError::Damaged)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_without_plans_is_no_trace_in_a_copy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("quotas.saved");
        let key = TenantKey::from_bytes([7; 16]);
        let mut index = TenantIndex::new(key.clone());
        let [bare, trace] = ["bare", "trace"].map(|name| key.hash(name));
        index.put("d", bare, &TenantQuotas::default());
        index.put_trace("d", trace, 3);
        save(&path, &index, 3).expect("it is written");
        let (loaded, _) = load(&path, &key).expect("it is read").expect("it is there");
        assert_eq!(loaded.len(), 2);
        assert_eq!(
            [bare, trace].map(|it| loaded.is_trace("d", it)),
            [false, true]
        );
    }

    #[test]
    fn a_copy_of_a_later_version_is_neither_used_nor_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("quotas.saved");
        let key = TenantKey::from_bytes([7; 16]);
        let index = TenantIndex::new(key.clone());
        save(&path, &index, 3).expect("it is written");
        let loaded = load(&path, &key).expect("it is read");
        assert_eq!(loaded.map(|(_, version)| version), Some(3));
        let text = fs::read_to_string(&path).expect("it is there");
        let newer = text.replace("\"format\":1,\"key\"", "\"format\":2,\"hash\"");
        fs::write(&path, &newer).expect("it is written");
        for said in [load(&path, &key).map(drop), save(&path, &index, 4)] {
            let said = said.expect_err("it is refused").to_string();
            let knows = "the copy of the quotas is of format 2, and this version of Ratekeeper knows format 1";
            assert!(said.starts_with(knows), "{said}");
        }
        assert_eq!(fs::read_to_string(&path).expect("it is there"), newer);
    }
}
