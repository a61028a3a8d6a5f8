//! The choice of headers that report limits to clients.

use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderName;
use ratekeeper_core::Micros;

use super::lines::{HeaderLines, Writer};
use super::status::shown;
use super::{Bound, RequestStatus, draft};

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
static RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
static RULE: HeaderName = HeaderName::from_static("x-ratelimit-rule");
static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static STATE: HeaderName = HeaderName::from_static("ratelimit");
static RETRY_AFTER: HeaderName = http::header::RETRY_AFTER;
static DEGRADED: HeaderName = super::DEGRADED;

/// The first second after the year 9999, where HTTP's dates end.
const DATES_END: u64 = 253_402_300_800;

/// The headers that report limits to clients, on allowed responses and denials alike.
///
/// Parsed from a comma-separated list of `draft`, `x-ratelimit`, `x-ratelimit-epoch`, `github`,
/// `retry-after`, `retry-after-date`, `rule` and `degraded`; `none` for no headers. The default is
/// `draft,x-ratelimit,retry-after`.
///
/// ```
/// use ratekeeper_http::answer::{Headers, LimitHeaders};
///
/// let headers: Headers = "draft, github, retry-after-date".parse()?;
/// assert_eq!(headers.limits, Some(LimitHeaders::GitHub));
/// // They share their names, and would contradict each other about the reset.
/// assert!("github, x-ratelimit".parse::<Headers>().is_err());
/// # Ok::<(), ratekeeper_http::answer::UnknownHeaders>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// `draft`: `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers.
    pub draft: bool,
    /// `X-RateLimit-Limit` and its companions, in one of three conventions.
    pub limits: Option<LimitHeaders>,
    /// `Retry-After`, after a denial that a wait can end.
    pub retry_after: Option<RetryAfter>,
    /// `rule`: `X-RateLimit-Rule` with the id of the denying rule, after a denial.
    pub rule: bool,
    /// `degraded`: [`DEGRADED`](super::DEGRADED), if a limit was answered without being counted.
    /// Off by default: a store's outage is the operator's concern, and tells attackers when limits
    /// are weak.
    pub degraded: bool,
}

/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitHeaders {
    /// `x-ratelimit`: the reset in seconds from now.
    Delta,
    /// `x-ratelimit-epoch`: the reset in seconds since the Unix epoch.
    Epoch,
    /// `github`: as `Epoch`, with `X-RateLimit-Used` and `-Resource`.
    GitHub,
}

/// The format of `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAfter {
    /// `retry-after`: seconds from now, never 0.
    Seconds,
    /// `retry-after-date`: a date.
    Date,
}

/// The reason why a list of headers is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnknownHeaders(String);

impl Default for Headers {
    fn default() -> Self {
        Self {
            draft: true,
            limits: Some(LimitHeaders::Delta),
            retry_after: Some(RetryAfter::Seconds),
            rule: false,
            degraded: false,
        }
    }
}

impl Headers {
    /// No headers.
    pub const NONE: Self = Self {
        draft: false,
        limits: None,
        retry_after: None,
        rule: false,
        degraded: false,
    };

    /// The header lines for `limits`.
    #[must_use]
    pub fn lines(&self, limits: &RequestStatus<'_>) -> HeaderLines {
        if *self == Self::NONE {
            return HeaderLines::new();
        }
        let mut lines = Writer::new();
        if let Some(binding) = &limits.binding {
            if let Some(kind) = self.limits {
                kind.put(limits, binding, &mut lines);
            }
            if self.draft {
                lines.put(&POLICY, |text| draft::policy(limits, text));
                lines.put(&STATE, |text| draft::state(limits, text));
            }
            if let (Some(kind), Some(seconds)) = (self.retry_after, binding.retry_after_secs()) {
                kind.put(limits, seconds, &mut lines);
            }
            if self.rule && !limits.allowed {
                lines.text(&RULE, &shown(binding.rule()));
            }
        }
        if self.degraded && limits.degraded {
            lines.text(&DEGRADED, "true");
        }
        lines.finish()
    }
}

impl LimitHeaders {
    fn put(self, limits: &RequestStatus<'_>, binding: &Bound<'_>, lines: &mut Writer) {
        let reset = match self {
            Self::Delta => binding.status.reset_after.as_secs_ceil(),
            Self::Epoch | Self::GitHub => epoch_secs(limits, binding.status.reset_after),
        };
        lines.number(&LIMIT, binding.quota.limit);
        lines.number(&REMAINING, binding.remaining());
        lines.number(&RESET, reset);
        if self == Self::GitHub {
            let used =
                binding.quota.limit.saturating_sub(binding.remaining()) + binding.status.debt;
            lines.number(&USED, used);
            lines.text(&RESOURCE, &binding.quota.name);
        }
    }
}

impl RetryAfter {
    fn put(self, limits: &RequestStatus<'_>, seconds: u64, lines: &mut Writer) {
        let date = epoch_secs(limits, Micros::from_secs(seconds));
        if self == Self::Seconds || date >= DATES_END {
            return lines.number(&RETRY_AFTER, seconds);
        }
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(date));
        lines.text(&RETRY_AFTER, &date);
    }
}

fn epoch_secs(limits: &RequestStatus<'_>, span: Micros) -> u64 {
    limits.at.after(span).as_micros().div_ceil(1_000_000)
}

impl FromStr for Headers {
    type Err = UnknownHeaders;

    fn from_str(list: &str) -> Result<Self, UnknownHeaders> {
        let mut headers = Self::NONE;
        let words = list.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            match word {
                "none" => {}
                "draft" => headers.draft = true,
                "rule" => headers.rule = true,
                "degraded" => headers.degraded = true,
                "x-ratelimit" => one(&mut headers.limits, LimitHeaders::Delta, word)?,
                "x-ratelimit-epoch" => one(&mut headers.limits, LimitHeaders::Epoch, word)?,
                "github" => one(&mut headers.limits, LimitHeaders::GitHub, word)?,
                "retry-after" => one(&mut headers.retry_after, RetryAfter::Seconds, word)?,
                "retry-after-date" => one(&mut headers.retry_after, RetryAfter::Date, word)?,
                _ => {
                    return Err(UnknownHeaders(format!(
                        "`{word}` is none of draft, x-ratelimit, x-ratelimit-epoch, github, retry-after, \
                         retry-after-date, rule, degraded and none"
                    )));
                }
            }
        }
        Ok(headers)
    }
}

fn one<T: PartialEq>(place: &mut Option<T>, value: T, word: &str) -> Result<(), UnknownHeaders> {
    match place.replace(value) {
        Some(other) if place.as_ref() != Some(&other) => Err(UnknownHeaders(format!(
            "`{word}` has the same headers as another of the list and means something else by them; keep one of them"
        ))),
        _ => Ok(()),
    }
}
