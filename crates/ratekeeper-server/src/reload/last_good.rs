//! The last good rules, kept in the data folder for a node that starts while the files are broken, or where rules come
//! from is away.
//!
//! The texts are kept, of rules and tenants alike, and compiled again at the start: whatever version of the program and
//! whatever settings are in use by then.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ratekeeper_core::formats::LAST_GOOD_RULES;
use ratekeeper_rules::Source;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::source::RulesSource;
use crate::data_dir::atomic_file::{self, BadFile};

const NAME: &str = "rules.last-good.json";

/// The most bytes of the file. Larger sets are not kept.
const BYTES_MAX: usize = 32 << 20;

/// The file with the last good rules.
#[derive(Debug)]
pub(super) struct LastGood {
    path: PathBuf,
    /// A hash of what was asked for: rules from elsewhere are not used.
    asked: String,
    /// True while the file cannot be written, which is logged once.
    is_failing: AtomicBool,
}

/// Rules that were in force.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct GoodRules {
    /// The time at which they were kept, in seconds since 1970.
    pub(super) at: u64,
    pub(super) sources: Vec<Source>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content<T> {
    version: u32,
    asked: T,
    at: u64,
    files: Vec<Text<T>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<T> {
    name: T,
    text: T,
}

/// The reason why kept rules cannot be used, or rules cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum LastGoodError {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("they came from elsewhere than is asked for now")]
    Elsewhere,
    #[error("they take {0} bytes, more than {BYTES_MAX}")]
    TooLarge(usize),
}

