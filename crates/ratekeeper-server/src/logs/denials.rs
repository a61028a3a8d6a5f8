//! Denied requests, as operators are told about them: some lines a second in the log, and the latest ones in memory.
//!
//! Metrics count every denial. This is the sample that says who, by which rule, and for which request: it [has some](recent)
//! of each tenant and rule, so that a flood of one does not hide another. An allowed request costs nothing here; a denied
//! one at most the writing of a line, and a count once its tenant and the second have had their share.
//! An operator may [follow](followed) a few tenants for a while, whose denials are then all logged.

mod followed;
mod recent;
mod request;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::HeaderMap;
use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_http::answer::HttpDenial;
use ratekeeper_limiter::{Decision, RequestDescriptors};

use crate::admin_json::DeniedRequest;

pub(crate) use followed::{FOLLOWED_TIME_MAX, FollowedKey, FollowedKeys, begins};
use recent::RecentDenials;
pub(crate) use request::CheckOrigin;

/// Denials of a second that are kept whoever they are of. Of each tenant and rule, the first ones are kept besides.
const KEPT_PER_SECOND: u64 = 50;

/// The most characters of an id that a caller brings along.
const ID_MAX: usize = 128;

/// The settings of the denial log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DenialLogConfig {
    /// The most denied requests that are logged in one second, of checks and as many of a gateway; 0 for none.
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

/// The log, and the latest denials.
#[derive(Debug)]
pub struct DenialLog {
    config: DenialLogConfig,
    /// Those of checks, by the clock of limiters.
    of_checks: OfSecond,
    /// Those of a gateway, by the time since the start: stores tell theirs, by clocks of their own.
    of_gateway: OfSecond,
    began: Instant,
    left_out: AtomicU64,
    latest: Mutex<RecentDenials>,
    followed: FollowedKeys,
    ids: RandomState,
    ids_made: AtomicU64,
}

impl Default for DenialLog {
    fn default() -> Self {
        Self::new(DenialLogConfig::default())
    }
}

impl DenialLog {
    /// A log without any denials yet.
    #[must_use]
    pub fn new(config: DenialLogConfig) -> Self {
        Self {
            config,
            of_checks: OfSecond::default(),
            of_gateway: OfSecond::default(),
            began: Instant::now(),
            left_out: AtomicU64::new(0),
            latest: Mutex::default(),
            followed: FollowedKeys::default(),
            ids: RandomState::new(),
            ids_made: AtomicU64::new(0),
        }
    }

    /// The name of this node.
    pub(crate) fn node(&self) -> &str {
        &self.config.node
    }

    /// The keys with full denial logging.
    pub(crate) const fn followed(&self) -> &FollowedKeys {
        &self.followed
    }

    /// Logs and keeps the denial of a check of the time `at`, unless enough of this second are; `is_first` if it is one of the
    /// first of its key in this second.
    #[cold]
    pub(crate) fn record(
        &self,
        decision: &Decision,
        descriptors: RequestDescriptors<'_>,
        origin: CheckOrigin<'_>,
        (at, is_first): (Timestamp, bool),
    ) {
        let second = at.as_micros() / 1_000_000;
        self.record_with(&self.of_checks, second, is_first, || {
            let id = self.request_id(origin.headers);
            DeniedRequest::of_check(decision, descriptors, origin, at, id)
        });
    }

    /// Logs and keeps likewise a request that a gateway denied and knows by `id`; without one, the id is that of the
    /// headers, or a new one.
    #[cold]
    pub fn record_at_gateway(&self, denied: &HttpDenial<'_>, id: Option<&str>) {
        let denial = denied.denial;
        let pair = (&*denial.domain, denial.rule(), &*denial.subject);
        let second = self.second();
        let is_first = self.latest.lock().lacks(pair, second);
        self.record_with(&self.of_gateway, second, is_first, || {
            let id = match id {
                Some(id) => id.to_owned(),
                None => self.request_id(Some(denied.headers)),
            };
            DeniedRequest::at_gateway(denied, id)
        });
    }

