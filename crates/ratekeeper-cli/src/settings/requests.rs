//! Settings about HTTP requests: how callers are identified, and which descriptors are checked.

use super::layer::{Origin, RawValue};
use super::nested::{self, NestedError};
use super::value_error::ValueError;
use ratekeeper_http::{
    Identity, IdentityConfig, IdentityError, Mapping, TrustedProxies, TrustedProxiesError,
};
use ratekeeper_rules::PathPattern;
use serde_json::Value;

/// The fault of a setting about requests.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestSettingError {
    #[error(transparent)]
    Nested(#[from] NestedError),
    #[error("expected a mapping with `domain`, `descriptors` or both")]
    Auth,
    #[error("domain: expected the name of one")]
    Domain,
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The domain and the descriptors of forward-auth.
pub(super) fn auth(text: &str) -> Result<(Option<Box<str>>, Mapping), RequestSettingError> {
    if text.is_empty() {
        return Ok(Default::default());
    }
    let mut value = nested::parse(text)?;
    let Some(fields) = value.as_object_mut() else {
        return Err(RequestSettingError::Auth);
    };
    let domain = match fields.remove("domain") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) if !name.is_empty() => Some(name.into()),
        Some(_) => return Err(RequestSettingError::Domain),
    };
    Ok((domain, nested::deserialize(value, "")?))
}

/// The networks of proxies that are trusted; `none`, like nothing, stands for no proxy.
pub(super) fn trusted_proxies(text: &str) -> Result<TrustedProxies, TrustedProxiesError> {
    match text.trim().eq_ignore_ascii_case("none") {
        true => "".parse(),
        false => text.parse(),
    }
}

/// Parses `identity`, which says how callers are identified.
pub(super) fn identity(said: &RawValue) -> Result<Identity, RequestSettingError> {
    if said.text.is_empty() {
        return Ok(Identity::default());
    }
    let mut value = nested::parse(&said.text)?;
    for file in IDENTITY_FILES {
        if let Some(path) = value.pointer_mut(file) {
            resolve(path, &said.origin);
        }
    }
    let config: IdentityConfig = nested::deserialize(value, "")?;
    Ok(Identity::open(&config)?)
}

/// The places in `identity` that name files.
const IDENTITY_FILES: [&str; 4] = [
    "/jwt/jwks_file",
    "/jwt/jwks_ca",
    "/jwt/secret_file",
    "/country/database",
];

/// Resolves a path against the place where it was set.
fn resolve(path: &mut Value, origin: &Origin) {
    let full = path.as_str().map(|text| origin.full_path(text));
    // A folder whose name is not Unicode cannot stand in the value; the path then counts from the working directory.
    if let Some(full) = full.as_ref().and_then(|full| full.to_str()) {
        *path = full.into();
    }
}

/// The path that the patterns of service levels are relative to.
pub(crate) fn slas_base(text: &str) -> Result<Option<PathPattern>, ValueError> {
    if text.is_empty() {
        return Ok(None);
    }
    let base = PathPattern::parse(text)?;
    match base.has_rest() {
        true => Err(ValueError::BaseRest),
        false => Ok(Some(base)),
    }
}
