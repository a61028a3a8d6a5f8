//! The tokens of one node: their hashes, in a file of the data folder.
//!
//! `tokens.json` has those of a node without a quota database, and `tokens.local.json` those that `token create --local`
//! makes, which count on this node whatever the database says.

mod admin_token;

use std::fs::File;
use std::io;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use ratekeeper_core::formats::{REVOKED_TOKENS, StoredFormat, TOKENS};
use ratekeeper_quota::{FleetToken, NodeTokens, RevokedToken};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) use admin_token::from_hex;
pub use admin_token::{AdminToken, AdminTokenError};

use super::Role;
use super::callers::is_equal;
use crate::data_dir::atomic_file;

/// The tokens of a node without a quota database.
const OWN: &str = "tokens.json";

/// The tokens that are made to count on one node alone.
const LOCAL: &str = "tokens.local.json";

/// The tokens of `tokens.json` that were revoked: the file of another node may still have them.
const REVOKED: &str = "tokens.revoked.json";

/// The ending of files that are in the quota database by now.
const IMPORTED: &str = "imported";

/// The marker that remembers that there was a token once.
const MARKER: &str = "tokens-required";

/// The lock under which the file is changed.
const LOCK: &str = "tokens.lock";

/// The most tokens there can be.
const TOKENS_MAX: usize = 1_000;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    tokens: Vec<AdminToken>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokedContent {
    version: u32,
    revoked: Vec<Revoked>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Revoked {
    name: Box<str>,
    sha256: Box<str>,
}

/// The tokens of one data folder.
#[derive(Debug)]
pub struct Tokens {
    folder: PathBuf,
    /// The file in it.
    file: &'static str,
    read: Mutex<Reading>,
}

/// The last reading of the file, and what the file looked like then.
#[derive(Debug, Default)]
struct Reading {
    stamp: Option<Stamp>,
    tokens: Vec<([u8; 32], Box<str>, Role)>,
}

/// The properties of a file that change when it is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    #[cfg(unix)]
    inode: u64,
}

