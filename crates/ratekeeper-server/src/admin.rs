//! The admin listener: metrics, rules and their switches, usage, quotas, explanations. Only this host may use it,
//! unless clients prove who they are; the metrics alone may be served elsewhere.

mod anomalies;
mod audit;
mod dashboard;
mod denials;
mod explain;
mod exposition;
mod followed;
mod guard;
mod live;
mod metering;
mod metrics;
mod named;
mod nodes;
mod old_names;
mod openapi;
mod options;
mod quotas;
mod refusals;
mod reloads;
mod rules;
mod shed;
mod tenants;
mod top;
mod usage;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Router, middleware};
use exposition::Format;
use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderMap, StatusCode};

use crate::access::Role;
use crate::app::App;
use crate::http::pages::{self, Scheme};
use crate::http::{ApiError, livez, method_not_allowed, not_found, readyz, refuse_large};
pub(crate) use live::{describe, describe_breakers};

/// `/` of the listener for metrics alone.
const METRICS_INDEX: &str = "This listener of Ratekeeper is for scrapers.

GET /metrics
GET /readyz, /livez

Every series: https://github.com/ratekeeper/ratekeeper/blob/main/docs/metrics.md
The admin listener has the rest, and its /openapi.json.
";

const INDEX: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Ratekeeper</title></head><body>
<h1>Ratekeeper</h1>
<p>This listener is for operators. <a href=\"https://github.com/ratekeeper/ratekeeper/blob/main/docs/admin.md\">The manual</a>
has examples, <a href=\"/openapi.json\">/openapi.json</a> every field.</p>
<ul>
<li><a href=\"/dashboard\">/dashboard</a>: what this node does, live</li>
<li><a href=\"/metrics\">/metrics</a>: counts, for Prometheus</li>
<li><a href=\"/rlconfig\">/rlconfig</a>: the limits in force</li>
<li><a href=\"/admin/v1/rules\">/admin/v1/rules</a>: the rules, their switches and counts</li>
<li><a href=\"/admin/v1/reloads\">/admin/v1/reloads</a>: the latest loads of the rules, and what they changed</li>
<li><a href=\"/admin/v1/nodes\">/admin/v1/nodes</a>: the nodes that share the quota database, and what is in force on each</li>
<li><a href=\"/admin/v1/shed\">/admin/v1/shed</a>: the load shedders, their modes and state</li>
<li>GET or POST /admin/v1/explain: how a check would be decided, and why</li>
<li>GET /admin/v1/usage/{tenant}: how much of its limits a tenant has used</li>
<li><a href=\"/admin/v1/top\">/admin/v1/top</a>: who is denied most</li>
<li><a href=\"/admin/v1/denials\">/admin/v1/denials</a>: the latest denials</li>
<li>GET /admin/v1/tenants/{tenant}: why a tenant is denied: its plan, usage, denials and changes</li>
<li><a href=\"/admin/v1/denials/log\">/admin/v1/denials/log</a>: the keys with full denial logging</li>
<li>GET /admin/v1/live: the state of this node, once a second</li>
<li><a href=\"/admin/v1/quotas\">/admin/v1/quotas</a>: plans and overrides of tenants in the quota database</li>
<li><a href=\"/admin/v1/audit\">/admin/v1/audit</a>: the changes of them</li>
</ul>
</body></html>
";

