//! Reads callgrind's profiles.

use std::collections::HashMap;

/// The instructions of all functions whose name contains one of `parts`, and of the functions that they call.
/// None of the former may call another.
pub(crate) fn inclusive(profile: &str, parts: &[&str]) -> u64 {
    let mut names = Names {
        wanted: HashMap::new(),
        parts,
    };
    let (mut is_wanted, mut sum) = (false, 0);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            is_wanted = names.is_wanted(name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            names.is_wanted(name);
        } else if is_wanted && line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            // A position and its cost; after a line with `calls=`, the cost of these calls.
            let cost = line.split_whitespace().nth(1);
            sum += cost.and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

/// The functions by number. A name stands beside its number the first time alone: `fn=(7) name`, then `fn=(7)`.
struct Names<'a> {
    wanted: HashMap<&'a str, bool>,
    parts: &'a [&'a str],
}

impl<'a> Names<'a> {
    fn is_wanted(&mut self, text: &'a str) -> bool {
        let (number, name) = text.split_once(')').unwrap_or((text, ""));
        if !name.is_empty() {
            let is_wanted = self.parts.iter().any(|part| name.contains(part));
            self.wanted.insert(number, is_wanted);
        }
        self.wanted.get(number).copied().unwrap_or(false)
    }
}