impl Tokens {
    /// The tokens of a node without a quota database, in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self::in_file(folder, OWN)
    }

    /// The tokens in `folder` that count on its node alone, with a quota database and without.
    #[must_use]
    pub fn local(folder: &Path) -> Self {
        Self::in_file(folder, LOCAL)
    }

    fn in_file(folder: &Path, file: &'static str) -> Self {
        Self {
            folder: folder.to_path_buf(),
            file,
            read: Mutex::default(),
        }
    }

    /// Makes a token, and returns it: it is kept nowhere.
    ///
    /// # Errors
    /// The name is taken or not a name, there are too many, or the files cannot be written.
    pub fn create(&self, name: &str, role: Role) -> Result<String, AdminTokenError> {
        let (token, secret) = AdminToken::generate(name, role)?;
        let _alone = self.lock()?;
        let mut content = self.load()?;
        if content.tokens.iter().any(|token| *token.name == *name) {
            return Err(AdminTokenError::Taken(name.into()));
        }
        if content.tokens.len() >= TOKENS_MAX {
            return Err(AdminTokenError::TooMany);
        }
        content.tokens.push(token);
        // First: from here on requests without a token are refused.
        self.mark()?;
        self.save(&content)?;
        Ok(secret)
    }

    /// The tokens, in the order in which they were made.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<AdminToken>, AdminTokenError> {
        Ok(self.load()?.tokens)
    }

    /// Takes a token away; it is refused from the next request on.
    ///
    /// # Errors
    /// There is none of that name; the file cannot be written, so that the token still counts; or it counts no more, and
    /// [that cannot be kept](AdminTokenError::NotKept).
    pub fn revoke(&self, name: &str) -> Result<(), AdminTokenError> {
        let _alone = self.lock()?;
        let mut content = self.load()?;
        let is_it = |token: &mut AdminToken| *token.name == *name;
        let revoked: Vec<_> = content.tokens.extract_if(.., is_it).collect();
        if revoked.is_empty() {
            return Err(AdminTokenError::Unknown(name.into()));
        }
        // First: whoever is cut off in between finds the token still there, and can revoke it again.
        let kept = match self.file == OWN {
            true => self.remember(&revoked),
            false => Ok(()),
        };
        // Whether or not that is kept, the token is to be refused from now on.
        self.save(&content)?;
        kept.map_err(|source| AdminTokenError::NotKept {
            name: name.into(),
            source: source.into(),
        })
    }

    /// Remembers revoked tokens, so that they stay revoked once nodes share their tokens.
    fn remember(&self, revoked: &[AdminToken]) -> Result<(), AdminTokenError> {
        let mut all = self.revoked()?;
        // An attempt that did not get further may have remembered them.
        all.retain(|known| revoked.iter().all(|token| token.sha256 != known.sha256));
        all.extend(revoked.iter().map(|token| Revoked {
            name: token.name.clone(),
            sha256: token.sha256.clone(),
        }));
        // The oldest are forgotten first.
        all.drain(..all.len().saturating_sub(TOKENS_MAX));
        let content = RevokedContent {
            version: REVOKED_TOKENS.version,
            revoked: all,
        };
        let text = serde_json::to_vec_pretty(&content).unwrap_or_default();
        self.write(REVOKED, &text)
    }

    fn revoked(&self) -> Result<Vec<Revoked>, AdminTokenError> {
        let content = self.read_file::<RevokedContent>(REVOKED, REVOKED_TOKENS)?;
        Ok(content.map_or_else(Vec::new, |content| content.revoked))
    }

    /// The tokens of the node for a quota database that is to have them; [`None`] if the files have nothing to add.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn to_import(&self) -> Result<Option<NodeTokens>, AdminTokenError> {
        let is_hash = |sha256: &str| from_hex(sha256).is_some();
        let tokens = self.load()?.tokens.into_iter();
        let tokens = tokens.filter(|token| is_hash(&token.sha256));
        let revoked = self.revoked()?.into_iter();
        let revoked = revoked.filter(|token| is_hash(&token.sha256));
        let all = NodeTokens {
            tokens: tokens.map(FleetToken::from).collect(),
            revoked: revoked
                .map(|Revoked { name, sha256 }| RevokedToken { name, sha256 })
                .collect(),
            required: self.is_required(),
        };
        let has_any = all.required || !all.revoked.is_empty();
        Ok(Some(all).filter(|_| has_any))
    }

    /// Moves the files out of the way, since a quota database has what is in them.
    ///
    /// # Errors
    /// They cannot be moved.
    pub(crate) fn set_imported(&self) -> Result<(), AdminTokenError> {
        let _alone = self.lock()?;
        for name in [OWN, REVOKED] {
            let path = self.folder.join(name);
            let aside = self.folder.join(format!("{name}.{IMPORTED}"));
            match std::fs::rename(&path, aside) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved.map_err(|source| AdminTokenError::Io { path, source })?,
            }
        }
        Ok(())
    }

    /// Adds tokens that the node had from a quota database which it uses no more. Those that are here already, or were
    /// revoked here, are left out.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn adopt(&self, tokens: Vec<AdminToken>) -> Result<(), AdminTokenError> {
        let _alone = self.lock()?;
        let mut content = self.load()?;
        let revoked = self.revoked()?;
        for token in tokens {
            let is_same = |other: &str| *other == *token.sha256;
            let is_known = content.tokens.iter().any(|it| is_same(&it.sha256))
                || revoked.iter().any(|it| is_same(&it.sha256));
            if !is_known && content.tokens.len() < TOKENS_MAX {
                content.tokens.push(token);
            }
        }
        self.mark()?;
        self.save(&content)
    }

    /// Requires a token of everybody from here on, whatever becomes of the tokens.
    pub(crate) fn mark(&self) -> Result<(), AdminTokenError> {
        if std::fs::symlink_metadata(self.folder.join(MARKER)).is_ok() {
            return Ok(());
        }
        self.write(
            MARKER,
            b"Every client of the admin API needs a token, because there was one once.\n",
        )
    }

    /// Returns true if there is a token, or was one, or the folder does not tell.
    #[must_use]
    pub fn is_required(&self) -> bool {
        let is_there = |name| match std::fs::symlink_metadata(self.folder.join(name)) {
            Ok(_) => true,
            // There is no folder, or a file in its place.
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => false,
            // A folder that cannot be looked into is no open door.
            Err(_) => true,
        };
        is_there(MARKER) || is_there(self.file)
    }

    /// The holder of the token with this hash. The file is looked at each time, so that a token counts as soon
    /// as it is made, and no longer than until it is revoked. Of a damaged file no token counts.
    pub(crate) fn find(&self, hash: &[u8; 32]) -> Option<(Box<str>, Role)> {
        let mut read = self.read.lock();
        let stamp = Stamp::of(&self.folder.join(self.file));
        if stamp.is_none() || stamp != read.stamp {
            read.take(stamp, self.list());
        }
        // All are compared, each in whole: the time tells nothing of how near a guess was.
        let mut found = None;
        for (known, name, role) in &read.tokens {
            if is_equal(known, hash) {
                found = Some((name.clone(), *role));
            }
        }
        found
    }

    fn load(&self) -> Result<Content, AdminTokenError> {
        let content = self.read_file(self.file, TOKENS)?;
        Ok(content.unwrap_or_else(|| Content {
            version: TOKENS.version,
            tokens: Vec::new(),
        }))
    }

    /// Reads a file of the folder; [`None`] where there is none.
    fn read_file<T: DeserializeOwned>(
        &self,
        name: &str,
        format: StoredFormat,
    ) -> Result<Option<T>, AdminTokenError> {
        let path = self.folder.join(name);
        atomic_file::load(&path, format).map_err(|bad| AdminTokenError::of_file(path, bad))
    }

    fn save(&self, content: &Content) -> Result<(), AdminTokenError> {
        // Names and numbers: nothing in there can fail.
        let text = serde_json::to_vec_pretty(content).unwrap_or_default();
        self.write(self.file, &text)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), AdminTokenError> {
        let path = self.folder.join(name);
        atomic_file::write(&path, bytes).map_err(|source| AdminTokenError::Io { path, source })
    }

    /// Waits for other processes that change the tokens; the lock ends with the file.
    fn lock(&self) -> Result<File, AdminTokenError> {
        let path = self.folder.join(LOCK);
        let locked = atomic_file::make_private_folder(&self.folder)
            .and_then(|()| File::create(&path))
            .and_then(|file| file.lock().map(|()| file));
        locked.map_err(|source| AdminTokenError::Io { path, source })
    }
}

