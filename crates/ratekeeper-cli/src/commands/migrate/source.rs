//! Variables, from lines or from YAML that has them.

mod containers;

use crate::settings;
use anyhow::{Result, bail};
use containers::Container;

/// The most variables.
const VARIABLES_MAX: usize = 10_000;

/// The variables of a service.
#[derive(Debug, Default)]
pub(super) struct Variables {
    pub(super) pairs: Vec<(String, String)>,
    /// Those whose values are elsewhere.
    pub(super) secrets: Vec<String>,
    /// The containers beside envoyproxy/ratelimit, whose variables are not here.
    pub(super) others: Vec<String>,
    /// True for the configuration of an Envoy Gateway.
    pub(super) is_gateway: bool,
}

impl Variables {
    /// Reads lines NAME=VALUE, or YAML with `env`, `environment` or `extraEnv`.
    ///
    /// # Errors
    /// There are none, or two containers of envoyproxy/ratelimit give one variable different values.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut all = Self::default();
        if let Some(pairs) = lines(text) {
            all.pairs = pairs;
        } else {
            let mut found = Vec::new();
            for document in text.split("\n---") {
                if document.trim().is_empty() {
                    continue;
                }
                let value = settings::nested(document.trim_start_matches("---"))?;
                all.is_gateway |= value["kind"] == "EnvoyGateway";
                containers::find(&value, "", &mut found);
            }
            all.take(containers::chosen(found))?;
        }
        if all.pairs.len() + all.secrets.len() > VARIABLES_MAX {
            bail!("more than {VARIABLES_MAX} variables");
        }
        if all.pairs.is_empty() && all.secrets.is_empty() && !all.is_gateway {
            bail!(
                "there are no variables in it; expected lines NAME=VALUE, as `env` prints them, or YAML with `env`: a \
                 Deployment, Helm values, a compose file"
            );
        }
        Ok(all)
    }

    /// Takes what the containers of envoyproxy/ratelimit say, and the places of all others.
    fn take(&mut self, (theirs, others): (Vec<Container>, Vec<Container>)) -> Result<()> {
        for (at, one) in theirs.iter().enumerate() {
            for other in &theirs[at + 1..] {
                if let Some(name) = one.contradicted(other) {
                    bail!(
                        "{} and {} give {name} different values: keep the one that runs envoyproxy/ratelimit",
                        one.place,
                        other.place
                    );
                }
            }
        }
        for container in theirs {
            self.pairs.extend(container.pairs);
            self.secrets.extend(container.secrets);
        }
        self.others = others.into_iter().map(|other| other.place).collect();
        Ok(())
    }
}

/// The variables of lines; [`None`] if the first is of another kind. A later one of another kind goes on with the value
/// before it, as `env` prints certificates.
fn lines(text: &str) -> Option<Vec<(String, String)>> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut pairs: Vec<_> = lines.next().map(pair).into_iter().collect::<Option<_>>()?;
    for line in lines {
        match (pair(line), pairs.last_mut()) {
            (None, Some((_, value))) => {
                value.push('\n');
                value.push_str(line);
            }
            (next, _) => pairs.extend(next),
        }
    }
    Some(pairs)
}

fn pair(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    is_name(name).then(|| (name.to_owned(), unquoted(value.trim()).to_owned()))
}

