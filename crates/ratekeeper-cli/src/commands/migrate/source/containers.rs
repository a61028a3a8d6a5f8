//! The containers of a pod, or the services of a compose file, each with its own variables.

use super::{is_name, pair};
use serde_json::{Map, Value};

/// Variables that only envoyproxy/ratelimit has.
const TELLTALES: [&str; 10] = [
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_WATCH_ROOT",
    "RUNTIME_IGNOREDOTFILES",
    "BACKEND_TYPE",
    "REDIS_SOCKET_TYPE",
    "USE_STATSD",
    "MERGE_DOMAIN_CONFIG",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
];

/// The name of envoyproxy/ratelimit's image, and mostly of its container.
const RATELIMIT: &str = "ratelimit";

/// A container or service with its variables.
#[derive(Debug, Default)]
pub(super) struct Container {
    /// The keys and names on the way to it, joined by dots.
    pub(super) place: String,
    image: Option<String>,
    pub(super) pairs: Vec<(String, String)>,
    /// Those whose values are elsewhere.
    pub(super) secrets: Vec<String>,
}

/// Puts all that have variables into `found`.
pub(super) fn find(value: &Value, place: &str, found: &mut Vec<Container>) {
    let below = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    };
    match value {
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                let name = value["name"].as_str().map(str::to_owned);
                find(
                    value,
                    &below(&name.unwrap_or_else(|| at.to_string())),
                    found,
                );
            }
        }
        Value::Object(map) => {
            let mut own = Container {
                place: place.to_owned(),
                image: map.get("image").and_then(Value::as_str).map(str::to_owned),
                ..Container::default()
            };
            for (key, value) in map {
                match &**key {
                    "env" | "environment" | "extraEnv" | "extraEnvVars" => own.variables(value),
                    key => find(value, &below(key), found),
                }
            }
            if !(own.pairs.is_empty() && own.secrets.is_empty()) {
                found.push(own);
            }
        }
        _ => {}
    }
}

/// Those of envoyproxy/ratelimit, and all others: those that are named so, else those with its variables, else all.
pub(super) fn chosen(found: Vec<Container>) -> (Vec<Container>, Vec<Container>) {
    let is_any = |is_theirs: fn(&Container) -> bool| found.iter().any(is_theirs);
    let is_theirs = if is_any(Container::is_named) {
        Container::is_named
    } else if is_any(Container::has_telltale) {
        Container::has_telltale
    } else {
        |_: &Container| true
    };
    found.into_iter().partition(is_theirs)
}

impl Container {
    fn is_named(&self) -> bool {
        let image = self.image.as_deref().unwrap_or_default();
        let image = image.rsplit('/').next().unwrap_or_default();
        let image = image.split([':', '@']).next();
        image == Some(RATELIMIT) || self.place.rsplit('.').next() == Some(RATELIMIT)
    }

    fn has_telltale(&self) -> bool {
        let mut names = self.pairs.iter().map(|(name, _)| name);
        names.any(|name| TELLTALES.contains(&&**name))
    }

    /// The first variable that both have, with different values.
    pub(super) fn contradicted(&self, other: &Self) -> Option<&str> {
        let differs = |(name, value): &&(String, String)| {
            let mut others = other.pairs.iter();
            others.any(|(its, text)| its == name && text != value)
        };
        self.pairs.iter().find(differs).map(|(name, _)| &**name)
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