/// The routes of the admin listener.
pub(crate) fn router(app: Arc<App>) -> Router {
    let body_bytes_max = app.config.bounds.body_bytes_max;
    let scheme = Scheme::of(app.is_encrypted("admin"));
    let of_role = |role, routes: Router<Arc<App>>| {
        let needs = (Arc::clone(&app), role);
        routes.route_layer(middleware::from_fn_with_state(needs, guard::require))
    };
    let needs = (Arc::clone(&app), Role::Viewer);
    let scraped = Router::new().route("/metrics", get(show_metrics));
    let from_afar = middleware::from_fn_with_state(needs, guard::require_from_afar);
    // Many tenants change together: they may be larger than what anybody else sends.
    let import_bytes_max = body_bytes_max.max(quotas::IMPORT_BYTES_MAX);
    let imports = Router::new().route("/admin/v1/import/quotas", post(quotas::import));
    let imports = of_role(Role::Admin, imports)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(import_bytes_max))
        .layer(middleware::from_fn_with_state(
            import_bytes_max,
            refuse_large,
        ));
    open_to_all()
        .merge(scraped.route_layer(from_afar))
        .merge(of_role(Role::Viewer, reads()))
        .merge(of_role(Role::Editor, writes()))
        .merge(of_role(Role::Admin, administration()))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(middleware::from_fn_with_state(body_bytes_max, refuse_large))
        .merge(imports)
        .layer(middleware::from_fn(old_names::warn_of_query))
        .layer(middleware::from_fn_with_state(scheme, pages::none))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            refusals::log,
        ))
        .with_state(app)
}

/// Probes, and the files of the dashboard, which asks for a token itself.
fn open_to_all() -> Router<Arc<App>> {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/dashboard", get(dashboard::page))
        .route("/dashboard/", get(dashboard::page))
        .route("/dashboard/{file}", get(dashboard::part))
}

/// The routes that change nothing.
fn reads() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(async || Html(INDEX)))
        .route("/rlconfig", get(show_rules))
        .route("/admin/v1/rules", get(rules::list))
        .route("/admin/v1/reloads", get(reloads::list))
        .route("/admin/v1/nodes", get(nodes::list))
        .route("/admin/v1/shed", get(shed::show))
        .route(
            "/admin/v1/explain",
            get(explain::by_query).post(explain::by_body),
        )
        .route("/admin/v1/usage/{tenant}", get(usage::show))
        .route("/admin/v1/top", get(top::show))
        .route("/admin/v1/anomalies", get(anomalies::list))
        .route(
            "/admin/v1/denials",
            get(denials::by_query).post(denials::by_body),
        )
        .route("/admin/v1/tenants", post(tenants::by_body))
        .route("/admin/v1/tenants/{tenant}", get(tenants::by_path))
        .route("/admin/v1/denials/log", get(followed::list))
        .route("/admin/v1/live", get(live::show))
        .route("/admin/v1/openapi.json", get(openapi::show))
        .route("/openapi.json", get(openapi::show))
        .route("/admin/v1/quotas", get(quotas::list))
        .route("/admin/v1/quotas/{tenant}", get(quotas::show))
}

/// The routes that change rules' switches, tenants and the denial log.
fn writes() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/v1/rules/{id}/enable", post(rules::enable))
        .route("/admin/v1/rules/{id}/disable", post(rules::disable))
        .route("/admin/v1/rules/{id}/shadow", post(rules::shadow))
        .route("/admin/v1/rules/{id}/switch", delete(rules::restore))
        .route(
            "/admin/v1/quotas/{tenant}",
            put(quotas::put).delete(quotas::remove),
        )
        .route("/admin/v1/quotas/{tenant}/reset", post(quotas::reset))
        .route(
            "/admin/v1/denials/log/{key}",
            put(followed::follow).delete(followed::end),
        )
}

/// The routes to what tells of all tenants and operators.
fn administration() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/v1/audit", get(audit::list))
        .route("/admin/v1/export/quotas", get(quotas::export))
        .route("/admin/v1/export/usage", get(metering::export))
}

/// The metrics and the health alone, for scrapers and probes on other hosts.
pub(crate) fn metrics_router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(async || METRICS_INDEX))
        .route("/metrics", get(show_metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(app)
}

async fn show_metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let format = Format::wanted(&headers);
    match metrics::openmetrics(&app) {
        Ok(text) => {
            let head = [(CONTENT_TYPE, format.content_type()), (VARY, "accept")];
            (head, format.of(text)).into_response()
        }
        Err(error) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::other(status, "INTERNAL", format!("metrics: {error}")).into_response()
        }
    }
}

async fn show_rules(State(app): State<Arc<App>>) -> String {
    app.limiter.snapshot().rlconfig()
}
