//! Requests reduced to time and client, from a log or generated, for measuring the accuracy of
//! limits.

use std::collections::HashMap;
use std::path::Path;

use ratekeeper_core::Timestamp;

use crate::generate::GeneratedRequest;
use crate::input::{Line, Lines, Log};
use crate::parse::LineParser;
use crate::{Fields, ReplayError};

/// The requests of a log in order of time; each client is a number.
///
/// # Errors
/// [`ReplayError`] if the log cannot be read.
pub fn of_log(path: &Path) -> Result<Vec<GeneratedRequest>, ReplayError> {
    let log = Log::File(path.to_owned());
    let mut lines = log
        .open()
        .and_then(|(source, _)| Lines::new(source))
        .map_err(|source| ReplayError::Read {
            log: log.name(),
            source,
        })?;
    let mut parser = LineParser::new(None, Fields::default());
    let mut clients: HashMap<String, u32> = HashMap::new();
    let mut requests: Vec<GeneratedRequest> = Vec::new();
    while let Some(line) = lines.next().map_err(|source| ReplayError::Read {
        log: log.name(),
        source,
    })? {
        let Line::Whole(line) = line else { continue };
        let Ok(record) = parser.parse(line) else {
            continue;
        };
        let time = record.time;
        let fresh = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        let client = *clients
            .entry(record.remote_address.into_owned())
            .or_insert(fresh);
        requests.push(GeneratedRequest { time, client });
    }
    // Servers write a line when they have answered, so start times are out of order.
    requests.sort_by_key(|request| request.time);
    Ok(requests)
}

/// The same requests with their times in whole seconds, as in most logs.
#[must_use]
pub fn in_seconds(requests: &[GeneratedRequest]) -> Vec<GeneratedRequest> {
    let whole = |time: Timestamp| Timestamp::from_secs(time.as_micros() / 1_000_000);
    requests
        .iter()
        .map(|&request| GeneratedRequest {
            time: whole(request.time),
            ..request
        })
        .collect()
}
