//! From text to types: parses every setting, and collects the errors.

use super::callers;
use super::envoyproxy_ratelimit::RUNTIME_ROOT;
use super::layer::{Layers, Origin, Said};
use super::meaning::{
    HeaderKinds, MEMORY_LIMIT_MIN, drain_delay, envoy_callers, failure_mode, header_name,
    keepalive, log_filter, memory_limit, path_folding, percent, profile, stall_timeout,
    worker_threads,
};
use super::problem::{Problem, Problems};
use super::requests::{auth, identity, slas_base};
use super::{
    Counters, EnvoySettings, GrpcConnections, Listen, LogFormat, LogSettings, RulesSettings, store,
    values,
};
use crate::home::Home;
use ratekeeper_http::answer::{BodyForm, Headers, UnknownHeaders};
use ratekeeper_http::{AmbiguousPaths, Describer, EncodedSlashes, Forwarding, Identity};
use ratekeeper_limiter::Modes;
use ratekeeper_rules::{FailureMode, PathFolding, PathKeys, Profile, TenantKey};
use ratekeeper_server::{
    AuthConfig, Caller, EnvoyCallers, LimitHeaderNames, ListenAddress, Patience,
};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
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

    /// The value of `key` as `parse` reads it; `instead` if it cannot, which no caller gets to see.
    pub(super) fn get<T>(
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
        let profile = self.get("profile", Profile::Ratekeeper, profile);
        RulesSettings {
            every_file: self
                .layers
                .said("rules")
                .is_some_and(|said| said.origin == runtime_root),
            path: self.path("rules").or_else(|| home.rules()),
            watch: self.get("watch", true, values::switch),
            merge_domains: self.get("merge_domains", false, values::switch),
            profile,
            path_folding: self.path_folding(profile),
            path_keys: PathKeys::new(),
            profile_unsaid: self.layers.envoy_variables.clone(),
            on_store_failure: self.get("on_store_failure", FailureMode::Local, failure_mode),
            slas_base: self.get("slas_base", None, slas_base),
            tenants: self.path("tenants"),
            tenant_key: self.get("tenant_key", None, |text| {
                let key = values::maybe(text, values::hash_key)?;
                Ok(key.map(TenantKey::from_bytes))
            }),
            stores: Vec::new(),
            secrets: BTreeSet::new(),
        }
    }

    fn path_folding(&mut self, profile: Profile) -> PathFolding {
        let unset = path_folding(profile);
        let mut said = |key| self.get(key, None, |text| values::maybe(text, values::switch));
        PathFolding {
            ignores_case: said("ignore_path_case").unwrap_or(unset.ignores_case),
            ignores_trailing_slash: said("ignore_trailing_slash")
                .unwrap_or(unset.ignores_trailing_slash),
        }
    }

    pub(super) fn modes(&mut self) -> Modes {
        Modes {
            shadow: self.get("shadow_mode", false, values::switch),
            quota: self.get("quota_mode", false, values::switch),
        }
    }

    pub(super) fn listen(&mut self) -> Listen {
        let nowhere = || ListenAddress::Tcp(([0, 0, 0, 0], 0).into());
        Listen {
            grpc: self.get("grpc", nowhere(), values::listen_address),
            http: self.get("http", nowhere(), values::listen_address),
            admin: self.get("admin", nowhere(), values::listen_address),
            metrics: self.get("metrics", None, |text| {
                values::maybe(text, values::listen_address)
            }),
            unix_mode: self.get("unix_mode", None, |text| {
                values::maybe(text, values::permissions)
            }),
            tls: self.listeners_tls(),
            grpc_connections: self.grpc_connections(),
            worker_threads: self.get("worker_threads", NonZeroUsize::MIN, worker_threads),
            patience: Patience {
                stall_timeout: self.get("stall_timeout", None, stall_timeout),
                rate_min: self.get("min_rate", 0, values::size),
            },
            drain_delay: self.get("drain_delay", Duration::ZERO, drain_delay),
        }
    }

    fn grpc_connections(&mut self) -> GrpcConnections {
        let second = Duration::from_secs(1);
        GrpcConnections {
            age_max: self.get("grpc_max_connection_age", None, values::some_duration),
            age_grace: self.get("grpc_max_connection_age_grace", second, values::duration),
            idle_max: self.get("grpc_max_connection_idle", None, values::some_duration),
            keepalive_time: self.get("grpc_keepalive_time", second, keepalive),
            keepalive_timeout: self.get("grpc_keepalive_timeout", second, keepalive),
        }
    }

    /// `key` is set, and means nothing without `other`.
    pub(super) fn lacks<T>(&mut self, key: &str, other: &str) -> Option<T> {
        self.get(key, (), |_| {
            Err(format!("it means nothing without `{other}`; set both"))
        });
        None
    }

    pub(super) fn counters(&mut self) -> Counters {
        let defaults = self.redis_config();
        let redis = self.redis(&defaults);
        let stores = self.stores(&defaults);
        let data_dir = self.path("data_dir");
        Counters {
            local_factor: self.get("local_factor", 1.0, store::local_factor),
            is_required: self.get("require_store", false, values::switch),
            memory_limit: self.get("memory_limit", MEMORY_LIMIT_MIN, memory_limit),
            max_share_percent: self.get("max_share", 50, percent),
            state: self
                .path("state")
                .or_else(|| Some(data_dir?.join("counters.state"))),
            redis,
            stores,
        }
    }

    pub(super) fn envoy(&mut self) -> EnvoySettings {
        let kinds = self.get("response_headers", HeaderKinds::default(), str::parse);
        let headers = LimitHeaderNames {
            limit: self.get("limit_header", String::new(), header_name),
            remaining: self.get("remaining_header", String::new(), header_name),
            reset: self.get("reset_header", String::new(), header_name),
        };
        EnvoySettings {
            limit_headers: kinds.limits.then_some(headers),
            draft_headers: kinds.draft,
            degraded_header: kinds.degraded,
            dynamic_metadata: self.get("dynamic_metadata", false, values::switch),
            callers: self.get("envoy_callers", None, |text| {
                values::maybe(text, envoy_callers)
            }),
        }
    }

    pub(super) fn auth(&mut self) -> AuthConfig {
        let forwarding = Forwarding {
            trusted: self.get("trusted_proxies", Default::default(), str::parse),
            client_header: self.get("client_header", Default::default(), str::parse),
        };
        let (domain, mapping) = self.get("auth", Default::default(), auth);
        let origin = self.layers.said("identity").map(|said| said.origin);
        let origin = origin.unwrap_or(Origin::Default);
        let identity = self.get("identity", Identity::default(), |text| {
            identity(text, &origin)
        });
        let unset = EncodedSlashes::default();
        let encoded_slashes = self.get("encoded_slashes", unset, |text| match text {
            "" => Ok(unset),
            text => text.parse(),
        });
        let ambiguous_paths = self.get("ambiguous_paths", AmbiguousPaths::default(), str::parse);
        AuthConfig {
            headers: self.get("headers", Headers::NONE, |list| {
                list.parse()
                    .map_err(|error: UnknownHeaders| error.to_string())
            }),
            denial_body: self.get("denial_body", BodyForm::Json, str::parse),
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
        let callers = self.get("callers", Vec::new(), callers::callers);
        if envoy.callers == Some(EnvoyCallers::Required) && callers.is_empty() {
            self.lacks::<()>("envoy_callers", "callers");
        }
        callers
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
