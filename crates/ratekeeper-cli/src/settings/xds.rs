//! Rules from elsewhere than files: the control plane that sends them, what its rules cannot say, and places of texts.

use super::checks::Checks;
use super::rules::{Fetched, RulesPlace};
use super::table::Values;
use super::value_error::ValueError;
use super::{Problem, nested, values};
use ratekeeper_rules::Options;
use ratekeeper_sources::{
    EtcdConfig, RedisKeyConfig, TextsPlace, UrlConfig, UrlFetcher, UrlToken, XdsConfig, XdsDefaults,
};
use ratekeeper_tls::TlsFiles;
use std::collections::BTreeMap;

/// The schemes of control planes, and those that their client spells.
const SCHEMES: [(&str, &str); 2] = [("xds://", "http://"), ("xdss://", "https://")];

/// The control plane that `text` names, as its client spells it; [`None`] if it names a path.
pub(super) fn control_plane(text: &str) -> Option<Result<String, ValueError>> {
    let stripped = |(scheme, meant)| Some((meant, text.strip_prefix(scheme)?));
    let (scheme, place) = SCHEMES.into_iter().find_map(stripped)?;
    let place = place.strip_suffix('/').unwrap_or(place);
    Some(match values::names_port(place) {
        true => Ok(format!("{scheme}{place}")),
        false => Err(ValueError::ControlPlane(values::masked(text).into())),
    })
}

/// Parses properties: `NAME=VALUE`, with commas between them.
pub(super) fn node_metadata(text: &str) -> Result<BTreeMap<String, String>, ValueError> {
    let pairs = text.split(',').map(str::trim);
    let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').ok_or(ValueError::NodeMetadata)?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    pairs.collect()
}

impl Checks<'_> {
    /// The files for TLS to a control plane. Settings that mean nothing beside the others are problems.
    pub(super) fn control_plane(&mut self) -> TlsFiles {
        let values = self.values;
        let place = values.rules.as_ref();
        let url = match place {
            Some(RulesPlace::ControlPlane(at) | RulesPlace::Texts(at)) => &**at,
            None | Some(RulesPlace::Path(_)) => "",
        };
        let is_encrypted = is_encrypted(url);
        let files = [&values.rules_ca, &values.rules_cert, &values.rules_key];
        let of_tls = files.map(|file| &file.said).into_iter();
        for said in of_tls.chain([&values.rules_server_name.said]) {
            if !is_encrypted && said.has_value() {
                let message = "it means nothing for rules that are not fetched over TLS; write https://, rediss://, etcds:// or xdss://";
                self.refuse(said, message);
            }
        }
        let is_elsewhere = !matches!(place, None | Some(RulesPlace::Path(_)));
        if is_elsewhere && values.tenants.said.has_value() {
            let message = "tenants in files are for rules in files; name a database with --quotas";
            self.refuse(&values.tenants.said, message);
        }
        if !matches!(place, Some(RulesPlace::ControlPlane(_)))
            && values.xds_defaults.said.has_value()
        {
            let message =
                "it means nothing without a control plane; write `rules: xds://HOST:PORT`";
            self.refuse(&values.xds_defaults.said, message);
        }
        let texts = match place {
            Some(RulesPlace::Texts(at)) => &**at,
            _ => "",
        };
        if is_encrypted && is_redis(texts) && values.rules_server_name.said.has_value() {
            let message =
                "it means nothing for Redis, whose certificate has to have the host's name";
            self.refuse(&values.rules_server_name.said, message);
        }
        if !texts.starts_with("http") && values.rules_token.said.has_value() {
            let message = "it means nothing without a URL; write `rules: https://HOST/PATH`";
            self.refuse(&values.rules_token.said, message);
        }
        let [ca, cert, key] = files;
        self.client_tls(ca, cert, key)
    }
}

