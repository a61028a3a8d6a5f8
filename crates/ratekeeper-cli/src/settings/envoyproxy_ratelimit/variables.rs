//! envoyproxy/ratelimit's variables, and what each corresponds to here.

use crate::settings::setting::Setting;
use crate::settings::table::row;
use crate::settings::values;
use Fine::{False, Nothing, Only};
use Here::{Is, Makes, Moot, Stops, Unused};

/// A switch that has a meaning under the profile `envoy` only.
pub(super) const STOP_INCREMENT: &str = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT";

/// envoyproxy/ratelimit's variable for its configuration folder. Every file there contains rules, whatever its name.
pub(crate) const RUNTIME_ROOT: &str = "RUNTIME_ROOT";

/// The counterpart of one of envoyproxy/ratelimit's variables.
#[derive(Debug)]
pub(super) enum Here {
    /// A setting with the same values.
    Is(&'static Setting),
    /// A part of a setting, or a setting with other values: its text says which, and how.
    Makes,
    /// Nothing, and nothing is lost: its text says why.
    Moot,
    /// Nothing. Holds the values that are fine all the same; its text says why no answer depends on the others.
    Unused(Fine),
    /// Nothing, although answers depend on it. Holds the values that are fine; its text says how to replace the others.
    Stops(Fine),
}

/// Values that need no message.
#[derive(Debug)]
pub(super) enum Fine {
    /// None.
    Nothing,
    /// All that mean false.
    False,
    /// This one.
    Only(&'static str),
}

impl Fine {
    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::False => matches!(values::switch(text), Ok(false)),
            Self::Only(fine) => text.eq_ignore_ascii_case(fine),
        }
    }
}

const NO_MOGRIFIERS: &str = "domain and rule are tags";
const XDS_PAUSES: &str =
    "attempts to connect follow each other after half a second, and later after up to 30 s";
const NO_MEMCACHE: &str = "counters are not in memcached";
const OF_ITSELF: &str = "stores handle this";
const POOL: &str = "connections and deadlines work differently; see `store_deadline`";
const ONE_REDIS: &str = "all counters are in one Redis";

