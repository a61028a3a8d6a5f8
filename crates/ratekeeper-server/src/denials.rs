//! Denied requests, as operators are told about them: some lines a second in the log, and the latest ones in memory.
//!
//! Metrics count every denial. This is the sample that says who, by which rule, and for which request. An allowed
//! request costs nothing here; a denied one at most the writing of a line, and a count once a second has had its share.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::HeaderMap;
use parking_lot::Mutex;
use ratekeeper_core::{Algorithm, Timestamp, Verdict};
use ratekeeper_limiter::{Check, Decision};
use ratekeeper_rules::Rule;
use serde::Serialize;
use utoipa::ToSchema;

/// The latest denials that are kept.
const KEPT_MAX: usize = 500;

/// Of those, the most from one second: a flood does not push everything else out at once.
const KEPT_PER_SECOND: u64 = 50;

/// The most characters of a method or path.
const TEXT_MAX: usize = 256;

/// The most characters of an id that a caller brings along.
const ID_MAX: usize = 128;

/// The settings of the denial log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DenialLogConfig {
    /// The most denied requests that are logged in one second; 0 for none.
    pub lines_per_second: u64,
    /// The name of this node, in each line.
    pub node: Box<str>,
}

impl Default for DenialLogConfig {
    fn default() -> Self {
        Self {
            lines_per_second: 10,
            node: "".into(),
        }
    }
}

/// The request that a check is about, as far as its edge knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckOrigin<'a> {
    /// The protocol of the edge.
    pub(crate) protocol: &'static str,
    /// Headers or metadata of the call that asked.
    pub(crate) headers: Option<&'a HeaderMap>,
    /// Method and path of the limited request, the path without its query.
    pub(crate) method: Option<&'a str>,
    pub(crate) path: Option<&'a str>,
}

impl<'a> CheckOrigin<'a> {
    /// A call of which nothing is known but its headers.
    pub(crate) const fn new(protocol: &'static str, headers: Option<&'a HeaderMap>) -> Self {
        Self {
            protocol,
            headers,
            method: None,
            path: None,
        }
    }
}

/// A denied request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct DeniedRequest {
    pub(crate) time: String,
    /// The caller's `x-request-id`, else one made here.
    pub(crate) request_id: String,
    pub(crate) protocol: &'static str,
    pub(crate) domain: String,
    /// The rule that denied; empty if the request brought its own limit.
    pub(crate) rule: String,
    /// The limit in words: `100 per 1m`.
    pub(crate) limit: String,
    /// The descriptor under the limit, secrets as fingerprints.
    pub(crate) scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Absent if no wait helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    /// True if a failure mode denied it, not a counter.
    pub(crate) degraded: bool,
}

/// The log, and the latest denials.
#[derive(Debug)]
pub(crate) struct DenialLog {
    config: DenialLogConfig,
    begun: Instant,
    /// The second that the count is about.
    second: AtomicU64,
    count: AtomicU64,
    left_out: AtomicU64,
    latest: Mutex<VecDeque<DeniedRequest>>,
    ids: RandomState,
    ids_made: AtomicU64,
}

impl DenialLog {
    pub(crate) fn new(config: DenialLogConfig) -> Self {
        Self {
            config,
            begun: Instant::now(),
            second: AtomicU64::new(0),
            count: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            latest: Mutex::default(),
            ids: RandomState::new(),
            ids_made: AtomicU64::new(0),
        }
    }

    /// The name of this node.
    pub(crate) fn node(&self) -> &str {
        &self.config.node
    }

