//! The settings of the answers to Envoy, and to forward-auth.

use super::callers;
use super::meaning::{HeaderKinds, envoy_callers, header_name};
use super::requests::{auth, identity};
use super::typed::Typed;
use super::values;
use ratekeeper_http::{Describer, EncodedSlashes, Forwarding};
use ratekeeper_server::{AuthConfig, Caller, EnvoyCallers, LimitHeaderNames, RlsConfig};

impl Typed<'_> {
    /// All but the profile, which is among the settings of rules.
    pub(super) fn envoy(&mut self) -> RlsConfig {
        let kinds: HeaderKinds = self.get("response_headers", str::parse);
        let headers = LimitHeaderNames {
            limit: self.get("limit_header", header_name),
            remaining: self.get("remaining_header", header_name),
            reset: self.get("reset_header", header_name),
        };
        RlsConfig {
            limit_headers: kinds.limits.then_some(headers),
            draft_headers: kinds.draft,
            degraded_header: kinds.degraded,
            dynamic_metadata: self.get("dynamic_metadata", values::switch),
            callers: self.get("envoy_callers", |text| values::maybe(text, envoy_callers)),
            ..RlsConfig::default()
        }
    }

    pub(super) fn auth(&mut self) -> AuthConfig {
        let forwarding = Forwarding {
            trusted: self.get("trusted_proxies", str::parse),
            client_header: self.get("client_header", str::parse),
        };
        let (domain, mapping) = self.get("auth", auth);
        let origin = self.layers.said("identity").origin;
        let identity = self.get("identity", |text| identity(text, &origin));

        let encoded_slashes = self.get("encoded_slashes", |text| match text {
            "" => Ok(EncodedSlashes::default()),
            text => text.parse(),
        });
        AuthConfig {
            headers: self.get("headers", str::parse),
            denial_body: self.get("denial_body", str::parse),
            forwarding,
            describer: Describer {
                identity,
                mapping,
                domain,
                encoded_slashes,
                ambiguous_paths: self.get("ambiguous_paths", str::parse),
            },
        }
    }

    /// `envoy` may need some.
    pub(super) fn callers(&mut self, envoy: &RlsConfig) -> Vec<Caller> {
        let callers = self.get("callers", callers::callers);
        if envoy.callers == Some(EnvoyCallers::Required) && callers.is_empty() {
            self.lacks::<()>("envoy_callers", "callers");
        }
        callers
    }
}
