//! Parsers for settings that are like no other.

use super::value_error::ValueError;
use super::values;
use ratekeeper_rules::{FailureMode, PathFolding, Profile};
use ratekeeper_server::{EnvoyCallers, OnUnreadable};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

/// The least that counters can be given, in bytes.
pub(super) const MEMORY_LIMIT_MIN: u64 = 1 << 20;

/// Parses the profile, which says what rules mean where they leave it open.
pub(crate) fn profile(text: &str) -> Result<Profile, ValueError> {
    values::one_of(
        text,
        &[
            ("ratekeeper", Profile::Ratekeeper),
            ("envoy", Profile::Envoy),
        ],
    )
}

/// The differences between paths that do not count unless the settings say which: envoyproxy/ratelimit
/// compares letter by letter.
pub(crate) const fn path_folding(profile: Profile) -> PathFolding {
    let ignores = matches!(profile, Profile::Ratekeeper);
    PathFolding {
        ignores_case: ignores,
        ignores_trailing_slash: ignores,
    }
}

/// Parses the permissions that requests over Envoy's protocol need.
pub(super) fn envoy_callers(text: &str) -> Result<EnvoyCallers, ValueError> {
    let words = [
        ("any", EnvoyCallers::Any),
        ("permitted", EnvoyCallers::Permitted),
        ("required", EnvoyCallers::Required),
    ];
    values::one_of(text, &words)
}

/// Parses the answer to a request that cannot be read.
pub(super) fn on_unreadable(text: &str) -> Result<OnUnreadable, ValueError> {
    let words = [
        ("deny", OnUnreadable::Deny),
        ("allow", OnUnreadable::Allow),
        ("error", OnUnreadable::Error),
    ];
    values::one_of(text, &words)
}

pub(super) fn failure_mode(text: &str) -> Result<FailureMode, ValueError> {
    let words = [
        ("local", FailureMode::Local),
        ("allow", FailureMode::Allow),
        ("deny", FailureMode::Deny),
    ];
    values::one_of(text, &words)
}

pub(super) fn memory_limit(text: &str) -> Result<u64, ValueError> {
    let size = values::size(text)?;
    if size < MEMORY_LIMIT_MIN {
        return Err(ValueError::TooLittleMemory(text.into()));
    }
    Ok(size)
}

/// A number of threads; if none is given, one for each core that this process may use.
pub(super) fn worker_threads(text: &str) -> Result<NonZeroUsize, ValueError> {
    if text.is_empty() {
        // A system that cannot say how many cores it has gets one thread.
        return Ok(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    }
    // More would only take turns.
    let threads = values::number(text, 1..=1_024_usize)?;
    Ok(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
}

/// A second at least: pings are work for both sides.
pub(super) fn keepalive(text: &str) -> Result<Duration, ValueError> {
    let duration = values::duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err(ValueError::TooShort(text.into()));
    }
    Ok(duration)
}

/// Parses the drain delay, 10 minutes at most: supervisors cannot be expected to wait longer.
pub(super) fn drain_delay(text: &str) -> Result<Duration, ValueError> {
    values::duration_within(text, Duration::ZERO..=Duration::from_mins(10))
}

/// The kinds of headers in answers to Envoy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeaderKinds {
    pub(super) limits: bool,
    pub(super) draft: bool,
    pub(super) degraded: bool,
}

impl FromStr for HeaderKinds {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut kinds = Self::default();
        let words = text.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            match word {
                "limits" => kinds.limits = true,
                "draft" => kinds.draft = true,
                "degraded" => kinds.degraded = true,
                _ => return Err(ValueError::HeaderKind(word.into())),
            }
        }
        Ok(kinds)
    }
}

/// A name as HTTP allows it (RFC 9110, section 5.6.2).
pub(super) fn header_name(text: &str) -> Result<String, ValueError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || !text.bytes().all(allowed) {
        return Err(ValueError::HeaderName(text.into()));
    }
    Ok(text.to_owned())
}

/// 1 to 100, with or without its sign.
pub(super) fn percent(text: &str) -> Result<u8, ValueError> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent = number
        .parse()
        .ok()
        .filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| ValueError::Percent(text.into()))
}

/// The time a client may stall, 100 ms to 24 h; `None` for no limit.
pub(super) fn stall_timeout(text: &str) -> Result<Option<Duration>, ValueError> {
    let duration = values::some_duration(text)?;
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(24 * 3_600));
    match duration {
        Some(duration) if !(least..=most).contains(&duration) => {
            Err(ValueError::StallTimeout(text.into()))
        }
        duration => Ok(duration),
    }
}

/// The filter that a setting asks for. A bare level is about this program: the libraries below it are
/// heard from `error` on, because a peer can make some of them warn at every frame it sends. Whoever
/// wants more names them, as in `info,h2=debug`.
pub(super) fn log_filter(text: &str) -> Result<String, ValueError> {
    // envoyproxy/ratelimit's words for two levels.
    let text = match text.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "fatal" | "panic" => "error".to_owned(),
        _ => text.to_owned(),
    };
    if !text.contains(['=', ',']) && !is_level(&text) {
        return Err(ValueError::LogLevel {
            text: text.into(),
            known: LEVELS.join(", ").into(),
        });
    }
    let text = text
        .split(',')
        .map(about_ourselves)
        .collect::<Vec<_>>()
        .join(",");
    match tracing_subscriber::EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(ValueError::LogFilter {
            text: text.into(),
            error,
        }),
    }
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

fn is_level(text: &str) -> bool {
    LEVELS.contains(&text.to_ascii_lowercase().as_str())
}

/// A directive of a filter, where a bare level is one for our own targets alone.
fn about_ourselves(directive: &str) -> String {
    let level = directive.trim().to_ascii_lowercase();
    match level.as_str() {
        "off" | "error" => level,
        _ if is_level(&level) => format!("error,ratekeeper={level}"),
        _ => directive.to_owned(),
    }
}
