//! A stream of Redis or Valkey: of one server, of the primary that sentinels name, or of a cluster.

use ratekeeper_store_redis::{Endpoint, StreamWriter};

use crate::ExportError;
use crate::record::Record;

/// A stream of Redis or Valkey.
pub(crate) struct RedisStream {
    writer: StreamWriter,
    /// The server whose last entry is known to be what it should be.
    checked: Option<Box<str>>,
}

impl RedisStream {
    pub(crate) fn new(endpoint: &Endpoint, stream: &str) -> Self {
        Self {
            writer: StreamWriter::new(endpoint, stream),
            checked: None,
        }
    }

    /// The number and the hash of the last record, if the server has not been asked yet: one that took over may have
    /// fewer records than the one before confirmed.
    pub(crate) async fn last(&mut self) -> Result<Option<(u64, String)>, ExportError> {
        let server = self.writer.server().await?;
        if self.checked.as_ref() == Some(&server) {
            return Ok(None);
        }
        let last = self.writer.last(["version", "hash"]).await?;
        self.checked = Some(server);
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
        self.writer.append(&entries).await?;
        Ok(())
    }
}
