//! From text to types: what each setting means, and what is wrong with one that means nothing.

use super::environment::RUNTIME_ROOT;
use super::layer::{Layers, Origin, Said};
use super::problem::{Problem, Problems};
use super::{Counters, EnvoySettings, Listen, LogFormat, LogSettings, RulesSettings, values};
use crate::home::Home;
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{FailureMode, Profile};
use ratekeeper_server::LimitHeaders;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The least that counters can be given, in bytes.
const MEMORY_LIMIT_MIN: u64 = 1 << 20;

/// Gives values their types and keeps what is wrong with them.
pub(super) struct Typed<'a> {
    layers: &'a Layers,
    problems: Vec<Problem>,
}

impl<'a> Typed<'a> {
    pub(super) fn new(layers: &'a Layers) -> Typed<'a> {
        Typed {
            layers,
            problems: Vec::new(),
        }
    }

    /// What was made of the values, unless some of them have no meaning.
    pub(super) fn finish<T>(self, made: T) -> Result<T, Problems> {
        if self.problems.is_empty() {
            Ok(made)
        } else {
            Err(Problems(self.problems))
        }
    }

    /// The value of `key` as `parse` understands it; `instead` where it does not, which no caller gets to see.
    fn get<T>(
        &mut self,
        key: &str,
        instead: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(Said { text, origin }) = self.layers.said(key) else {
            return instead;
        };
        parse(&text).unwrap_or_else(|message| {
            let place = match origin {
                Origin::File { .. } => format!("{origin}: {key}"),
                _ => origin.to_string(),
            };
            self.problems.push(Problem { place, message });
            instead
        })
    }

    /// A path; `None` where it is off. One in a settings file counts from that file's folder.
    fn path(&mut self, key: &str) -> Option<PathBuf> {
        let Said { text, origin } = self.layers.said(key)?;
        if text.is_empty() {
            return None;
        }
        match origin {
            Origin::File { path, .. } => match path.parent() {
                Some(folder) => Some(folder.join(text)),
                None => Some(PathBuf::from(text)),
            },
            _ => Some(PathBuf::from(text)),
        }
    }

    pub(super) fn rules(&mut self, home: &Home) -> RulesSettings {
        let runtime_root = Origin::Variable(RUNTIME_ROOT.to_owned());
        RulesSettings {
            every_file: self
                .layers
                .said("rules")
                .is_some_and(|said| said.origin == runtime_root),
            path: self.path("rules").or_else(|| home.rules()),
            watch: self.get("watch", true, values::switch),
            merge_domains: self.get("merge_domains", false, values::switch),
            profile: self.get("profile", Profile::Ratekeeper, profile),
            on_store_failure: self.get("on_store_failure", FailureMode::Local, failure_mode),
        }
    }

    pub(super) fn modes(&mut self) -> Modes {
        Modes {
            shadow: self.get("shadow_mode", false, values::switch),
            quota: self.get("quota_mode", false, values::switch),
        }
    }

    pub(super) fn listen(&mut self) -> Listen {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let maybe = |text: &str| {
            (!text.is_empty())
                .then(|| values::address(text))
                .transpose()
        };
        Listen {
            grpc: self.get("grpc", nowhere, values::address),
            http: self.get("http", nowhere, values::address),
            admin: self.get("admin", nowhere, values::address),
            metrics: self.get("metrics", None, maybe),
            drain_delay: self.get("drain_delay", Duration::ZERO, drain_delay),
        }
    }

    pub(super) fn counters(&mut self) -> Counters {
        self.get("store", (), store);
        let data_dir = self.path("data_dir");
        Counters {
            memory_limit: self.get("memory_limit", MEMORY_LIMIT_MIN, memory_limit),
            max_share_percent: self.get("max_share", 50, percent),
            state: self
                .path("state")
                .or_else(|| Some(data_dir?.join("counters.state"))),
        }
    }

    pub(super) fn envoy(&mut self) -> EnvoySettings {
        let (limits, draft) = self.get("response_headers", (false, false), header_kinds);
        let headers = LimitHeaders {
            limit: self.get("limit_header", String::new(), header_name),
            remaining: self.get("remaining_header", String::new(), header_name),
            reset: self.get("reset_header", String::new(), header_name),
        };
        EnvoySettings {
            limit_headers: limits.then_some(headers),
            draft_headers: draft,
            dynamic_metadata: self.get("dynamic_metadata", false, values::switch),
        }
    }

    pub(super) fn log(&mut self) -> LogSettings {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        LogSettings {
            filter: self.get("log_level", String::new(), log_filter),
            format: self.get("log_format", LogFormat::Text, |text| {
                values::one_of(text, &formats)
            }),
        }
    }
}

/// What rules mean where they do not say.
pub(crate) fn profile(text: &str) -> Result<Profile, String> {
    values::one_of(
        text,
        &[
            ("ratekeeper", Profile::Ratekeeper),
            ("envoy", Profile::Envoy),
        ],
    )
}

fn failure_mode(text: &str) -> Result<FailureMode, String> {
    let words = [
        ("local", FailureMode::Local),
        ("allow", FailureMode::Allow),
        ("deny", FailureMode::Deny),
    ];
    values::one_of(text, &words)
}

fn store(text: &str) -> Result<(), String> {
    if text.starts_with("redis://")
        || text.starts_with("rediss://")
        || text.starts_with("valkey://")
    {
        return Err("counters in Redis or Valkey are not in this version; write `memory`".into());
    }
    values::one_of(text, &[("memory", ())])
}

fn memory_limit(text: &str) -> Result<u64, String> {
    let size = values::size(text)?;
    if size < MEMORY_LIMIT_MIN {
        return Err(format!(
            "`{text}` is too little to keep counters in; write 1MiB or more"
        ));
    }
    Ok(size)
}

/// At most what a supervisor may be expected to wait.
fn drain_delay(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(600);
    let delay = values::duration(text)?;
    if delay > most {
        return Err(format!("`{text}` is longer than 10m"));
    }
    Ok(delay)
}

/// Whether the incumbent's headers and the draft's are wanted.
fn header_kinds(text: &str) -> Result<(bool, bool), String> {
    let (mut limits, mut draft) = (false, false);
    for kind in text
        .split(',')
        .map(str::trim)
        .filter(|kind| !kind.is_empty())
    {
        match kind {
            "limits" => limits = true,
            "draft" => draft = true,
            _ => {
                return Err(format!(
                    "`{kind}` is no kind of headers; write `limits`, `draft` or both with a comma"
                ));
            }
        }
    }
    Ok((limits, draft))
}

/// A name as HTTP allows it (RFC 9110, section 5.6.2).
fn header_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || !text.bytes().all(allowed) {
        return Err(format!(
            "`{text}` cannot be the name of a header; write letters, digits and dashes"
        ));
    }
    Ok(text.to_owned())
}

/// 1 to 100, with or without its sign.
fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent = number
        .parse()
        .ok()
        .filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| format!("`{text}` is no share; write a whole number from 1% to 100%"))
}

fn log_filter(text: &str) -> Result<String, String> {
    // The incumbent's words for two levels.
    let text = match text.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "fatal" | "panic" => "error".to_owned(),
        _ => text.to_owned(),
    };
    let words = ["error", "warn", "info", "debug", "trace", "off"];
    if !text.contains(['=', ',']) && !words.contains(&text.to_ascii_lowercase().as_str()) {
        return Err(format!(
            "`{text}` is no log level; write one of {}",
            words.join(", ")
        ));
    }
    match tracing_subscriber::EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("`{text}` is no log filter: {error}")),
    }
}
