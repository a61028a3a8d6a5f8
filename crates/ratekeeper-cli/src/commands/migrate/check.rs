//! `ratekeeper migrate --check`: asks two services which limit they have for each rule, by looks that charge nothing.

use crate::client::{self, Request};
use crate::output::{self, count, within_line};
use anyhow::{Context, Result, bail};
use ratekeeper_rules::{Domain, Node, RuleSet, secret};
use ratekeeper_tls::TlsFiles;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A value that no caller has.
const UNUSED_VALUE: &str = "ratekeeper-migrate-look";

/// The most rules that are asked for.
const LOOKS_MAX: usize = 10_000;

/// The most differences that are listed.
const SHOWN_MAX: usize = 50;

/// A request that a rule is for.
struct Look {
    /// The rule's path, for people.
    path: String,
    body: Value,
    /// True if the rules have a limit for it.
    has_limit: bool,
}

pub(super) fn run(
    rules: &RuleSet,
    theirs: &str,
    ours: &str,
    ca: Option<&Path>,
) -> Result<ExitCode> {
    if host(theirs) == host(ours) {
        bail!("{theirs} and {ours} are one service; name the old one and the new one");
    }
    let looks = looks(rules);
    if looks.is_empty() {
        bail!("the rules have no descriptor with a limit, so there is nothing to compare");
    }
    if looks.len() > LOOKS_MAX {
        bail!("{} rules are more than {LOOKS_MAX}", looks.len());
    }
    let files = TlsFiles {
        authorities: ca.map(Path::to_path_buf),
        identity: None,
    };
    let ask = |service: &str, look: &Look| -> Result<LookAnswer> {
        let answer = ask(service, &files, &look.body);
        answer.with_context(|| format!("{service} does not answer for {}", within_line(&look.path)))
    };
    let (mut different, mut missing) = (Vec::new(), Vec::new());
    let mut charging = false;
    for look in &looks {
        let (before, our) = (ask(theirs, look)?, ask(ours, look)?);
        if before.limit != our.limit || before.code != our.code {
            different.push(format!("{}: theirs {before}, ours {our}", look.path));
        } else if look.has_limit && before.limit.is_none() {
            missing.push(&*look.path);
        }
        // A second look shows if the first one was charged.
        charging |= !charging && ask(theirs, look)?.remaining < before.remaining;
    }
    let mut text = String::new();
    for line in different.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "differs: {}", within_line(line));
    }
    if different.len() > SHOWN_MAX {
        let _ = writeln!(text, "… and {} more", different.len() - SHOWN_MAX);
    }
    if let Some(first) = missing.first() {
        let rules = count(missing.len(), "rule");
        let _ = writeln!(
            text,
            "{rules} with a limit on neither side, the first for {}: are these the rules in force?",
            within_line(first)
        );
    }
    if charging {
        text.push_str(
            "note: the old service charges looks; only a value that no client has was charged\n",
        );
    }
    let _ = writeln!(
        text,
        "{}: {} the same, {} different",
        count(looks.len(), "look"),
        looks.len() - different.len(),
        different.len()
    );
    output::print(&text)?;
    Ok(match different.is_empty() && missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The part of an address that tells services apart.
fn host(address: &str) -> &str {
    let host = address.split_once("://").map_or(address, |(_, host)| host);
    host.trim_end_matches('/')
}

/// The answer of a service to a look.
#[derive(PartialEq, Eq, Debug)]
struct LookAnswer {
    code: String,
    /// Requests and unit; [`None`] without a limit.
    limit: Option<(u64, String)>,
    remaining: u64,
}

impl std::fmt::Display for LookAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.limit {
            Some((requests, unit)) => write!(f, "{requests} per {unit} ({})", self.code),
            None => write!(f, "no limit ({})", self.code),
        }
    }
}

