//! Streams, to which entries are appended.

use redis::{Pipeline, Value};

use crate::endpoint::Endpoint;
use crate::key_link::{KeyError, KeyLink};
use crate::side_connection::BoardError;

/// The entries of a stream: their ids, each with its fields and values in turn.
type Entries = Vec<(String, Vec<String>)>;

/// Appends entries to a stream of a server, of the primary that sentinels name, or of a cluster.
#[derive(Debug)]
pub struct StreamWriter(KeyLink);

impl StreamWriter {
    /// The stream `name` at `endpoint`, whose prefix comes before the name. Connects when something is appended.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    #[must_use]
    pub fn new(endpoint: &Endpoint, name: &str) -> Self {
        Self(KeyLink::new(endpoint, name))
    }

    /// The server that has the stream now, without secrets.
    ///
    /// # Errors
    /// None is known.
    pub async fn server(&self) -> Result<Box<str>, KeyError> {
        self.0.server().await
    }

    /// The values of `fields` in the last entry; [`None`] if the stream has none, the entry lacks a field, or our user may
    /// not ask.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn last<const N: usize>(
        &self,
        fields: [&str; N],
    ) -> Result<Option<[String; N]>, KeyError> {
        let mut call = Pipeline::new();
        call.cmd("XREVRANGE").arg(&self.0.key).arg("+").arg("-");
        call.arg("COUNT").arg(1);
        let asked = self.0.link.ask::<(Entries,)>(&call).await;
        let (entries,) = match asked {
            Err(BoardError::Refused(_, error)) if error.code() == Some("NOPERM") => {
                return Ok(None);
            }
            asked => asked.map_err(|error| self.0.explained(error))?,
        };
        let Some((_, last)) = entries.into_iter().next() else {
            return Ok(None);
        };
        let value = |field: &str| {
            let mut pairs = last.chunks_exact(2).filter(|pair| pair[0] == field);
            pairs.next().map(|pair| pair[1].clone())
        };
        let found: Option<Vec<String>> = fields.into_iter().map(value).collect();
        Ok(found.and_then(|found| found.try_into().ok()))
    }

    /// The number of the connection over which the last answer came; [`None`] if it was closed. A server that restarted
    /// has closed it, and may have lost entries.
    pub async fn connection(&self) -> Option<u64> {
        self.0.link.connection().await
    }

    /// Appends entries, each a list of fields and their values: all of them or none. After an error all of them may be
    /// there. Over another connection than the one of this number nothing is sent.
    ///
    /// # Errors
    /// There was no answer, a refusal, or the connection was closed. [`Self::last`] looks for the server and
    /// reconnects.
    pub async fn append<const N: usize>(
        &self,
        connection: u64,
        entries: &[[(&str, &str); N]],
    ) -> Result<(), KeyError> {
        let mut transaction = Pipeline::new();
        transaction.atomic();
        for entry in entries {
            transaction.cmd("XADD").arg(&self.0.key).arg("*");
            for (field, value) in entry {
                transaction.arg(*field).arg(*value);
            }
        }
        let appended = self.0.link.ask_over::<Vec<Value>>(connection, &transaction);
        let appended = appended.await;
        appended.map(drop).map_err(|error| self.0.explained(error))
    }
}
