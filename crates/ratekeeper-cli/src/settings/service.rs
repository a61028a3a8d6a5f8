//! The service that decides for the gateway, and the fate of requests without it.

use super::layer::Origin;
use super::meaning::failure_mode;
use super::problem::Problem;
use super::table::find;
use super::typed::Typed;
use super::value_error::ValueError;
use super::{TlsSettings, values};
use ratekeeper_rules::FailureMode;
use ratekeeper_tls::TlsFiles;
use std::path::PathBuf;
use std::time::Duration;

/// A service that is asked, and how to ask it.
#[derive(Debug)]
pub(crate) struct ServiceSettings {
    /// The service as it was written, for people.
    pub(crate) shown: String,
    /// The URLs as the client spells them, in order of preference.
    pub(crate) endpoints: Vec<String>,
    pub(crate) token: Option<String>,
    /// The file with the token, if it is in one.
    pub(crate) token_file: Option<PathBuf>,
    /// The name in the service's certificate, if it is not the URL's host.
    pub(crate) server_name: Option<String>,
    pub(crate) files: TlsFiles,
    pub(crate) file_settings: TlsSettings,
    pub(crate) deadline: Duration,
    /// True if the rules named beside it are read: to know what to ask, and to decide while it is away.
    pub(crate) reads_rules: bool,
    /// True if concurrency limits apply, too.
    pub(crate) permits: bool,
    pub(crate) on_failure: FailureMode,
    /// Other settings that a gateway cannot obey when it asks a service. `ratekeeper serve`, which may have the same
    /// environment, does obey them.
    pub(crate) contradictions: Vec<Problem>,
}

/// The most services that a gateway can be given, in order of preference.
const SERVICES_MAX: usize = 16;

/// The settings that have a meaning only for a gateway that asks a service.
const NEED_SERVICE: [&str; 9] = [
    "on_service_failure",
    "service_deadline",
    "service_permits",
    "service_token",
    "service_token_file",
    "service_server_name",
    "service_ca",
    "service_cert",
    "service_key",
];

impl Typed<'_> {
    pub(super) fn service(&mut self) -> Option<ServiceSettings> {
        let endpoints = self.get("service", |text| values::maybe(text, endpoints));
        let on_failure = self.get("on_service_failure", failure_mode);
        let deadline = self.get("service_deadline", |text| {
            values::duration_within(text, Duration::from_millis(1)..=Duration::from_secs(10))
        });
        let permits = self.get("service_permits", values::switch);
        let token = self.get("service_token", token);
        let token_file = self.path("service_token_file");
        if token.is_some() && token_file.is_some() {
            self.refuse(
                "service_token_file",
                "it means nothing beside `service_token`; keep one of the two",
            );
        }
        let server_name = self.get("service_server_name", |text| {
            values::maybe(text, |text| Ok::<_, ValueError>(text.to_owned()))
        });
        let files = self.client_tls("service_");
        let Some(endpoints) = endpoints else {
            return self.without_service();
        };
        let is_encrypted = endpoints.iter().all(|at| at.starts_with("https://"));
        if is_encrypted && files.authorities.is_none() {
            self.refuse("service", "with TLS, `service_ca` has to say whom to trust");
        }
        for key in ["service_ca", "service_cert", "service_server_name"] {
            if !is_encrypted && self.is_said(key) {
                self.refuse(
                    key,
                    "it means nothing for a service that is not encrypted; write grpcs://",
                );
            }
        }
        let reads_rules = on_failure == FailureMode::Local || self.asked_for("rules").is_some();
        Some(ServiceSettings {
            shown: self.layers.said("service").text,
            endpoints,
            token,
            token_file,
            server_name,
            files,
            file_settings: TlsSettings::of("service_"),
            deadline,
            reads_rules,
            permits,
            on_failure,
            contradictions: self.contradictions(),
        })
    }

    /// Returns true if somebody has given `key` a value.
    pub(super) fn is_said(&self, key: &str) -> bool {
        let said = self.layers.said(key);
        said.origin != Origin::Default && !said.text.is_empty()
    }

    /// Reports settings about asking a service where no service is set: whoever sets them expects one to be asked.
    fn without_service(&mut self) -> Option<ServiceSettings> {
        for key in NEED_SERVICE {
            if self.asked_for(key).is_some() {
                self.lacks::<()>(key, "service");
            }
        }
        None
    }

    /// Problems with settings for what the service has and this gateway has not.
    fn contradictions(&self) -> Vec<Problem> {
        let counters = "the counters are those of the `service`; leave it out";
        let listener = "a gateway that asks a `service` is none itself; leave it out";
        let all = [
            ("store", counters),
            ("stores", counters),
            ("state", counters),
            ("grpc", listener),
            ("http", listener),
        ];
        all.into_iter()
            .filter_map(|(key, message)| {
                let origin = self.asked_for(key)?;
                let place = match origin {
                    // The example settings file spells out the defaults.
                    Origin::File { .. } if self.layers.said(key).text == find(key)?.default => {
                        return None;
                    }
                    Origin::File { .. } => format!("{origin}: {key}"),
                    _ => origin.to_string(),
                };
                Some(Problem {
                    place,
                    message: message.to_owned(),
                })
            })
            .collect()
    }
}

/// The addresses of services, as the client spells them, in the order written: all encrypted or none. Those without a
/// scheme have the first one's.
fn endpoints(text: &str) -> Result<Vec<String>, ValueError> {
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
fn token(text: &str) -> Result<Option<String>, ValueError> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ValueError::Token);
    }
    values::maybe(text, |text| Ok(text.to_owned()))
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
