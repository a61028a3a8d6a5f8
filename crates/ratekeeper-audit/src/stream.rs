//! A stream of Redis or Valkey: of one server, of the primary that sentinels name, or of a cluster.

use ratekeeper_store_redis::{Endpoint, StreamWriter};

use crate::ExportError;
use crate::record::Record;

/// A stream of Redis or Valkey.
pub(crate) struct RedisStream {
    writer: StreamWriter,
    /// The server whose last entry is known to be what it should be, and the connection over which it said so.
    checked: Option<(Box<str>, u64)>,
}

impl RedisStream {
    pub(crate) fn new(endpoint: &Endpoint, stream: &str) -> Self {
        Self {
            writer: StreamWriter::new(endpoint, stream),
            checked: None,
        }
    }

    /// The number and the hash of the last record, unless this server has told it over this connection. A server that
    /// took over or restarted may have fewer records than were confirmed.
    pub(crate) async fn last(&mut self) -> Result<Option<(u64, String)>, ExportError> {
        let server = self.writer.server().await?;
        let connection = self.writer.connection().await;
        let known = self.checked.as_ref();
        if known.is_some_and(|(name, number)| *name == server && connection == Some(*number)) {
            return Ok(None);
        }
        let last = self.writer.last(["version", "hash"]).await?;
        let connection = self.writer.connection().await;
        self.checked = connection.map(|connection| (server, connection));
        Ok(last.and_then(|[version, hash]| Some((version.parse().ok()?, hash))))
    }

    /// Appends records, all of them or none, so that none comes before an earlier one that is refused.
    pub(crate) async fn send(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let versions: Vec<_> = records
            .iter()
            .map(|record| record.version.to_string())
            .collect();
        let entries: Vec<_> = records
            .iter()
            .zip(&versions)
            .map(|(record, version)| {
                [
                    ("version", version.as_str()),
                    ("hash", record.hash.as_str()),
                    ("record", record.json.as_str()),
                ]
            })
            .collect();
        let (_, connection) = self.checked.as_ref().ok_or(ExportError::Disconnected)?;
        self.writer.append(*connection, &entries).await?;
        Ok(())
    }
}
