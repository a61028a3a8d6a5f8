//! The environment, and our own `RATEKEEPER_*` in it.

use super::envoyproxy_ratelimit::heeds;
use super::layer::{Layers, Origin};
use super::problem::{Problem, nearest};
use super::setting::{PREFIX, Setting};
use super::table::{all, row};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Variables with our prefix that are no settings.
pub(crate) const OTHERS: [&str; 2] = [CONFIG, ADMIN_TOKEN];

/// The token that commands present to the admin API of a running service.
pub(crate) const ADMIN_TOKEN: &str = "RATEKEEPER_ADMIN_TOKEN";

/// Names the settings file.
pub(crate) const CONFIG: &str = "RATEKEEPER_CONFIG";

/// The name of envoyproxy/ratelimit's program.
const RATELIMIT: &str = "ratelimit";

/// A copy of the environment, taken once at start; names that are not Unicode are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    /// Names of variables whose values are not Unicode.
    unreadable: Vec<String>,
    /// True if the program was called by envoyproxy/ratelimit's name: whoever does that expects its behaviour.
    is_ratelimit: bool,
}

impl Environment {
    /// The process's own.
    pub(crate) fn of_process() -> Environment {
        let named = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            Some((name, value.into_string()))
        });
        let (unicode, others): (Vec<_>, Vec<_>) = named.partition(|(_, value)| value.is_ok());
        let unicode = unicode.into_iter();
        let unicode = unicode.filter_map(|(name, value)| Some((name, value.ok()?)));
        let program = std::env::args_os().next().map(PathBuf::from);
        Environment {
            variables: unicode.collect(),
            unreadable: others.into_iter().map(|(name, _)| name).collect(),
            is_ratelimit: program
                .is_some_and(|path| path.file_name().is_some_and(|it| it == RATELIMIT)),
        }
    }

    /// One made of these pairs.
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Environment {
        let pairs = pairs.iter();
        Environment {
            variables: pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            unreadable: Vec::new(),
            is_ratelimit: false,
        }
    }

    /// Puts what follows from the program's name over the defaults.
    pub(super) fn put_name(&self, layers: &mut Layers) {
        if self.is_ratelimit {
            layers.put(&row::profile, "envoy", Origin::Name);
            layers.put(&row::envoy_metrics, "true", Origin::Name);
        }
    }

    /// A variable's value; one that is empty counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The variables of that name that are set; of one that ends with `*`, all that begin so.
    pub(super) fn called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (start, is_family) = match name.strip_suffix('*') {
            Some(start) => (start, true),
            None => (name, false),
        };
        self.variables
            .range(start.to_owned()..)
            .take_while(move |(found, _)| found.starts_with(start))
            .filter(move |(found, text)| (is_family || *found == start) && !text.is_empty())
            .map(|(found, text)| (found.as_str(), text.as_str()))
    }

    /// Puts our variables over `layers`.
    pub(crate) fn put(&self, layers: &mut Layers, problems: &mut Vec<Problem>) {
        for setting in all() {
            let name = setting.variable();
            let text = match setting.may_be_empty {
                true => self.variables.get(&name).map(String::as_str),
                false => self.get(&name),
            };
            if let Some(text) = text {
                layers.put(setting, text, Origin::Variable(name));
            }
        }
        let is_ours = |name: &&String| name.starts_with(PREFIX) || heeds(name);
        problems.extend(self.unreadable.iter().filter(is_ours).map(|name| Problem {
            place: name.clone(),
            message: "its value is not Unicode: write it in UTF-8, or take it away".to_owned(),
        }));
        for name in self
            .variables
            .keys()
            .filter(|name| name.starts_with(PREFIX))
        {
            problems.extend(unknown(name));
        }
    }
}

