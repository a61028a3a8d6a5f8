//! Every setting there is: its name, its default and what it means, in one place.
//!
//! A setting has one name in three spellings: `memory_limit` in `ratekeeper.yaml`, `RATEKEEPER_MEMORY_LIMIT` in the
//! environment and `--memory-limit` on the command line. The flags, the help, `config show`, the messages about
//! unknown keys and the table in `docs/configuration.md` (held equal by a test) all come from here.

use super::setting::{Setting, nested, secret, switch, value};

/// Settings that are shown together.
pub(super) struct Group {
    /// The heading in the help, without its colon.
    pub(super) heading: &'static str,
    /// True if only `ratekeeper gateway` uses them.
    pub(super) is_gateways: bool,
    pub(super) settings: &'static [Setting],
}

const fn group(heading: &'static str, settings: &'static [Setting]) -> Group {
    Group {
        heading,
        is_gateways: false,
        settings,
    }
}

const fn gateways(heading: &'static str, settings: &'static [Setting]) -> Group {
    Group {
        is_gateways: true,
        ..group(heading, settings)
    }
}

/// All groups, in the order in which they are shown.
pub(super) static GROUPS: &[Group] = &[
    group("Rules", RULES),
    gateways("Gateway", GATEWAY),
    gateways("Gateway that asks a service", GATEWAY_THAT_ASKS_A_SERVICE),
    group("Listeners", LISTENERS),
    group("Counters", COUNTERS),
    group("Redis", REDIS),
    group("HTTP requests and answers", HTTP_REQUESTS_AND_ANSWERS),
    group("Envoy's protocol", ENVOY_PROTOCOL),
    group("Logs", LOGS),
    group("Traces", TRACES),
    group("Metrics for other systems", METRICS_FOR_OTHER_SYSTEMS),
    group("TLS", TLS),
    group("gRPC connections", GRPC_CONNECTIONS),
];

/// All settings, in the order in which they are shown.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

/// The setting of that name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.key == key)
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

const TLS_CERT: &str =
    "Serve TLS with this certificate and its chain, as PEM; reloaded when it changes";
const TLS_KEY: &str = "Private key of that certificate, as unencrypted PEM";
const TLS_CLIENT_CA: &str = "Require client certificates signed by these CAs (mTLS), as PEM";
const TLS_CLIENT_NAMES: &str = "Accept only client certificates with one of these subject alternative names: DNS names \
     (`*.` matches one label), URIs, IP addresses, separated by commas";

const RULES: &[Setting] = &[
    value(
        "rules",
        "PATH",
        "",
        "The rules: a file, or a folder of `*.yaml` and `*.yml`. Unset: the folder rules/ in ./config or \
         /etc/ratekeeper",
    ),
    value(
        "profile",
        "NAME",
        "ratekeeper",
        "Defaults for rules: `ratekeeper` (sliding windows; denied requests cost nothing) or `envoy` (fixed windows \
         that count denied requests, like envoyproxy/ratelimit)",
    ),
    Setting {
        default: "true",
        ..switch(
            "watch",
            "Reload rules when files change; SIGHUP always reloads them",
        )
    },
    value(
        "on_broken_rules",
        "MODE",
        "last_good",
        "With `data_dir`, for a start while the files are broken: start with the last good rules from there \
         (`last_good`), or do not start (`refuse`)",
    ),
    switch(
        "merge_domains",
        "Merge files that name the same domain; otherwise the second one is an error",
    ),
    value(
        "slas_base",
        "PATH",
        "",
        "Base path of service levels (`slas:`), unless a file sets its own; it can name the tenant: \
         /v1/organizations/{tenant}",
    ),
    value(
        "tenants",
        "PATH",
        "",
        "Tenants with a plan or limits of their own: a file, or a folder of `*.yaml` and `*.yml`, reloaded like the \
         rules. Unset: only those in the rules",
    ),
    secret(
        "tenant_key",
        "HEX",
        "Key of the hashes that name tenants in files (`ratekeeper key hash`) and in PostgreSQL: 32 hexadecimal \
         digits, the same on all nodes. Unset: files can name tenants only by value, and SQLite keeps a generated \
         key beside the database",
    ),
    value(
        "quotas",
        "WHERE",
        "",
        "Database of tenants' plans and limits, which take precedence over files: sqlite://PATH for one node, \
         postgres://USER:PASSWORD@HOST/DATABASE for many, or `off`. Unset: quotas.db in `data_dir`, if that is set \
         and the rules have tenants",
    ),
    value(
        "on_quota_failure",
        "MODE",
        "default",
        "Limits of tenants if a node starts with neither that database nor its saved copy in `data_dir`: those of \
         the `default` plan, or none (`allow`)",
    ),
    value(
        "audit_export",
        "URL",
        "",
        "Target that gets a copy of each row of that database's audit trail: a Redis stream \
         (the forms of `store`: redis://HOST:PORT/DB, rediss:// for TLS, redis+sentinel://, redis+cluster://) or a NATS \
         JetStream subject (nats://HOST:PORT, tls:// for TLS)",
    ),
    value(
        "audit_export_stream",
        "NAME",
        "ratekeeper.audit",
        "Name of the stream or subject",
    ),
    value(
        "audit_export_ca",
        "FILE",
        "",
        "Authorities to trust for `audit_export`, as PEM. Unset: the system's",
    ),
    value(
        "audit_export_cert",
        "FILE",
        "",
        "Certificate for `audit_export` (mTLS), as PEM",
    ),
    value("audit_export_key", "FILE", "", "Its private key, as PEM"),
    value(
        "audit_export_credentials",
        "FILE",
        "",
        "Credentials for NATS: a .creds file, or the seed of a user's nkey",
    ),
    switch(
        "shadow_mode",
        "Deny nothing; decide and count as usual, and report what would have been denied",
    ),
    switch(
        "quota_mode",
        "Put all rules in quota mode: a request is denied only if all of its limits are exceeded",
    ),
];

