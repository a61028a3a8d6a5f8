//! The events of `GET /admin/v1/live`.

use crate::cli::AdminAccess;
use crate::client::Opened;
use anyhow::{Context, Result, bail};

/// The path of the stream.
const PATH: &str = "/admin/v1/live";

/// The longest line, in bytes: an hour of seconds, or a state with all its rules, has a tenth of this.
const LINE_MAX: u64 = 8 << 20;

/// An event of the stream; its data is JSON.
#[derive(Debug)]
pub(super) enum Event {
    /// The seconds of the last hour.
    History(String),
    /// The second that has just ended, and all that a page shows.
    State(String),
    /// The node shuts down.
    End,
}

/// A stream of events.
pub(super) struct Watch {
    opened: Opened,
    address: String,
}

impl Watch {
    /// Begins to watch the node that `access` names.
    ///
    /// # Errors
    /// There is no answer, or the service refuses.
    pub(super) fn open(access: &AdminAccess) -> Result<Self> {
        let opened = access.open(PATH)?;
        Ok(Self {
            opened,
            address: access.address.clone(),
        })
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// The stream has broken off, or was silent for too long.
    pub(super) fn next(&mut self) -> Result<Event> {
        let (mut name, mut data) = (String::new(), String::new());
        loop {
            let line = self.opened.line(LINE_MAX);
            let line = line.with_context(|| format!("{} says nothing any more", self.address))?;
            let Some(line) = line else {
                bail!("{} has closed the stream", self.address);
            };
            if let Some(told) = line.strip_prefix("event: ") {
                told.clone_into(&mut name);
            } else if let Some(told) = line.strip_prefix("data: ") {
                told.clone_into(&mut data);
            } else if line.is_empty() {
                match name.as_str() {
                    "history" => return Ok(Event::History(data)),
                    "state" => return Ok(Event::State(data)),
                    "end" => return Ok(Event::End),
                    // Later versions may have more.
                    _ => name.clear(),
                }
            }
        }
    }
}
