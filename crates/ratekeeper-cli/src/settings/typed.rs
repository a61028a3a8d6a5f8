//! From text to types: parses every setting, and collects the errors.

use super::callers;
use super::envoyproxy_ratelimit::RUNTIME_ROOT;
use super::layer::{Layers, Origin, Said};
use super::meaning::{
    HeaderKinds, drain_delay, envoy_callers, failure_mode, header_name, keepalive, log_filter,
    memory_limit, path_folding, percent, profile, stall_timeout, worker_threads,
};
use super::problem::{Problem, Problems};
use super::requests::{auth, identity, slas_base};
use super::table::find;
use super::value_error::ValueError;
use super::{
    Counters, EnvoySettings, GrpcConnections, Listen, LogFormat, LogSettings, RulesSettings, store,
    values,
};
use crate::home::Home;
use ratekeeper_http::{Describer, EncodedSlashes, Forwarding};
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{PathFolding, PathKeys, Profile, ReadOptions, TenantKey};
use ratekeeper_server::{
    AuthConfig, Caller, DenialLogConfig, EnvoyCallers, LimitHeaderNames, Patience, StatsdConfig,
    StatsdFormat,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Parses values and collects their errors.
pub(super) struct Typed<'a> {
    pub(super) layers: &'a Layers,
    problems: Vec<Problem>,
}

impl<'a> Typed<'a> {
    pub(super) fn new(layers: &'a Layers) -> Typed<'a> {
        Typed {
            layers,
            problems: Vec::new(),
        }
    }

    /// Returns what was made of the values, unless some of them are invalid.
    pub(super) fn finish<T>(self, made: T) -> Result<T, Problems> {
        if self.problems.is_empty() {
            Ok(made)
        } else {
            Err(Problems(self.problems))
        }
    }

    /// Returns the value of `key` as `parse` reads it. One that it cannot read is a problem, and the
    /// default stands in for it until all problems are known.
    pub(super) fn get<T, E: ToString>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> T {
        let setting = find(key).expect("the table has every setting that is read");
        let Said { text, origin } = self.layers.get(setting);
        parse(&text).unwrap_or_else(|error| {
            self.problem(key, &origin, error.to_string());
            parse(setting.default)
                .ok()
                .expect("a default in the table has a meaning")
        })
    }

    /// Reports the value of `key`, whatever it is.
    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        if let Some(Said { origin, .. }) = self.layers.said(key) {
            self.problem(key, &origin, message.into());
        }
    }

    fn problem(&mut self, key: &str, origin: &Origin, message: String) {
        let place = match origin {
            Origin::File { .. } => format!("{origin}: {key}"),
            _ => origin.to_string(),
        };
        self.problems.push(Problem { place, message });
    }

