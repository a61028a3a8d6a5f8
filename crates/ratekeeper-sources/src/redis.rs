//! Texts under a key of Redis: a string, or a hash with a text in each field.

use percent_encoding::percent_decode_str;
use ratekeeper_rules::Source;
use ratekeeper_store_redis::{Endpoint, EndpointError, TextKey, Texts};
use ratekeeper_tls::TlsFiles;

use crate::fetch_error::{FetchError, TEXTS_MAX};
use crate::texts::{NewTexts, source};

/// A key of Redis, and how to read it.
#[derive(Clone, Debug)]
pub struct RedisKeyConfig {
    endpoint: Endpoint,
    key: String,
    name: String,
}

/// The fault of a key's URL. No message repeats it: it may have a password in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadRedisKey {
    /// There is no key.
    #[error("the key of the rules is missing; write redis://HOST:PORT/DB?key=NAME")]
    NoKey,
    /// The servers are not named well.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Files for TLS, and no encryption.
    #[error("files for TLS mean nothing here; write rediss://")]
    NotEncrypted,
}

impl RedisKeyConfig {
    /// The key that `url` names: any URL of a [`Endpoint`], with `?key=NAME`. `name` is the URL without secrets. Files for TLS
    /// are read for each connection.
    ///
    /// # Errors
    /// It names no server, or no key.
    pub fn new(url: &str, name: String, tls: TlsFiles) -> Result<Self, BadRedisKey> {
        let (place, query) = url.split_once('?').ok_or(BadRedisKey::NoKey)?;
        let (keys, others): (Vec<&str>, Vec<&str>) =
            query.split('&').partition(|pair| pair.starts_with("key="));
        let [key] = *keys else {
            return Err(BadRedisKey::NoKey);
        };
        let key = percent_decode_str(key.trim_start_matches("key="));
        let key = key.decode_utf8().map_err(|_| BadRedisKey::NoKey)?;
        if key.is_empty() {
            return Err(BadRedisKey::NoKey);
        }
        let url = match others.is_empty() {
            true => place.to_owned(),
            false => format!("{place}?{}", others.join("&")),
        };
        let mut endpoint = Endpoint::parse(&url)?;
        if tls != TlsFiles::default() {
            endpoint = endpoint.with_tls(tls).ok_or(BadRedisKey::NotEncrypted)?;
        }
        Ok(Self {
            endpoint,
            key: key.into_owned(),
            name,
        })
    }

    /// The key and its servers, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A key that is read again and again.
#[derive(Debug)]
pub(crate) struct RedisPlace {
    key: TextKey,
    name: String,
}

impl RedisPlace {
    pub(crate) fn new(config: &RedisKeyConfig) -> Self {
        Self {
            key: TextKey::new(&config.endpoint, &config.key),
            name: config.key.clone(),
        }
    }

    pub(crate) async fn fetch(&mut self) -> Result<Vec<Source>, FetchError> {
        match self.key.read().await? {
            Texts::None => Err(FetchError::Gone(self.name.clone())),
            Texts::Other(kind) => Err(FetchError::KeyType(kind)),
            Texts::One(text) => Ok(vec![source(self.name.as_bytes(), text)?]),
            Texts::Many(texts) if texts.len() > TEXTS_MAX => Err(FetchError::TooMany),
            Texts::Many(texts) => {
                let texts = texts.into_iter();
                texts.map(|(name, text)| source(&name, text)).collect()
            }
        }
    }

    /// Puts one text there, or several as a hash.
    pub(crate) async fn replace(&mut self, texts: NewTexts) -> Result<(), FetchError> {
        let texts = match texts {
            NewTexts::One(text) => Texts::One(text.into_bytes()),
            NewTexts::Many(texts) => {
                let fields = texts.into_iter();
                let fields = fields.map(|it| (it.name.into_bytes(), it.text.into_bytes()));
                Texts::Many(fields.collect())
            }
        };
        Ok(self.key.write(&texts).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(url: &str) -> Result<RedisKeyConfig, BadRedisKey> {
        RedisKeyConfig::new(url, "shown".to_owned(), TlsFiles::default())
    }

    #[test]
    fn a_url_names_servers_and_a_key() {
        for (url, name) in [
            ("redis://localhost:6379/2?key=rules", "rules"),
            (
                "rediss://u:p@localhost/?prefix=a&key=my%20rules",
                "my rules",
            ),
            ("redis+cluster://a:1,b:2/?key={r}", "{r}"),
            ("redis+unix:///run/r.sock?db=1&key=r", "r"),
        ] {
            assert_eq!(key(url).expect(url).key, name, "{url}");
        }
        for url in [
            "redis://localhost",
            "redis://localhost/?key=",
            "redis://localhost/?key=a&key=b",
            "redis://localhost/?prefix=a",
        ] {
            assert_eq!(key(url).map(drop), Err(BadRedisKey::NoKey), "{url}");
        }
        let odd = key("redis://localhost/?key=a&colour=red").map(drop);
        assert!(matches!(odd, Err(BadRedisKey::Endpoint(_))));
    }
}
