//! Every setting there is, a row for each: its name, type, default, parser and meaning.
//!
//! A setting has one name in three spellings: `memory_limit` in `ratekeeper.yaml`, `RATEKEEPER_MEMORY_LIMIT` in the
//! environment and `--memory-limit` on the command line. The flags, the help, `config show`, the messages about
//! unknown keys, the tables in `docs/settings-*.md` (held equal by a test) and the type of each value all come from
//! here: a new setting is a row, and the code that uses its value.

use super::callers::callers;
use super::envoy::{HeaderKinds, envoy_callers, header_name};
use super::gateway::{LogTo, access_log, patience, routes, upstream, upstreams};
use super::given::{Given, Reader};
use super::layer::RawValue;
use super::listen::{keepalive, stall_timeout, worker_threads};
use super::log::{LogFormat, log_filter, node_name, statsd_address};
use super::quotas::{OnQuotaFailure, database};
use super::regions::{RegionWeights, regions};
use super::requests::{auth, identity, slas_base, trusted_proxies};
use super::rules::{OnBrokenRules, RulesPlace, failure_mode, profile, rules_place, tenant_key};
use super::service::{endpoints, token};
use super::setting::{
    Group, Setting, file, gateways, group, nested, secret, settings, switch, value,
};
use super::store::{deadline, local_factor, memory_limit, store, store_hash_key};
use super::stores::{NamedEntry, stores};
use super::tls::tls_names;
use super::traces::{PROTOCOLS, TraceProtocol, collector, service_name, trace_headers};
use super::values::{
    self, full_path, listen_address, maybe, number, one_of, path, percent, permissions, size,
    some_duration, text, within,
};
use super::xds::node_metadata;
use http::HeaderMap;
use ratekeeper_gateway::{LogFormat as AccessLogFormat, RouteConfig, UpstreamConfig};
use ratekeeper_http::answer::{BodyForm, Headers};
use ratekeeper_http::{
    AmbiguousPaths, ClientHeader, EncodedSlashes, Identity, Mapping, TrustedProxies,
};
use ratekeeper_quota::DatabaseAddress;
use ratekeeper_rules::{FailureMode, PathPattern, Profile, TenantKey};
use ratekeeper_server::{
    Caller, ClientName, EnvoyCallers, ListenAddress, OnUnreadable, StatsdFormat,
};
use ratekeeper_store::HashKey;
use ratekeeper_store_redis::Endpoint;
use ratekeeper_tower::LayerMode;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// All settings, in the order in which they are shown.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings).copied()
}

/// The setting of that name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.key == key)
}

const TLS_CERT: &str =
    "Serve TLS with this certificate and its chain, as PEM; reloaded when it changes";
const TLS_KEY: &str = "Private key of that certificate, as unencrypted PEM";
const TLS_CLIENT_CA: &str = "Require client certificates signed by these CAs (mTLS), as PEM";
const TLS_CLIENT_NAMES: &str = "Accept only client certificates with one of these subject alternative names: DNS names \
     (`*.` matches one label), URIs, IP addresses, separated by commas";