impl Reading {
    /// Takes what was read of the file that looked like `stamp`. A file that could not be read is read again by the next
    /// request: the reason may pass, such as too many open files, and leave the file as it is.
    fn take(&mut self, stamp: Option<Stamp>, read: Result<Vec<AdminToken>, AdminTokenError>) {
        self.stamp = stamp.filter(|_| !matches!(read, Err(AdminTokenError::Io { .. })));
        let tokens = read.unwrap_or_else(|error| {
            tracing::error!(%error, "no token of the admin API can be used");
            Vec::new()
        });
        let known = tokens.into_iter();
        let known =
            known.filter_map(|token| Some((from_hex(&token.sha256)?, token.name, token.role)));
        self.tokens = known.collect();
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: found.modified().ok(),
            bytes: found.len(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&found),
        })
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::admin_token::PREFIX;
    use super::*;

    fn hash(token: &str) -> [u8; 32] {
        Sha256::digest(token).into()
    }

    #[test]
    fn a_token_counts_from_its_making_to_its_revocation() {
        let folder = tempfile::tempdir().expect("a folder");
        let (command, service) = (Tokens::new(folder.path()), Tokens::new(folder.path()));
        assert!(!service.is_required());
        assert_eq!(service.find(&hash("")), None);
        let ann = command.create("ann", Role::Editor).expect("it is made");
        assert!(service.is_required());
        assert_eq!(
            service.find(&hash(&ann)),
            Some(("ann".into(), Role::Editor))
        );
        let bob = command.create("bob", Role::Viewer).expect("it is made");
        assert_ne!(ann, bob);
        assert_eq!(
            service.find(&hash(&bob)),
            Some(("bob".into(), Role::Viewer))
        );
        assert!(matches!(
            command.create("bob", Role::Admin),
            Err(AdminTokenError::Taken(_))
        ));
        let text = std::fs::read_to_string(folder.path().join(OWN)).expect("it is there");
        assert!(!text.contains(&ann[PREFIX.len()..]), "only hashes are kept");
        command.revoke("ann").expect("it is there");
        assert_eq!(service.find(&hash(&ann)), None);
        assert!(matches!(
            command.revoke("ann"),
            Err(AdminTokenError::Unknown(_))
        ));
        command.revoke("bob").expect("it is there");
        assert!(service.is_required(), "the last one does not open the door");
        assert!(command.list().expect("it is read").is_empty());
    }

    /// Makes writing a file fail, until the folder in its way is removed.
    fn in_the_way(folder: &Path, file: &str) -> PathBuf {
        let path = folder.join(format!("{file}.new"));
        std::fs::create_dir(&path).expect("it is made");
        path
    }

    #[test]
    fn a_revocation_that_was_cut_off_can_be_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::new(folder.path());
        let ann = tokens.create("ann", Role::Admin).expect("it is made");
        let way = in_the_way(folder.path(), OWN);
        let failed = tokens.revoke("ann").expect_err("it cannot be written");
        assert!(matches!(failed, AdminTokenError::Io { .. }), "{failed}");
        assert!(tokens.find(&hash(&ann)).is_some(), "as it is told");
        assert_eq!(tokens.revoked().expect("it is read").len(), 1);
        std::fs::remove_dir(way).expect("it is there");
        tokens.revoke("ann").expect("it is still there");
        assert_eq!(tokens.find(&hash(&ann)), None);
        assert_eq!(tokens.revoked().expect("it is read").len(), 1);
    }

    #[test]
    fn a_revocation_that_cannot_be_kept_is_in_force_and_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::new(folder.path());
        let ann = tokens.create("ann", Role::Admin).expect("it is made");
        let _way = in_the_way(folder.path(), REVOKED);
        let told = tokens.revoke("ann").expect_err("it cannot be kept");
        assert_eq!(tokens.find(&hash(&ann)), None);
        let told = told.to_string();
        assert!(told.contains("the token of \"ann\" is revoked"), "{told}");
    }

    #[test]
    fn a_damaged_or_missing_file_opens_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::new(folder.path());
        let ann = tokens.create("ann", Role::Admin).expect("it is made");
        std::fs::write(folder.path().join(OWN), "{").expect("it is written");
        assert_eq!(tokens.find(&hash(&ann)), None);
        assert!(tokens.is_required());
        assert!(matches!(
            tokens.list(),
            Err(AdminTokenError::Damaged { .. })
        ));
        std::fs::remove_file(folder.path().join(OWN)).expect("it is there");
        assert!(tokens.is_required());
        assert_eq!(tokens.find(&hash(&ann)), None);
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::new(folder.path());
        let ann = tokens.create("ann", Role::Admin).expect("it is made");
        let path = folder.path().join(OWN);
        let stamp = Stamp::of(&path);
        // As while there are too many open files.
        let source = io::Error::other("no file can be opened");
        let failed = Err(AdminTokenError::Io { path, source });
        tokens.read.lock().take(stamp, failed);
        assert!(tokens.find(&hash(&ann)).is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_looked_into_opens_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let around = folder.path().join("around");
        std::os::unix::fs::symlink(&around, &around).expect("it is made");
        assert!(Tokens::new(&around).is_required());
        assert!(!Tokens::new(&folder.path().join("missing")).is_required());
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("it is written");
        assert!(!Tokens::new(&file).is_required());
    }

    #[test]
    fn a_file_of_a_later_version_opens_nothing_and_is_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::new(folder.path());
        let ann = tokens.create("ann", Role::Admin).expect("it is made");
        let path = folder.path().join(OWN);
        let text = std::fs::read_to_string(&path).expect("it is there");
        let newer = text.replace("\"version\": 1,", "\"version\": 2, \"more\": [],");
        std::fs::write(&path, &newer).expect("it is written");
        assert_eq!(tokens.find(&hash(&ann)), None);
        assert!(tokens.is_required());
        let said = [
            tokens.create("bob", Role::Viewer).map(drop),
            tokens.revoke("ann"),
            tokens.list().map(drop),
        ];
        for said in said {
            let said = said.expect_err("it is refused").to_string();
            let knows = "tokens.json: the file of tokens is of format 2, and this version of Ratekeeper knows format 1";
            assert!(said.contains(knows), "{said}");
        }
        let left = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(left, newer);
    }

    #[test]
    fn names_are_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::new(folder.path());
        for name in ["", "a\nb", &"x".repeat(101)] {
            assert!(matches!(
                tokens.create(name, Role::Viewer),
                Err(AdminTokenError::Name)
            ));
        }
    }
}
