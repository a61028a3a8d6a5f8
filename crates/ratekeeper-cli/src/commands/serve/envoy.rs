//! The permissions that Envoy's protocol asks for, for people.

use crate::settings::Settings;
use ratekeeper_server::{Addresses, Caller, EnvoyCallers, RlsConfig};
use tracing::warn;

/// The value's name, as settings spell it.
pub(super) fn name(callers: EnvoyCallers) -> &'static str {
    match callers {
        EnvoyCallers::Any => "any",
        EnvoyCallers::Permitted => "permitted",
        EnvoyCallers::Required => "required",
    }
}

/// A line of the banner if other hosts can ask; else empty.
pub(super) fn shown(rls: &RlsConfig, settings: &Settings, addresses: &Addresses) -> String {
    let listeners = [&addresses.grpc, &addresses.http];
    if listeners
        .into_iter()
        .flatten()
        .all(|address| address.is_local())
    {
        return String::new();
    }
    let means = match rls.callers() {
        EnvoyCallers::Any => "everybody may bring limits along and give hits back",
        EnvoyCallers::Permitted if has_permission(&settings.values.callers) => {
            "limits in requests and refunds need a permission (`callers`)"
        }
        EnvoyCallers::Permitted => {
            "limits in requests and refunds are refused: no entry of `callers` has the permission"
        }
        EnvoyCallers::Required => "requests need a caller of `callers`",
    };
    format!("Envoy's protocol ({}): {means}\n", name(rls.callers()))
}

fn has_permission(callers: &[Caller]) -> bool {
    callers
        .iter()
        .any(|caller| caller.may.overrides || caller.may.refund)
}

/// Warns if other hosts may give hits back without a permission because a setting, not the profile, says so.
pub(super) fn warn_if_open(settings: &Settings) {
    let values = &settings.values;
    let is_open = !(values.grpc.is_local() && values.http.is_local());
    if is_open && *values.envoy_callers == Some(EnvoyCallers::Any) {
        warn!(
            "envoy_callers is `any`: anyone who reaches the gRPC or HTTP port can give hits back and send limits"
        );
    }
}
