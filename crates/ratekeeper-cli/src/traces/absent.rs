//! A build without the exporter.

use crate::settings::Settings;
use anyhow::{Result, bail};
use ratekeeper_server::Monitored;
use ratekeeper_trace::Tracer;
use std::sync::Arc;

/// The export of spans, which this build does not have.
pub(crate) enum Traces {}

impl Traces {
    /// Refuses to start if traces are wanted.
    ///
    /// # Errors
    /// A collector is set.
    pub(crate) fn start(settings: &Settings) -> Result<Option<Self>> {
        match settings.traces.endpoint {
            None => Ok(None),
            Some(_) => bail!(
                "otlp_endpoint: this program was built without traces; build it with the feature `traces` of \
                 ratekeeper-cli, or leave the setting out"
            ),
        }
    }

    pub(crate) fn tracer(&self) -> Tracer {
        match *self {}
    }

    pub(crate) fn report(&self) -> Arc<dyn Monitored> {
        match *self {}
    }

    pub(crate) async fn finish(self) {
        match self {}
    }
}
