//! The settings of the answers to Envoy, and to forward-auth.

use super::checks::Checks;
use super::table::Values;
use super::value_error::ValueError;
use super::values::one_of;
use ratekeeper_http::{Describer, Forwarding};
use ratekeeper_server::{AuthConfig, EnvoyCallers, LimitHeaderNames, RlsConfig};
use std::str::FromStr;

impl Values {
    /// The answers to Envoy, and the permissions that its protocol asks for.
    pub(super) fn rls_config(&self) -> RlsConfig {
        let kinds = *self.response_headers;
        let headers = LimitHeaderNames {
            limit: self.limit_header.clone(),
            remaining: self.remaining_header.clone(),
            reset: self.reset_header.clone(),
        };
        RlsConfig {
            profile: *self.profile,
            limit_headers: kinds.limits.then_some(headers),
            draft_headers: kinds.draft,
            degraded_header: kinds.degraded,
            dynamic_metadata: *self.dynamic_metadata,
            callers: *self.envoy_callers,
        }
    }

    /// The answers to forward-auth.
    pub(super) fn auth_config(&self) -> AuthConfig {
        let (domain, mapping) = self.auth.clone();
        AuthConfig {
            headers: *self.headers,
            denial_body: *self.denial_body,
            forwarding: Forwarding {
                trusted: self.trusted_proxies.clone(),
                client_header: self.client_header.clone(),
            },
            describer: Describer {
                identity: self.identity.clone(),
                mapping,
                domain,
                encoded_slashes: self.encoded_slashes.unwrap_or_default(),
                ambiguous_paths: *self.ambiguous_paths,
            },
        }
    }
}

impl Checks<'_> {
    /// Envoy's protocol may need callers.
    pub(super) fn envoy_callers(&mut self) {
        let (asked, callers) = (&self.values.envoy_callers, &self.values.callers);
        if **asked == Some(EnvoyCallers::Required) && callers.is_empty() {
            self.lacks::<()>(&asked.said, &callers.said);
        }
    }
}

/// Parses the permissions that requests over Envoy's protocol need.
pub(super) fn envoy_callers(text: &str) -> Result<EnvoyCallers, ValueError> {
    let words = [
        ("any", EnvoyCallers::Any),
        ("permitted", EnvoyCallers::Permitted),
        ("required", EnvoyCallers::Required),
    ];
    one_of(&words)(text)
}

/// The kinds of headers in answers to Envoy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderKinds {
    pub(crate) limits: bool,
    pub(crate) draft: bool,
    pub(crate) degraded: bool,
}

impl FromStr for HeaderKinds {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut kinds = Self::default();
        let words = text.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            match word {
                "limits" => kinds.limits = true,
                "draft" => kinds.draft = true,
                "degraded" => kinds.degraded = true,
                _ => return Err(ValueError::HeaderKind(word.into())),
            }
        }
        Ok(kinds)
    }
}

/// A name as HTTP allows it (RFC 9110, section 5.6.2).
pub(super) fn header_name(text: &str) -> Result<String, ValueError> {
    if !ratekeeper_rules::is_token(text.as_bytes()) {
        return Err(ValueError::HeaderName(text.into()));
    }
    Ok(text.to_owned())
}
