//! Loads rules from text, or returns the errors.

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_rules::{Loaded, Options, Rule, Source, load};

pub(crate) fn loaded_with(text: &str, options: &Options) -> Loaded {
    match load(
        &[Source {
            name: "f.yaml".to_owned(),
            text: text.to_owned(),
        }],
        options,
    ) {
        Ok(loaded) => loaded,
        Err(errors) => panic!("refused:\n{text}\n{errors}"),
    }
}

pub(crate) fn loaded(text: &str) -> Loaded {
    loaded_with(text, &Options::default())
}

/// The rules of a descriptor `k` with this body.
pub(crate) fn rules(body: &str) -> Vec<Rule> {
    loaded(&format!("domain: d\ndescriptors:\n  - key: k\n{body}"))
        .rules
        .rules()
        .to_vec()
}

pub(crate) fn limits(body: &str) -> Vec<(Algorithm, u64, Micros)> {
    let rules = rules(&format!("    rate_limit: {body}\n"));
    rules
        .iter()
        .filter_map(Rule::limited)
        .map(|limit| (limit.algorithm(), limit.quota(), limit.window()))
        .collect()
}

pub(crate) fn errors(text: &str) -> Vec<String> {
    let sources = [Source {
        name: "f.yaml".to_owned(),
        text: text.to_owned(),
    }];
    let errors = load(&sources, &Options::default())
        .err()
        .unwrap_or_else(|| panic!("accepted:\n{text}"));
    errors
        .errors()
        .iter()
        .map(|error| error.message.clone())
        .collect()
}

/// The message of the only error in a descriptor `k` with this limit.
pub(crate) fn refused(rate_limit: &str) -> String {
    let errors = errors(&format!(
        "domain: d\nplans: [free, pro]\ndescriptors:\n  - key: k\n    rate_limit: {rate_limit}\n"
    ));
    assert_eq!(errors.len(), 1, "{rate_limit}: {errors:?}");
    errors[0].clone()
}

pub(crate) fn ids(text: &str) -> Vec<String> {
    loaded(text)
        .rules
        .rules()
        .iter()
        .map(|rule| rule.id.to_string())
        .collect()
}