/// Refuses a variable that was most likely meant to be a setting.
///
/// Not every unknown one: see [`is_from_kubernetes`].
fn unknown(name: &str) -> Option<Problem> {
    let variables: Vec<String> = all().map(Setting::variable).collect();
    let known = || variables.iter().map(String::as_str).chain(OTHERS);
    if is_from_kubernetes(name) || known().any(|known| known == name) {
        return None;
    }
    let short = |name: &str| name.trim_start_matches(PREFIX).to_owned();
    let shorts: Vec<String> = known().map(short).collect();
    let meant = nearest(&short(name), shorts.iter().map(String::as_str))?;
    let message = format!("there is no setting of this name; did you mean {PREFIX}{meant}?");
    Some(Problem {
        place: name.to_owned(),
        message,
    })
}

/// Returns true for what every pod is given beside a Kubernetes Service named `ratekeeper` or `ratekeeper-store`:
/// `RATEKEEPER_PORT`, `RATEKEEPER_STORE_SERVICE_HOST` and more of that kind. They must not keep the service from starting.
fn is_from_kubernetes(name: &str) -> bool {
    let ends = ["_PORT", "_SERVICE_HOST", "_SERVICE_PORT"];
    let protocols = ["_TCP", "_UDP", "_SCTP"];
    // `_PORT_6379_TCP_ADDR`: the number of a port, its protocol, and what is told of it.
    let is_of_port = name.split("_PORT_").skip(1).any(|rest| {
        let number = rest.trim_start_matches(|it: char| it.is_ascii_digit());
        number.len() < rest.len() && protocols.iter().any(|part| number.starts_with(part))
    });
    ends.iter().any(|end| name.ends_with(end)) || name.contains("_SERVICE_PORT_") || is_of_port
}

#[cfg(test)]
mod tests {
    use super::super::envoyproxy_ratelimit;
    use super::*;

    fn put(pairs: &[(&str, &str)]) -> (Layers, Vec<String>) {
        let (mut layers, mut problems) = (Layers::default(), Vec::new());
        let environment = Environment::of(pairs);
        envoyproxy_ratelimit::put(&environment, &mut layers, &mut problems);
        environment.put(&mut layers, &mut problems);
        (layers, problems.iter().map(ToString::to_string).collect())
    }

    fn value(layers: &Layers, key: &str) -> (String, String) {
        layers.shown(key)
    }

    #[test]
    fn ours_go_before_envoyproxy_ratelimits() {
        let (layers, problems) = put(&[
            ("PORT", "9000"),
            ("RATEKEEPER_HTTP", ":7000"),
            ("GRPC_HOST", "::1"),
        ]);
        assert!(problems.is_empty());
        assert_eq!(
            value(&layers, "http"),
            (":7000".into(), "RATEKEEPER_HTTP".into())
        );
        assert_eq!(
            value(&layers, "grpc"),
            ("[::1]:8081".into(), "GRPC_HOST".into())
        );
    }

    #[test]
    fn a_slip_is_refused_and_what_kubernetes_adds_is_not() {
        let (_, problems) = put(&[
            ("RATEKEEPER_PROFLE", "envoy"),
            ("RATEKEEPER_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("RATEKEEPER_SERVICE_HOST", "10.0.0.1"),
            ("RATEKEEPER_SERVICE_PORT", "8081"),
            ("RATEKEEPER_SERVICE_PORT_GRPC", "8081"),
            ("RATEKEEPER_SERVICE_TOKN", "t"),
            ("RATEKEEPER_STORE_PORT", "tcp://10.0.0.2:6379"),
            ("RATEKEEPER_STORE_PORT_6379_TCP_ADDR", "10.0.0.2"),
            ("RATEKEEPER_RULES_SERVICE_HOST", "10.0.0.3"),
            ("RATEKEEPER_DATA_SERVICE_PORT_HTTP", "80"),
        ]);
        assert_eq!(
            problems,
            [
                "RATEKEEPER_PROFLE: there is no setting of this name; did you mean RATEKEEPER_PROFILE?",
                "RATEKEEPER_SERVICE_TOKN: there is no setting of this name; did you mean RATEKEEPER_SERVICE_TOKEN?"
            ]
        );
    }
}
