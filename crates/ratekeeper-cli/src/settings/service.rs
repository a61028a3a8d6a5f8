//! The service that decides for the gateway, and the fate of requests without it.

use super::checks::Checks;
use super::layer::{Origin, RawValue};
use super::problem::Problem;
use super::value_error::ValueError;
use super::{TlsSettings, values};
use ratekeeper_rules::FailureMode;
use ratekeeper_tls::TlsFiles;

/// A service that is asked, and how to ask it.
#[derive(Debug)]
pub(crate) struct ServiceSettings {
    /// The service as it was written, for people.
    pub(crate) shown: String,
    /// The URLs as the client spells them, in order of preference.
    pub(crate) endpoints: Vec<String>,
    pub(crate) files: TlsFiles,
    pub(crate) file_settings: TlsSettings,
    /// True if the rules named beside it are read: to know what to ask, and to decide while it is away.
    pub(crate) reads_rules: bool,
    /// Other settings that a gateway cannot obey when it asks a service. `ratekeeper serve`, which may have the same
    /// environment, does obey them.
    pub(crate) contradictions: Vec<Problem>,
}

/// The most services that a gateway can be given, in order of preference.
const SERVICES_MAX: usize = 16;

impl Checks<'_> {
    pub(super) fn service(&mut self) -> Option<ServiceSettings> {
        let values = self.values;
        if values.service_token.is_some() && values.service_token_file.is_some() {
            let message = "it means nothing beside `service_token`; keep one of the two";
            self.refuse(&values.service_token_file.said, message);
        }
        let files = self.client_tls(
            &values.service_ca,
            &values.service_cert,
            &values.service_key,
        );
        let Some(endpoints) = values.service.clone() else {
            return self.without_service();
        };
        let is_encrypted = endpoints.iter().all(|at| at.starts_with("https://"));
        if is_encrypted && files.authorities.is_none() {
            let message = "with TLS, `service_ca` has to say whom to trust";
            self.refuse(&values.service.said, message);
        }
        for said in [
            &values.service_ca.said,
            &values.service_cert.said,
            &values.service_server_name.said,
        ] {
            if !is_encrypted && said.has_value() {
                let message =
                    "it means nothing for a service that is not encrypted; write grpcs://";
                self.refuse(said, message);
            }
        }
        let decides_alone = *values.on_service_failure == FailureMode::Local;
        Some(ServiceSettings {
            shown: values.service.said.text.clone(),
            endpoints,
            files,
            file_settings: TlsSettings::of("service_"),
            reads_rules: decides_alone || !values.rules.said.is_default(),
            contradictions: self.contradictions(),
        })
    }

    /// Reports settings about asking a service where no service is set: whoever sets them expects one to be asked.
    fn without_service(&mut self) -> Option<ServiceSettings> {
        let values = self.values;
        let need_service = [
            &values.on_service_failure.said,
            &values.service_deadline.said,
            &values.service_permits.said,
            &values.service_token.said,
            &values.service_token_file.said,
            &values.service_server_name.said,
            &values.service_ca.said,
            &values.service_cert.said,
            &values.service_key.said,
        ];
        for said in need_service.into_iter().filter(|said| !said.is_default()) {
            self.lacks::<()>(said, &values.service.said);
        }
        None
    }

    /// Problems with settings for what the service has and this gateway has not.
    fn contradictions(&self) -> Vec<Problem> {
        let values = self.values;
        let counters = "the counters are those of the `service`; leave it out";
        let listener = "a gateway that asks a `service` is none itself; leave it out";
        let all = [
            (&values.store.said, counters),
            (&values.stores.said, counters),
            (&values.state.said, counters),
            (&values.grpc.said, listener),
            (&values.http.said, listener),
        ];
        let contradicts = |said: &RawValue| match said.origin {
            Origin::Default | Origin::Name => false,
            // The example settings file spells out the defaults.
            Origin::File { .. } => said.text != said.setting.default,
            Origin::Variable(_) | Origin::Flag(_) => true,
        };
        all.into_iter()
            .filter(|(said, _)| contradicts(said))
            .map(|(said, message)| said.problem(message.to_owned()))
            .collect()
    }
}