/// The text within quotes, if nothing but a comment follows them; else all of it.
fn unquoted(value: &str) -> &str {
    let within = |mark: char| {
        let (text, rest) = value.strip_prefix(mark)?.rsplit_once(mark)?;
        let is_comment = rest.is_empty() || rest.trim_start().starts_with('#');
        // A quote within the comment is not the one that ends the value.
        match text.split_once(mark) {
            Some((text, rest)) if rest.trim_start().starts_with('#') => Some(text),
            _ => is_comment.then_some(text),
        }
    };
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

fn is_name(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        Variables::parse(text).expect("there are some").pairs
    }

    #[test]
    fn variables_are_found_wherever_they_stand() {
        let expected = [("REDIS_URL", "redis:6379"), ("PORT", "8080")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for text in [
            "REDIS_URL=redis:6379\n# comment\n\nexport PORT=\"8080\"\n",
            "spec:\n  template:\n    spec:\n      containers:\n      - name: ratelimit\n        env:\n        - { name: REDIS_URL, value: 'redis:6379' }\n        - { name: PORT, value: '8080' }\n",
            "services:\n  ratelimit:\n    environment:\n    - REDIS_URL=redis:6379\n    - PORT=8080\n",
        ] {
            assert_eq!(pairs(text), expected, "{text}");
        }
        let by_name = pairs("ratelimit: { env: { PORT: 8080, REDIS_URL: 'redis:6379' } }");
        assert_eq!(by_name.len(), 2);
    }

    #[test]
    fn secrets_stay_where_they_are() {
        let text = "env:\n- name: REDIS_AUTH\n  valueFrom: { secretKeyRef: { name: redis, key: password } }\n";
        let found = Variables::parse(text).expect("there is one");
        assert_eq!(
            (found.pairs.len(), found.secrets),
            (0, vec!["REDIS_AUTH".to_owned()])
        );
        for none in ["", "a: b", "just text"] {
            assert!(Variables::parse(none).is_err(), "{none}");
        }
    }

    fn value<'a>(of: &'a Variables, name: &str) -> Vec<&'a str> {
        let pairs = of.pairs.iter().filter(|(it, _)| it == name);
        pairs.map(|(_, value)| &**value).collect()
    }

    const POD: &str = "
spec:
  containers:
  - name: OURS
    image: envoyproxy/ratelimit:abc
    env: [{ name: REDIS_URL, value: 'redis:6379' }, { name: PORT, value: '8080' }, { name: LOG_LEVEL, value: info }]
  - name: statsd-exporter
    image: prom/statsd-exporter
    env: [{ name: PORT, value: '9102' }, { name: LOG_LEVEL, value: debug }]
  - name: redis
    image: redis:7
    env: [{ name: REDIS_URL, value: 'localhost:6379' }]
";

    #[test]
    fn variables_of_other_containers_are_left_alone() {
        let compose = "
services:
  web: { environment: { PORT: 3000, LOG_LEVEL: trace } }
  limiter: { environment: { RUNTIME_ROOT: /data, PORT: 8080 } }
";
        for (text, port) in [(POD, "8080"), (compose, "8080")] {
            let found = Variables::parse(text).expect("there are some");
            assert_eq!(value(&found, "PORT"), [port], "{text}");
        }
        let pod = Variables::parse(POD).expect("there are some");
        assert_eq!(value(&pod, "REDIS_URL"), ["redis:6379"]);
        assert_eq!(value(&pod, "LOG_LEVEL"), ["info"]);
    }

    #[test]
    fn containers_that_say_different_things_are_refused() {
        let text = "
services:
  a: { environment: { REDIS_URL: 'a:6379', RUNTIME_ROOT: /data } }
  b: { environment: { REDIS_URL: 'b:6379', RUNTIME_ROOT: /data } }
";
        let error = Variables::parse(text)
            .expect_err("which of them?")
            .to_string();
        for part in ["REDIS_URL", "services.a", "services.b"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let same = text.replace("b:6379", "a:6379");
        assert!(Variables::parse(&same).is_ok());
    }

    #[test]
    fn values_of_several_lines_are_one_value() {
        let text = "REDIS_URL=r:1\nCERT=-----BEGIN\nMIIB=\n\nb c\nPORT=8080\nROOT=\"/data\" # where\nHASH='a#b'\n";
        let found = Variables::parse(text).expect("there are some");
        assert_eq!(value(&found, "REDIS_URL"), ["r:1"]);
        assert_eq!(value(&found, "PORT"), ["8080"]);
        assert_eq!(value(&found, "ROOT"), ["/data"]);
        assert_eq!(value(&found, "HASH"), ["a#b"]);
    }
}
