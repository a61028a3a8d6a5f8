//! The query of a request to the admin API.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::http::ApiError;
pub(super) use crate::http::Given;

/// The domain of a tenant.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct OfDomain {
    /// The domain, where several have tenants.
    pub(super) domain: Option<String>,
}

/// Refuses a domain that says whose tenant is meant, where no tenant is named: an answer about all domains would be taken
/// for one about this.
pub(super) fn refuse_domain_alone(
    domain: Option<&str>,
    tenant: Option<&str>,
) -> Result<(), ApiError> {
    match (domain, tenant) {
        (Some(_), None) => {
            let message = "it means nothing without ?tenant, whose domain it is";
            Err(ApiError::invalid("?domain", message))
        }
        _ => Ok(()),
    }
}

/// The nodes whose lists are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Nodes {
    #[default]
    All,
    Own,
}

/// The option `limit`, which has to be in `range`, or `default`.
pub(super) fn limit<T: PartialOrd + Display>(
    given: Option<T>,
    default: T,
    range: RangeInclusive<T>,
) -> Result<T, ApiError> {
    let limit = given.unwrap_or(default);
    match range.contains(&limit) {
        true => Ok(limit),
        false => {
            let message = format!("expected {} to {}", range.start(), range.end());
            Err(ApiError::invalid("?limit", message))
        }
    }
}

/// The option that a fault calls `field`, read from its text.
pub(super) fn parsed<T: FromStr<Err: Display>>(
    field: &str,
    text: Option<&str>,
) -> Result<Option<T>, ApiError> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|error: T::Err| ApiError::invalid(field, error.to_string()))
}
