//! `/`: the endpoints there are, for visitors with a browser or curl.

/// A line for each path.
const PATHS: &str = "Ratekeeper decides whether requests may pass.

POST /v1/check    one check: {\"domain\": \"d\", \"descriptors\": [{\"entries\": [{\"key\": \"k\", \"value\": \"v\"}]}]}
POST /v1/checks   many checks: {\"checks\": [...]}
POST /v1/peek     a check that takes nothing
POST /v1/acquire, /v1/release, /v1/renew            permits of concurrency limits
POST /v1/reserve, /v1/commit, /v1/cancel, /v1/refund
GET  /v1/limits   the limits of whoever asks
ANY  /v1/auth     forward-auth for NGINX, Caddy, Traefik, HAProxy
POST /json        Envoy's rate limit protocol as JSON
GET  /readyz, /livez, /healthcheck

With every field: docs/api.md. Metrics and explanations are on the admin listener.
";

pub(super) async fn answer() -> &'static str {
    PATHS
}
