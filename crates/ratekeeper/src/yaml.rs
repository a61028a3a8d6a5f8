//! Limiters of rules in YAML.

use std::path::Path;

use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{self as rules, Options, ReadError, ReadOptions, Source};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

use crate::{Error, MemoryLimiter};

/// Creates a limiter with the rules in `text` and the default options.
///
/// ```
/// use ratekeeper::Check;
///
/// let rules = "{ domain: api, descriptors: [ { key: user, rate_limit: { window: 1m, limit: 1 } } ] }";
/// let limiter = ratekeeper::from_yaml(rules)?;
/// let check = Check::new("api").descriptor([("user", "ada")]);
/// assert!(limiter.check_now(&check).allowed());
/// assert!(!limiter.check_now(&check).allowed());
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// # Errors
/// [`Error::Rules`] has all errors in the rules, with line and column.
pub fn from_yaml(text: &str) -> Result<MemoryLimiter, Error> {
    let source = Source {
        name: "rules".to_owned(),
        text: text.to_owned(),
    };
    limiter(&[source])
}

/// Creates a limiter with the rules in a file, or in the `*.yaml` and `*.yml` files of a folder, and
/// the default options. The rules are read once: to follow changes, load them again and call
/// [`Limiter::replace_rules`].
///
/// ```no_run
/// let limiter = ratekeeper::from_path("rules.yaml")?;
/// println!("{} rules", limiter.snapshot().rules().rules().len());
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// # Errors
/// [`Error::Read`] if they cannot be read, [`Error::Rules`] if they are refused.
pub fn from_path(path: impl AsRef<Path>) -> Result<MemoryLimiter, Error> {
    match rules::read(path.as_ref(), &ReadOptions::default()) {
        Ok(sources) => limiter(&sources),
        Err(ReadError::Unreadable(unreadable)) => Err(unreadable.all(&Options::default()).into()),
        Err(error) => Err(error.into()),
    }
}

fn limiter(sources: &[Source]) -> Result<MemoryLimiter, Error> {
    let rules = rules::load(sources, &Options::default())?.rules;
    let store = MemoryStore::new(MemoryConfig::default())?;
    Ok(Limiter::new(rules, store, LimiterOptions::default()))
}
