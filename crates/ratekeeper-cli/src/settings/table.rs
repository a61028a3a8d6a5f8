//! Every setting there is: its name, its default and what it means, in one place.
//!
//! A setting has one name in three spellings: `memory_limit` in `ratekeeper.yaml`, `RATEKEEPER_MEMORY_LIMIT` in the
//! environment and `--memory-limit` on the command line. The flags, the help, `config show`, the messages about
//! unknown keys and the table in `docs/configuration.md` (held equal by a test) all come from here.

use super::setting::{Setting, nested, secret, switch, value};

/// The setting of that name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

const TLS_CERT: &str =
    "Encrypt with this certificate and its chain, as PEM; reread when it changes";
const TLS_KEY: &str = "The certificate's private key, as unencrypted PEM";
const TLS_CLIENT_CA: &str = "Require client certificates from these authorities (mTLS), as PEM";
const TLS_CLIENT_NAMES: &str = "Of those, accept only these subject alternative names: DNS names (`*.` stands for one label), URIs, IP \
     addresses, separated by commas";

/// All settings, in the order in which they are shown.
pub(crate) static SETTINGS: &[Setting] = &[
    value(
        "rules",
        "PATH",
        "",
        "The rules: a file, or a folder of `*.yaml` and `*.yml`. Unset: the folder rules/ in ./config or \
         /etc/ratekeeper",
    ),
    Setting {
        key: "watch",
        value_name: "BOOL",
        default: "true",
        help: "Reload rules when they are saved; SIGHUP reloads them in either case",
        switch: true,
        nested: false,
        secret: false,
    },
    switch(
        "merge_domains",
        "Let several files add to one domain instead of refusing it",
    ),
    value(
        "slas_base",
        "PATH",
        "",
        "The path that the paths of service levels (`slas:`) are relative to, unless a file sets it; it can name the \
         tenant: /v1/organizations/{tenant}",
    ),
    value(
        "tenants",
        "PATH",
        "",
        "The tenants that have a plan or limits of their own: a file, or a folder of `*.yaml` and `*.yml`, reloaded as \
         the rules are. Unset: only those that the rules list",
    ),
    secret(
        "tenant_key",
        "HEX",
        "Key of the hashes that name tenants in files (`ratekeeper key hash`) and in PostgreSQL: 32 hexadecimal digits, \
         the same on all nodes. Unset: files can name tenants by their values only; for SQLite, one is made beside the \
         database",
    ),
    value(
        "quotas",
        "WHERE",
        "",
        "Database with tenants' plans and limits, which count before those in files: sqlite://PATH for one node, \
         postgres://USER:PASSWORD@HOST/DATABASE for many, or `off`. Unset: quotas.db in `data_dir`, if that is set and \
         the rules have tenants",
    ),
    value(
        "on_quota_failure",
        "MODE",
        "default",
        "Tenants' limits after a start that has neither that database nor its saved copy in `data_dir`: those of the \
         `default` plan, or none (`allow`)",
    ),
    value(
        "audit_export",
        "URL",
        "",
        "Where each change of tenants and switches goes as well, from the audit trail of that database: a Redis stream \
         (redis://HOST:PORT/DB, rediss:// for TLS) or a NATS JetStream subject (nats://HOST:PORT, tls:// for TLS)",
    ),
    value(
        "audit_export_stream",
        "NAME",
        "ratekeeper.audit",
        "The name of that stream or subject",
    ),
    value(
        "audit_export_ca",
        "FILE",
        "",
        "Authorities to trust for `audit_export`, as PEM. Unset: the system's",
    ),
    value(
        "profile",
        "NAME",
        "ratekeeper",
        "The defaults of rules: `ratekeeper` (sliding windows, denied requests cost nothing) or `envoy` (fixed \
         windows that count denied requests, as envoyproxy/ratelimit does)",
    ),
    value(
        "grpc",
        "ADDR",
        "0.0.0.0:8081",
        "Address of Envoy's RateLimitService and of ratekeeper.v1; port 0 picks a free one, unix:/PATH is a Unix \
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
        "Address for operators: /metrics, /rlconfig, /admin/v1. Beyond this host it needs client certificates or a token",
    ),
    value(
        "metrics",
        "ADDR",
        "",
        "A further address that serves /metrics alone, for scrapers on other hosts",
    ),
    value(
        "unix_mode",
        "MODE",
        "",
        "Permissions of Unix socket files, as for chmod: 0660; whoever may write may connect. Unset: the umask \
         decides",
    ),
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
    value(
        "grpc_max_connection_age",
        "DURATION",
        "24h",
        "Age at which a gRPC connection is told to close (GOAWAY), give or take a tenth, so that clients spread over \
         new instances; requests in flight are answered; 0s: never",
    ),
    value(
        "grpc_max_connection_age_grace",
        "DURATION",
        "1h",
        "Time for requests in flight before such a connection is cut",
    ),
    value(
        "grpc_max_connection_idle",
        "DURATION",
        "0s",
        "Time without a request, or up to twice that, after which a gRPC connection is told to close; 0s: never",
    ),
    value(
        "grpc_keepalive_time",
        "DURATION",
        "30s",
        "Time without a byte after which a gRPC client is pinged, 1s at least",
    ),
    value(
        "grpc_keepalive_timeout",
        "DURATION",
        "20s",
        "Time to answer that ping before the connection is closed, 1s at least",
    ),
    value(
        "worker_threads",
        "NUMBER",
        "",
        "Threads that serve gRPC, HTTP and the gateway, each with its own connections. Unset: one for each core",
    ),
    value(
        "stall_timeout",
        "DURATION",
        "30s",
        "Longest time a client may take nothing of a ready answer, or send nothing of an awaited body, before its \
         request is ended; 0s: no limit. Time with nothing to take or send does not count",
    ),
    value(
        "min_rate",
        "SIZE",
        "1KiB",
        "Bytes a second that such a client has to take or send on average; 0: any",
    ),
    value(
        "drain_delay",
        "DURATION",
        "3s",
        "Time after SIGTERM during which requests are still served while /readyz fails, so that load balancers can \
         react; 0s: none, 10m at most",
    ),
    value(
        "store",
        "WHERE",
        "memory",
        "Where counters live: `memory`, or the URL of a Redis or Valkey that nodes share: \
         redis://user:password@host:6379/0, rediss:// for TLS, redis+unix:///path, \
         redis+cluster://host,host, redis+sentinel://host,host/name; ?prefix=text keeps services apart",
    ),
    value(
        "store_ca",
        "FILE",
        "",
        "With rediss://: authorities to verify Redis's certificate by, as PEM. Unset: the system's",
    ),
    value(
        "store_cert",
        "FILE",
        "",
        "With rediss://: this node's certificate (mTLS), as PEM; reread when it changes",
    ),
    value(
        "store_key",
        "FILE",
        "",
        "That certificate's private key, as unencrypted PEM",
    ),
    secret(
        "store_hash_key",
        "HEX",
        "Key of the hashes that name counters in Redis: 32 hexadecimal digits, the same on all nodes. Unset: created \
         at random and shared through Redis",
    ),
    value(
        "store_deadline",
        "DURATION",
        "10ms",
        "Longest time a decision waits for Redis, all included, before the failure mode answers; 1ms to 1s",
    ),
    value(
        "deny_cache_max",
        "DURATION",
        "1s",
        "Longest time a denial is repeated from memory; hits returned on another node show after that; 0s: never, 10s \
         at most",
    ),
    Setting {
        key: "store_merge",
        value_name: "BOOL",
        default: "true",
        help: "Decide waiting requests for the same counters together",
        switch: true,
        nested: false,
        secret: false,
    },
    value(
        "store_batch",
        "COUNT",
        "64",
        "Groups of requests in one call to Redis, at most; 1 to 1024",
    ),
    nested(
        "stores",
        "MAPPING",
        "Further stores for rules that name one (`store: NAME`): NAME: { url, ca, cert, key, deadline }, each like \
         the setting that begins with store_, which is also its default",
    ),
    value(
        "local_factor",
        "FACTOR",
        "1",
        "Factor for limits while this node decides on its own: 1 denies nobody within the limit, 1 divided by the \
         number of nodes lets no more pass in all",
    ),
    switch(
        "require_store",
        "Refuse to start without Redis; otherwise failure modes answer until it is there",
    ),
    value(
        "memory_limit",
        "SIZE",
        "256MiB",
        "Memory for counters, 1MiB at least; when it is full, expired counters go first and denied ones last",
    ),
    value(
        "max_share",
        "PERCENT",
        "50%",
        "Share of that memory that one rule may use, 1% to 100%, so that a flood of keys on it leaves room for others",
    ),
    value(
        "state",
        "FILE",
        "",
        "Save counters of windows of a minute or more in this file every 10 s and on SIGTERM, and load them at start, \
         so that a restart does not reset a month's quota",
    ),
    value(
        "data_dir",
        "DIR",
        "",
        "Folder for what outlives a restart: switches of rules, tokens of the admin API, and counters, as `state` is then \
         counters.state in it. Unset: nothing is written",
    ),
    value(
        "on_store_failure",
        "MODE",
        "local",
        "Failure mode while the store cannot answer: `local` (decide by this node's own counters), `allow` or `deny`; \
         a rule's own on_store_failure overrides it",
    ),
    switch(
        "shadow_mode",
        "Deny nothing; decide and count as usual, and report what would have been denied",
    ),
    switch(
        "quota_mode",
        "Put every rule in quota mode: a request is denied only if all of its limits are over",
    ),
    value(
        "response_headers",
        "KINDS",
        "",
        "Headers in answers to Envoy: `limits` (RateLimit-Limit, -Remaining, -Reset as envoyproxy/ratelimit has \
         them), `draft` (the IETF draft's RateLimit-Policy and RateLimit), `degraded` (x-ratelimit-degraded on \
         answers of failure modes), or several, separated by commas",
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
        "Answer Envoy with dynamic metadata: domain, descriptors, the rules' metadata",
    ),
    value(
        "envoy_callers",
        "any|permitted|required",
        "",
        "Permissions that Envoy's protocol (gRPC and /json) requires: `any`, none; `permitted`, `override` and \
         `refund` in `callers` for requests that carry a limit or return hits; `required`, these, and a known caller \
         for all others. Loopback and Unix listeners require none. Unset: permitted, or any under `--profile envoy`",
    ),
    value(
        "trusted_proxies",
        "NETWORKS",
        "loopback",
        "Proxies whose forwarding headers count on /v1/auth and at the gateway: addresses and networks, separated by \
         commas, and `loopback` for this host and Unix sockets; empty: none",
    ),
    value(
        "client_header",
        "NAME",
        "x-forwarded-for",
        "The one header in which those proxies name the client: `x-forwarded-for`, `forwarded` (RFC 7239), or one \
         with a single address such as `x-real-ip`",
    ),
    value(
        "encoded_slashes",
        "refuse|keep",
        "",
        "Paths with `%2F` or a backslash in a segment, which services read differently, on /v1/auth and at the \
         gateway: refused with 400, or `keep` as part of the segment. Unset: the gateway refuses them, /v1/auth where \
         a rule or a service level uses the path",
    ),
    value(
        "ambiguous_paths",
        "refuse|accept",
        "refuse",
        "Other paths that services read differently (`;x`, `/../`, leading `//`, `%00`, `%252F`), on /v1/auth and at \
         the gateway, where a rule or a service level uses the path: `refuse` with 400, or `accept`, which lets \
         callers choose between two counters if the service behind reads them differently",
    ),
    value(
        "ignore_path_case",
        "true|false",
        "",
        "Limit `/Orders` as `/orders`, by rules and service levels, on /v1/auth and at the gateway: `false` only for \
         services that tell the two apart. What is forwarded is not changed. Unset: true, or false under `--profile \
         envoy`",
    ),
    value(
        "ignore_trailing_slash",
        "true|false",
        "",
        "Limit `/orders/` as `/orders`, likewise. Service levels always do. Unset: true, or false under `--profile \
         envoy`",
    ),
    nested(
        "auth",
        "MAPPING",
        "Descriptors of a request on /v1/auth and at the gateway: `domain`, and `descriptors` from parts of the \
         request. Unset: one descriptor each for remote_address, api_key (from x-api-key), method and path, in the \
         only domain",
    ),
    nested(
        "identity",
        "MAPPING",
        "The caller, for service levels and for descriptors `from: identity`: `from`, a list of parts of a request \
         that are tried in order, `default`, `known`, `ipv6_prefix`, `jwt` and `country`. Unset: the x-api-key \
         header, else the address",
    ),
    value(
        "headers",
        "LIST",
        "draft, x-ratelimit, retry-after",
        "Headers about limits on /v1/auth and at the gateway: a list of `draft`, `x-ratelimit`, `x-ratelimit-epoch`, \
         `github`, `retry-after`, `retry-after-date`, `rule` and `degraded`, or `none`",
    ),
    value(
        "denial_body",
        "FORM",
        "json",
        "Body of a denial on /v1/auth and at the gateway: `json`, or `problem` for application/problem+json; a \
         client's Accept header overrides it",
    ),
    nested(
        "callers",
        "LIST",
        "Callers with permissions, besides unauthenticated ones on a loopback or Unix listener: a list of `name`, \
         `token_sha256` or `tls_name`, `may` of override, refund, hold, and `role` in the admin API: viewer, editor or \
         admin",
    ),
    value(
        "listen",
        "ADDR",
        "0.0.0.0:8082",
        "Address of the gateway, for HTTP/1.1 and HTTP/2; port 0 picks a free one, unix:/PATH is a Unix socket",
    ),
    value("listen_tls_cert", "FILE", "", TLS_CERT),
    value("listen_tls_key", "FILE", "", TLS_KEY),
    value("listen_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("listen_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
    value(
        "upstream",
        "URL",
        "",
        "The upstream of all requests: http://HOST:PORT, h2c://HOST:PORT for HTTP/2 in the clear, https://HOST, \
         unix:/PATH for a Unix socket",
    ),
    nested(
        "upstreams",
        "MAPPING",
        "Several upstreams by name: a URL, a list of URLs that take turns, or `urls`, `ca` (a file of authorities), \
         `server_name` (of its certificate), `host` (instead of the client's) and `health_check` (`path`, `interval`, \
         `timeout`, `unhealthy_threshold`, `healthy_threshold`)",
    ),
    nested(
        "routes",
        "LIST",
        "Routes to `upstreams`: a list of `host` (`*.` stands for all below), `path` (for itself and what is below) \
         and `upstream`; the most specific wins",
    ),
    value(
        "upstream_connect_timeout",
        "DURATION",
        "5s",
        "Time to connect to an upstream; then the next address is tried, or the answer is 504",
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
        "Concurrent requests to one upstream, at most 1000000; over HTTP/1.1 each has a connection of its own",
    ),
    value(
        "upstream_queue_max",
        "REQUESTS",
        "1024",
        "Requests that wait for one of those to end, for at most upstream_connect_timeout; more get 503",
    ),
    value(
        "connection_requests_max",
        "REQUESTS",
        "100",
        "Concurrent requests on one HTTP/2 connection of a client of the gateway, 1 to 1000",
    ),
    value(
        "request_body_max",
        "SIZE",
        "1GiB",
        "Largest body that the gateway forwards; larger ones get 413",
    ),
    value(
        "limits",
        "MODE",
        "on",
        "What the gateway does about limits: `on` (enforce), `shadow` (count, and let everything pass) or `off` (only \
         forward)",
    ),
    value(
        "wait_max",
        "DURATION",
        "10s",
        "Longest time the gateway holds a request back for a leaky bucket, at most 1h; longer waits are denied",
    ),
    value(
        "waiting_max",
        "REQUESTS",
        "1024",
        "Requests that the gateway holds back at a time, at most 1000000; further ones are denied",
    ),
    value(
        "service",
        "URL",
        "",
        "The Ratekeeper service that decides for the gateway, instead of its own rules and counters: \
         grpc://HOST:PORT, grpcs://HOST:PORT for TLS, unix:/PATH; several, separated by commas, are asked in order \
         while those before them are down",
    ),
    value(
        "on_service_failure",
        "MODE",
        "allow",
        "What happens to a request that no service answers: `allow`, `deny` (503), or `local` (the gateway decides by \
         its own `rules` and counters in memory)",
    ),
    value(
        "service_deadline",
        "DURATION",
        "20ms",
        "Longest time a request waits for the service, connecting and retries included; 1ms to 10s",
    ),
    switch(
        "service_permits",
        "Enforce the service's concurrency limits too, if its `callers` allow it; otherwise they do not count at this \
         gateway",
    ),
    secret(
        "service_token",
        "TOKEN",
        "The gateway's bearer token at the service (its `callers`); prefer the variable or a file",
    ),
    value("service_token_file", "FILE", "", "The file with that token"),
    value(
        "service_server_name",
        "NAME",
        "",
        "With grpcs://: the name in the service's certificate, if it is not the URL's host",
    ),
    value(
        "service_ca",
        "FILE",
        "",
        "With grpcs://: authorities to verify the service's certificate by, as PEM",
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
        "That certificate's private key, as unencrypted PEM",
    ),
    value(
        "access_log",
        "FILE",
        "",
        "Log every request of the gateway to this file, `-` for standard output, in a format that `ratekeeper replay` \
         reads; a rotated file is reopened",
    ),
    value(
        "access_log_format",
        "FORMAT",
        "json",
        "`json`, with the decision, its rule and its reason, or `combined` as Apache and NGINX write it",
    ),
    value(
        "log_level",
        "LEVEL",
        "info",
        "error, warn, info, debug, trace, or a filter like `info,ratekeeper_server=debug`. Libraries log from `error` \
         on; name one to hear more: `info,h2=debug`",
    ),
    value(
        "log_format",
        "FORMAT",
        "text",
        "`text` for people, `json` for machines: one object a line, on stderr",
    ),
    value(
        "denial_log",
        "LINES",
        "10",
        "Denied requests that are logged in a second, at most 1000; 0 for none. Metrics count all of them",
    ),
    switch(
        "top_denied_metric",
        "Show the keys that are denied most as ratelimit_top_denied{domain,rule,key}, at most 50: values of requests become \
         labels, secrets as fingerprints",
    ),
    switch(
        "envoy_metrics",
        "Show counts at /metrics under envoyproxy/ratelimit's names too: ratelimit_service_rate_limit_total_hits and others",
    ),
    value(
        "statsd",
        "ADDRESS",
        "",
        "Send counts to this statsd agent over UDP, under envoyproxy/ratelimit's names: HOST:PORT. Unset: none",
    ),
    value(
        "statsd_format",
        "FORMAT",
        "statsd",
        "`statsd`: domain and rule in the names; `dogstatsd`: as tags",
    ),
    value(
        "statsd_interval",
        "DURATION",
        "10s",
        "Time between two sendings to statsd, from 1s to 1h",
    ),
    value(
        "node_name",
        "NAME",
        "",
        "Name of this node in the denial log and on the admin API. Unset: the host's name",
    ),
    value(
        "otlp_endpoint",
        "URL",
        "",
        "OpenTelemetry collector that gets traces over OTLP/gRPC: http://HOST:PORT, as in http://127.0.0.1:4317. Unset: \
         nothing is traced",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_snake_case() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(
                setting
                    .key
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '_'),
                "{}",
                setting.key
            );
            assert!(
                SETTINGS[..index]
                    .iter()
                    .all(|other| other.key != setting.key),
                "{}",
                setting.key
            );
        }
    }
}
