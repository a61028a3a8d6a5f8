//! Random rules: every key of envoyproxy/ratelimit's format, up to four levels deep.

use std::collections::HashSet;
use std::fmt::Write as _;

use fastrand::Rng;

use crate::random::{chance, pick};
use crate::unit::Unit;

/// The deepest nesting of descriptors.
const DEPTH_MAX: usize = 4;

/// Keys that can join with values to the same text (`a` + `b` and `a_b`), and some that cannot.
const KEYS: [&str; 9] = [
    "user", "path", "a", "a_b", "a_b_c", "k_", "Key", "pre*", "ü",
];
const VALUES: [&str; 16] = [
    "x",
    "y",
    "b",
    "b_c",
    "x_y",
    "404",
    "yes",
    "1_0",
    "010",
    "a b",
    "é",
    "/v1/files",
    "X",
    "'q'",
    "_",
    "#1",
];
const PATTERNS: [&str; 6] = ["*", "x*", "b*", "/v1/*", "x_*", "4*"];
const NAMES: [&str; 5] = ["alpha", "beta", "gamma", "per user", "ö"];

/// A domain: its files (several if they are to be merged) and its tree.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) name: String,
    /// The root descriptors of each file.
    pub(crate) files: Vec<Vec<Node>>,
}

/// A descriptor of a rules file.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) limit: Option<Limit>,
    flags: Vec<&'static str>,
    pub(crate) children: Vec<Node>,
}

/// A `rate_limit:`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) unit: Option<Unit>,
    unit_text: String,
    pub(crate) quota: u32,
    name: Option<&'static str>,
    replaces: Vec<&'static str>,
}

impl Domain {
    /// A random domain; with `merged`, over two or three files.
    pub(crate) fn random(rng: &mut Rng, name: String, merged: bool) -> Self {
        let files = if merged { rng.usize(2..=3) } else { 1 };
        let mut taken = HashSet::new();
        let roots = |file: usize, rng: &mut Rng, taken: &mut HashSet<String>| {
            let count = rng.usize(1..=5);
            let nodes = (0..count).filter_map(|_| Node::random(rng, 1, taken, file == 0));
            nodes.collect()
        };
        let files = (0..files)
            .map(|file| roots(file, rng, &mut taken))
            .collect();
        Self { name, files }
    }

    /// The root descriptors of all files.
    pub(crate) fn roots(&self) -> Vec<&Node> {
        self.files.iter().flatten().collect()
    }

    /// Changes all units shorter than a day to a day.
    pub(crate) fn lengthen(&mut self) {
        self.files.iter_mut().flatten().for_each(Node::lengthen);
    }

    /// The texts of its files.
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |nodes: &Vec<Node>| {
            let mut text = format!("domain: {}\n", quoted(&self.name));
            if nodes.is_empty() {
                text.push_str("descriptors: []\n");
            } else {
                text.push_str("descriptors:\n");
                for node in nodes {
                    node.write(&mut text, 1);
                }
            }
            text
        };
        self.files.iter().map(text).collect()
    }
}

impl Node {
    /// A random descriptor. `taken` has the composite keys of this level. `wildcards` allows
    /// wildcard keys; only one of several merged files may have them, because envoyproxy/ratelimit
    /// reads files in random order and the first matching wildcard wins.
    fn random(
        rng: &mut Rng,
        depth: usize,
        taken: &mut HashSet<String>,
        wildcards: bool,
    ) -> Option<Self> {
        let key = (*pick(rng, &KEYS)).to_owned();
        let value = match rng.u32(0..10) {
            0..4 => None,
            4..7 if wildcards => Some((*pick(rng, &PATTERNS)).to_owned()),
            _ => Some((*pick(rng, &VALUES)).to_owned()),
        };
        let composite = value
            .as_ref()
            .map_or_else(|| key.clone(), |value| format!("{key}_{value}"));
        let is_wildcard = composite.ends_with('*');
        // The compared version gives a `*` elsewhere no meaning.
        let is_odd = composite.trim_end_matches('*').contains('*') || composite.ends_with("**");
        if (is_wildcard && !wildcards) || is_odd || !taken.insert(composite) {
            return None;
        }
        let limit = chance(rng, 75).then(|| Limit::random(rng));
        let mut flags = Vec::new();
        for (flag, percent) in [
            ("shadow_mode", 12),
            ("quota_mode", 12),
            ("detailed_metric", 10),
            ("value_to_metric", 15),
            ("share_threshold", if is_wildcard { 50 } else { 0 }),
        ] {
            if chance(rng, percent) {
                flags.push(flag);
            }
        }
        let mut limit = limit;
        if let Some(limit) = &mut limit {
            limit.mark(flags.contains(&"quota_mode"));
        }
        let mut children = Vec::new();
        if depth < DEPTH_MAX && chance(rng, 55) {
            let mut taken = HashSet::new();
            let count = rng.usize(1..=4);
            children
                .extend((0..count).filter_map(|_| Self::random(rng, depth + 1, &mut taken, true)));
        }
        Some(Self {
            key,
            value,
            limit,
            flags,
            children,
        })
    }

