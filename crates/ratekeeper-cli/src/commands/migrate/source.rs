//! Variables, from lines or from YAML that has them.

use crate::settings;
use anyhow::{Result, bail};
use serde_json::{Map, Value};

/// The most variables.
const VARIABLES_MAX: usize = 10_000;

/// The variables of a service.
#[derive(Debug, Default)]
pub(super) struct Variables {
    pub(super) pairs: Vec<(String, String)>,
    /// Those whose values are elsewhere.
    pub(super) secrets: Vec<String>,
    /// True for the configuration of an Envoy Gateway.
    pub(super) is_gateway: bool,
}

impl Variables {
    /// Reads lines NAME=VALUE, or YAML with `env`, `environment` or `extraEnv`.
    ///
    /// # Errors
    /// There are none.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut all = Self::default();
        if let Some(pairs) = lines(text) {
            all.pairs = pairs;
        } else {
            for document in text.split("\n---") {
                if document.trim().is_empty() {
                    continue;
                }
                let value = settings::nested(document.trim_start_matches("---"))?;
                all.is_gateway |= value["kind"] == "EnvoyGateway";
                all.walk(&value);
            }
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

    fn walk(&mut self, value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| self.walk(value)),
            Value::Object(map) => {
                for (key, value) in map {
                    match (&**key, value) {
                        ("env" | "environment" | "extraEnv" | "extraEnvVars", value) => {
                            self.variables(value);
                        }
                        (_, value) => self.walk(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn variables(&mut self, value: &Value) {
        match value {
            Value::Array(list) => list.iter().for_each(|entry| match entry {
                Value::Object(entry) => self.entry(entry),
                Value::String(line) => self.pairs.extend(pair(line)),
                _ => {}
            }),
            Value::Object(map) => {
                for (name, value) in map.iter().filter(|(name, _)| is_name(name)) {
                    match text(value) {
                        Some(text) => self.pairs.push((name.clone(), text)),
                        None => self.secrets.push(name.clone()),
                    }
                }
            }
            _ => {}
        }
    }

    /// `{ name, value }` or `{ name, valueFrom }`.
    fn entry(&mut self, entry: &Map<String, Value>) {
        let Some(name) = entry.get("name").and_then(Value::as_str) else {
            return;
        };
        match entry.get("value").and_then(text) {
            Some(text) => self.pairs.push((name.to_owned(), text)),
            None => self.secrets.push(name.to_owned()),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The variables of lines; [`None`] if there is another kind of line.
fn lines(text: &str) -> Option<Vec<(String, String)>> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(pair).collect()
}

fn pair(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let value = value.trim();
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    is_name(name).then(|| (name.to_owned(), value.to_owned()))
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
}
