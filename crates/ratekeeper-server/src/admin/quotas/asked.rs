//! A request about one tenant's quotas: who is meant, who asks, and in which state the tenant has to be.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, Method};
use ratekeeper_limiter::ENTRY_BYTES_MAX;
use ratekeeper_quota::{Editor, Precondition, TenantId, UnclearTenants, tenants_domain};
use ratekeeper_rules::RuleSet;
use serde::Deserialize;
use utoipa::IntoParams;

use super::refused::no_database;
use crate::access::Operator;
use crate::admin::options::{Given, OfDomain};
use crate::app::App;
use crate::config::quotas::QuotaAdmin;
use crate::http::ApiError;
use crate::listen::{Peer, PeerAddress};

/// Stands before the keyed hash of a tenant, in place of its value.
pub(in crate::admin) const HASH: &str = "hash:";

/// The longest id of a request that the audit trail keeps, in characters.
const REQUEST_ID_MAX: usize = 128;

/// The header with the id of a request.
const REQUEST_ID: &str = "x-request-id";

/// A request about one tenant.
pub(in crate::admin) struct Asked {
    pub(in crate::admin) quotas: QuotaAdmin,
    pub(in crate::admin) tenant: TenantId,
    /// The value, if the sender named it.
    pub(in crate::admin) named: Option<String>,
    pub(in crate::admin) editor: Editor,
    pub(in crate::admin) expected: Precondition,
}

/// The tenant of a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct TenantInPath {
    /// The tenant: its value, or `hash:` and its keyed hash.
    tenant: String,
}

/// The headers that make a change conditional.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) struct Conditions {
    /// The entity tag that the tenant has to have.
    #[param(rename = "if-match")]
    if_match: Option<String>,
    /// `*` if the database must not have the tenant.
    #[param(rename = "if-none-match")]
    if_none_match: Option<String>,
}

impl FromRequestParts<Arc<App>> for Asked {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let path = Path::<TenantInPath>::from_request_parts(parts, app).await;
        let Path(TenantInPath { tenant: named }) =
            path.map_err(|error| ApiError::invalid("{tenant}", error.body_text()))?;
        let Given(OfDomain { domain }) = Given::from_request_parts(parts, app).await?;
        let Ok(ChangedBy(editor)) = ChangedBy::from_request_parts(parts, app).await;
        let quotas = app.config.quotas.clone().ok_or_else(no_database)?;
        if !app.is_loaded() {
            return Err(ApiError::no_rules());
        }
        let snapshot = app.limiter.snapshot();
        let tenant = tenant(&quotas, snapshot.rules(), domain.as_deref(), &named)?;
        Ok(Self {
            quotas,
            named: Some(named).filter(|text| !text.starts_with(HASH)),
            tenant,
            editor,
            // A reader is always answered: the plan in force may be another one by now.
            expected: match parts.method {
                Method::GET | Method::HEAD => Precondition::Any,
                _ => expected(&parts.headers)?,
            },
        })
    }
}

/// The tenant that `named` is: its value, or `hash:` and the keyed hash of it.
pub(in crate::admin) fn tenant(
    quotas: &QuotaAdmin,
    rules: &RuleSet,
    domain: Option<&str>,
    named: &str,
) -> Result<TenantId, ApiError> {
    let (domain, key) = tenants_domain(rules, domain).map_err(|error| unclear(&error))?;
    if let Some(hash) = named.strip_prefix(HASH) {
        let hash = hash
            .parse()
            .map_err(|error| ApiError::invalid("{tenant}", format!("after {HASH:?}: {error}")))?;
        return Ok(TenantId::of_hash(domain.name(), hash));
    }
    if named.is_empty() || named.len() > ENTRY_BYTES_MAX {
        let message = format!("expected 1 to {ENTRY_BYTES_MAX} bytes");
        return Err(ApiError::invalid("{tenant}", message));
    }
    let is_secret = domain.is_secret(key);
    let tenant_key = quotas.store.key();
    Ok(TenantId::of_value(
        domain.name(),
        named,
        is_secret,
        tenant_key,
    ))
}

/// Refuses a request of which it is not clear whose domain it is about.
pub(in crate::admin) fn unclear(error: &UnclearTenants) -> ApiError {
    ApiError::invalid("?domain", error.to_string())
}

/// The sender of a request, for the audit trail.
pub(in crate::admin) struct ChangedBy(pub(in crate::admin) Editor);

impl<S: Send + Sync> FromRequestParts<S> for ChangedBy {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let operator = parts.extensions.get::<Operator>();
        let source = match parts.extensions.get::<Peer>().map(|peer| peer.address) {
            Some(PeerAddress::Tcp(address)) => address.ip().to_string(),
            Some(PeerAddress::Unix) => "unix".to_owned(),
            None => String::new(),
        };
        let request_id = parts.headers.get(REQUEST_ID);
        let request_id = request_id.and_then(|id| id.to_str().ok()).unwrap_or("");
        Ok(Self(Editor {
            name: operator.map_or_else(String::new, |operator| operator.name.to_string()),
            source,
            request_id: request_id.chars().take(REQUEST_ID_MAX).collect(),
        }))
    }
}

/// The state in which `If-Match` and `If-None-Match` want the tenant to be.
fn expected(headers: &HeaderMap) -> Result<Precondition, ApiError> {
    let of = |name: &http::HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or(""));
        match values.next() {
            None => Ok(first),
            Some(_) => Err(ApiError::invalid(name.as_str(), "expected one value")),
        }
    };
    match (of(&IF_MATCH)?, of(&IF_NONE_MATCH)?) {
        (None, None) => Ok(Precondition::Any),
        (Some("*"), None) => Ok(Precondition::Present),
        (None, Some("*")) => Ok(Precondition::Absent),
        (Some(tag), None) => match version(tag) {
            Some(version) => Ok(Precondition::Version(version)),
            None => {
                let message = "expected * or the one entity tag of an answer, such as \"17\"";
                Err(ApiError::invalid("if-match", message))
            }
        },
        (None, Some(_)) => Err(ApiError::invalid("if-none-match", "expected *")),
        (Some(_), Some(_)) => {
            let message = "it cannot hold together with if-match";
            Err(ApiError::invalid("if-none-match", message))
        }
    }
}

/// The version that an entity tag names.
fn version(tag: &str) -> Option<u64> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    fn with(name: http::HeaderName, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn conditions_name_a_version() {
        let of = |headers: &HeaderMap| expected(headers).ok();
        assert_eq!(of(&HeaderMap::new()), Some(Precondition::Any));
        assert_eq!(of(&with(IF_MATCH, "*")), Some(Precondition::Present));
        assert_eq!(of(&with(IF_NONE_MATCH, "*")), Some(Precondition::Absent));
        let tagged = with(IF_MATCH, "\"17\"");
        assert_eq!(of(&tagged), Some(Precondition::Version(17)));
        for wrong in ["17", "\"\"", "\"+1\"", "W/\"17\"", "\"1\", \"2\"", "\"x\""] {
            assert_eq!(of(&with(IF_MATCH, wrong)), None, "{wrong}");
        }
        assert_eq!(of(&with(IF_NONE_MATCH, "\"17\"")), None);
        let mut both = with(IF_MATCH, "*");
        both.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        assert_eq!(of(&both), None);
        let mut twice = with(IF_MATCH, "*");
        twice.append(IF_MATCH, HeaderValue::from_static("\"1\""));
        assert_eq!(of(&twice), None);
    }
}