    fn lengthen(&mut self) {
        if let Some(limit) = &mut self.limit
            && let Some(unit) = limit.unit
            && unit.seconds() < Unit::DAY.seconds()
        {
            limit.unit = Some(Unit::DAY);
            limit.unit_text = "day".to_owned();
        }
        self.children.iter_mut().for_each(Self::lengthen);
    }

    fn write(&self, text: &mut String, indent: usize) {
        let pad = "  ".repeat(indent);
        let _ = writeln!(text, "{pad}- key: {}", quoted(&self.key));
        if let Some(value) = &self.value {
            let _ = writeln!(text, "{pad}  value: {}", quoted(value));
        }
        for flag in &self.flags {
            let _ = writeln!(text, "{pad}  {flag}: true");
        }
        if let Some(limit) = &self.limit {
            let _ = writeln!(text, "{pad}  rate_limit:");
            limit.write(text, &format!("{pad}    "));
        }
        if !self.children.is_empty() {
            let _ = writeln!(text, "{pad}  descriptors:");
            for child in &self.children {
                child.write(text, indent + 2);
            }
        }
    }
}

/// Quotas in quota mode are multiples of this and no others are, so that an answer reveals the mode
/// of its limit.
const QUOTA_MODE_STEP: u32 = 7;

/// Returns true if a limit with this quota is in quota mode.
pub(crate) const fn is_in_quota_mode(quota: u32) -> bool {
    quota > 0 && quota.is_multiple_of(QUOTA_MODE_STEP)
}

impl Limit {
    fn random(rng: &mut Rng) -> Self {
        let name = chance(rng, 35).then(|| *pick(rng, &NAMES));
        let mut replaces = Vec::new();
        if chance(rng, 20) {
            let count = rng.usize(1..=2);
            replaces.extend((0..count).map(|_| *pick(rng, &NAMES)));
            replaces.retain(|other| Some(*other) != name);
        }
        let unlimited = chance(rng, 8);
        let unit = (!unlimited).then(|| *pick(rng, &Unit::ALL));
        let unit_text = unit.map_or_else(String::new, |unit| match rng.u32(0..4) {
            0 => unit.name().to_owned(),
            1 => {
                let mut text = unit.name().to_lowercase();
                text[..1].make_ascii_uppercase();
                text
            }
            _ => unit.name().to_lowercase(),
        });
        let quota = match rng.u32(0..10) {
            0 => 0,
            1 => rng.u32(..),
            2..4 => rng.u32(1..200),
            _ => rng.u32(1..12),
        };
        Self {
            unit,
            unit_text,
            quota,
            name,
            replaces,
        }
    }

    /// Adjusts the quota so that it reveals the mode.
    fn mark(&mut self, quota_mode: bool) {
        if quota_mode {
            self.quota = (self.quota / QUOTA_MODE_STEP).max(1) * QUOTA_MODE_STEP;
        } else if is_in_quota_mode(self.quota) {
            self.quota += 1;
        }
        // u32::MAX is 3 beyond a multiple, so adding never overflows.
    }

    fn write(&self, text: &mut String, pad: &str) {
        match self.unit {
            Some(_) => {
                let _ = writeln!(text, "{pad}unit: {}", self.unit_text);
                let _ = writeln!(text, "{pad}requests_per_unit: {}", self.quota);
            }
            None => {
                let _ = writeln!(text, "{pad}unlimited: true");
            }
        }
        if let Some(name) = self.name {
            let _ = writeln!(text, "{pad}name: {}", quoted(name));
        }
        if !self.replaces.is_empty() {
            let names: Vec<_> = self
                .replaces
                .iter()
                .map(|name| format!("{{ name: {} }}", quoted(name)))
                .collect();
            let _ = writeln!(text, "{pad}replaces: [{}]", names.join(", "));
        }
    }
}

/// In single quotes, unless every YAML parser takes it as plain text.
fn quoted(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphabetic() || c == '_') && text.len() > 3;
    if plain {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}
