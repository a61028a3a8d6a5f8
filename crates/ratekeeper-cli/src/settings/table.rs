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

const TLS_CERT: &str = "Encrypt here: the certificate, with what leads from it to its authority, as PEM; read again when \
     it changes";
const TLS_KEY: &str = "The certificate's private key, as PEM, not encrypted";
const TLS_CLIENT_CA: &str =
    "Let in only clients with a certificate of these authorities (mTLS), as PEM";
const TLS_CLIENT_NAMES: &str = "Of those let in only these, by subject alternative name: DNS names (`*.` stands for one label), \
     URIs, IP addresses, with commas between them";

/// All settings, in the order in which they are shown.
pub(crate) static SETTINGS: &[Setting] = &[
    value(
        "rules",
        "PATH",
        "",
        "The rules: a file, or a folder of `*.yaml` and `*.yml`. Unset: the folder rules/ in \
         ./config or in /etc/ratekeeper",
    ),
    Setting {
        key: "watch",
        value_name: "BOOL",
        default: "true",
        help: "Put changed rules in force as they are saved; SIGHUP does that in either case",
        switch: true,
        nested: false,
        secret: false,
    },
    switch(
        "merge_domains",
        "Let several files add to one domain instead of refusing that",
    ),
    value(
        "slas_base",
        "PATH",
        "",
        "What the paths of service levels (`slas:`) are relative to, in files that do not say; it may name the \
         tenant: /v1/organizations/{tenant}",
    ),
    value(
        "profile",
        "NAME",
        "ratekeeper",
        "What rules mean where they do not say: `ratekeeper` (sliding windows, denied requests cost nothing) or \
         `envoy` (fixed windows that count denied requests, as envoyproxy/ratelimit does)",
    ),
    value(
        "grpc",
        "ADDR",
        "0.0.0.0:8081",
        "Where Envoy's RateLimitService listens; port 0 picks a free one, unix:/PATH is a Unix socket",
    ),
    value(
        "http",
        "ADDR",
        "0.0.0.0:8080",
        "Where HTTP checks are answered: /v1/check, /v1/auth, /json, /healthcheck",
    ),
    value(
        "admin",
        "ADDR",
        "127.0.0.1:6070",
        "Where operators look: /metrics, /rlconfig, /admin/v1; keep it private",
    ),
    value(
        "metrics",
        "ADDR",
        "",
        "One more address that serves /metrics alone, for scrapers on other hosts",
    ),
    value(
        "unix_mode",
        "MODE",
        "",
        "The permissions of the files of Unix sockets, as chmod takes them: 0660; whoever may write may connect. Unset: \
         what the umask leaves",
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
        "After how long a gRPC connection is told to go (GOAWAY), give or take a tenth, so that clients spread over new \
         instances; requests under way are answered; 0s for never",
    ),
    value(
        "grpc_max_connection_age_grace",
        "DURATION",
        "1h",
        "How long requests under way may take then, before the connection is cut off",
    ),
    value(
        "grpc_max_connection_idle",
        "DURATION",
        "0s",
        "After how long without a request a gRPC connection is told to go, or up to twice that; 0s for never",
    ),
    value(
        "grpc_keepalive_time",
        "DURATION",
        "30s",
        "After how long without a byte from it a gRPC client is asked whether it is there (an HTTP/2 ping), 1s at least",
    ),
    value(
        "grpc_keepalive_timeout",
        "DURATION",
        "20s",
        "How long it may take to answer that before the connection is closed, 1s at least",
    ),
    value(
        "worker_threads",
        "NUMBER",
        "",
        "On how many threads gRPC, HTTP and the gateway are served, each with its own connections. Unset: one for each core",
    ),
    value(
        "stall_timeout",
        "DURATION",
        "30s",
        "How long a client may take nothing of an answer that is ready for it, or send nothing of a body that is waited for, before \
         its request is ended; 0s for ever. Time in which there is nothing to take or to send does not count",
    ),
    value(
        "min_rate",
        "SIZE",
        "1KiB",
        "The bytes a second that such a client has to take or send on average beyond that; 0 for any",
    ),
    value(
        "drain_delay",
        "DURATION",
        "3s",
        "For how long after SIGTERM everyone is still served while /readyz already says no, so that balancers can \
         notice; 0s for not at all, 10m at most",
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
        "With rediss://: the authorities that vouch for Redis, as PEM. Unset: those that the system trusts",
    ),
    value(
        "store_cert",
        "FILE",
        "",
        "With rediss://: the certificate that Redis is shown (mTLS), as PEM; read again when it changes",
    ),
    value(
        "store_key",
        "FILE",
        "",
        "The private key of that certificate, as PEM, not encrypted",
    ),
    secret(
        "store_hash_key",
        "HEX",
        "The key of the hashes that name counters in Redis: 32 hexadecimal digits, the same on all nodes. Unset: one is \
         made, and shared by way of Redis",
    ),
    value(
        "store_deadline",
        "DURATION",
        "10ms",
        "How long a decision may wait for Redis, all in all, before the failure mode answers; 1ms to 1s",
    ),
    value(
        "deny_cache_max",
        "DURATION",
        "1s",
        "For how long a denial may be repeated from memory; hits given back on another node are seen after that; 0s \
         asks each time, 10s at most",
    ),
    Setting {
        key: "store_merge",
        value_name: "BOOL",
        default: "true",
        help: "Decide requests for the same counters together that wait for Redis at the same time",
        switch: true,
        nested: false,
        secret: false,
    },
    value(
        "store_batch",
        "COUNT",
        "64",
        "How many groups of requests one call of Redis may decide; 1 to 1024",
    ),
    nested(
        "stores",
        "MAPPING",
        "Further stores for rules that name one (`store: NAME`): NAME: { url, ca, cert, key, deadline }, each as the \
         setting that begins with store_; what is not said there is as for `store`",
    ),
    value(
        "local_factor",
        "FACTOR",
        "1",
        "What limits are multiplied with while this node decides by itself: 1 refuses nobody within their limit, 1 \
         divided by the number of nodes lets no more pass",
    ),
    switch(
        "require_store",
        "Do not start unless Redis is there; without, rules' failure modes decide until it is",
    ),
    value(
        "memory_limit",
        "SIZE",
        "256MiB",
        "The most that counters in memory may take, 1MiB at least; when full, expired counters go first and denied \
         ones last",
    ),
    value(
        "max_share",
        "PERCENT",
        "50%",
        "The most of that one rule may hold, 1% to 100%, so that a flood of keys on one leaves room for the others",
    ),
    value(
        "state",
        "FILE",
        "",
        "Save the counters of windows of a minute or more here every 10 s and on SIGTERM, and load them at start, so \
         that a restart does not reset a month's quota",
    ),
    value(
        "data_dir",
        "DIR",
        "",
        "A folder for what outlives a restart; with it, `state` is counters.state in it. Unset: nothing is written",
    ),
    value(
        "on_store_failure",
        "MODE",
        "local",
        "What is answered when the store cannot: `local` (decide by this node's own counters), `allow` or `deny`; a \
         rule's own on_store_failure goes before it",
    ),
    switch(
        "shadow_mode",
        "Deny nothing; decide and count as usual, and say what would have been denied",
    ),
    switch(
        "quota_mode",
        "Every rule is in quota mode: a request is denied only if all of its limits are over",
    ),
    value(
        "response_headers",
        "KINDS",
        "",
        "Headers in answers to Envoy: `limits` (RateLimit-Limit, -Remaining, -Reset as envoyproxy/ratelimit has \
         them), `draft` (the IETF draft's RateLimit-Policy and RateLimit), `degraded` (x-ratelimit-degraded, where a \
         limit was answered without being counted), or several with commas",
    ),
    value(
        "limit_header",
        "NAME",
        "RateLimit-Limit",
        "The name of the header with the limit",
    ),
    value(
        "remaining_header",
        "NAME",
        "RateLimit-Remaining",
        "The name of the header with the hits left",
    ),
    value(
        "reset_header",
        "NAME",
        "RateLimit-Reset",
        "The name of the header with the seconds until the reset",
    ),
    switch(
        "dynamic_metadata",
        "Answer Envoy with dynamic metadata: domain, descriptors, the rules' metadata",
    ),
    value(
        "envoy_callers",
        "any|permitted|required",
        "",
        "Which requests of Envoy's protocol (gRPC and /json) need a permission: `any` none; `permitted` those that bring a limit along \
         or give hits back (`override` and `refund` in `callers`); `required` these, and all others need a caller. A loopback or Unix \
         listener needs none. Unset: permitted; any under `--profile envoy`",
    ),
    value(
        "trusted_proxies",
        "NETWORKS",
        "loopback",
        "The proxies whose word about a request counts on /v1/auth and at the gateway: addresses and networks with commas, and \
         `loopback` for this host and Unix sockets; empty for nobody's",
    ),
    value(
        "client_header",
        "NAME",
        "x-forwarded-for",
        "The one header in which those proxies say who connected to them: `x-forwarded-for`, `forwarded` (RFC 7239), \
         or one with a single address such as `x-real-ip`",
    ),
    value(
        "encoded_slashes",
        "refuse|keep",
        "",
        "What becomes of a path with `%2F` or a backslash in a segment, which services read in different ways, on /v1/auth and at the \
         gateway: 400, or `keep` for part of its segment. Unset: the gateway refuses it, /v1/auth where a rule or a service level goes by \
         the path",
    ),
    value(
        "ambiguous_paths",
        "refuse|accept",
        "refuse",
        "What becomes of a path that services read in different ways for another reason (`;x`, `/../`, `//` at its beginning, `%00`, \
         `%252F`), on /v1/auth and at the gateway, where a rule or a service level goes by the path: 400, or `accept`, which lets callers \
         choose between two counters if the service behind reads it another way",
    ),
    nested(
        "auth",
        "MAPPING",
        "What becomes of a request on /v1/auth and at the gateway: `domain`, and `descriptors` from parts of it. Unset: one descriptor \
         each for remote_address, api_key (from x-api-key), method and path, in the only domain there is",
    ),
    nested(
        "identity",
        "MAPPING",
        "Who calls, for service levels and for descriptors `from: identity`: `from`, a list of parts of a request that \
         are tried in order, `default`, `known`, `ipv6_prefix`, `jwt` and `country`. Unset: the x-api-key header, else the address",
    ),
    value(
        "headers",
        "LIST",
        "draft, x-ratelimit, retry-after",
        "In which headers clients are told of their limits on /v1/auth and at the gateway: a list of `draft`, `x-ratelimit`, \
         `x-ratelimit-epoch`, `github`, `retry-after`, `retry-after-date`, `rule` and `degraded`, or `none`",
    ),
    value(
        "denial_body",
        "FORM",
        "json",
        "The body of a denial on /v1/auth and at the gateway: `json`, or `problem` for application/problem+json; a client that prefers one \
         of them gets that",
    ),
    nested(
        "callers",
        "LIST",
        "Who may, besides whoever shows nothing on a loopback or Unix listener, bring limits along, refund, and hold permits and reservations: a \
         list of `name`, `token_sha256` or `tls_name`, and `may` of override, refund, hold",
    ),
    value(
        "listen",
        "ADDR",
        "0.0.0.0:8082",
        "Where `ratekeeper gateway` listens, for HTTP/1.1 and HTTP/2; port 0 picks a free one, unix:/PATH is a Unix \
         socket",
    ),
    value("listen_tls_cert", "FILE", "", TLS_CERT),
    value("listen_tls_key", "FILE", "", TLS_KEY),
    value("listen_tls_client_ca", "FILE", "", TLS_CLIENT_CA),
    value("listen_tls_client_names", "NAMES", "", TLS_CLIENT_NAMES),
    value(
        "upstream",
        "URL",
        "",
        "Where the gateway forwards everything: http://HOST:PORT, h2c://HOST:PORT for HTTP/2 in the clear, \
         https://HOST, unix:/PATH for a Unix socket",
    ),
    nested(
        "upstreams",
        "MAPPING",
        "Several such services, each by a name: a URL, a list of URLs that take turns, or `urls`, `ca` (a file of \
         authorities), `server_name` (of its certificate), `host` (instead of the client's) and `health_check` (`path`, \
         `interval`, `timeout`, `unhealthy_threshold`, `healthy_threshold`)",
    ),
    nested(
        "routes",
        "LIST",
        "Which requests each of `upstreams` is for: a list of `host` (`*.` stands for all below), `path` (for itself and \
         what is below) and `upstream`; the most specific wins",
    ),
    value(
        "upstream_connect_timeout",
        "DURATION",
        "5s",
        "How long an upstream may take to be connected to; then the next address is tried, or 504 is the answer",
    ),
    value(
        "upstream_timeout",
        "DURATION",
        "60s",
        "How long an upstream may take to begin its answer, and pause in the middle of it",
    ),
    value(
        "upstream_requests_max",
        "REQUESTS",
        "1024",
        "The most requests that one upstream has at a time, at most 1000000; over HTTP/1.1 each has a connection of its own",
    ),
    value(
        "upstream_queue_max",
        "REQUESTS",
        "1024",
        "The most requests that wait until one of those has ended, for at most upstream_connect_timeout; more get 503",
    ),
    value(
        "connection_requests_max",
        "REQUESTS",
        "100",
        "The most requests that one HTTP/2 connection of a client of the gateway has under way, 1 to 1000",
    ),
    value(
        "request_body_max",
        "SIZE",
        "1GiB",
        "The largest body that the gateway forwards; what is larger gets 413",
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
        "The longest that the gateway holds a request back for a leaky bucket, at most 1h; one that would have to wait \
         longer is denied",
    ),
    value(
        "waiting_max",
        "REQUESTS",
        "1024",
        "The most requests that the gateway holds back at a time, at most 1000000; while so many are, one that would \
         have to wait is denied",
    ),
    value(
        "service",
        "URL",
        "",
        "The Ratekeeper service that decides for the gateway, instead of rules and counters of its own: grpc://HOST:PORT, \
         grpcs://HOST:PORT for TLS, unix:/PATH; several with commas between them, each asked while those before it give no \
         answer",
    ),
    value(
        "on_service_failure",
        "MODE",
        "allow",
        "What becomes of a request that the service gives no answer about: `allow`, `deny` (503), or `local` (the gateway \
         decides, by its own `rules` and counters in memory)",
    ),
    value(
        "service_deadline",
        "DURATION",
        "20ms",
        "How long a request may wait for the service's answer, connecting and trying again included; 1ms to 10s",
    ),
    switch(
        "service_permits",
        "Hold requests to the service's concurrency limits too, where it lets this caller (its `callers`); without, they do \
         not count at this gateway",
    ),
    secret(
        "service_token",
        "TOKEN",
        "The bearer token that the service knows the gateway by (its `callers`); best in the variable, or in a file",
    ),
    value(
        "service_token_file",
        "FILE",
        "",
        "Where that token is, if it is in a file",
    ),
    value(
        "service_server_name",
        "NAME",
        "",
        "With grpcs://: the name that the service's certificate has, if it is not the URL's host",
    ),
    value(
        "service_ca",
        "FILE",
        "",
        "With grpcs://: the authorities that vouch for the service, as PEM",
    ),
    value(
        "service_cert",
        "FILE",
        "",
        "With grpcs://: the certificate that the service is shown (mTLS), as PEM",
    ),
    value(
        "service_key",
        "FILE",
        "",
        "The private key of that certificate, as PEM, not encrypted",
    ),
    value(
        "access_log",
        "FILE",
        "",
        "Log every request of the gateway here, `-` for standard output, as `ratekeeper replay` reads it; a file that is \
         moved away is opened anew",
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
        "error, warn, info, debug, trace, or a filter like `info,ratekeeper_server=debug`. The libraries below are heard from \
         `error` on; name one to hear more: `info,h2=debug`",
    ),
    value(
        "log_format",
        "FORMAT",
        "text",
        "`text` for people, `json` for machines: one object a line, on stderr",
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
