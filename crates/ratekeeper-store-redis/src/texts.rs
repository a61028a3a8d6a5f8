//! Texts under one key: a string, or a hash with a text in each field.

use std::collections::BTreeMap;

use redis::Pipeline;

use crate::endpoint::Endpoint;
use crate::key_link::{KeyError, KeyLink};

/// The texts under a key, up to 16 MiB in sum: a longer answer fails as one that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Texts {
    /// There is no such key.
    None,
    /// A string.
    One(Vec<u8>),
    /// A hash: texts by field.
    Many(BTreeMap<Vec<u8>, Vec<u8>>),
    /// The key is of this type, which has no texts.
    Other(String),
}

/// Reads and writes the texts under one key of a server, of the primary that sentinels name, or of a cluster.
#[derive(Debug)]
pub struct TextKey(KeyLink);

impl TextKey {
    /// The key `name` at `endpoint`, whose prefix comes before the name. Connects when it is read or written.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    #[must_use]
    pub fn new(endpoint: &Endpoint, name: &str) -> Self {
        Self(KeyLink::new(endpoint, name))
    }

    /// Reads all texts, in two calls.
    ///
    /// # Errors
    /// There was no answer, or a refusal. The next call reconnects.
    pub async fn read(&self) -> Result<Texts, KeyError> {
        self.0.server().await?;
        let call = |name: &str| {
            let mut call = Pipeline::new();
            call.cmd(name).arg(&self.0.key);
            call
        };
        let (kind,) = self.0.ask::<(String,)>(&call("TYPE")).await?;
        Ok(match &*kind {
            "none" => Texts::None,
            "string" => {
                let (text,) = self.0.ask::<(Option<Vec<u8>>,)>(&call("GET")).await?;
                text.map_or(Texts::None, Texts::One)
            }
            "hash" => {
                let (texts,) = self.0.ask::<(BTreeMap<_, _>,)>(&call("HGETALL")).await?;
                Texts::Many(texts)
            }
            _ => Texts::Other(kind),
        })
    }

    /// Replaces all texts at once.
    ///
    /// # Errors
    /// There was no answer, or a refusal; after the former they may have been replaced.
    pub async fn write(&self, texts: &Texts) -> Result<(), KeyError> {
        self.0.server().await?;
        let key = &self.0.key;
        let mut call = Pipeline::new();
        call.atomic().cmd("DEL").arg(key);
        match texts {
            Texts::None | Texts::Other(_) => {}
            Texts::One(text) => {
                call.cmd("SET").arg(key).arg(text);
            }
            Texts::Many(texts) if texts.is_empty() => {}
            Texts::Many(texts) => {
                call.cmd("HSET").arg(key);
                for (field, text) in texts {
                    call.arg(field).arg(text);
                }
            }
        }
        self.0.ask::<Vec<redis::Value>>(&call).await.map(drop)
    }
}