/// Every variable that envoyproxy/ratelimit reads, in the order of its own settings, with its counterpart and a text
/// about that. A name that ends with `*` stands for all names with that prefix.
pub(super) static VARIABLES: &[(&str, Here, &str)] = &[
    ("HOST", Makes, "`http`: the host"),
    ("PORT", Makes, "`http`: the port"),
    (
        "DEBUG_HOST",
        Makes,
        "`admin`: the host; loopback unless it is set",
    ),
    ("DEBUG_PORT", Makes, "`admin`: the port"),
    (
        "GRPC_UDS",
        Makes,
        "`grpc`: `unix:` and the path; overrides host and port",
    ),
    ("GRPC_HOST", Makes, "`grpc`: the host"),
    ("GRPC_PORT", Makes, "`grpc`: the port"),
    (
        "GRPC_MAX_CONNECTION_AGE",
        Is(&row::grpc_max_connection_age),
        "",
    ),
    (
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        Is(&row::grpc_max_connection_age_grace),
        "",
    ),
    (
        "GRPC_SERVER_USE_TLS",
        Makes,
        "the next five apply only if this is true",
    ),
    ("GRPC_SERVER_TLS_CERT", Makes, "`grpc_tls_cert`"),
    ("GRPC_SERVER_TLS_KEY", Makes, "`grpc_tls_key`"),
    (
        "GRPC_SERVER_TLS_CA_CERT",
        Makes,
        "`grpc_tls_client_ca`, as Envoy Gateway names it",
    ),
    ("GRPC_CLIENT_TLS_CACERT", Makes, "`grpc_tls_client_ca`"),
    ("GRPC_CLIENT_TLS_SAN", Makes, "`grpc_tls_client_names`"),
    ("LOG_LEVEL", Is(&row::log_level), ""),
    ("LOG_FORMAT", Is(&row::log_format), ""),
    (
        "CONFIG_TYPE",
        Makes,
        "`rules`: `FILE`, or `GRPC_XDS_SOTW` for a control plane, to which the next nine belong",
    ),
    (
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        Is(&row::start_without_rules),
        "",
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_URL",
        Makes,
        "`rules`: `xds://` and the address",
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_USE_TLS",
        Makes,
        "`rules`: `xdss://`",
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        Makes,
        "`rules_ca`, with TLS",
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        Makes,
        "`rules_server_name`, with TLS",
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        Makes,
        "`rules_cert`, with TLS",
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
        Makes,
        "`rules_key`, with TLS",
    ),
    (
        "CONFIG_GRPC_XDS_NODE_ID",
        Makes,
        "`xds_node_id`: `default` if it is not set",
    ),
    (
        "CONFIG_GRPC_XDS_NODE_METADATA",
        Is(&row::xds_node_metadata),
        "",
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        Makes,
        "`xds_headers`",
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Unused(Nothing),
        XDS_PAUSES,
    ),
    (
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        Makes,
        "`xds_response_max`: 64 MiB if it is 0",
    ),
    ("XDS_CLIENT_BACKOFF_*", Unused(Nothing), XDS_PAUSES),
    (
        "USE_DOG_STATSD",
        Makes,
        "`statsd` and `statsd_format`: turns it on, with tags",
    ),
    ("USE_DOG_STATSD_MOGRIFIERS", Unused(Nothing), NO_MOGRIFIERS),
    ("DOG_STATSD_MOGRIFIER_*", Unused(Nothing), NO_MOGRIFIERS),
    ("USE_STATSD", Makes, "`statsd`: turns it on, over UDP"),
    ("STATSD_HOST", Makes, "`statsd`: the host"),
    ("STATSD_PORT", Makes, "`statsd`: the port"),
    (
        "EXTRA_TAGS",
        Unused(Nothing),
        "Prometheus adds labels as it scrapes",
    ),
    (
        "STATS_FLUSH_INTERVAL",
        Unused(Nothing),
        "metrics are read on each scrape",
    ),
    ("DISABLE_STATS", Unused(False), "metrics are always counted"),
    ("USE_PROMETHEUS", Makes, "`metrics`: turns it on"),
    (
        "PROMETHEUS_ADDR",
        Makes,
        "`metrics`: the address, with USE_PROMETHEUS",
    ),
    (
        "PROMETHEUS_PATH",
        Unused(Only("/metrics")),
        "the path is /metrics",
    ),
    (
        "PROMETHEUS_MAPPER_YAML",
        Unused(Nothing),
        "metrics have labels of their own",
    ),
    (
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        Unused(False),
        "times are in seconds",
    ),
    (
        RUNTIME_ROOT,
        Makes,
        "`rules`: the first part of the folder, every file of which is read",
    ),
    ("RUNTIME_SUBDIRECTORY", Makes, "`rules`: the second part"),
    ("RUNTIME_APPDIRECTORY", Makes, "`rules`: the last part"),
    (
        "RUNTIME_IGNOREDOTFILES",
        Unused(Only("true")),
        "files whose names begin with a dot are never read",
    ),
    (
        "RUNTIME_WATCH_ROOT",
        Moot,
        "both are watched: the folder, and the links that lead to it",
    ),
    ("EXPIRATION_JITTER_MAX_SECONDS", Unused(Nothing), OF_ITSELF),
    ("LOCAL_CACHE_SIZE_IN_BYTES", Unused(Only("0")), OF_ITSELF),
    (
        "NEAR_LIMIT_RATIO",
        Unused(Nothing),
        "ratelimit_remaining has fixed buckets",
    ),
    (
        "CACHE_KEY_PREFIX",
        Makes,
        "`store`: `prefix`, with REDIS_URL",
    ),
    (
        "BACKEND_TYPE",
        Stops(Only("redis")),
        "counters cannot be in memcached; leave BACKEND_TYPE out",
    ),
    (
        STOP_INCREMENT,
        Makes,
        "`profile`: the default of `ratekeeper`; startup fails with `envoy`",
    ),
    (
        "LIMIT_RESPONSE_HEADERS_ENABLED",
        Makes,
        "`response_headers`: `limits`",
    ),
    ("LIMIT_LIMIT_HEADER", Is(&row::limit_header), ""),
    ("LIMIT_REMAINING_HEADER", Is(&row::remaining_header), ""),
    ("LIMIT_RESET_HEADER", Is(&row::reset_header), ""),
    (
        "LIMIT_REQUEST_HEADERS_ENABLED",
        Stops(False),
        "headers are added to responses alone; leave it out",
    ),
    (
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Moot,
        "it is not ready without rules",
    ),
    (
        "REDIS_URL",
        Makes,
        "`store`: the address, or several with commas; one with `://` is taken as it is, and startup fails if other variables say more",
    ),
    (
        "REDIS_SOCKET_TYPE",
        Makes,
        "`store`: `tcp`, or `unix` if it is not set",
    ),
    ("REDIS_AUTH", Makes, "`store`: password, or user:password"),
    ("REDIS_TLS", Makes, "`store`: `rediss://`"),
    (
        "REDIS_TYPE",
        Makes,
        "`store`: `SINGLE`, `SENTINEL` (`redis+sentinel://`) or `CLUSTER` (`redis+cluster://`)",
    ),
    (
        "REDIS_TLS_CLIENT_CERT",
        Makes,
        "`store_cert`, with REDIS_TLS",
    ),
    ("REDIS_TLS_CLIENT_KEY", Makes, "`store_key`, with REDIS_TLS"),
    ("REDIS_TLS_CACERT", Makes, "`store_ca`, with REDIS_TLS"),
    (
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Stops(False),
        "certificates are always verified; leave it out",
    ),
    ("REDIS_PERSECOND", Unused(False), ONE_REDIS),
    ("REDIS_PERSECOND_*", Unused(Nothing), ONE_REDIS),
    ("REDIS_POOL_*", Unused(Nothing), POOL),
    ("REDIS_PIPELINE_*", Unused(Nothing), POOL),
    ("REDIS_CLUSTER_*", Unused(Nothing), POOL),
    (
        "REDIS_SENTINEL_AUTH",
        Makes,
        "`store`: `sentinel_pass`, and `sentinel_user` before a colon",
    ),
    ("REDIS_TIMEOUT", Unused(Nothing), POOL),
    ("REDIS_STARTUP_*", Unused(Nothing), POOL),
    (
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Unused(False),
        "failure modes answer while Redis is down",
    ),
    (
        "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
        Unused(False),
        POOL,
    ),
    ("MEMCACHE_*", Unused(Nothing), NO_MEMCACHE),
    ("SHADOW_MODE", Is(&row::shadow_mode), ""),
    ("QUOTA_MODE", Is(&row::quota_mode), ""),
    ("RESPONSE_DYNAMIC_METADATA", Is(&row::dynamic_metadata), ""),
    ("MERGE_DOMAIN_CONFIG", Is(&row::merge_domains), ""),
    ("TRACING_ENABLED", Makes, "`otlp_endpoint`: turns it on"),
    (
        "TRACING_EXPORTER_PROTOCOL",
        Makes,
        "`otlp_protocol`: `grpc`, or `http` for `http/protobuf`, which is the default here",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        Makes,
        "`otlp_protocol`, unless the variable above is set",
    ),
    (
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        Makes,
        "`otlp_protocol`, unless one of the two above is set",
    ),
    (
        "TRACING_SERVICE_NAME",
        Makes,
        "`trace_service_name`: `RateLimit` if it is not set",
    ),
    (
        "TRACING_SERVICE_NAMESPACE",
        Unused(Nothing),
        "spans have no namespace",
    ),
    ("TRACING_SERVICE_INSTANCE_ID", Is(&row::node_name), ""),
    (
        "TRACING_SAMPLING_RATE",
        Makes,
        "`trace_sample_ratio`: 1 if it is not set; callers with a `traceparent` decide themselves",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        Makes,
        "`otlp_endpoint`, with TRACING_ENABLED; over HTTP /v1/traces is added. http://localhost:4318, over gRPC 4317, if it is not set",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        Makes,
        "`otlp_endpoint`: overrides the variable above",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        Moot,
        "the exporter of traces reads it",
    ),
    (
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        Makes,
        "`otlp_ca`, with TRACING_ENABLED and an https:// endpoint",
    ),
    (
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        Makes,
        "`otlp_cert`, likewise",
    ),
    (
        "OTEL_EXPORTER_OTLP_CLIENT_KEY",
        Makes,
        "`otlp_key`, likewise",
    ),
];
