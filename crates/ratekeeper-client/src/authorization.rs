//! The bearer token that each call carries, and the file that it is read from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tonic::metadata::{Ascii, MetadataValue};
use tracing::warn;

use crate::{Config, ConfigError};

/// The value of the header with the token.
type Header = MetadataValue<Ascii>;

/// The minimum interval between two readings of the file: each refused call asks for one.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// A longer file holds no token.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The header with the caller's token.
#[derive(Debug)]
pub(crate) enum Authorization {
    /// There is no token.
    None,
    /// A token that never changes.
    Fixed(Header),
    /// A token that others renew.
    OfFile(TokenFile),
}

/// A token file, and what was last read from it.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    header: RwLock<Header>,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// None before the file is read for the second time.
    last: Option<Instant>,
    /// True if the log has told that the file cannot be used.
    is_reported: bool,
}

impl Authorization {
    /// Takes the token of `config`, from its file if it names one. Blocks.
    ///
    /// # Errors
    /// The token cannot be read, or cannot be sent.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        match (&config.token_file, &config.token) {
            (Some(path), _) => TokenFile::read(path).map(Self::OfFile),
            (None, Some(token)) => header(token).ok_or(ConfigError::Token).map(Self::Fixed),
            (None, None) => Ok(Self::None),
        }
    }

    /// The header for a call that begins now.
    pub(crate) fn header(&self) -> Option<Header> {
        match self {
            Self::None => None,
            Self::Fixed(header) => Some(header.clone()),
            Self::OfFile(file) => Some(file.header.read().clone()),
        }
    }

    /// Returns true if there is another token by now than the one in `refused`, which the service does not know. Reads
    /// the file if that may tell; blocks for that time.
    pub(crate) fn is_renewed(&self, refused: Option<&Header>) -> bool {
        match self {
            Self::None | Self::Fixed(_) => false,
            Self::OfFile(file) => {
                let is_other = || Some(&*file.header.read()) != refused;
                is_other() || {
                    file.read_again();
                    is_other()
                }
            }
        }
    }
}

impl TokenFile {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::TokenFile(path.to_owned(), error);
        let token = token(path).map_err(unreadable)?;
        Ok(Self {
            path: path.to_owned(),
            header: RwLock::new(header(&token).ok_or(ConfigError::Token)?),
            reading: Mutex::new(Reading {
                last: None,
                is_reported: false,
            }),
        })
    }

    /// Reads the file unless that was done a moment ago, or is being done. An unusable file leaves the last token in use.
    fn read_again(&self) {
        let Some(mut reading) = self.reading.try_lock() else {
            return;
        };
        if reading.last.is_some_and(|at| at.elapsed() < READ_INTERVAL) {
            return;
        }
        reading.last = Some(Instant::now());
        let unsendable = || io::Error::new(io::ErrorKind::InvalidData, ConfigError::Token);
        let read = token(&self.path).and_then(|it| header(&it).ok_or_else(unsendable));
        match read {
            Ok(header) => {
                reading.is_reported = false;
                *self.header.write() = header;
            }
            Err(error) if !reading.is_reported => {
                reading.is_reported = true;
                let path = self.path.display();
                warn!(%path, %error, "the token file cannot be used; the last token stays in use");
            }
            Err(_) => {}
        }
    }
}

/// The token in a file, without the end of its line.
fn token(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(FILE_BYTES_MAX + 1);
    let length = { read }.read_to_string(&mut text)?;
    let invalid = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    match text.trim() {
        "" => invalid("it is empty"),
        _ if u64::try_from(length).is_ok_and(|length| length > FILE_BYTES_MAX) => {
            invalid("it is longer than any token")
        }
        token => Ok(token.to_owned()),
    }
}

/// The header with a token; none for one that cannot be sent.
fn header(token: &str) -> Option<Header> {
    let mut value: Header = format!("Bearer {token}").parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(path: &Path) -> Result<Authorization, ConfigError> {
        let mut config = Config::new("http://127.0.0.1:1");
        config.token_file = Some(path.to_owned());
        Authorization::new(&config)
    }

    #[test]
    fn a_token_is_read_again_only_if_it_is_the_one_that_is_refused() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("token");
        let put = |text: &str| std::fs::write(&path, text).expect("a file can be written");
        put("one\n");
        let authorization = of_file(&path).expect("there is a token");
        let first = authorization.header();
        put("two\n");
        assert_eq!(authorization.header(), first, "nobody has refused it");
        assert!(authorization.is_renewed(first.as_ref()));
        let second = authorization.header();
        assert_eq!(second, header("two"));
        put("three\n");
        assert!(authorization.is_renewed(first.as_ref()));
        assert_eq!(authorization.header(), second, "a late answer to the first");
        assert!(
            !authorization.is_renewed(second.as_ref()),
            "read a moment ago"
        );
    }

    #[test]
    fn a_file_that_is_half_written_leaves_the_token_in_use() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("token");
        for bad in ["", " \n", "a\nb"] {
            std::fs::write(&path, "one\n").expect("a file can be written");
            let authorization = of_file(&path).expect("there is a token");
            let first = authorization.header();
            std::fs::write(&path, bad).expect("a file can be written");
            assert!(!authorization.is_renewed(first.as_ref()), "{bad:?}");
            assert_eq!(authorization.header(), first);
            assert!(of_file(&path).is_err(), "{bad:?}");
        }
    }
}
