//! Settings about HTTP requests: how callers are identified, and which descriptors are checked.

use super::layer::Origin;
use super::nested;
use ratekeeper_http::{Identity, IdentityConfig, Mapping};
use ratekeeper_rules::PathPattern;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The domain and the descriptors of forward-auth.
pub(super) fn auth(text: &str) -> Result<(Option<Box<str>>, Mapping), String> {
    if text.is_empty() {
        return Ok(Default::default());
    }
    let mut value = nested::parse(text)?;
    let Some(fields) = value.as_object_mut() else {
        return Err("expected a mapping with `domain`, `descriptors` or both".to_owned());
    };
    let domain = match fields.remove("domain") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) if !name.is_empty() => Some(name.into()),
        Some(_) => return Err("domain: expected the name of one".to_owned()),
    };
    Ok((domain, meaning(value)?))
}

/// Parses `identity`, which says how callers are identified.
pub(super) fn identity(text: &str, origin: &Origin) -> Result<Identity, String> {
    if text.is_empty() {
        return Ok(Identity::default());
    }
    let mut value = nested::parse(text)?;
    for file in IDENTITY_FILES {
        if let Some(path) = value.pointer_mut(file) {
            resolve(path, origin);
        }
    }
    let config: IdentityConfig = meaning(value)?;
    Identity::open(&config).map_err(|error| error.to_string())
}

/// The places in `identity` that name files.
const IDENTITY_FILES: [&str; 3] = ["/jwt/jwks_file", "/jwt/secret_file", "/country/database"];

/// Resolves a path against the place where it was set.
fn resolve(path: &mut Value, origin: &Origin) {
    let full = path.as_str().map(|text| origin.full_path(text));
    // A folder whose name is not Unicode cannot stand in the value; the path then counts from the working directory.
    if let Some(full) = full.as_ref().and_then(|full| full.to_str()) {
        *path = full.into();
    }
}

/// Deserializes a nested value; an error names the path of the field that is invalid.
fn meaning<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => error.into_inner().to_string(),
            path => format!("{path}: {}", error.into_inner()),
        }
    })
}

/// The path that the patterns of service levels are relative to.
pub(crate) fn slas_base(text: &str) -> Result<Option<PathPattern>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let base = PathPattern::parse(text).map_err(|error| error.to_string())?;
    match base.has_rest() {
        true => Err(
            "a base cannot end in `**`: write the path up to where the patterns start".to_owned(),
        ),
        false => Ok(Some(base)),
    }
}