fn ask(service: &str, files: &TlsFiles, body: &Value) -> Result<LookAnswer> {
    let body = body.to_string();
    let request = Request {
        method: "POST",
        path: "/json",
        body: &body,
        token: None,
        condition: None,
        patience: PATIENCE,
        asks_at: "the HTTP address",
    };
    let answer = client::send(service, files, &request)?;
    // 429 is an answer, too.
    if !matches!(answer.status, 200 | 429) {
        bail!("it answers {}: {}", answer.status, answer.body.trim_end());
    }
    let value: Value = serde_json::from_str(&answer.body)?;
    let status = &value["statuses"][0];
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        value => value.as_u64().unwrap_or_default(),
    };
    let limit = status["currentLimit"].as_object().map(|limit| {
        let unit = limit
            .get("unit")
            .and_then(Value::as_str)
            .unwrap_or("UNKNOWN");
        let requests = limit.get("requestsPerUnit").map_or(0, number);
        (requests, unit.to_ascii_lowercase())
    });
    let Some(code) = status["code"].as_str() else {
        bail!("it answers without `statuses`: is it the HTTP address of a rate limit service?");
    };
    Ok(LookAnswer {
        code: code.to_owned(),
        limit,
        remaining: number(&status["limitRemaining"]),
    })
}

/// A look for each node that has rules.
fn looks(rules: &RuleSet) -> Vec<Look> {
    let mut looks = Vec::new();
    for domain in rules.domains() {
        for node in domain.nodes() {
            add((rules, domain), &mut Vec::new(), node, &mut looks);
        }
    }
    looks
}

fn add(
    (rules, domain): (&RuleSet, &Domain),
    above: &mut Vec<(String, String)>,
    node: &Node,
    looks: &mut Vec<Look>,
) {
    let value = match node.value() {
        None => UNUSED_VALUE.to_owned(),
        Some(pattern) => pattern.replace('*', UNUSED_VALUE),
    };
    above.push((node.key().to_owned(), value));
    if !node.rules().is_empty() {
        let entries = above.iter();
        let entries = entries.map(|(key, value)| json!({ "key": key, "value": value }));
        let entries: Vec<_> = entries.collect();
        let shown = above
            .iter()
            .map(|(key, value)| match domain.is_secret(key) {
                true if value != UNUSED_VALUE => format!("{key}={}", secret::fingerprint(value)),
                _ => format!("{key}={value}"),
            });
        let shown: Vec<_> = shown.collect();
        let rules = node.rules().iter().map(|index| rules.rule(*index));
        looks.push(Look {
            has_limit: rules
                .into_iter()
                .any(|rule| rule.enabled && rule.limited().is_some()),
            path: format!("{} {}", domain.name(), shown.join(",")),
            body: json!({
                "domain": domain.name(),
                "descriptors": [{ "entries": entries, "hitsAddend": "0" }],
            }),
        });
    }
    for child in node.nodes() {
        add((rules, domain), above, child, looks);
    }
    above.pop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_rules::{Options, Source, load};

    #[test]
    fn each_rule_is_looked_at() {
        let text = "domain: d\ndescriptors:\n- key: path\n  value: /v1/*\n  rate_limit: { unit: hour, requests_per_unit: 5 }\n  \
                    descriptors:\n  - { key: user, rate_limit: { unit: minute, requests_per_unit: 1 } }\n- key: plain\n";
        let source = Source {
            name: "r.yaml".to_owned(),
            text: text.to_owned(),
        };
        let loaded = load(&[source], &Options::default()).expect("it is good");
        let looks = looks(&loaded.rules);
        let paths: Vec<_> = looks.iter().map(|look| &*look.path).collect();
        assert_eq!(
            paths,
            [
                "d path=/v1/ratekeeper-migrate-look",
                "d path=/v1/ratekeeper-migrate-look,user=ratekeeper-migrate-look"
            ]
        );
        assert_eq!(looks[0].body["descriptors"][0]["hitsAddend"], "0");
    }
}
