//! `GET /admin/v1/openapi.json`: the OpenAPI document of the admin API and of `/v1`, from the handlers.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::{Components, Schema};
use utoipa::openapi::{OpenApi as OpenApiDocument, RefOr};
use utoipa::{Modify, OpenApi, ToSchema};

use super::{
    anomalies, audit, denials, explain, followed, live, metering, nodes, quotas, reloads, rules,
    shed, tenants, top, usage,
};
use crate::admin_json::{
    AnomalyEntry, BreakerFigures, CounterFigures, CountsEntry, DenialGroup, DeniedRequest,
    FleetNode, FleetNodes, KeyEntry, LeaseFigures, Leased, NodeEntry, NodeFacts, NodeState,
    OwedFigures, PlanUse, QuotaDatabaseFigures, RegionFigures, RegionPeer, ReloadFigures,
    RuleEntry, SecondFigures, SecondsHistory, Span, ToldBy, Usage, Used,
};
use crate::http::{Errors, HttpApi, TokenScheme};
use crate::listen::problem::Problem;

/// The operations of the admin listener.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ratekeeper",
        description = "`/v1` is served on the HTTP listener, `/admin/v1` on the admin listener."
    ),
    paths(
        anomalies::list,
        audit::list,
        denials::by_body,
        denials::by_query,
        explain::by_query,
        explain::by_body,
        followed::end,
        followed::follow,
        followed::list,
        live::show,
        metering::export,
        nodes::list,
        quotas::export,
        quotas::import,
        quotas::list,
        quotas::put,
        quotas::remove,
        quotas::reset,
        quotas::show,
        reloads::list,
        rules::disable,
        rules::enable,
        rules::list,
        rules::restore,
        rules::shadow,
        shed::show,
        show,
        tenants::by_body,
        tenants::by_path,
        top::show,
        usage::show,
    ),
    components(schemas(Problem, SecondsHistory, NodeState)),
    modifiers(&Common)
)]
struct AdminApi;

/// The parts that all operations share: who may ask, and the form of errors.
struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut OpenApiDocument) {
        document.merge(HttpApi::openapi());
        require_all(document);
        TokenScheme.modify(document);
        Errors.modify(document);
    }
}

/// Requires the fields of a node's state that are always told: readers alone may do without any.
fn require_all(document: &mut OpenApiDocument) {
    fn require<T: Default + Serialize + ToSchema>(components: &mut Components) {
        let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(&*T::name()) else {
            return;
        };
        if let Ok(Value::Object(told)) = serde_json::to_value(T::default()) {
            object.required = told.keys().cloned().collect();
        }
    }
    let components = document.components.get_or_insert_default();
    require::<SecondsHistory>(components);
    require::<NodeState>(components);
    require::<SecondFigures>(components);
    require::<NodeFacts>(components);
    require::<ReloadFigures>(components);
    require::<KeyEntry>(components);
    require::<DenialGroup>(components);
    require::<DeniedRequest>(components);
    require::<AnomalyEntry>(components);
    require::<BreakerFigures>(components);
    require::<CounterFigures>(components);
    require::<OwedFigures>(components);
    require::<LeaseFigures>(components);
    require::<PlanUse>(components);
    require::<QuotaDatabaseFigures>(components);
    require::<RegionFigures>(components);
    require::<RegionPeer>(components);
    require::<RuleEntry>(components);
    require::<ToldBy>(components);
    require::<NodeEntry>(components);
    require::<FleetNodes>(components);
    require::<FleetNode>(components);
    require::<Usage>(components);
    require::<Used>(components);
    require::<Leased>(components);
    require::<Span>(components);
    require::<CountsEntry>(components);
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    // A tree of texts: nothing in there can fail.
    AdminApi::openapi().to_json().unwrap_or_default()
});

/// Describes the HTTP interfaces.
#[utoipa::path(
    get,
    path = "/admin/v1/openapi.json",
    tag = "about",
    responses((status = 200, description = "The OpenAPI 3.1 document", body = Object))
)]
pub(super) async fn show() -> Response {
    let kind = [(CONTENT_TYPE, "application/json")];
    (kind, DOCUMENT.as_str()).into_response()
}
