//! `/`: the endpoints there are, for visitors with a browser or curl.

use axum::response::{Html, IntoResponse, Response};
use http::HeaderMap;
use http::header::ACCEPT;

/// A line for each path.
const TEXT: &str = "Ratekeeper decides whether requests may pass.

POST /v1/limit    the shortest check: {\"identifier\": \"ada\", \"limit\": 5, \"duration\": \"1m\"}
POST /v1/limits   many of them: {\"limits\": [...]}
POST /v1/check    a check by rules: {\"domain\": \"d\", \"entries\": {\"key\": \"value\"}}
POST /v1/checks   many checks: {\"checks\": [...]}
POST /v1/peek     a check that takes nothing
POST /v1/acquire, /v1/release, /v1/renew            permits of concurrency limits
POST /v1/reserve, /v1/commit, /v1/cancel, /v1/refund
GET  /v1/limits   the limits of whoever asks
ANY  /v1/auth     forward-auth for NGINX, Caddy, Traefik, HAProxy
POST /json        Envoy's rate limit protocol as JSON
GET  /readyz, /livez, /healthcheck

With every field: /openapi.json, https://github.com/ratekeeper/ratekeeper/blob/main/docs/api.md
Metrics and explanations are on the admin listener.
";

/// The same with links.
const PAGE: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Ratekeeper</title></head><body>
<h1>Ratekeeper</h1>
<p>This listener decides whether requests may pass.
<a href=\"https://github.com/ratekeeper/ratekeeper/blob/main/docs/api.md\">The manual</a> has examples,
<a href=\"/openapi.json\">/openapi.json</a> every field.</p>
<ul>
<li>POST /v1/limit: the shortest check, by an identifier; /v1/limits: many of them</li>
<li>POST /v1/check: a check by rules; /v1/checks: many of them; /v1/peek: one that takes nothing</li>
<li>POST /v1/acquire, /v1/release, /v1/renew: permits of concurrency limits</li>
<li>POST /v1/reserve, /v1/commit, /v1/cancel, /v1/refund: costs that are known afterwards</li>
<li>GET <a href=\"/v1/limits\">/v1/limits</a>: your limits</li>
<li>/v1/auth: forward-auth for NGINX, Caddy, Traefik, HAProxy</li>
<li>POST /json: Envoy's rate limit protocol as JSON</li>
<li><a href=\"/readyz\">/readyz</a>, <a href=\"/livez\">/livez</a>, <a href=\"/healthcheck\">/healthcheck</a></li>
</ul>
<p>Metrics, explanations and the dashboard are on the admin listener.</p>
</body></html>
";

pub(super) async fn answer(headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    match accepted.is_some_and(|accepted| accepted.contains("text/html")) {
        true => Html(PAGE).into_response(),
        false => TEXT.into_response(),
    }
}