const GATEWAY: &[Setting] = &[
    value(
        "listen",
        "ADDR",
        "0.0.0.0:8082",
        "Address of the gateway, for HTTP/1.1 and HTTP/2. Port 0 picks a free port; unix:/PATH is a Unix socket",
    ),
    value(
        "upstream",
        "URL",
        "",
        "Upstream of all requests: http://HOST:PORT, h2c://HOST:PORT for HTTP/2 without TLS, https://HOST, \
         unix:/PATH for a Unix socket",
    ),
    nested(
        "upstreams",
        "MAPPING",
        "Upstreams by name: a URL, a list of URLs that take turns, or `urls`, `ca` (a file of CA certificates), \
         `server_name` (in its certificate), `host` (in place of the client's) and `health_check` (`path`, \
         `interval`, `timeout`, `unhealthy_threshold`, `healthy_threshold`)",
    ),
    nested(
        "routes",
        "LIST",
        "Routes to `upstreams`: a list of `host` (`*.` matches all subdomains), `path` (matches itself and all \
         below), `upstream` and `on_client_gone` (`finish` or `cancel`); the most specific route wins",
    ),
    value(
        "upstream_connect_timeout",
        "DURATION",
        "5s",
        "Time to connect to an upstream; after it the next address is tried, or the answer is 504",
    ),
    value(
        "upstream_timeout",
        "DURATION",
        "60s",
        "Time until an upstream's answer begins, and longest pause within it",
    ),
    value(
        "upstream_requests_max",
        "REQUESTS",
        "1024",
        "Most concurrent requests to one upstream, up to 1000000; over HTTP/1.1 each has its own connection",
    ),
    value(
        "upstream_queue_max",
        "REQUESTS",
        "1024",
        "Most requests that wait for one of those to end, each for at most upstream_connect_timeout; others get 503",
    ),
    value(
        "upstream_address_share",
        "PERCENT",
        "50%",
        "Share of upstream_requests_max that one client address (of IPv6, one /64) has or waits for, 1% to 100%; further \
         requests get 503",
    ),
    value(
        "connection_requests_max",
        "REQUESTS",
        "100",
        "Most concurrent requests on one HTTP/2 connection of a gateway client, 1 to 1000",
    ),
    value(
        "request_body_max",
        "SIZE",
        "1GiB",
        "Largest request body that the gateway forwards; larger ones get 413",
    ),
    value(
        "limits",
        "MODE",
        "on",
        "Effect of limits at the gateway: `on` (enforce), `shadow` (count, and let everything pass) or `off` (only \
         forward)",
    ),
    value(
        "wait_max",
        "DURATION",
        "10s",
        "Longest time that the gateway delays a request for a leaky bucket, up to 1h; requests that would wait \
         longer are denied",
    ),
    value(
        "waiting_max",
        "REQUESTS",
        "1024",
        "Most requests that the gateway delays at a time, up to 1000000; others are denied",
    ),
    value(
        "access_log",
        "FILE",
        "",
        "File that gets a line per request of the gateway, in a format that `ratekeeper replay` reads; `-` is \
         standard output. A rotated file is reopened",
    ),
    value(
        "access_log_format",
        "FORMAT",
        "json",
        "`json`, with the decision, its rule and its reason, or `combined`, as Apache and NGINX write it",
    ),
    value("listen_tls_cert", "FILE", "", TLS_CERT),
    value("listen_tls_key", "FILE", "", TLS_KEY),
    value("listen_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("listen_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
];

const GATEWAY_THAT_ASKS_A_SERVICE: &[Setting] = &[
    value(
        "service",
        "URL",
        "",
        "Ratekeeper service that decides for the gateway, in place of its own rules and counters: grpc://HOST:PORT, \
         grpcs://HOST:PORT for TLS, unix:/PATH. Of several, separated by commas, each is used while those before it \
         are down",
    ),
    value(
        "on_service_failure",
        "MODE",
        "allow",
        "Answer to a request that no service decides: `allow`, `deny` (503), or `local` (the gateway decides by its \
         own `rules` and counters in memory)",
    ),
    value(
        "service_deadline",
        "DURATION",
        "20ms",
        "Longest time that a request waits for the service, including connecting and retries; 1ms to 10s",
    ),
    switch(
        "service_permits",
        "Enforce the service's concurrency limits too, if its `callers` allow it; otherwise this gateway ignores \
         them",
    ),
    secret(
        "service_token",
        "TOKEN",
        "Bearer token of the gateway at the service (see its `callers`); prefer the variable or a file",
    ),
    value("service_token_file", "FILE", "", "File with that token"),
    value(
        "service_server_name",
        "NAME",
        "",
        "With grpcs://: name in the service's certificate, if it is not the URL's host",
    ),
    value(
        "service_ca",
        "FILE",
        "",
        "With grpcs://: CA certificates that verify the service, as PEM",
    ),
    value(
        "service_cert",
        "FILE",
        "",
        "With grpcs://: the gateway's certificate (mTLS), as PEM",
    ),
    value(
        "service_key",
        "FILE",
        "",
        "Private key of that certificate, as unencrypted PEM",
    ),
];

const LISTENERS: &[Setting] = &[
    value(
        "grpc",
        "ADDR",
        "0.0.0.0:8081",
        "Address of Envoy's RateLimitService and of ratekeeper.v1. Port 0 picks a free port; unix:/PATH is a Unix \
         socket",
    ),
    value(
        "http",
        "ADDR",
        "0.0.0.0:8080",
        "Address of HTTP checks: /v1/check, /v1/auth, /json, /healthcheck",
    ),
    value(
        "admin",
        "ADDR",
        "127.0.0.1:6070",
        "Address of the admin API: /metrics, /rlconfig, /admin/v1. Other hosts need client certificates or tokens",
    ),
    value(
        "metrics",
        "ADDR",
        "",
        "Further address with /metrics and health probes only, for scrapers on other hosts",
    ),
    value(
        "unix_mode",
        "MODE",
        "",
        "Permissions of Unix socket files, as for chmod (0660); connecting takes write permission. Unset: the umask \
         decides",
    ),
    value(
        "worker_threads",
        "NUMBER",
        "",
        "Threads that serve gRPC, HTTP and the gateway, each with its own connections. Unset: one per core",
    ),
    value(
        "stall_timeout",
        "DURATION",
        "30s",
        "Longest time that a client may stop reading a ready answer, or sending an expected body, before its request \
         is aborted; 0s: no limit. Time with nothing to read or send does not count, nor what min_rate allows for the \
         last 32 KiB handed to it",
    ),
    value(
        "min_rate",
        "SIZE",
        "1KiB",
        "Lowest average rate, in bytes per second, at which such a client may read or send; 0: any",
    ),
    value(
        "drain_delay",
        "DURATION",
        "3s",
        "Time after SIGTERM during which requests are still served while /readyz fails, so that load balancers can \
         react; 0s to 10m",
    ),
];

const COUNTERS: &[Setting] = &[
    value(
        "store",
        "WHERE",
        "memory",
        "Where counters live: `memory`, or the URL of a Redis or Valkey that all nodes share: \
         redis://user:password@host:6379/0, rediss:// for TLS, redis+unix:///path, redis+cluster://host,host, \
         redis+sentinel://host,host/name; ?prefix=text separates services",
    ),
    nested(
        "stores",
        "MAPPING",
        "Further stores, for rules that choose one (`store: NAME`). NAME: { url, ca, cert, key, deadline }, each \
         like the setting with the prefix store_, which is also its default",
    ),
    value(
        "on_store_failure",
        "MODE",
        "local",
        "Failure mode while the store does not answer: `local` (decide by this node's own counters), `allow` or \
         `deny`; a rule's own on_store_failure overrides it",
    ),
    value(
        "local_factor",
        "FACTOR",
        "1",
        "Factor for limits while this node decides alone: 1 denies nobody within the limit; 1 divided by the number \
         of nodes never lets more than the limit pass in total",
    ),
    switch(
        "require_store",
        "Refuse to start while Redis is unreachable; otherwise failure modes decide until it is back",
    ),
    value(
        "memory_limit",
        "SIZE",
        "256MiB",
        "Memory for counters, at least 1MiB. When it is full, expired counters go first and denying ones last",
    ),
    value(
        "max_share",
        "PERCENT",
        "50%",
        "Share of that memory that one rule may use, 1% to 100%, so that a flood of keys on one rule leaves room for \
         others",
    ),
    value(
        "data_dir",
        "DIR",
        "",
        "Folder for what survives a restart: switches of rules, admin tokens, and counters (`state` is then \
         counters.state in it). Unset: nothing is written",
    ),
    value(
        "state",
        "FILE",
        "",
        "File that keeps counters of windows of a minute or more, so that a restart does not reset a month's quota: \
         saved every 10 s and on SIGTERM, loaded at start",
    ),
];

const REDIS: &[Setting] = &[
    value(
        "store_ca",
        "FILE",
        "",
        "With rediss://: CA certificates that verify Redis, as PEM. Unset: the system's",
    ),
    value(
        "store_cert",
        "FILE",
        "",
        "With rediss://: this node's certificate (mTLS), as PEM; reloaded when it changes",
    ),
    value(
        "store_key",
        "FILE",
        "",
        "Private key of that certificate, as unencrypted PEM",
    ),
    secret(
        "store_hash_key",
        "HEX",
        "Key of the hashes that name counters in Redis: 32 hexadecimal digits, the same on all nodes. Unset: \
         generated at random and shared through Redis",
    ),
    value(
        "store_deadline",
        "DURATION",
        "10ms",
        "Longest time that a decision waits for Redis in total before the failure mode decides; 1ms to 1s",
    ),
    value(
        "deny_cache_max",
        "DURATION",
        "1s",
        "Longest time that a denial is repeated from memory; hits that another node gives back take effect after it. \
         0s: never; at most 10s",
    ),
    Setting {
        default: "true",
        ..switch(
            "store_merge",
            "Decide queued requests for the same counters together",
        )
    },
    value(
        "store_batch",
        "COUNT",
        "64",
        "Most groups of requests per call to Redis, 1 to 1024",
    ),
];

const HTTP_REQUESTS_AND_ANSWERS: &[Setting] = &[
    nested(
        "auth",
        "MAPPING",
        "Descriptors of a request on /v1/auth and at the gateway: `domain`, and `descriptors` built from parts of \
         the request. Unset: one descriptor each for remote_address, api_key (from x-api-key), method and path, in \
         the only domain",
    ),
    nested(
        "identity",
        "MAPPING",
        "Caller of a request, for service levels and for descriptors `from: identity`: `from` (parts of the request, \
         tried in order), `default`, `known`, `ipv6_prefix`, `jwt` and `country`. Unset: the x-api-key header, else \
         the client's address",
    ),
    value(
        "trusted_proxies",
        "NETWORKS",
        "loopback",
        "Proxies whose forwarding headers are trusted on /v1/auth and at the gateway: addresses and networks, \
         separated by commas; `loopback` is this host and Unix sockets; empty: none",
    ),
    value(
        "client_header",
        "NAME",
        "x-forwarded-for",
        "The one header in which those proxies name the client: `x-forwarded-for`, `forwarded` (RFC 7239), or one \
         with a single address, such as `x-real-ip`",
    ),
    value(
        "encoded_slashes",
        "refuse|keep",
        "",
        "Paths with `%2F` or a backslash in a segment, which servers read differently, on /v1/auth and at the \
         gateway: `refuse` with 400, or `keep` as part of the segment. Unset: the gateway refuses them; /v1/auth \
         does where a rule or a service level uses the path",
    ),
    value(
        "ambiguous_paths",
        "refuse|accept",
        "refuse",
        "Other paths that servers read differently (`;x`, `/../`, leading `//`, `%00`, `%252F`), on /v1/auth and at \
         the gateway, where a rule or a service level uses the path: `refuse` with 400, or `accept`, which lets \
         callers choose between two counters if the server behind reads them differently",
    ),
    value(
        "ignore_path_case",
        "true|false",
        "",
        "Count `/Orders` as `/orders` in rules and service levels, on /v1/auth and at the gateway; `false` only for \
         services that tell the two apart. Forwarded paths never change. Unset: true, or false under `--profile \
         envoy`",
    ),
    value(
        "ignore_trailing_slash",
        "true|false",
        "",
        "Count `/orders/` as `/orders`, likewise; service levels always do. Unset: true, or false under `--profile \
         envoy`",
    ),
    value(
        "headers",
        "LIST",
        "draft, x-ratelimit, retry-after",
        "Rate limit headers on /v1/auth and at the gateway: a list of `draft`, `x-ratelimit`, `x-ratelimit-epoch`, \
         `github`, `retry-after`, `retry-after-date`, `rule` and `degraded`, or `none`",
    ),
    value(
        "denial_body",
        "FORM",
        "json",
        "Body of a denial on /v1/auth and at the gateway: `json`, or `problem` for application/problem+json; the \
         client's Accept header overrides it",
    ),
    nested(
        "callers",
        "LIST",
        "Callers with permissions, in addition to unauthenticated ones on loopback and Unix listeners: a list of \
         `name`, `token_sha256` or `tls_name`, `may` (override, refund, hold), and `role` in the admin API (viewer, \
         editor, admin)",
    ),
];

const ENVOY_PROTOCOL: &[Setting] = &[
    value(
        "response_headers",
        "KINDS",
        "",
        "Headers in answers to Envoy, separated by commas: `limits` (RateLimit-Limit, -Remaining and -Reset, as in \
         envoyproxy/ratelimit), `draft` (RateLimit-Policy and RateLimit of the IETF draft), `degraded` \
         (x-ratelimit-degraded on answers of failure modes)",
    ),
    value(
        "limit_header",
        "NAME",
        "RateLimit-Limit",
        "Name of the header with the limit",
    ),
    value(
        "remaining_header",
        "NAME",
        "RateLimit-Remaining",
        "Name of the header with the remaining hits",
    ),
    value(
        "reset_header",
        "NAME",
        "RateLimit-Reset",
        "Name of the header with the seconds until the reset",
    ),
    switch(
        "dynamic_metadata",
        "Add dynamic metadata to answers to Envoy: domain, descriptors and the rules' metadata",
    ),
    value(
        "on_unreadable",
        "deny|allow|error",
        "deny",
        "Answer to a check that cannot be read because of what it carries: a message that is malformed or too large, a \
         key or value of more than 64 KiB, more than 2^53 - 1 hits. `deny`: over the limit; `error`: as in \
         envoyproxy/ratelimit, so that a proxy may let it pass",
    ),
    value(
        "envoy_callers",
        "any|permitted|required",
        "",
        "Permissions that Envoy's protocol (gRPC and /json) requires: `any` requires none; `permitted` requires \
         `override` or `refund` (see `callers`) of requests that carry a limit or return hits; `required` also \
         requires all others to come from a known caller. Loopback and Unix listeners require none. Unset: \
         permitted, or any under `--profile envoy`",
    ),
];

const LOGS: &[Setting] = &[
    value(
        "log_level",
        "LEVEL",
        "info",
        "error, warn, info, debug, trace, or a filter such as `info,ratekeeper_server=debug`. Libraries log only \
         errors, unless named: `info,h2=debug`",
    ),
    value(
        "log_format",
        "FORMAT",
        "text",
        "`text` for people, or `json`: one object per line, on stderr",
    ),
    value(
        "denial_log",
        "LINES",
        "10",
        "Most denied requests to log per second, up to 1000; 0 logs none. Metrics count all of them",
    ),
    switch(
        "top_denied_metric",
        "Export the most denied keys, at most 50, as ratelimit_top_denied{domain,rule,key}: values of requests \
         become labels, secrets as fingerprints",
    ),
    value(
        "node_name",
        "NAME",
        "",
        "Name of this node in the denial log and in the admin API. Unset: the host name",
    ),
];

const TRACES: &[Setting] = &[
    value(
        "otlp_endpoint",
        "URL",
        "",
        "OpenTelemetry collector that gets traces over OTLP/gRPC: http://HOST:PORT, as in http://127.0.0.1:4317, or \
         https://HOST:PORT. Unset: nothing is traced",
    ),
    secret(
        "otlp_headers",
        "HEADERS",
        "Headers for the collector, such as an API key: NAME=VALUE, several separated by commas, special characters in \
         values as %XX",
    ),
    value(
        "otlp_headers_file",
        "FILE",
        "",
        "File with more such headers, one per line; read at start",
    ),
    value(
        "otlp_ca",
        "FILE",
        "",
        "With https://: CA certificates that verify the collector, as PEM. Unset: the system's",
    ),
    value(
        "otlp_cert",
        "FILE",
        "",
        "With https://: client certificate for the collector (mTLS), as PEM",
    ),
    value(
        "otlp_key",
        "FILE",
        "",
        "Private key of that certificate, as unencrypted PEM",
    ),
    value(
        "trace_sample_ratio",
        "SHARE",
        "0.01",
        "Share of requests to trace, 0 to 1, if they bring no `traceparent`; the callers' `traceparent` decides about the \
         others",
    ),
    value(
        "trace_service_name",
        "NAME",
        "ratekeeper",
        "Name of the service (`service.name`) in traces",
    ),
];

const METRICS_FOR_OTHER_SYSTEMS: &[Setting] = &[
    switch(
        "envoy_metrics",
        "Export counts at /metrics under envoyproxy/ratelimit's names too: ratelimit_service_rate_limit_total_hits \
         and others",
    ),
    value(
        "statsd",
        "ADDRESS",
        "",
        "statsd agent that gets counts over UDP, under envoyproxy/ratelimit's names: HOST:PORT. Unset: none",
    ),
    value(
        "statsd_format",
        "FORMAT",
        "statsd",
        "`statsd` puts domain and rule into the names, `dogstatsd` into tags",
    ),
    value(
        "statsd_interval",
        "DURATION",
        "10s",
        "Interval between reports to statsd, 1s to 1h",
    ),
];

const TLS: &[Setting] = &[
    value("grpc_tls_cert", "FILE", "", TLS_CERT),
    value("grpc_tls_key", "FILE", "", TLS_KEY),
    value("grpc_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("grpc_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
    value("http_tls_cert", "FILE", "", TLS_CERT),
    value("http_tls_key", "FILE", "", TLS_KEY),
    value("http_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("http_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
    value("admin_tls_cert", "FILE", "", TLS_CERT),
    value("admin_tls_key", "FILE", "", TLS_KEY),
    value("admin_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("admin_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
    value("metrics_tls_cert", "FILE", "", TLS_CERT),
    value("metrics_tls_key", "FILE", "", TLS_KEY),
    value("metrics_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("metrics_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
];

const GRPC_CONNECTIONS: &[Setting] = &[
    value(
        "grpc_max_connection_age",
        "DURATION",
        "24h",
        "Age at which a gRPC connection is told to close (GOAWAY), within a tenth, so that clients spread to new \
         instances. Requests in flight are answered. 0s: never",
    ),
    value(
        "grpc_max_connection_age_grace",
        "DURATION",
        "1h",
        "Time that requests in flight have before such a connection is cut",
    ),
    value(
        "grpc_max_connection_idle",
        "DURATION",
        "0s",
        "Idle time after which a gRPC connection is told to close; it may take twice as long. 0s: never",
    ),
    value(
        "grpc_keepalive_time",
        "DURATION",
        "30s",
        "Silence after which a gRPC client is pinged, at least 1s",
    ),
    value(
        "grpc_keepalive_timeout",
        "DURATION",
        "20s",
        "Time to answer that ping before the connection is closed, at least 1s",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_snake_case() {
        let keys: Vec<&str> = settings().map(|setting| setting.key).collect();
        for (index, key) in keys.iter().enumerate() {
            let is_fit = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(key.chars().all(is_fit), "{key}");
            assert!(!keys[..index].contains(key), "{key}");
        }
        for key in IN_SHORT_HELP {
            assert!(keys.contains(&key), "{key}");
        }
    }
}