settings! {
    group("Rules") {
        /// The rules: a file, a folder of `*.yaml` and `*.yml`, or a URL: https://HOST/PATH of one text,
        /// redis://HOST:PORT/DB?key=NAME (the forms of `store`) or etcd://HOST:PORT/KEY of one or several, xds://HOST:PORT of
        /// a control plane; rediss://, etcds:// and xdss:// for TLS. Unset: the folder rules/ in ./config or /etc/ratekeeper
        rules: Option<RulesPlace> = value("PATH", "").in_short_help() => rules_place;
        /// Defaults for rules: `ratekeeper` (sliding windows; denied requests cost nothing) or `envoy` (fixed windows
        /// that count denied requests, like envoyproxy/ratelimit)
        profile: Profile = value("NAME", "ratekeeper").in_short_help() => profile;
        /// Reload rules when files change; SIGHUP always reloads them
        watch: bool = switch("true") => values::switch;
        /// With `data_dir`, for a start while the files are broken: start with the last good rules from there
        /// (`last_good`), or do not start (`refuse`)
        on_broken_rules: OnBrokenRules = value("MODE", "last_good") =>
            one_of(&[("last_good", OnBrokenRules::LastGood), ("refuse", OnBrokenRules::Refuse)]);
        /// Merge files that name the same domain; otherwise the second one is an error
        merge_domains: bool = switch("false") => values::switch;
        /// Base path of service levels (`slas:`), unless a file sets its own; it can name the tenant:
        /// /v1/organizations/{tenant}
        slas_base: Option<PathPattern> = value("PATH", "") => slas_base;
        /// Tenants with a plan or limits of their own: a file, or a folder of `*.yaml` and `*.yml`, reloaded like the
        /// rules. Unset: only those in the rules
        tenants: Option<PathBuf> = value("PATH", "") => path;
        /// Key of the hashes that name tenants in files (`ratekeeper key hash`) and in PostgreSQL: 32 hexadecimal
        /// digits, the same on all nodes. Unset: files can name tenants only by value, and SQLite keeps a generated key
        /// beside the database
        tenant_key: Option<TenantKey> = secret("HEX") => tenant_key;
        /// Database of tenants' plans and limits, which take precedence over files: sqlite://PATH for one node,
        /// postgres://USER:PASSWORD@HOST/DATABASE for many, or `off`. Unset: quotas.db in `data_dir`, if that is set
        /// and the rules have tenants or are fetched, or if the file is there
        quotas: Option<DatabaseAddress> = value("WHERE", "") => database;
        /// Limits of tenants if a node starts with neither that database nor its saved copy in `data_dir`: those of the
        /// `default` plan, or none (`allow`)
        on_quota_failure: OnQuotaFailure = value("MODE", "default") => str::parse;
        /// Target that gets a copy of each row of that database's audit trail: a Redis stream (the forms of `store`:
        /// redis://HOST:PORT/DB, rediss:// for TLS, redis+sentinel://, redis+cluster://) or a NATS JetStream subject
        /// (nats://HOST:PORT, tls:// for TLS)
        audit_export: Option<String> = value("URL", "") => maybe(text);
        /// Name of the stream or subject
        audit_export_stream: String = value("NAME", "ratekeeper.audit") => text;
        /// Authorities to trust for `audit_export`, as PEM. Unset: the system's
        audit_export_ca: Option<PathBuf> = file() => full_path;
        /// Certificate for `audit_export` (mTLS), as PEM
        audit_export_cert: Option<PathBuf> = file() => full_path;
        /// Its private key, as PEM
        audit_export_key: Option<PathBuf> = file() => full_path;
        /// Credentials for NATS: a .creds file, or the seed of a user's nkey
        audit_export_credentials: Option<PathBuf> = file() => full_path;
        /// With https://: bearer token for the server of the rules
        rules_token: Option<String> = secret("TOKEN") => token;
        /// With https://, redis:// or etcd://: time between two fetches, within a tenth; 1s to 24h. etcd tells of changes at once
        rules_interval: Duration = value("DURATION", "30s") =>
            within(Duration::from_secs(1)..=Duration::from_hours(24));
        /// For rules over TLS: CA certificates that verify the server of the rules, as PEM. Unset: the system's
        rules_ca: Option<PathBuf> = file() => full_path;
        /// For rules over TLS: this node's certificate (mTLS), as PEM; reloaded when it changes
        rules_cert: Option<PathBuf> = file() => full_path;
        /// Private key of that certificate, as unencrypted PEM
        rules_key: Option<PathBuf> = file() => full_path;
        /// For rules over TLS: name in the server's certificate, if it is not the URL's host
        rules_server_name: Option<String> = value("NAME", "") => maybe(text);
        /// Name of this node at the control plane, which chooses by it what it sends
        xds_node_id: String = value("NAME", "ratekeeper") => text;
        /// Properties of this node for the control plane: NAME=VALUE, several separated by commas
        xds_node_metadata: BTreeMap<String, String> = value("PAIRS", "") => node_metadata;
        /// Headers for the control plane: NAME=VALUE, several separated by commas, special characters in values as %XX
        xds_headers: HeaderMap = secret("HEADERS") => trace_headers;
        /// Largest response of the control plane
        xds_response_max: u64 = value("SIZE", "64MiB") => size;
        /// Keys for its rules that xDS has no fields for, as in a rules file (`algorithm`, `consistency`, `count_denied`,
        /// `on_store_failure`, `post_paid` and others), and `domains` with such keys by name, which may end in `*`
        xds_defaults: String = nested("MAPPING") => text;
        /// With rules from a URL: be ready before some have come; requests are refused until then
        start_without_rules: bool = switch("false") => values::switch;
        /// Deny nothing; decide and count as usual, and report what would have been denied
        shadow_mode: bool = switch("false") => values::switch;
        /// Put all rules in quota mode: a request is denied only if all of its limits are exceeded
        quota_mode: bool = switch("false") => values::switch;
    }
    gateways("Gateway") {
        /// Address of the gateway, for HTTP/1.1 and HTTP/2. Port 0 picks a free port; unix:/PATH is a Unix socket
        listen: ListenAddress = value("ADDR", "0.0.0.0:8082").in_short_help() => listen_address;
        /// Upstream of all requests: http://HOST:PORT, h2c://HOST:PORT for HTTP/2 without TLS, https://HOST, unix:/PATH
        /// for a Unix socket
        upstream: Option<UpstreamConfig> = value("URL", "").in_short_help() => maybe(upstream);
        /// Upstreams by name: a URL, a list of URLs that take turns, or `urls`, `ca` (a file of CA certificates),
        /// `server_name` (in its certificate), `host` (in place of the client's) and `health_check` (`path`,
        /// `interval`, `timeout`, `unhealthy_threshold`, `healthy_threshold`)
        upstreams: BTreeMap<String, UpstreamConfig> = nested("MAPPING") => upstreams;
        /// Routes to `upstreams`: a list of `host` (`*.` matches all subdomains), `path` (matches itself and all
        /// below), `upstream`, `on_client_gone` (`finish` or `cancel`) and `usage` (as in rules); the most specific route
        /// wins
        routes: Vec<RouteConfig> = nested("LIST") => routes;
        /// Time to connect to an upstream; after it the next address is tried; after two in vain the answer is 504
        upstream_connect_timeout: Duration = value("DURATION", "5s") => patience;
        /// Time until an upstream's answer begins, and longest pause within it
        upstream_timeout: Duration = value("DURATION", "60s") => patience;
        /// Most concurrent requests to one upstream, up to 1000000; over HTTP/1.1 each has its own connection
        upstream_requests_max: usize = value("REQUESTS", "1024") => number(1..=1_000_000);
        /// Most requests that wait for one of those to end, each for at most upstream_connect_timeout; others get 503
        upstream_queue_max: usize = value("REQUESTS", "1024") => number(0..=1_000_000);
        /// Share of upstream_requests_max that one client address (of IPv6, one /64) has or waits for, 1% to 100%;
        /// further requests get 503
        upstream_address_share: u8 = value("PERCENT", "50%") => percent;
        /// Most concurrent requests on one HTTP/2 connection of a gateway client, 1 to 1000
        connection_requests_max: u32 = value("REQUESTS", "100") => number(1..=1_000);
        /// Largest request body that the gateway forwards; larger ones get 413
        request_body_max: u64 = value("SIZE", "1GiB") => size;
        /// Effect of limits at the gateway: `on` (enforce), `shadow` (count, and let everything pass) or `off` (only
        /// forward)
        limits: LayerMode = value("MODE", "on") =>
            one_of(&[("on", LayerMode::On), ("shadow", LayerMode::Shadow), ("off", LayerMode::Off)]);
        /// Longest time that the gateway delays a request for a leaky bucket, up to 1h; requests that would wait longer
        /// are denied
        wait_max: Duration = value("DURATION", "10s") => within(Duration::ZERO..=Duration::from_hours(1));
        /// Most requests that the gateway delays at a time, up to 1000000; others are denied
        waiting_max: u64 = value("REQUESTS", "1024") => number(0..=1_000_000);
        /// File that gets a line per request of the gateway, in a format that `ratekeeper replay` reads; `-` is
        /// standard output. A rotated file is reopened
        access_log: Option<LogTo> = file() => access_log;
        /// `json`, with the decision, its rule and its reason, or `combined`, as Apache and NGINX write it
        access_log_format: AccessLogFormat = value("FORMAT", "json") =>
            one_of(&[("json", AccessLogFormat::Json), ("combined", AccessLogFormat::Combined)]);
        #[doc = TLS_CERT]
        listen_tls_cert: Option<PathBuf> = file() => path;
        #[doc = TLS_KEY]
        listen_tls_key: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_CA]
        listen_tls_client_ca: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_NAMES]
        listen_tls_client_names: Vec<ClientName> = value("NAMES", "") => tls_names;
    }
    gateways("Gateway that asks a service") {
        /// Ratekeeper service that decides for the gateway, in place of its own rules and counters: grpc://HOST:PORT,
        /// grpcs://HOST:PORT for TLS, unix:/PATH. Of several, separated by commas, each is used while those before it
        /// are down
        service: Option<Vec<String>> = value("URL", "").in_short_help() => maybe(endpoints);
        /// Answer to a request that no service decides: `allow`, `deny` (503), or `local` (the gateway decides by its
        /// own `rules` and counters in memory)
        on_service_failure: FailureMode = value("MODE", "allow") => failure_mode;
        /// Longest time that a request waits for the service, including connecting and retries; 1ms to 10s
        service_deadline: Duration = value("DURATION", "20ms") =>
            within(Duration::from_millis(1)..=Duration::from_secs(10));
        /// Enforce the service's concurrency limits too, if its `callers` allow it; otherwise this gateway ignores them
        service_permits: bool = switch("false") => values::switch;
        /// Bearer token of the gateway at the service (see its `callers`); prefer the variable or a file
        service_token: Option<String> = secret("TOKEN") => token;
        /// File with that token
        service_token_file: Option<PathBuf> = file() => path;
        /// With grpcs://: name in the service's certificate, if it is not the URL's host
        service_server_name: Option<String> = value("NAME", "") => maybe(text);
        /// With grpcs://: CA certificates that verify the service, as PEM
        service_ca: Option<PathBuf> = file() => full_path;
        /// With grpcs://: the gateway's certificate (mTLS), as PEM
        service_cert: Option<PathBuf> = file() => full_path;
        /// Private key of that certificate, as unencrypted PEM
        service_key: Option<PathBuf> = file() => full_path;
    }
    group("Listeners") {
        /// Address of Envoy's RateLimitService and of ratekeeper.v1. Port 0 picks a free port; unix:/PATH is a Unix
        /// socket
        grpc: ListenAddress = value("ADDR", "0.0.0.0:8081").in_short_help() => listen_address;
        /// Address of HTTP checks
        http: ListenAddress = value("ADDR", "0.0.0.0:8080").in_short_help() => listen_address;
        /// Address of the admin API and the dashboard. Other hosts need client certificates or tokens
        admin: ListenAddress = value("ADDR", "127.0.0.1:6070").in_short_help() => listen_address;
        /// Further address with /metrics and health probes only, for scrapers on other hosts
        metrics: Option<ListenAddress> = value("ADDR", "") => maybe(listen_address);
        /// Permissions of Unix socket files, as for chmod (0660); connecting takes write permission. Unset: the umask
        /// decides
        unix_mode: Option<u32> = value("MODE", "") => maybe(permissions);
        /// Threads that serve gRPC, HTTP and the gateway, each with its own connections. Unset: one per core
        worker_threads: NonZeroUsize = value("NUMBER", "") => worker_threads;
        /// Longest time that a client may stop reading a ready answer, or sending an expected body, before its request
        /// is aborted; 0s: no limit. Time in which there is nothing to read or send does not count, nor does the time that
        /// `min_rate` allows for the last 32 KiB passed to the client
        stall_timeout: Option<Duration> = value("DURATION", "30s") => stall_timeout;
        /// Lowest average rate, in bytes per second, at which such a client may read or send; 0: any
        min_rate: u64 = value("SIZE", "1KiB") => size;
        /// Time without a byte in either direction after which a connection is closed. It has to be longer than balancers keep
        /// theirs, or they lose a request now and then: most do for 60s, Google's for 600s. 30s to 24h
        idle_timeout: Duration = value("DURATION", "90s") =>
            within(Duration::from_secs(30)..=Duration::from_hours(24));
        /// Most connections of one listener for clients, up to 1000000, or what file descriptors allow; more wait to be accepted
        connections_max: usize = value("NUMBER", "10000") => number(1..=1_000_000);
        /// Most of those from one address (of IPv6, one /64), up to 1000000; more are closed at once. This host and
        /// `trusted_proxies` may have any number. Unless it is set, no more than a quarter of `connections_max`
        connections_per_address_max: usize = value("NUMBER", "2500") => number(1..=1_000_000);
        /// Time after SIGTERM during which requests are still served while /readyz fails, so that load balancers can
        /// react; 0s to 10m
        drain_delay: Duration = value("DURATION", "3s") => within(Duration::ZERO..=Duration::from_mins(10));
    }
    group("Counters") {
        /// Place of the counters: `memory`, or the URL of a Redis or Valkey that all nodes share:
        /// redis://user:password@host:6379/0, rediss:// for TLS, redis+unix:///path, redis+cluster://host,host,
        /// redis+sentinel://host,host/name; ?prefix=text separates services
        store: Option<Endpoint> = value("WHERE", "memory").in_short_help() => store;
        /// Further stores, for rules that choose one (`store: NAME`). NAME: { url, ca, cert, key, deadline }, each like
        /// the setting with the prefix store_, which is also its default
        stores: Vec<NamedEntry> = nested("MAPPING") => stores;
        /// Failure mode while the store does not answer: `local` (decide by this node's own counters), `allow` or
        /// `deny`; a rule's own on_store_failure overrides it
        on_store_failure: FailureMode = value("MODE", "local").in_short_help() => failure_mode;
        /// Factor for limits while this node decides alone: 1 denies no one within the limit; 1 divided by the number
        /// of nodes never lets more than the limit pass in total
        local_factor: f64 = value("FACTOR", "1") => local_factor;
        /// Refuse to start while Redis is unreachable; otherwise failure modes decide until it is back
        require_store: bool = switch("false") => values::switch;
        /// Region of this node, one of `regions`; for rules with `regions`
        region: Option<String> = value("NAME", "") => maybe(text);
        /// Regions that share limits, each with a store of its own: `version` (raised whenever a weight changes), and
        /// NAME: { weight, link } for each; each region owns a part of a shared limit in proportion to its weight;
        /// `retired: true` gives the part of a region that is gone to the others. link: addresses of the region's
        /// nodes, for limits that are lent; `loan_time` (10m), and link_ca, link_cert and link_key for TLS, beside
        /// `version`
        regions: Option<RegionWeights> = nested("MAPPING") => regions;
        /// Memory for counters, at least 1MiB. When it is full, expired counters go first and denying ones last
        memory_limit: u64 = value("SIZE", "256MiB") => memory_limit;
        /// Share of that memory that one rule may use, 1% to 100%, so that a flood of keys on one rule leaves room for
        /// others
        max_share: u8 = value("PERCENT", "50%") => percent;
        /// Folder for what survives a restart: switches of rules, admin tokens, and counters (`state` is then
        /// counters.state in it). Unset: nothing is written
        data_dir: Option<PathBuf> = value("DIR", "").in_short_help() => path;
        /// File that keeps counters of windows of a minute or more, so that a restart does not reset a month's quota:
        /// saved every 10 s and on SIGTERM, loaded at start
        state: Option<PathBuf> = file() => path;
    }
    group("Redis") {
        /// With rediss://: CA certificates that verify Redis, as PEM. Unset: the system's
        store_ca: Option<PathBuf> = file() => full_path;
        /// With rediss://: this node's certificate (mTLS), as PEM; reloaded when it changes
        store_cert: Option<PathBuf> = file() => full_path;
        /// Private key of that certificate, as unencrypted PEM
        store_key: Option<PathBuf> = file() => full_path;
        /// Key of the hashes that name counters in Redis, tenants to load shedders, and secrets in answers and logs: 32
        /// hexadecimal digits, the same on all nodes. Unset: generated at random and shared through Redis
        store_hash_key: Option<HashKey> = secret("HEX") => store_hash_key;
        /// Longest time that a decision waits for Redis in total before the failure mode decides; 1ms to 1s
        store_deadline: Duration = value("DURATION", "10ms") => deadline;
        /// Longest time that a denial is repeated from memory; hits that another node gives back take effect after it.
        /// 0s: never; at most 10s
        deny_cache_max: Duration = value("DURATION", "1s") => within(Duration::ZERO..=Duration::from_secs(10));
        /// Decide queued requests for the same counters together
        store_merge: bool = switch("true") => values::switch;
        /// Most groups of requests per call to Redis, 1 to 1024
        store_batch: usize = value("COUNT", "64") => number(1..=1_024);
    }
    group("HTTP requests and answers") {
        /// Descriptors of a request on /v1/auth and at the gateway: `domain`, and `descriptors` built from parts of the
        /// request. Unset: one descriptor each for remote_address, api_key (from x-api-key), method and path, in the
        /// only domain
        auth: (Option<Box<str>>, Mapping) = nested("MAPPING") => auth;
        /// Caller of a request, for service levels and for descriptors `from: identity`: `from` (parts of the request,
        /// tried in order), `default`, `known`, `ipv6_prefix`, `jwt` and `country`. Unset: the x-api-key header, else
        /// the client's address
        identity: Identity = nested("MAPPING") => identity;
        /// Proxies whose forwarding headers are trusted on /v1/auth and at the gateway: addresses and networks,
        /// separated by commas; `loopback` is this host and Unix sockets; `none` or empty: none
        trusted_proxies: TrustedProxies = value("NETWORKS", "loopback").or_empty() => trusted_proxies;
        /// The one header in which those proxies name the client: `x-forwarded-for`, `forwarded` (RFC 7239), or one
        /// with a single address, such as `x-real-ip`
        client_header: ClientHeader = value("NAME", "x-forwarded-for") => str::parse;
        /// Paths with `%2F` or a backslash in a segment, which servers read differently, on /v1/auth and at the
        /// gateway: `refuse` with 400, or `keep` as part of the segment. Unset: the gateway refuses them; /v1/auth does
        /// where a rule or a service level uses the path
        encoded_slashes: Option<EncodedSlashes> = value("refuse|keep", "") => maybe(str::parse);
        /// Other paths that servers read differently (`;x`, `/../`, leading `//`, `%00`, `%252F`), on /v1/auth and at
        /// the gateway, where a rule or a service level uses the path: `refuse` with 400, or `accept`, which lets
        /// callers choose between two counters if the server behind reads them differently
        ambiguous_paths: AmbiguousPaths = value("refuse|accept", "refuse") => str::parse;
        /// Count `/Orders` as `/orders` in rules and service levels, on /v1/auth and at the gateway; `false` only for
        /// services that tell the two apart. Forwarded paths never change. Unset: true, or false under `--profile
        /// envoy`
        ignore_path_case: Option<bool> = value("true|false", "") => maybe(values::switch);
        /// Count `/orders/` as `/orders`, likewise; service levels always do. Unset: true, or false under `--profile
        /// envoy`
        ignore_trailing_slash: Option<bool> = value("true|false", "") => maybe(values::switch);
        /// Rate limit headers on /v1/auth and at the gateway: a list of `draft`, `x-ratelimit`, `x-ratelimit-epoch`,
        /// `github`, `retry-after`, `retry-after-date`, `rule` and `degraded`, or `none`
        headers: Headers = value("LIST", "draft, x-ratelimit, retry-after") => str::parse;
        /// Body of a denial on /v1/auth and at the gateway: `json`, `problem` for application/problem+json, or `json-rpc`;
        /// the client's Accept header overrides it
        denial_body: BodyForm = value("FORM", "json") => str::parse;
        /// Callers with permissions, in addition to unauthenticated ones on loopback and Unix listeners: a list of
        /// `name`, `token_sha256` or `tls_name`, `may` (override, refund, hold, regions), and `role` in the admin API
        /// (viewer, editor, admin)
        callers: Vec<Caller> = nested("LIST") => callers;
    }
    group("Envoy's protocol") {
        /// Headers in answers to Envoy, separated by commas: `limits` (RateLimit-Limit, -Remaining and -Reset, as in
        /// envoyproxy/ratelimit), `draft` (RateLimit-Policy and RateLimit of the IETF draft), `degraded`
        /// (x-ratelimit-degraded on answers of failure modes)
        response_headers: HeaderKinds = value("KINDS", "") => str::parse;
        /// Name of the header with the limit
        limit_header: String = value("NAME", "RateLimit-Limit") => header_name;
        /// Name of the header with the remaining hits
        remaining_header: String = value("NAME", "RateLimit-Remaining") => header_name;
        /// Name of the header with the seconds until the reset
        reset_header: String = value("NAME", "RateLimit-Reset") => header_name;
        /// Add dynamic metadata to answers to Envoy: domain, descriptors and the rules' metadata
        dynamic_metadata: bool = switch("false") => values::switch;
        /// Answer to a check that cannot be read because of what it carries: a message that is malformed or too large,
        /// a key or value of more than 64 KiB, more than 2^53 - 1 hits. `deny`: over the limit; `error`: as in
        /// envoyproxy/ratelimit, so that a proxy may let it pass
        on_unreadable: OnUnreadable = value("deny|allow|error", "deny") =>
            one_of(&[("deny", OnUnreadable::Deny), ("allow", OnUnreadable::Allow), ("error", OnUnreadable::Error)]);
        /// Permissions that Envoy's protocol (gRPC and /json) requires: `any` requires none; `permitted` requires
        /// `override` or `refund` (see `callers`) of requests that carry a limit or return hits; `required` also
        /// requires all others to come from a known caller. Loopback and Unix listeners require none. Unset: permitted,
        /// or any under `--profile envoy`
        envoy_callers: Option<EnvoyCallers> = value("any|permitted|required", "") => maybe(envoy_callers);
    }
    group("Logs") {
        /// error, warn, info, debug, trace, or a filter such as `info,ratekeeper_server=debug`. Libraries log only
        /// errors, unless named: `info,h2=debug`
        log_level: String = value("LEVEL", "info").in_short_help() => log_filter;
        /// `text` for people, or `json`: one object per line, on stderr
        log_format: LogFormat = value("FORMAT", "text").in_short_help() =>
            one_of(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
        /// Most denied requests to log per second, up to 1000, of checks and as many of a gateway; 0 logs none. Metrics count all
        denial_log: u64 = value("LINES", "10") => number(0..=1_000);
        /// Export the most denied keys, at most 50, as ratelimit_top_denied{domain,rule,key}: values of requests become
        /// labels, secrets as fingerprints
        top_denied_metric: bool = switch("false") => values::switch;
        /// Name of this node in the denial log and in the admin API. Unset: the host name
        node_name: Box<str> = value("NAME", "") => node_name;
    }
    group("Traces") {
        /// OpenTelemetry collector that gets traces over OTLP: http://HOST:PORT, as in http://127.0.0.1:4317, or
        /// https://HOST:PORT. Unset: nothing is traced
        otlp_endpoint: Option<String> = value("URL", "") => maybe(collector);
        /// Protocol of the collector: `grpc` (as a rule on port 4317) or `http/protobuf` (4318), where `otlp_endpoint` may have
        /// a path in place of /v1/traces
        otlp_protocol: TraceProtocol = value("NAME", "grpc") => one_of(&PROTOCOLS);
        /// Headers for the collector, such as an API key: NAME=VALUE, several separated by commas, special characters
        /// in values as %XX
        otlp_headers: HeaderMap = secret("HEADERS") => trace_headers;
        /// File with more such headers, one per line; read at start
        otlp_headers_file: Option<PathBuf> = file() => path;
        /// With https://: CA certificates that verify the collector, as PEM. Unset: the system's
        otlp_ca: Option<PathBuf> = file() => full_path;
        /// With https://: client certificate for the collector (mTLS), as PEM
        otlp_cert: Option<PathBuf> = file() => full_path;
        /// Private key of that certificate, as unencrypted PEM
        otlp_key: Option<PathBuf> = file() => full_path;
        /// Share of requests to trace, 0 to 1, if they bring no `traceparent`; the callers' `traceparent` decides about
        /// the others
        trace_sample_ratio: f64 = value("SHARE", "0.01") => number(0.0..=1.0);
        /// Name of the service (`service.name`) in traces
        trace_service_name: String = value("NAME", "ratekeeper") => service_name;
    }
    group("Metrics for other systems") {
        /// Export counts at /metrics under envoyproxy/ratelimit's names too: ratelimit_service_rate_limit_total_hits
        /// and others
        envoy_metrics: bool = switch("false") => values::switch;
        /// statsd agent that gets counts over UDP, under envoyproxy/ratelimit's names: HOST:PORT. Unset: none
        statsd: Option<Box<str>> = value("ADDRESS", "") => maybe(statsd_address);
        /// `statsd` puts domain and rule into the names, `dogstatsd` into tags
        statsd_format: StatsdFormat = value("FORMAT", "statsd") =>
            one_of(&[("statsd", StatsdFormat::Statsd), ("dogstatsd", StatsdFormat::DogStatsd)]);
        /// Interval between reports to statsd, 1s to 1h
        statsd_interval: Duration = value("DURATION", "10s") =>
            within(Duration::from_secs(1)..=Duration::from_hours(1));
    }
    group("TLS") {
        #[doc = TLS_CERT]
        grpc_tls_cert: Option<PathBuf> = file() => path;
        #[doc = TLS_KEY]
        grpc_tls_key: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_CA]
        grpc_tls_client_ca: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_NAMES]
        grpc_tls_client_names: Vec<ClientName> = value("NAMES", "") => tls_names;
        #[doc = TLS_CERT]
        http_tls_cert: Option<PathBuf> = file() => path;
        #[doc = TLS_KEY]
        http_tls_key: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_CA]
        http_tls_client_ca: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_NAMES]
        http_tls_client_names: Vec<ClientName> = value("NAMES", "") => tls_names;
        #[doc = TLS_CERT]
        admin_tls_cert: Option<PathBuf> = file() => path;
        #[doc = TLS_KEY]
        admin_tls_key: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_CA]
        admin_tls_client_ca: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_NAMES]
        admin_tls_client_names: Vec<ClientName> = value("NAMES", "") => tls_names;
        #[doc = TLS_CERT]
        metrics_tls_cert: Option<PathBuf> = file() => path;
        #[doc = TLS_KEY]
        metrics_tls_key: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_CA]
        metrics_tls_client_ca: Option<PathBuf> = file() => path;
        #[doc = TLS_CLIENT_NAMES]
        metrics_tls_client_names: Vec<ClientName> = value("NAMES", "") => tls_names;
    }
    group("gRPC connections") {
        /// Age at which a gRPC connection is told to close (GOAWAY), within a tenth, so that clients spread to new
        /// instances. Requests in flight are answered. 0s: never
        grpc_max_connection_age: Option<Duration> = value("DURATION", "24h") => some_duration;
        /// Time that requests in flight have before such a connection is cut
        grpc_max_connection_age_grace: Duration = value("DURATION", "1h") => values::duration;
        /// Idle time after which a gRPC connection is told to close; it may take twice as long. 0s: never
        grpc_max_connection_idle: Option<Duration> = value("DURATION", "0s") => some_duration;
        /// Silence after which a gRPC client is pinged, at least 1s
        grpc_keepalive_time: Duration = value("DURATION", "30s") => keepalive;
        /// Time to answer that ping before the connection is closed, at least 1s
        grpc_keepalive_timeout: Duration = value("DURATION", "20s") => keepalive;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_snake_case() {
        let keys: Vec<&str> = all().map(|setting| setting.key).collect();
        for (index, key) in keys.iter().enumerate() {
            let is_fit = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(key.chars().all(is_fit), "{key}");
            assert!(!keys[..index].contains(key), "{key}");
        }
    }
}
