//! The environment, and our own `RATEKEEPER_*` in it.

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

/// A copy of the environment, taken once at start; names and values that are not Unicode are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    /// True if the program was called by envoyproxy/ratelimit's name: whoever does that expects its behaviour.
    is_ratelimit: bool,
}

impl Environment {
    /// The process's own.
    pub(crate) fn of_process() -> Environment {
        let unicode = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let program = std::env::args_os().next().map(PathBuf::from);
        Environment {
            variables: unicode.collect(),
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
            if let Some(text) = self.get(&name) {
                layers.put(setting, text, Origin::Variable(name));
            }
        }
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
/// Not every unknown one: beside a Kubernetes Service named `ratekeeper`, every pod is given `RATEKEEPER_PORT`,
/// `RATEKEEPER_SERVICE_HOST` and more of that kind, which must not keep the service from starting.
fn unknown(name: &str) -> Option<Problem> {
    let variables: Vec<String> = all().map(Setting::variable).collect();
    let known = || variables.iter().map(String::as_str).chain(OTHERS);
    let from_kubernetes = [
        "RATEKEEPER_PORT",
        "RATEKEEPER_SERVICE_HOST",
        "RATEKEEPER_SERVICE_PORT",
    ];
    let from_kubernetes = from_kubernetes.iter().any(|start| name.starts_with(start));
    if from_kubernetes || known().any(|known| known == name) {
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