impl LastGood {
    /// The file in `folder`, for rules from what was `asked` for.
    pub(super) fn new(folder: &Path, asked: String) -> Self {
        Self {
            path: folder.join(NAME),
            asked,
            is_failing: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps `sources`, which are in force as of `at`; blocks. Rules that cannot be kept are in force all the same.
    pub(super) fn keep(&self, at: u64, sources: &[Source]) {
        let kept = self.write(at, sources);
        // Relaxed: one task keeps.
        let was_failing = self.is_failing.swap(kept.is_err(), Ordering::Relaxed);
        let path = self.path.display();
        match kept {
            Err(why) if !was_failing => warn!(
                %why, %path,
                "the rules in use cannot be kept: a node that starts while the files are broken would not have them"
            ),
            Ok(()) if was_failing => info!(%path, "the rules in use are kept again"),
            _ => {}
        }
    }

    fn write(&self, at: u64, sources: &[Source]) -> Result<(), LastGoodError> {
        let files = sources.iter().map(|source| Text {
            name: &*source.name,
            text: &*source.text,
        });
        let content = Content {
            version: LAST_GOOD_RULES.version,
            asked: &*self.asked,
            at,
            files: files.collect(),
        };
        let bytes = serde_json::to_vec(&content).map_err(BadFile::from)?;
        if let Ok(Some(before)) = atomic_file::read_up_to(&self.path, BYTES_MAX as u64) {
            // Of a later version: it stays for that one.
            atomic_file::check_version(&before, LAST_GOOD_RULES).map_err(BadFile::from)?;
        }
        match bytes.len() {
            0..=BYTES_MAX => Ok(atomic_file::write(&self.path, &bytes).map_err(BadFile::from)?),
            many => Err(LastGoodError::TooLarge(many)),
        }
    }

    /// The rules that were kept; [`None`] if there never were any.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(super) fn read(&self) -> Result<Option<GoodRules>, LastGoodError> {
        let bytes_max = BYTES_MAX as u64;
        let content = atomic_file::load_up_to(&self.path, LAST_GOOD_RULES, bytes_max)?;
        let Some(content): Option<Content<String>> = content else {
            return Ok(None);
        };
        if content.asked != self.asked {
            return Err(LastGoodError::Elsewhere);
        }
        let sources = content
            .files
            .into_iter()
            .map(|Text { name, text }| Source { name, text });
        Ok(Some(GoodRules {
            at: content.at,
            sources: sources.collect(),
        }))
    }
}

/// A hash of the files that are asked for, and of how they are read and joined.
pub(super) fn asked_of_files(source: &RulesSource) -> String {
    let mut hasher = Sha256::new();
    for path in [Some(&source.path), source.tenants.as_ref()] {
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        let bytes = path
            .as_deref()
            .map(|path| path.as_os_str().as_encoded_bytes());
        // Lengths go before texts, so that no two lists of paths are alike.
        hasher.update(
            bytes
                .map_or(u64::MAX, |bytes| bytes.len() as u64)
                .to_be_bytes(),
        );
        hasher.update(bytes.unwrap_or_default());
    }
    hasher.update([
        u8::from(source.read.every_file),
        u8::from(source.options.merge_domains),
    ]);
    hex::encode(hasher.finalize())
}

/// A hash of the feed that is asked.
pub(super) fn asked_of_feed(name: &str) -> String {
    let mut hasher = Sha256::new();
    // No path is that long.
    hasher.update((u64::MAX - 1).to_be_bytes());
    hasher.update(name);
    hex::encode(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ratekeeper_rules::{Options, ReadOptions};
    use tempfile::tempdir;

    use super::*;

    fn source(path: &str, tenants: Option<&str>) -> RulesSource {
        RulesSource {
            path: path.into(),
            tenants: tenants.map(Into::into),
            read: ReadOptions::default(),
            options: Options::default(),
        }
    }

    fn texts(text: &str) -> Vec<Source> {
        vec![Source {
            name: "a.yaml".to_owned(),
            text: text.to_owned(),
        }]
    }

    #[test]
    fn rules_are_kept_whole_and_private_and_read_for_the_same_files_only() {
        let folder = tempdir().expect("a folder");
        let good = LastGood::new(folder.path(), asked_of_files(&source("rules", None)));
        assert!(matches!(good.read(), Ok(None)), "there never were any");
        for (at, text) in [(1, "one"), (2, "two, \u{0}and \u{fffd}more")] {
            good.keep(at, &texts(text));
            let sources = texts(text);
            assert_eq!(
                good.read().expect("they are there"),
                Some(GoodRules { at, sources })
            );
        }
        let mut other_files = source("rules", None);
        other_files.options.merge_domains = true;
        for other in [
            source("rule", None),
            source("rules", Some("")),
            source("", Some("rules")),
            other_files,
        ] {
            let other = LastGood::new(folder.path(), asked_of_files(&other)).read();
            assert!(matches!(other, Err(LastGoodError::Elsewhere)), "{other:?}");
        }
        let feed = LastGood::new(folder.path(), asked_of_feed("rules")).read();
        assert!(matches!(feed, Err(LastGoodError::Elsewhere)), "{feed:?}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(good.path())
                .expect("it is there")
                .permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_damaged_too_large_or_of_another_version_is_not_used() {
        let folder = tempdir().expect("a folder");
        let good = LastGood::new(folder.path(), asked_of_files(&source("rules", None)));
        good.keep(1, &texts("one"));
        let text = fs::read_to_string(good.path()).expect("it is there");
        let newer = text.replace("\"version\":1,", "\"version\":2,\"more\":[],");
        fs::write(good.path(), &newer).expect("it is written");
        let said = good.read().expect_err("it is refused").to_string();
        assert!(
            said.contains("is of format 2, and this version of Ratekeeper knows format 1"),
            "{said}"
        );
        good.keep(2, &texts("two"));
        let left = fs::read_to_string(good.path()).expect("it is there");
        assert_eq!(left, newer, "it is not written over");
        fs::write(good.path(), &text[..text.len() / 2]).expect("it is written");
        assert!(matches!(
            good.read(),
            Err(LastGoodError::File(BadFile::Json(_)))
        ));
        good.keep(1, &texts("one"));
        good.keep(2, &texts(&"x".repeat(BYTES_MAX)));
        assert_eq!(
            good.read().expect("the last one that fits").map(|it| it.at),
            Some(1)
        );
    }
}
