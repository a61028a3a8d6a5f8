//! Other proxies that limit requests themselves, each on one processor, in front of the same upstream. Their limits count
//! every request and deny none.

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::process::{Process, free_port, system};

use super::setup::{MEASURED, Subject};
use crate::pinned::{self, nginx, pinned};

/// NGINX with `limit_req` by address and by key.
pub(crate) fn nginx_limit_req(folder: &Path, behind: u16) -> Result<Subject> {
    let port = free_port();
    let config = format!(
        "limit_req_zone $binary_remote_addr zone=address:10m rate=2000000r/s;
         limit_req_zone $http_x_api_key zone=key:10m rate=2000000r/s;
         upstream u {{ server 127.0.0.1:{behind}; keepalive 64; keepalive_requests 1000000; }}
         server {{ listen 127.0.0.1:{port}; location / {{ limit_req zone=address burst=100000 nodelay;
           limit_req zone=key burst=100000 nodelay; proxy_pass http://u; proxy_http_version 1.1;
           proxy_set_header Connection ''; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }} }}"
    );
    let process = nginx(folder, "limiting", &config, MEASURED, port)?;
    Ok(Subject::new(port, process))
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
    let mut process = Process::spawn("haproxy", command);
    process.wait_for_port(port);
    Ok(Subject::new(port, process))
}

/// Envoy with its local rate limit, one bucket for all callers.
pub(crate) fn envoy(folder: &Path, behind: u16) -> Result<Subject> {
    let port = free_port();
    let config = ENVOY
        .replace("FRONT", &port.to_string())
        .replace("BEHIND", &behind.to_string());
    let process = pinned::envoy(folder, &config, MEASURED, port)?;
    Ok(Subject::new(port, process))
}

const ENVOY: &str = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: FRONT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          generate_request_id: false
          use_remote_address: true
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [ { match: { prefix: "/" }, route: { cluster: upstream } } ] }
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limit
              token_bucket: { max_tokens: 100000000, tokens_per_fill: 100000000, fill_interval: 1s }
              filter_enabled: { default_value: { numerator: 100 } }
              filter_enforced: { default_value: { numerator: 100 } }
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: upstream
    type: STATIC
    circuit_breakers: { thresholds: [ { max_connections: 1024, max_pending_requests: 4096, max_requests: 4096 } ] }
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: BEHIND } } }
"#;
