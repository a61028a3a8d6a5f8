//! Other proxies that limit requests themselves, each on one processor, in front of the same upstream. Their limits count
//! every request and deny none.

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::process::{free_port, system};

use super::setup::nginx_proxy;
use crate::pinned::{EnvoyTerms, MEASURED, Subject, pinned};

/// NGINX with `limit_req` by address and by key.
pub(crate) fn nginx_limit_req(folder: &Path, behind: u16) -> Result<Subject> {
    let zones = "limit_req_zone $binary_remote_addr zone=address:10m rate=2000000r/s;
      limit_req_zone $http_x_api_key zone=key:10m rate=2000000r/s;";
    let limits =
        "limit_req zone=address burst=100000 nodelay; limit_req zone=key burst=100000 nodelay;";
    nginx_proxy(folder, "limiting", behind, (zones, limits))
}

/// HAProxy with a stick table of request rates by address.
pub(crate) fn haproxy(folder: &Path, behind: u16) -> Result<Subject> {
    let port = free_port();
    let config = format!(
        "global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  option forwardfor
  stick-table type ip size 100k expire 60s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 100000000 }}
  default_backend back
backend back
  server upstream 127.0.0.1:{behind}
"
    );
    let file = folder.join("haproxy.cfg");
    std::fs::write(&file, config).context("the configuration of HAProxy cannot be written")?;
    let mut command = pinned(MEASURED, system("haproxy").get_program());
    command.arg("-db").arg("-f").arg(file);
    Ok(Subject::listening("haproxy", command, port))
}

/// Envoy with its local rate limit, one bucket for all callers.
pub(crate) fn envoy(folder: &Path, behind: u16) -> Result<Subject> {
    let terms = EnvoyTerms {
        settings: "generate_request_id: false\n          use_remote_address: true",
        route: "route: { cluster: upstream }",
        filters: LOCAL_RATELIMIT,
        clusters: &UPSTREAM.replace("BEHIND", &behind.to_string()),
    };
    Subject::envoy(folder, &terms)
}

const LOCAL_RATELIMIT: &str = r#"- name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limit
              token_bucket: { max_tokens: 100000000, tokens_per_fill: 100000000, fill_interval: 1s }
              filter_enabled: { default_value: { numerator: 100 } }
              filter_enforced: { default_value: { numerator: 100 } }"#;

const UPSTREAM: &str = "
  clusters:
  - name: upstream
    type: STATIC
    circuit_breakers: { thresholds: [ { max_connections: 1024, max_pending_requests: 4096, max_requests: 4096 } ] }
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: BEHIND } } }
";
