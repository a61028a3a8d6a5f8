//! `ratekeeper migrate`: the move from envoyproxy/ratelimit.

mod check;
mod counters;
mod source;

use crate::cli::Migrate;
use crate::output::{self, within_line};
use crate::rules;
use crate::settings::{self, Environment, Layers, Problem, RawValue, masked};
use anyhow::{Context, Result};
use ratekeeper_rules::{Loaded, Options, Profile, ReadOptions};
use source::Variables;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The page with all differences.
const PAGE: &str = "docs/migrating-from-envoy-ratelimit.md";

pub(crate) fn run(args: &Migrate) -> Result<ExitCode> {
    let loaded = args.rules.as_deref().map(|path| {
        let mut options = Options::default();
        options.profile = Profile::Envoy;
        options.merge_domains = args.merge_domains;
        rules::load(path, None, ReadOptions::default(), &options)
    });
    let loaded = loaded.transpose()?;
    if let ([theirs, ours], Some(loaded)) = (&*args.check, &loaded) {
        return check::run(&loaded.rules, theirs, ours, args.ca.as_deref());
    }
    let variables = match &args.source {
        None => Variables::default(),
        Some(path) => read(path)?,
    };
    let plan = Plan::new(&variables, loaded.as_ref());
    output::print(&plan.text())?;
    Ok(match plan.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn read(path: &Path) -> Result<Variables> {
    let place = || path.display().to_string();
    let text = super::quota::read(path, FILE_BYTES_MAX)?;
    Variables::parse(&text).with_context(place)
}

/// A plan of the move.
struct Plan<'a> {
    variables: &'a Variables,
    layers: Layers,
    /// The variables that stand in the way.
    problems: Vec<Problem>,
    loaded: Option<&'a Loaded>,
}

impl<'a> Plan<'a> {
    fn new(variables: &'a Variables, loaded: Option<&'a Loaded>) -> Self {
        let pairs = variables.pairs.iter();
        let pairs: Vec<_> = pairs.map(|(name, value)| (&**name, &**value)).collect();
        let has_secrets = !variables.secrets.is_empty();
        let (layers, refused) = settings::of_ratelimit(&Environment::of(&pairs), has_secrets);
        let mut problems = unresolved(variables);
        // What a template stands for may well be good.
        let is_template = |of: &Problem| {
            let mut names = of.place.split(" and ");
            names.any(|name| problems.iter().any(|it| it.place == name))
        };
        let refused: Vec<_> = refused.into_iter().filter(|it| !is_template(it)).collect();
        problems.extend(refused);
        Self {
            variables,
            layers,
            problems,
            loaded,
        }
    }

    /// The plan, in Markdown.
    fn text(&self) -> String {
        let mut text = String::new();
        self.settings(&mut text);
        self.differences(&mut text);
        if let Some(loaded) = self.loaded {
            text.push_str(&counters::text(&loaded.rules));
        }
        text.push_str(match self.variables.is_gateway {
            true => STEPS_OF_GATEWAY,
            false => STEPS,
        });
        text
    }

    fn settings(&self, text: &mut String) {
        text.push_str("# Settings\n\n");
        if self.variables.is_gateway {
            text.push_str(
                "None: Envoy Gateway sets the variables, and Ratekeeper reads them. Change one image name:\n\n```yaml\n\
                 provider:\n  kubernetes:\n    rateLimitDeployment:\n      container:\n        \
                 image: registry.example.com/ratekeeper:0.1.0     # built with deploy/Dockerfile\n```\n\n",
            );
            return;
        }
        text.push_str(
            "Either leave the variables as they are and add RATEKEEPER_PROFILE=envoy, or write this as ratekeeper.yaml:\n\n\
             ```yaml\nprofile: envoy               # the same decisions; drop it later\n\
             envoy_metrics: true          # the same names of metrics\n",
        );
        for setting in settings::all() {
            let said = self.layers.get(setting);
            if !said.is_default() && !said.text.is_empty() {
                text.push_str(&line(&said));
            }
        }
        text.push_str("```\n\n");
        for name in &self.variables.secrets {
            let _ = writeln!(
                text,
                "- `{}` comes from a secret: give it to Ratekeeper in the same way.",
                within_line(name)
            );
        }
        for place in &self.variables.others {
            let _ = writeln!(
                text,
                "- The variables of `{}` are left out: it is not envoyproxy/ratelimit.",
                within_line(place)
            );
        }
    }

    fn differences(&self, text: &mut String) {
        text.push_str("# Differences\n\n");
        for problem in &self.problems {
            let _ = writeln!(
                text,
                "- **In the way:** `{}`: {}",
                problem.place,
                within_line(&problem.message)
            );
        }
        for warning in &self.layers.warnings {
            let message = within_line(&warning.message);
            let _ = writeln!(text, "- `{}`: {message}", warning.place);
        }
        if let Some(loaded) = self.loaded {
            for warning in &loaded.warnings {
                let message = within_line(&warning.message);
                let _ = writeln!(text, "- {}: {message}", warning.place);
            }
        }
        let _ = writeln!(
            text,
            "- All others are listed in {PAGE}: requests that cannot be read are limited, descriptors never share a \
             counter, and a rule with an error is told with its line.\n"
        );
    }
}

/// The values that answers depend on and that are not what the service is given.
fn unresolved(variables: &Variables) -> Vec<Problem> {
    let heeded = variables.pairs.iter();
    let heeded = heeded.filter(|(name, _)| settings::heeds(name));
    let problem = |(name, value): &(String, String)| {
        let message = if value.contains("${") || value.contains("$(") {
            // Not the value: it may be a secret, and no template.
            "its value has `${` or `$(`, a template: write what it stands for, as `env` prints it in the container"
                .to_owned()
        } else if value.contains('\n') {
            "its value has several lines: each line of the file should be NAME=VALUE".to_owned()
        } else {
            return None;
        };
        let place = name.clone();
        Some(Problem { place, message })
    };
    heeded.filter_map(problem).collect()
}

/// A setting as a line of the file, with the variable that says so. A secret stays where it is.
fn line(said: &RawValue) -> String {
    let (key, origin) = (said.setting.key, &said.origin);
    let shown = masked(&said.text);
    if said.setting.is_secret || shown != said.text {
        let variable = said.setting.variable();
        return format!("# {key}: a secret; set {variable} instead of {origin}\n");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    let value = match said.setting.is_nested || said.text.bytes().all(is_plain) {
        true => said.text.clone(),
        false => serde_json::Value::from(&*said.text).to_string(),
    };
    let shown = format!("{key}: {value}");
    format!("{shown:<28} # {origin}\n")
}

const STEPS: &str = "\
# Steps

1. `ratekeeper rules check --profile envoy FOLDER` finds what the rules say and mean.
2. Start Ratekeeper beside the old service, with the settings above and SHADOW_MODE=true. It counts in Redis under its own keys.
3. `ratekeeper migrate --rules FOLDER --check http://OLD:8080 http://NEW:8080` compares both while traffic runs.
4. Point Envoy's `rate_limit_service` at the new address, first on one instance. Take SHADOW_MODE away.
5. To go back, point it at the old address: its counters are where they were.
6. Stop the old service. Its keys in Redis expire by themselves.
";

const STEPS_OF_GATEWAY: &str = "\
# Steps

1. Build the image with deploy/Dockerfile, and push it to a registry of yours.
2. Change the image of the rate limit deployment as above, and apply it. Envoy Gateway starts the new pods before it stops the old ones.
3. Add RATEKEEPER_XDS_DEFAULTS to `env` for what policies cannot say, such as {algorithm: sliding_window, count_denied: false}.
4. `ratekeeper health` in the pod, or /readyz on its admin port, says if the rules have come.
5. To go back, change the image back.
";

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_rules::Source;

    fn plan(text: &str) -> String {
        let variables = Variables::parse(text).expect("it is good");
        Plan::new(&variables, None).text()
    }

    #[test]
    fn variables_become_settings() {
        let text = "REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\nLOG_LEVEL=debug\nPORT=9000\nREDIS_AUTH=geheim\n\
                    REDIS_PERSECOND=true\nMERGE_DOMAIN_CONFIG=true\n";
        let plan = plan(text);
        for part in [
            "profile: envoy",
            "http: \"0.0.0.0:9000\"",
            "# PORT",
            "merge_domains: true",
            "# store: a secret; set RATEKEEPER_STORE instead of",
            "`REDIS_PERSECOND`: ",
            "# Steps",
        ] {
            assert!(plan.contains(part), "{part}: {plan}");
        }
        assert!(!plan.contains("geheim"), "{plan}");
    }

    #[test]
    fn what_serve_would_refuse_is_in_the_way() {
        let plan = plan("REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\nPORT=notanumber\n");
        assert!(
            plan.contains("**In the way:** `PORT`: `0.0.0.0:notanumber` is not an address"),
            "{plan}"
        );
        for value in ["${ROOT:-/data}", "$(ROOT)", "a/${ROOT}"] {
            let text = format!("RUNTIME_ROOT={value}\n");
            let variables = Variables::parse(&text).expect("it is good");
            let plan = Plan::new(&variables, None);
            assert_eq!(plan.problems.len(), 1, "{}", plan.text());
            assert!(
                plan.text().contains("**In the way:** `RUNTIME_ROOT`: "),
                "{}",
                plan.text()
            );
        }
    }

    #[test]
    fn an_envoy_gateway_needs_another_image() {
        let plan = plan(
            "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nrateLimit: { backend: { type: Redis } }\n",
        );
        assert!(plan.contains("Change one image name") && plan.contains("rateLimitDeployment"));
        assert!(plan.contains("change the image back"), "{plan}");
    }

    #[test]
    fn windows_tell_what_starts_afresh() {
        let text = "domain: d\ndescriptors:\n- { key: \"a\\n# Steps\", rate_limit: { unit: day, requests_per_unit: 5 } }\n\
                    - { key: b, rate_limit: { unit: second, requests_per_unit: 5 } }\n";
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: text.to_owned(),
        };
        let loaded = ratekeeper_rules::load(&[source], &Options::default()).expect("it is good");
        let variables = Variables::default();
        let plan = Plan::new(&variables, Some(&loaded)).text();
        assert!(plan.contains("| 1 | d.a\\n# Steps |"), "{plan}");
        assert!(plan.contains("| 1 | d.b |"), "{plan}");
    }
}
