//! A subject of NATS that a JetStream stream keeps.

use std::path::Path;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::{ConnectOptions, ServerAddr};

use crate::ExportError;
use crate::timing::{ANSWER_MAX, CONNECT_MAX};
use crate::record::Record;

/// A connection to NATS, and the subject to publish to.
pub(crate) struct Subject {
    jetstream: Context,
    subject: String,
}

impl Subject {
    pub(crate) async fn open(
        address: &ServerAddr,
        authorities: Option<&Path>,
        subject: &str,
    ) -> Result<Self, ExportError> {
        // A connection that is lost is not repaired: the exporter opens another one, in its own time.
        let mut options = ConnectOptions::new()
            .name("ratekeeper audit export")
            .connection_timeout(CONNECT_MAX)
            .max_reconnects(1);
        if let Some(path) = authorities {
            options = options.add_root_certificates(path.to_owned());
        }
        let client = options.connect(address.clone()).await?;
        let mut jetstream = async_nats::jetstream::new(client);
        jetstream.set_timeout(ANSWER_MAX);
        Ok(Self {
            jetstream,
            subject: subject.to_owned(),
        })
    }

    /// Publishes records. Each waits for the one before to be confirmed, so that none comes before an earlier one
    /// that is refused. JetStream drops those that it has had within its window for duplicates.
    pub(crate) async fn send(&mut self, records: &[Record]) -> Result<(), ExportError> {
        for record in records {
            let message = PublishMessage::build()
                .message_id(&record.hash)
                .payload(record.json.clone().into());
            let confirmed = self.jetstream.send_publish(self.subject.clone(), message);
            confirmed.await?.await?;
        }
        Ok(())
    }
}
