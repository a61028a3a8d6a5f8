//! The state of a source, for operators.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::{info, warn};

/// The most mistakes that are told; the source hears of all.
const MISTAKES_MAX: usize = 3;

/// The state of a source. Clones are of the same source.
#[derive(Clone, Debug)]
pub struct SourceStatus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    /// The name of what is fetched, in the plural.
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The reason why nothing can be fetched, and the time since when.
    failing: Option<(Timestamp, String)>,
    /// The mistakes of what was received last, besides those of the rules in it.
    mistaken: Option<String>,
    /// Silence is in the log, since the source was last there.
    is_silence_told: bool,
    deliveries: u64,
    refused: u64,
    failures: u64,
}

impl SourceStatus {
    /// The source of that name, without secrets; `what` it has, in the plural: "rules".
    pub(crate) fn new(name: String, what: &'static str) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Inner { name, what, state }))
    }

    /// The name of the source, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns true if the last attempt to fetch did not fail, and does not wait long for an answer.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.state.lock().failing.is_none()
    }

    /// The number of times that all texts were received.
    #[must_use]
    pub fn deliveries(&self) -> u64 {
        self.0.state.lock().deliveries
    }

    /// The number of those times that texts were refused, some or all.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.state.lock().refused
    }

    /// The number of failed attempts to fetch.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.state.lock().failures
    }

    /// The faults: nothing can be fetched, or what was received last is not what was asked for.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let told = |(since, why): &(Timestamp, String)| {
            let Inner { name, what, .. } = &*self.0;
            format!(
                "{what} cannot be fetched from {name} since {since:.0}: {why}; those in use stay"
            )
        };
        let mistaken = state.mistaken.iter().map(|why| {
            let Inner { name, what, .. } = &*self.0;
            format!("not all {what} of {name} are taken: {why}; the last good ones stay")
        });
        state.failing.iter().map(told).chain(mistaken).collect()
    }

    /// Records that texts arrived, and what became of them. Refusals are logged by those who refuse.
    pub(crate) fn delivered(&self, is_refused: bool) {
        let mut state = self.0.state.lock();
        state.deliveries += 1;
        state.refused += u64::from(is_refused);
    }

    /// Records what is wrong with what was received last, which those who take the rules do not see; nothing, if that
    /// is over. It is logged when it changes.
    pub(crate) fn mistaken(&self, mistakes: &[String]) {
        let mut told = mistakes
            .iter()
            .take(MISTAKES_MAX)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("; ");
        if let Some(more @ 1..) = mistakes.len().checked_sub(MISTAKES_MAX) {
            told.push_str(&format!("; and {more} more"));
        }
        let told = (!told.is_empty()).then_some(told);
        let mut state = self.0.state.lock();
        if state.mistaken != told {
            let what = self.0.what;
            match &told {
                Some(why) => {
                    warn!(source = %self.0.name, %why, "not all {what} are taken; the last good ones stay");
                }
                None => info!(source = %self.0.name, "all {what} are taken again"),
            }
            state.mistaken = told;
        }
    }

    /// Records that the source is there.
    pub(crate) fn reached(&self) {
        let mut state = self.0.state.lock();
        state.is_silence_told = false;
        let failing = state.failing.take();
        drop(state);
        if failing.is_some() {
            info!(source = %self.0.name, "{} can be fetched again", self.0.what);
        }
    }

    /// Records a failed attempt. The first one of a row is logged.
    pub(crate) fn failed(&self, why: String) {
        let mut state = self.0.state.lock();
        state.failures += 1;
        match &mut state.failing {
            Some((_, last)) => *last = why,
            none => {
                let what = self.0.what;
                warn!(source = %self.0.name, %why, "{what} cannot be fetched; those in use stay, and attempts go on");
                *none = Some((Timestamp::now(), why));
            }
        }
    }

    /// Records that the source is connected and says nothing. That is a fault and no failure: something may still come.
    /// The first one of a row is logged.
    pub(crate) fn silent(&self, why: String) {
        let mut state = self.0.state.lock();
        if !std::mem::replace(&mut state.is_silence_told, true) {
            let what = self.0.what;
            warn!(source = %self.0.name, %why, "no {what} come; those in use stay, and the connection too");
        }
        let since = state.failing.take().map(|(since, _)| since);
        state.failing = Some((since.unwrap_or_else(Timestamp::now), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_from_the_first_failure_to_the_next_success() {
        let status = SourceStatus::new("xds://a:1".to_owned(), "rules");
        assert!(status.is_up() && status.faults().is_empty());
        status.failed("refused".to_owned());
        status.failed("timed out".to_owned());
        let faults = status.faults();
        assert_eq!(
            (faults.len(), status.failures(), status.is_up()),
            (1, 2, false)
        );
        assert!(faults[0].starts_with("rules cannot be fetched from xds://a:1 since "));
        assert!(
            faults[0].ends_with(": timed out; those in use stay"),
            "{faults:?}"
        );
        status.reached();
        assert!(status.is_up() && status.faults().is_empty());
    }

    #[test]
    fn silence_is_a_fault_and_no_failure() {
        let status = SourceStatus::new("xds://a:1".to_owned(), "rules");
        status.failed("refused".to_owned());
        status.silent("silence".to_owned());
        let faults = status.faults();
        assert!(faults[0].contains(": silence; "), "{faults:?}");
        assert_eq!(
            (faults.len(), status.failures(), status.is_up()),
            (1, 1, false)
        );
        status.reached();
        assert!(status.is_up() && status.faults().is_empty());
    }

    #[test]
    fn mistakes_are_told_until_there_are_none() {
        let status = SourceStatus::new("xds://a:1".to_owned(), "rules");
        let mistakes: Vec<_> = (1..=5).map(|number| format!("m{number}")).collect();
        status.mistaken(&mistakes);
        assert_eq!(
            status.faults(),
            [
                "not all rules of xds://a:1 are taken: m1; m2; m3; and 2 more; the last good ones stay"
            ]
        );
        assert!(status.is_up());
        status.mistaken(&[]);
        assert!(status.faults().is_empty());
    }
}