    fn record_with(
        &self,
        counted: &OfSecond,
        second: u64,
        is_first: bool,
        describe: impl FnOnce() -> DeniedRequest,
    ) {
        let number = counted.number(second);
        let is_logged = number < self.config.lines_per_second;
        let is_kept = is_first || number < KEPT_PER_SECOND;
        let some_followed = self.followed.are_any();
        if !is_logged && !is_kept && !some_followed {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let denied = describe();
        let is_followed = some_followed && self.followed.takes(&denied.scope);
        if is_logged || is_followed {
            denied.log(self.node(), self.left_out.swap(0, Ordering::Relaxed));
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        if is_kept {
            // Of one clock, whichever counts the lines: both edges deny the same tenant.
            let second = self.second();
            self.latest.lock().keep(denied, second);
        }
    }

    /// The second of this log's own clock.
    fn second(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// The latest denials that `is_wanted` selects, the last first.
    pub(crate) fn latest(
        &self,
        most: usize,
        is_wanted: impl Fn(&DeniedRequest) -> bool,
    ) -> Vec<DeniedRequest> {
        self.latest.lock().latest(most, is_wanted)
    }

    /// The id that the caller gave the request, if it can stand in a log, else a new one.
    #[must_use]
    pub fn request_id(&self, headers: Option<&HeaderMap>) -> String {
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

/// The denials of one second.
#[derive(Debug, Default)]
struct OfSecond {
    second: AtomicU64,
    count: AtomicU64,
}

impl OfSecond {
    /// The number of denials before this one in its second, or in a later one that has begun.
    fn number(&self, second: u64) -> u64 {
        // Relaxed: two threads at the turn of a second may let a few more through, which does no harm. Answers of Redis
        // may be of the second before; they count in this one.
        if self.second.load(Ordering::Relaxed) < second {
            self.second.store(second, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use ratekeeper_http::answer::{Denial, RequestStatus};
    use smallvec::SmallVec;

    use super::*;

    /// A denial of that tenant, by a limit that is not known.
    fn denial(tenant: &str) -> Denial {
        let status = RequestStatus {
            allowed: false,
            degraded: false,
            at: Timestamp::from_secs(1_800_000_000),
            quotas: SmallVec::new(),
            binding: None,
            scope: Some(format!("customer:{tenant}")),
        };
        Denial {
            subject: format!("customer:{tenant}"),
            ..Denial::new(status, "d")
        }
    }

    #[test]
    fn a_tenant_that_is_denied_at_both_edges_has_its_share_of_a_second_once() {
        let log = DenialLog::default();
        let request = Request::new(());
        let (noisy, both) = (denial("noisy"), denial("both"));
        let [noisy, both] = [&noisy, &both].map(|it| HttpDenial::new(it, true, &request));
        for _ in 0..KEPT_PER_SECOND {
            log.record_at_gateway(&noisy, None);
        }
        for _ in 0..10 {
            log.record_with(&log.of_checks, 1_800_000_000, true, || {
                DeniedRequest::at_gateway(&both, "check".to_owned())
            });
            log.record_at_gateway(&both, Some("gateway"));
        }
        let kept = log.latest(usize::MAX, |denied| denied.request_id == "gateway");
        // Unless the second turned meanwhile.
        if log.began.elapsed().as_secs() == 0 {
            assert_eq!(kept.len(), 1, "{kept:?}");
        }
    }

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
    fn denials_are_numbered_by_second() {
        let counted = OfSecond::default();
        let numbers = |second| -> Vec<_> { (0..3).map(|_| counted.number(second)).collect() };
        assert_eq!(numbers(7), [0, 1, 2]);
        assert_eq!(numbers(8), [0, 1, 2]);
        // Answers that are late.
        assert_eq!(numbers(7), [3, 4, 5]);
    }
}