/// The place that rules are fetched from, if they are not in files.
///
/// # Errors
/// The URL is none, or no rules can have the keys of `xds_defaults`.
pub(super) fn fetched(
    values: &Values,
    tls: TlsFiles,
    options: &Options,
) -> Result<Option<Fetched>, Problem> {
    match &*values.rules {
        None | Some(RulesPlace::Path(_)) => Ok(None),
        Some(RulesPlace::ControlPlane(endpoint)) => {
            client(values, endpoint, tls, options).map(|it| Some(Fetched::Xds(it)))
        }
        Some(RulesPlace::Texts(url)) => {
            let place = texts(values, url, tls);
            let place = place.map_err(|message| values.rules.said.problem(message))?;
            Ok(Some(Fetched::Texts(place)))
        }
    }
}

/// Returns true for the URL of Redis or Valkey.
fn is_redis(url: &str) -> bool {
    url.starts_with("redis") || url.starts_with("valkey")
}

/// Returns true for a URL whose server is asked over TLS.
fn is_encrypted(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let family = scheme.split('+').next().unwrap_or_default();
    matches!(family, "https" | "rediss" | "valkeys" | "etcds")
}

/// The place of texts that `url` names.
///
/// # Errors
/// The advice: a spelling that works.
fn texts(values: &Values, url: &str, tls: TlsFiles) -> Result<TextsPlace, String> {
    let server_name = values.rules_server_name.clone();
    if is_redis(url) {
        let key = RedisKeyConfig::new(url, values::masked(url), tls);
        return key
            .map(TextsPlace::Redis)
            .map_err(|error| error.to_string());
    }
    if url.starts_with("etcd") {
        let keys = EtcdConfig::new(url, values::masked(url), server_name, tls);
        return keys
            .map(TextsPlace::Etcd)
            .map_err(|error| error.to_string());
    }
    let config = UrlConfig {
        url: url.to_owned(),
        server_name,
        tls,
        token: values.rules_token.as_deref().and_then(UrlToken::new),
    };
    // The one that will be asked is made when the service starts.
    let made = UrlFetcher::new(config.clone());
    made.map_err(|error| error.to_string())?;
    Ok(TextsPlace::Url(config))
}

/// The client of the control plane.
fn client(
    values: &Values,
    endpoint: &str,
    tls: TlsFiles,
    options: &Options,
) -> Result<XdsConfig, Problem> {
    let said = &values.xds_defaults.said;
    let defaults = match said.text.is_empty() {
        true => Ok(XdsDefaults::default()),
        false => {
            let value =
                nested::parse(&said.text).map_err(|error| said.problem(error.to_string()))?;
            XdsDefaults::new(value, options)
        }
    };
    let defaults = defaults.map_err(|error| said.problem(error.to_string()))?;
    Ok(XdsConfig {
        endpoint: endpoint.to_owned(),
        server_name: values.rules_server_name.clone(),
        tls,
        node_id: values.xds_node_id.clone(),
        node_metadata: values.xds_node_metadata.clone(),
        headers: values.xds_headers.clone(),
        response_bytes_max: usize::try_from(*values.xds_response_max).unwrap_or(usize::MAX),
        defaults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_planes_are_told_from_paths() {
        let read = |text| control_plane(text).map(|it| it.map_err(|error| error.to_string()));
        assert_eq!(read("rules/"), None);
        assert_eq!(
            read("xds://eg:18001"),
            Some(Ok("http://eg:18001".to_owned()))
        );
        assert_eq!(
            read("xdss://[::1]:1/"),
            Some(Ok("https://[::1]:1".to_owned()))
        );
        for bad in [
            "xds://",
            "xds://eg",
            "xds://eg:1/path",
            "xdss://u:geheim@eg:1",
        ] {
            let said = read(bad).expect("a control plane").expect_err(bad);
            assert!(
                said.contains("is not a control plane") && !said.contains("geheim"),
                "{said}"
            );
        }
    }

    #[test]
    fn properties_have_names_and_values() {
        let read = node_metadata("a=1, b = c=d ,").expect("they do");
        let pairs: Vec<_> = read
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(pairs, [("a", "1"), ("b", "c=d")]);
        assert!(node_metadata("a").is_err());
    }
}
