//! A stream of a Redis server.

use std::path::Path;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, TlsCertificates, Value};

use crate::ExportError;
use crate::timing::{ANSWER_MAX, CONNECT_MAX};
use crate::record::Record;

/// A connection to a stream of a Redis server.
pub(crate) struct RedisStream {
    connection: MultiplexedConnection,
    stream: String,
}

impl RedisStream {
    pub(crate) async fn open(
        info: ConnectionInfo,
        authorities: Option<&Path>,
        stream: &str,
    ) -> Result<Self, ExportError> {
        let client = match authorities {
            Some(path) => {
                let root_cert = std::fs::read(path).map_err(|source| ExportError::Authorities {
                    path: path.to_owned(),
                    source,
                })?;
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(root_cert),
                };
                Client::build_with_tls(info, certificates)?
            }
            None => Client::open(info)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self {
            connection: connection.await?,
            stream: stream.to_owned(),
        })
    }

    /// Appends records, all of them or none, so that none comes before an earlier one that is refused.
    pub(crate) async fn send(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut transaction = redis::pipe();
        transaction.atomic();
        for record in records {
            transaction
                .cmd("XADD")
                .arg(&self.stream)
                .arg("*")
                .arg("version")
                .arg(record.version)
                .arg("hash")
                .arg(&record.hash)
                .arg("record")
                .arg(&record.json);
        }
        let _: Vec<Value> = transaction.query_async(&mut self.connection).await?;
        Ok(())
    }
}
