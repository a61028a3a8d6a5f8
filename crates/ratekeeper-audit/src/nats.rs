//! A subject of NATS that a JetStream stream keeps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::{ConnectOptions, ServerAddr};
use ratekeeper_tls::ClientTls;

use crate::ExportError;
use crate::credentials::Credentials;
use crate::record::Record;

/// The longest time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The longest time for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A server of NATS, and the files to connect with. They are read for each connection, so that renewed ones are used.
#[derive(Clone)]
pub(crate) struct NatsServer {
    pub(crate) address: ServerAddr,
    /// The TLS settings; [`None`] to encrypt only if the server asks for it, trusting the authorities of the system.
    pub(crate) tls: Option<Arc<ClientTls>>,
    /// The file with an nkey, or with a JWT and its nkey.
    pub(crate) credentials: Option<PathBuf>,
}

/// A connection to NATS, and the subject to publish to.
pub(crate) struct Subject {
    jetstream: Context,
    subject: String,
}

impl NatsServer {
    fn options(&self) -> Result<ConnectOptions, ExportError> {
        // A connection that is lost is not repaired: the exporter opens another one, in its own time.
        let mut options = ConnectOptions::new()
            .name("ratekeeper audit export")
            .connection_timeout(CONNECT_MAX)
            .max_reconnects(1);
        if let Some(tls) = &self.tls {
            let config = tls.config()?;
            options = options
                .tls_client_config((*config).clone())
                .require_tls(true);
        }
        if let Some(path) = &self.credentials {
            options = Credentials::read(path)?.applied_to(options);
        }
        Ok(options)
    }
}

impl Subject {
    pub(crate) async fn open(server: &NatsServer, subject: &str) -> Result<Self, ExportError> {
        let client = server.options()?.connect(server.address.clone()).await?;
        let mut jetstream = async_nats::jetstream::new(client);
        jetstream.set_timeout(ANSWER_MAX);
        Ok(Self {
            jetstream,
            subject: subject.to_owned(),
        })
    }

    /// Publishes records. Each waits for the one before to be confirmed, so that none comes before an earlier one
    /// that is refused; `confirmed` counts them. JetStream drops those that it has had within its window for duplicates.
    pub(crate) async fn send(
        &mut self,
        records: &[Record],
        confirmed: &mut usize,
    ) -> Result<(), ExportError> {
        for record in records {
            let message = PublishMessage::build()
                .message_id(&record.hash)
                .payload(record.json.clone().into());
            let published = self.jetstream.send_publish(self.subject.clone(), message);
            published.await?.await?;
            *confirmed += 1;
        }
        Ok(())
    }
}