    /// A path; `None` where it is off. One in a settings file counts from that file's folder.
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        let Said { text, origin } = self.layers.said(key)?;
        if text.is_empty() {
            return None;
        }
        Some(origin.path(&text))
    }

    /// All but the stores that rules may name.
    pub(super) fn rules(&mut self, home: &Home) -> RulesSettings {
        let runtime_root = Origin::Variable(RUNTIME_ROOT.to_owned());
        let profile = self.get("profile", profile);
        RulesSettings {
            read: ReadOptions {
                every_file: self
                    .layers
                    .said("rules")
                    .is_some_and(|said| said.origin == runtime_root),
            },
            path: self.path("rules").or_else(|| home.rules()),
            watch: self.get("watch", values::switch),
            merge_domains: self.get("merge_domains", values::switch),
            profile,
            path_folding: self.path_folding(profile),
            path_keys: PathKeys::new(),
            profile_unsaid: self.layers.envoy_variables.clone(),
            on_store_failure: self.get("on_store_failure", failure_mode),
            slas_base: self.get("slas_base", slas_base),
            tenants: self.path("tenants"),
            tenant_key: self.get("tenant_key", |text| {
                let key = values::maybe(text, values::hash_key);
                key.map(|key| key.map(TenantKey::from_bytes))
            }),
            stores: Vec::new(),
            secrets: BTreeSet::new(),
        }
    }

    fn path_folding(&mut self, profile: Profile) -> PathFolding {
        let unset = path_folding(profile);
        let mut said = |key| self.get(key, |text| values::maybe(text, values::switch));
        PathFolding {
            ignores_case: said("ignore_path_case").unwrap_or(unset.ignores_case),
            ignores_trailing_slash: said("ignore_trailing_slash")
                .unwrap_or(unset.ignores_trailing_slash),
        }
    }

    pub(super) fn modes(&mut self) -> Modes {
        Modes {
            shadow: self.get("shadow_mode", values::switch),
            quota: self.get("quota_mode", values::switch),
        }
    }

    pub(super) fn listen(&mut self) -> Listen {
        Listen {
            grpc: self.get("grpc", values::listen_address),
            http: self.get("http", values::listen_address),
            admin: self.get("admin", values::listen_address),
            metrics: self.get("metrics", |text| {
                values::maybe(text, values::listen_address)
            }),
            unix_mode: self.get("unix_mode", |text| values::maybe(text, values::permissions)),
            tls: self.listeners_tls(),
            grpc_connections: self.grpc_connections(),
            worker_threads: self.get("worker_threads", worker_threads),
            patience: Patience {
                stall_timeout: self.get("stall_timeout", stall_timeout),
                rate_min: self.get("min_rate", values::size),
            },
            drain_delay: self.get("drain_delay", drain_delay),
        }
    }

    fn grpc_connections(&mut self) -> GrpcConnections {
        GrpcConnections {
            age_max: self.get("grpc_max_connection_age", values::some_duration),
            age_grace: self.get("grpc_max_connection_age_grace", values::duration),
            idle_max: self.get("grpc_max_connection_idle", values::some_duration),
            keepalive_time: self.get("grpc_keepalive_time", keepalive),
            keepalive_timeout: self.get("grpc_keepalive_timeout", keepalive),
        }
    }

    /// `key` is set, and means nothing without `other`.
    pub(super) fn lacks<T>(&mut self, key: &str, other: &str) -> Option<T> {
        self.refuse(key, format!("it means nothing without `{other}`; set both"));
        None
    }

    pub(super) fn counters(&mut self) -> Counters {
        let defaults = self.redis_config();
        let redis = self.redis(&defaults);
        let stores = self.stores(&defaults);
        let data_dir = self.data_dir();
        Counters {
            local_factor: self.get("local_factor", store::local_factor),
            is_required: self.get("require_store", values::switch),
            memory_limit: self.get("memory_limit", memory_limit),
            max_share_percent: self.get("max_share", percent),
            state: self
                .path("state")
                .or_else(|| Some(data_dir?.join("counters.state"))),
            redis,
            stores,
        }
    }

    pub(super) fn data_dir(&mut self) -> Option<PathBuf> {
        self.path("data_dir")
    }

    pub(super) fn envoy(&mut self) -> EnvoySettings {
        let kinds: HeaderKinds = self.get("response_headers", str::parse);
        let headers = LimitHeaderNames {
            limit: self.get("limit_header", header_name),
            remaining: self.get("remaining_header", header_name),
            reset: self.get("reset_header", header_name),
        };
        EnvoySettings {
            limit_headers: kinds.limits.then_some(headers),
            draft_headers: kinds.draft,
            degraded_header: kinds.degraded,
            dynamic_metadata: self.get("dynamic_metadata", values::switch),
            callers: self.get("envoy_callers", |text| values::maybe(text, envoy_callers)),
        }
    }

    pub(super) fn auth(&mut self) -> AuthConfig {
        let forwarding = Forwarding {
            trusted: self.get("trusted_proxies", str::parse),
            client_header: self.get("client_header", str::parse),
        };
        let (domain, mapping) = self.get("auth", auth);
        let origin = self.layers.said("identity").map(|said| said.origin);
        let origin = origin.unwrap_or(Origin::Default);
        let identity = self.get("identity", |text| identity(text, &origin));

        let encoded_slashes = self.get("encoded_slashes", |text| match text {
            "" => Ok(EncodedSlashes::default()),
            text => text.parse(),
        });
        let ambiguous_paths = self.get("ambiguous_paths", str::parse);
        AuthConfig {
            headers: self.get("headers", str::parse),
            denial_body: self.get("denial_body", str::parse),
            forwarding,
            describer: Describer {
                identity,
                mapping,
                domain,
                encoded_slashes,
                ambiguous_paths,
            },
        }
    }

    /// `envoy` may need some.
    pub(super) fn callers(&mut self, envoy: &EnvoySettings) -> Vec<Caller> {
        let callers = self.get("callers", callers::callers);
        if envoy.callers == Some(EnvoyCallers::Required) && callers.is_empty() {
            self.lacks::<()>("envoy_callers", "callers");
        }
        callers
    }

    pub(super) fn log(&mut self) -> LogSettings {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        LogSettings {
            filter: self.get("log_level", log_filter),
            format: self.get("log_format", |text| values::one_of(text, &formats)),
            denials: DenialLogConfig {
                lines_per_second: self.get("denial_log", denial_lines),
                node: self.node_name(),
            },
            top_denied: self.get("top_denied_metric", values::switch),
            envoy_metrics: self.get("envoy_metrics", values::switch),
            statsd: self.statsd(),
        }
    }

    fn statsd(&mut self) -> Option<StatsdConfig> {
        let formats = [
            ("statsd", StatsdFormat::Statsd),
            ("dogstatsd", StatsdFormat::DogStatsd),
        ];
        let format = self.get("statsd_format", |text| values::one_of(text, &formats));
        let interval = self.get("statsd_interval", statsd_interval);
        let address = self.get("statsd", |text| values::maybe(text, statsd_address))?;
        Some(StatsdConfig {
            address,
            format,
            interval,
        })
    }

    fn node_name(&mut self) -> Box<str> {
        let told = self.get("node_name", |text| values::maybe(text, node_name));
        told.unwrap_or_else(|| {
            // Where there is no such file, the name is left out.
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
            host.unwrap_or_default().trim().into()
        })
    }
}

/// The host and port of a statsd agent. Its name is looked up each time that counts are sent.
fn statsd_address(text: &str) -> Result<Box<str>, ValueError> {
    let parts = text.rsplit_once(':');
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', ' ']);
    let is_good = parts.is_some_and(|(host, port)| {
        is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match is_good {
        true => Ok(text.into()),
        false => Err(ValueError::StatsdAddress(text.into())),
    }
}

fn statsd_interval(text: &str) -> Result<Duration, ValueError> {
    let interval = values::duration(text)?;
    let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
    match range.contains(&interval) {
        true => Ok(interval),
        false => Err(ValueError::StatsdInterval(text.into())),
    }
}

/// Lines of the denial log in a second.
fn denial_lines(text: &str) -> Result<u64, ValueError> {
    let lines = text.parse().ok().filter(|lines| *lines <= 1_000);
    lines.ok_or_else(|| ValueError::DenialLines(text.into()))
}

/// The name of a node: it stands in logs and labels.
fn node_name(text: &str) -> Result<Box<str>, ValueError> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match text.len() <= 64 && text.chars().all(is_fit) {
        true => Ok(text.into()),
        false => Err(ValueError::NodeName(text.into())),
    }
}