    /// Logs and keeps the denial of `check` at `now`, unless enough of this second are.
    #[cold]
    pub(crate) fn note(
        &self,
        decision: &Decision,
        check: &Check<'_>,
        origin: CheckOrigin<'_>,
        now: Timestamp,
    ) {
        let number = self.number();
        let is_logged = number < self.config.lines_per_second;
        if !is_logged {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        let is_kept = number < KEPT_PER_SECOND;
        if !is_logged && !is_kept {
            return;
        }
        let denied = self.describe(decision, check, origin, now);
        if is_logged {
            self.log(&denied);
        }
        if is_kept {
            let mut latest = self.latest.lock();
            if latest.len() >= KEPT_MAX {
                latest.pop_front();
            }
            latest.push_back(denied);
        }
    }

    /// The latest denials that `is_wanted` selects, the last first.
    pub(crate) fn latest(
        &self,
        most: usize,
        is_wanted: impl Fn(&DeniedRequest) -> bool,
    ) -> Vec<DeniedRequest> {
        let latest = self.latest.lock();
        let wanted = latest.iter().rev().filter(|denied| is_wanted(denied));
        wanted.take(most).cloned().collect()
    }

    /// The number of denials before this one in the current second.
    fn number(&self) -> u64 {
        let second = self.begun.elapsed().as_secs();
        // Relaxed: two threads at the turn of a second may let a few more through, which does no harm.
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    fn describe(
        &self,
        decision: &Decision,
        check: &Check<'_>,
        origin: CheckOrigin<'_>,
        now: Timestamp,
    ) -> DeniedRequest {
        let binding = decision.binding();
        let rule = binding.and_then(|binding| decision.rule(binding));
        let descriptor = decision
            .binding_descriptor()
            .and_then(|number| check.descriptors.get(number));
        let domain = descriptor.map_or(check.domain, |descriptor| {
            descriptor.domain_in(check.domain)
        });
        let scope = descriptor.map(|descriptor| {
            let scope = decision.snapshot().scope(domain, descriptor.entries);
            scope.into_text()
        });
        let wait = binding.filter(|binding| binding.answered.verdict == Verdict::Later);
        DeniedRequest {
            time: rfc3339(now),
            request_id: self.request_id(origin.headers),
            protocol: origin.protocol,
            domain: cut(domain),
            rule: rule.map(|rule| rule.id.to_string()).unwrap_or_default(),
            limit: rule.map(in_short).unwrap_or_default(),
            scope: cut(&scope.unwrap_or_default()),
            method: origin.method.map(cut),
            path: origin.path.map(cut),
            retry_after_ms: wait.map(|binding| binding.answered.retry_after.as_millis_ceil()),
            degraded: decision.is_degraded(),
        }
    }

    fn log(&self, denied: &DeniedRequest) {
        tracing::info!(
            request_id = denied.request_id,
            protocol = denied.protocol,
            domain = denied.domain,
            rule = denied.rule,
            limit = denied.limit,
            scope = denied.scope,
            method = denied.method,
            path = denied.path,
            retry_after_ms = denied.retry_after_ms,
            degraded = denied.degraded,
            node = &*self.config.node,
            left_out = self.left_out.swap(0, Ordering::Relaxed),
            "request over its limit"
        );
    }

    /// The id that the caller gave the request, if it can stand in a log, else a new one.
    fn request_id(&self, headers: Option<&HeaderMap>) -> String {
        let told = headers.and_then(|headers| headers.get("x-request-id"));
        let told = told.and_then(|told| told.to_str().ok());
        match told.filter(|told| (1..=ID_MAX).contains(&told.len())) {
            Some(told) => told.to_owned(),
            None => {
                let number = self.ids_made.fetch_add(1, Ordering::Relaxed);
                format!("{:016x}", self.ids.hash_one(number))
            }
        }
    }
}

/// The limit of `rule`: `100 per 1m`.
fn in_short(rule: &Rule) -> String {
    match rule.limited() {
        None => "unlimited".to_owned(),
        Some(limit) if limit.algorithm() == Algorithm::Concurrency => {
            format!("{} at a time", limit.quota())
        }
        Some(limit) => format!("{} per {}", limit.quota(), rule.window_text),
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX)].to_owned()
}

fn rfc3339(now: Timestamp) -> String {
    let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros);
    time.unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_callers_are_taken_if_they_can_stand_in_a_log() {
        let log = DenialLog::new(DenialLogConfig::default());
        let id = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            let value = http::HeaderValue::from_bytes(value).expect("a header");
            headers.insert("x-request-id", value);
            log.request_id(Some(&headers))
        };
        assert_eq!(id(b"abc-1"), "abc-1");
        for bad in [&b""[..], b"\xff\xfe", &[b'a'; ID_MAX + 1]] {
            assert_eq!(id(bad).len(), 16, "{bad:?}");
        }
        assert_ne!(log.request_id(None), log.request_id(None));
    }

    #[test]
    fn a_second_has_a_bounded_number() {
        let log = DenialLog::new(DenialLogConfig::default());
        let second = log.begun.elapsed().as_secs();
        let numbers: Vec<_> = (0..1_000).map(|_| log.number()).collect();
        // Unless the second turned meanwhile.
        if log.begun.elapsed().as_secs() == second {
            assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
        }
    }
}
