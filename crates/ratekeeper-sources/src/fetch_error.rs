//! The reasons why texts cannot be fetched.

use std::io;
use std::time::Duration;

use http::StatusCode;
use ratekeeper_store_redis::KeyError;

/// The most bytes of texts that are fetched together: as many as a file of rules may have.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// The most texts that are fetched together: as many as a folder may have files.
pub(crate) const TEXTS_MAX: usize = 10_000;

/// The longest that a fetch may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The reason why nothing was fetched, or put there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// There is no connection.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// HTTP is not spoken well.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// There can be no such request.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The server's answer is another one.
    #[error("it answers {0}")]
    Status(StatusCode),
    /// It takes too long.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
    /// It is too much, or breaks off.
    #[error("the text cannot be read, or is larger than 16 MiB")]
    Body,
    /// It is none.
    #[error("the text{} is not UTF-8", of(.0))]
    NotText(Option<String>),
    /// The texts have names that cannot be shown.
    #[error("{0:?} cannot be the name of a text: write 1 to 255 printable characters")]
    Name(String),
    /// Redis has no such key, or etcd none of this name or below it.
    #[error("there is no key {0}")]
    Gone(String),
    /// The key has no texts.
    #[error("the key is a {0}; it has to be a string, or a hash with a text in each field")]
    KeyType(String),
    /// There are too many texts.
    #[error("there are more than {TEXTS_MAX} texts")]
    TooMany,
    /// Redis does not answer, or refuses.
    #[error("{0}")]
    Redis(#[from] KeyError),
    /// etcd does not answer, or refuses.
    #[error("{0}")]
    Etcd(String),
    /// Another one has changed the texts since they were read.
    #[error("somebody else has changed the rules in the meantime; look at them, and push again")]
    Changed,
    /// Only texts in Redis and etcd can be replaced.
    #[error("rules can be put into redis:// and etcd:// only")]
    ReadOnly,
    /// The place has one text.
    #[error("the key of a single text; name a file, or end the key with / to have a key a file")]
    OneText,
    /// The place has a text a key.
    #[error(
        "the key ends with /, and is for a folder, with a key a file; leave out the / for a single file"
    )]
    ManyTexts,
}

fn of(name: &Option<String>) -> String {
    name.as_ref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default()
}
