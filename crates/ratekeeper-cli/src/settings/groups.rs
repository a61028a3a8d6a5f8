//! The heading under which the help lists each setting, and the command that uses it.

use super::setting::Setting;
use super::table::find;

/// Settings that the help lists together.
pub(super) struct Group {
    /// The heading, without its colon.
    pub(super) heading: &'static str,
    /// True if only `ratekeeper gateway` uses them.
    pub(super) is_gateways: bool,
    keys: &'static [&'static str],
}

impl Group {
    /// The group's settings, in the order of the help.
    pub(super) fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.keys.iter().filter_map(|key| find(key))
    }
}

const fn group(heading: &'static str, keys: &'static [&'static str]) -> Group {
    Group {
        heading,
        is_gateways: false,
        keys,
    }
}

const fn gateways(heading: &'static str, keys: &'static [&'static str]) -> Group {
    Group {
        is_gateways: true,
        ..group(heading, keys)
    }
}

/// The settings that the short help (`-h`) shows.
pub(super) const IN_SHORT_HELP: [&str; 13] = [
    "rules",
    "profile",
    "grpc",
    "http",
    "admin",
    "store",
    "data_dir",
    "on_store_failure",
    "listen",
    "upstream",
    "service",
    "log_level",
    "log_format",
];

/// All groups, in the order of the help. Each setting is in one of them.
pub(super) static GROUPS: &[Group] = &[
    group(
        "Rules",
        &[
            "rules",
            "profile",
            "watch",
            "merge_domains",
            "slas_base",
            "tenants",
            "tenant_key",
            "quotas",
            "on_quota_failure",
            "audit_export",
            "audit_export_stream",
            "audit_export_ca",
            "audit_export_cert",
            "audit_export_key",
            "audit_export_credentials",
            "shadow_mode",
            "quota_mode",
        ],
    ),
    gateways(
        "Gateway",
        &[
            "listen",
            "upstream",
            "upstreams",
            "routes",
            "upstream_connect_timeout",
            "upstream_timeout",
            "upstream_requests_max",
            "upstream_queue_max",
            "connection_requests_max",
            "request_body_max",
            "limits",
            "wait_max",
            "waiting_max",
            "access_log",
            "access_log_format",
            "listen_tls_cert",
            "listen_tls_key",
            "listen_tls_client_ca",
            "listen_tls_client_names",
        ],
    ),
    gateways(
        "Gateway that asks a service",
        &[
            "service",
            "on_service_failure",
            "service_deadline",
            "service_permits",
            "service_token",
            "service_token_file",
            "service_server_name",
            "service_ca",
            "service_cert",
            "service_key",
        ],
    ),
    group(
        "Listeners",
        &[
            "grpc",
            "http",
            "admin",
            "metrics",
            "unix_mode",
            "worker_threads",
            "stall_timeout",
            "min_rate",
            "drain_delay",
        ],
    ),
    group(
        "Counters",
        &[
            "store",
            "stores",
            "on_store_failure",
            "local_factor",
            "require_store",
            "memory_limit",
            "max_share",
            "data_dir",
            "state",
        ],
    ),
    group(
        "Redis",
        &[
            "store_ca",
            "store_cert",
            "store_key",
            "store_hash_key",
            "store_deadline",
            "deny_cache_max",
            "store_merge",
            "store_batch",
        ],
    ),
    group(
        "HTTP requests and answers",
        &[
            "auth",
            "identity",
            "trusted_proxies",
            "client_header",
            "encoded_slashes",
            "ambiguous_paths",
            "ignore_path_case",
            "ignore_trailing_slash",
            "headers",
            "denial_body",
            "callers",
        ],
    ),
    group(
        "Envoy's protocol",
        &[
            "response_headers",
            "limit_header",
            "remaining_header",
            "reset_header",
            "dynamic_metadata",
            "envoy_callers",
        ],
    ),
    group(
        "Logs",
        &[
            "log_level",
            "log_format",
            "denial_log",
            "top_denied_metric",
            "node_name",
        ],
    ),
    group(
        "Traces",
        &[
            "otlp_endpoint",
            "otlp_headers",
            "otlp_headers_file",
            "otlp_ca",
            "otlp_cert",
            "otlp_key",
            "trace_sample_ratio",
            "trace_service_name",
        ],
    ),
    group(
        "Metrics for other systems",
        &[
            "envoy_metrics",
            "statsd",
            "statsd_format",
            "statsd_interval",
        ],
    ),
    group(
        "TLS",
        &[
            "grpc_tls_cert",
            "grpc_tls_key",
            "grpc_tls_client_ca",
            "grpc_tls_client_names",
            "http_tls_cert",
            "http_tls_key",
            "http_tls_client_ca",
            "http_tls_client_names",
            "admin_tls_cert",
            "admin_tls_key",
            "admin_tls_client_ca",
            "admin_tls_client_names",
            "metrics_tls_cert",
            "metrics_tls_key",
            "metrics_tls_client_ca",
            "metrics_tls_client_names",
        ],
    ),
    group(
        "gRPC connections",
        &[
            "grpc_max_connection_age",
            "grpc_max_connection_age_grace",
            "grpc_max_connection_idle",
            "grpc_keepalive_time",
            "grpc_keepalive_timeout",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::super::table::SETTINGS;
    use super::*;

    #[test]
    fn each_setting_is_in_one_group() {
        let all: Vec<&str> = GROUPS
            .iter()
            .flat_map(|group| group.keys)
            .copied()
            .collect();
        for setting in SETTINGS {
            let times = all.iter().filter(|key| **key == setting.key).count();
            assert_eq!(times, 1, "{}", setting.key);
        }
        for key in all.iter().chain(&IN_SHORT_HELP) {
            assert!(find(key).is_some(), "{key}");
        }
    }
}