/// The addresses of services, as the client spells them, in the order written: all encrypted or none. Those without a
/// scheme have the first one's.
pub(super) fn endpoints(text: &str) -> Result<Vec<String>, ValueError> {
    let mut all: Vec<String> = Vec::new();
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    for part in text.split(',').map(str::trim) {
        let whole = match scheme {
            Some(scheme) if !part.contains("://") && !part.starts_with(values::UNIX) => {
                endpoint(&format!("{scheme}://{part}"))
            }
            _ => endpoint(part),
        };
        all.push(whole?);
    }
    let encrypted = all.iter().filter(|at| at.starts_with("https://")).count();
    if encrypted != 0 && encrypted != all.len() {
        return Err(ValueError::MixedEncryption);
    }
    if all.len() > SERVICES_MAX {
        return Err(ValueError::TooManyServices(SERVICES_MAX));
    }
    Ok(all)
}

/// The address of a service, as the client spells it.
fn endpoint(text: &str) -> Result<String, ValueError> {
    let wrong = || ValueError::Service(values::masked(text).into());
    if text.starts_with(values::UNIX) {
        return values::listen_address(text).map(|_| text.to_owned());
    }
    let schemes = [
        ("grpc://", "http://"),
        ("http://", "http://"),
        ("grpcs://", "https://"),
        ("https://", "https://"),
    ];
    let stripped = |(scheme, meant)| Some((meant, text.strip_prefix(scheme)?));
    let (scheme, place) = schemes.into_iter().find_map(stripped).ok_or_else(wrong)?;
    let place = place.strip_suffix('/').unwrap_or(place);
    match values::names_port(place) {
        true => Ok(format!("{scheme}{place}")),
        false => Err(wrong()),
    }
}

/// Parses a token, which has to fit into a header. The error does not repeat it.
pub(super) fn token(text: &str) -> Result<Option<String>, ValueError> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ValueError::Token);
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_by_scheme_host_and_port() {
        for (text, expected) in [
            ("grpc://ratekeeper:8081", "http://ratekeeper:8081"),
            ("grpcs://10.0.0.1:443/", "https://10.0.0.1:443"),
            ("http://[::1]:8081", "http://[::1]:8081"),
            (
                "unix:/run/ratekeeper/grpc.sock",
                "unix:/run/ratekeeper/grpc.sock",
            ),
        ] {
            assert_eq!(endpoint(text).expect(text), expected);
        }
        for bad in [
            "ratekeeper:8081",
            "grpc://",
            "grpc://ratekeeper",
            "grpc://:8081",
            "grpc://a:0",
            "grpc://a:b",
            "grpc://a b:1",
            "grpc://a:1/path",
            "redis://a:1",
            "unix:grpc.sock",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
        let named = endpoint("grpc://user:secret@a:1").unwrap_err().to_string();
        assert!(!named.contains("secret"), "{named}");
    }

    #[test]
    fn several_services_are_named_with_commas() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        for (text, expected) in [
            ("grpc://a:1", urls(&["http://a:1"])),
            ("grpc://a:1,b:2", urls(&["http://a:1", "http://b:2"])),
            (
                "grpcs://a:1, grpcs://b:2",
                urls(&["https://a:1", "https://b:2"]),
            ),
            ("unix:/a,grpc://b:2", urls(&["unix:/a", "http://b:2"])),
        ] {
            assert_eq!(endpoints(text).expect(text), expected);
        }
        for bad in ["grpc://a:1,grpcs://b:2", "grpc://a:1,", "a:1,grpc://b:2"] {
            assert!(endpoints(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_token_is_not_repeated() {
        let refused = token("se cret").unwrap_err().to_string();
        assert!(!refused.contains("se cret"), "{refused}");
        assert_eq!(token("abc").expect("a token"), Some("abc".to_owned()));
        assert_eq!(token("").expect("none"), None);
    }
}
