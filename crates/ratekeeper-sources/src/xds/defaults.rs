//! Keys of rules that a resource has no fields for.

use std::collections::BTreeMap;

use ratekeeper_rules::{Diagnostic, NodeRegion, Options, Source, load};
use serde_json::{Map, Value, json};

/// The key with the defaults of single domains.
const DOMAINS: &str = "domains";

/// The keys that a domain has. All others are of a limit.
const OF_DOMAIN: [&str; 13] = [
    "algorithm",
    "consistency",
    "count_denied",
    "enabled",
    "enforce",
    "evaluation",
    "leaky_over_rls",
    "lease_time",
    "on_store_failure",
    "regions",
    "secrets",
    "store",
    "sync_interval",
];

/// Keys for all rules of a control plane, and for those of single domains.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct XdsDefaults {
    all: Keys,
    /// By name, or by its beginning before a `*`.
    domains: BTreeMap<String, Keys>,
}

/// Keys of the rules format.
#[derive(Clone, PartialEq, Debug, Default)]
struct Keys {
    domain: Map<String, Value>,
    limit: Map<String, Value>,
}

/// The fault of defaults.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum XdsDefaultsError {
    /// A value that should be a mapping is none.
    #[error("expected keys of rules, such as `algorithm: sliding_window`, and `domains` by name")]
    NotAMapping,
    /// No rules can have these keys.
    #[error("{place}{message}")]
    Refused {
        /// The domain, with a colon, if it is of one.
        place: String,
        /// The mistakes.
        message: String,
    },
}

impl Keys {
    fn new(value: Value) -> Result<Self, XdsDefaultsError> {
        let Value::Object(keys) = value else {
            return Err(XdsDefaultsError::NotAMapping);
        };
        let of_domain = |(key, _): &(String, Value)| OF_DOMAIN.contains(&&**key);
        let (domain, limit) = keys.into_iter().partition(of_domain);
        Ok(Self { domain, limit })
    }

    /// These keys over `others`.
    fn over(&self, others: &Self) -> Self {
        let mut both = others.clone();
        both.domain.extend(self.domain.clone());
        both.limit.extend(self.limit.clone());
        both
    }

    fn is_empty(&self) -> bool {
        self.domain.is_empty() && self.limit.is_empty()
    }

    /// Puts these keys into a file of rules, where it has none of them.
    fn put(&self, file: &mut Map<String, Value>) {
        for (key, value) in &self.domain {
            file.entry(key).or_insert_with(|| value.clone());
        }
        if !self.limit.is_empty()
            && let Some(descriptors) = file.get_mut("descriptors")
        {
            self.put_into_limits(descriptors);
        }
    }

    fn put_into_limits(&self, descriptors: &mut Value) {
        for descriptor in descriptors.as_array_mut().into_iter().flatten() {
            if let Some(limit) = descriptor
                .get_mut("rate_limit")
                .and_then(Value::as_object_mut)
                && !limit.contains_key("unlimited")
            {
                for (key, value) in &self.limit {
                    limit.entry(key).or_insert_with(|| value.clone());
                }
            }
            if let Some(below) = descriptor.get_mut("descriptors") {
                self.put_into_limits(below);
            }
        }
    }

    /// Holds the keys to what rules may have.
    fn check(&self, place: &str, options: &Options) -> Result<(), XdsDefaultsError> {
        let mut file = json!({
            "domain": "defaults",
            "descriptors": [{ "key": "k", "rate_limit": { "unit": "hour", "requests_per_unit": 1 } }],
        });
        if let Some(file) = file.as_object_mut() {
            self.put(file);
        }
        let source = Source {
            name: String::new(),
            text: file.to_string(),
        };
        // A limit of 1 is for one region; the rules that come have limits of their own.
        let mut options = options.clone();
        if matches!(options.region, NodeRegion::In(_)) {
            options.region = NodeRegion::Unknown;
        }
        let mistakes: Vec<_> = match load(&[source], &options) {
            Ok(loaded) => loaded.warnings.iter().filter_map(ignored).collect(),
            Err(refused) => refused.errors().iter().map(message).collect(),
        };
        match mistakes.is_empty() {
            true => Ok(()),
            false => Err(XdsDefaultsError::Refused {
                place: place.to_owned(),
                message: mistakes.join("; "),
            }),
        }
    }
}

/// The place of a limit's keys, as messages speak of the made-up one.
const IN_A_LIMIT: &str = " in a rate_limit";

/// The message of a mistake in the made-up file.
fn message(mistake: &Diagnostic) -> String {
    mistake.message.replace(IN_A_LIMIT, " in xds_defaults")
}

/// The mistake of a key that is ignored in limits, as it is in files of envoyproxy/ratelimit: who writes it here means it.
fn ignored(warning: &Diagnostic) -> Option<String> {
    let (key, rest) = warning.message.split_once(" means nothing")?;
    let message = rest
        .starts_with(IN_A_LIMIT)
        .then(|| format!("{key} means nothing in xds_defaults"))?;
    Some(match key {
        "`shadow_mode`" => format!("{message}; to count and never deny, write `enforce: 0%`"),
        _ => message,
    })
}

impl XdsDefaults {
    /// Defaults from a mapping of keys as rules have them, and of `domains` by name, each with such keys. A name may end
    /// in `*`.
    ///
    /// # Errors
    /// The value is none, or no rules can have these keys.
    pub fn new(value: Value, options: &Options) -> Result<Self, XdsDefaultsError> {
        let Value::Object(mut keys) = value else {
            return Err(XdsDefaultsError::NotAMapping);
        };
        let domains = match keys.remove(DOMAINS) {
            None => Map::new(),
            Some(Value::Object(domains)) => domains,
            Some(_) => return Err(XdsDefaultsError::NotAMapping),
        };
        let all = Keys::new(Value::Object(keys))?;
        all.check("", options)?;
        let mut defaults = Self {
            all,
            domains: BTreeMap::new(),
        };
        for (name, keys) in domains {
            let keys = Keys::new(keys)?;
            keys.over(&defaults.all)
                .check(&format!("domains.{name}: "), options)?;
            defaults.domains.insert(name, keys);
        }
        Ok(defaults)
    }

    /// Puts the defaults of `domain` into its file.
    pub(super) fn put(&self, domain: &str, file: &mut Map<String, Value>) {
        let named = self.domains.get(domain).or_else(|| {
            // The longest beginning is the most specific one, and sorts last.
            let mut matching = self.domains.iter().rev();
            let found = matching.find(|(name, _)| {
                let start = name.strip_suffix('*');
                start.is_some_and(|start| domain.starts_with(start))
            });
            found.map(|(_, keys)| keys)
        });
        match named {
            Some(keys) => keys.over(&self.all).put(file),
            None if self.all.is_empty() => {}
            None => self.all.put(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(value: Value) -> Result<XdsDefaults, XdsDefaultsError> {
        XdsDefaults::new(value, &Options::default())
    }

    fn put(defaults: &XdsDefaults, domain: &str) -> Value {
        let mut file = json!({ "descriptors": [
            { "key": "a", "rate_limit": { "unlimited": true }, "descriptors": [
                { "key": "b", "rate_limit": { "unit": "HOUR" } },
            ] },
        ] });
        defaults.put(domain, file.as_object_mut().expect("a mapping"));
        file
    }

    #[test]
    fn the_most_specific_defaults_go_to_domains_and_limits() {
        let defaults = defaults(json!({
            "algorithm": "sliding_window",
            "count_denied": false,
            "domains": {
                "ai/*": { "algorithm": "token_bucket", "post_paid": true },
                "ai/b*": { "algorithm": "gcra" },
                "ai/one": { "on_store_failure": "deny" },
            },
        }));
        let defaults = defaults.expect("they are good");
        let other = put(&defaults, "web");
        assert_eq!(other["algorithm"], "sliding_window");
        assert_eq!(other["count_denied"], false);
        let ai = put(&defaults, "ai/two");
        assert_eq!(ai["algorithm"], "token_bucket");
        let outer = &ai["descriptors"][0];
        assert_eq!(outer["rate_limit"], json!({ "unlimited": true }));
        assert_eq!(outer["descriptors"][0]["rate_limit"]["post_paid"], true);
        assert_eq!(put(&defaults, "ai/bee")["algorithm"], "gcra");
        let one = put(&defaults, "ai/one");
        assert_eq!(
            (&one["on_store_failure"], &one["algorithm"]),
            (&json!("deny"), &json!("sliding_window"))
        );
    }

    #[test]
    fn keys_that_no_rules_have_are_refused() {
        for (value, part) in [
            (json!([]), "expected keys of rules"),
            (json!({ "domains": [] }), "expected keys of rules"),
            (json!({ "algorithm": "magic" }), "magic"),
            (json!({ "colour": "red" }), "colour"),
            (json!({ "shadow_mode": true }), "shadow_mode"),
            (json!({ "quota_mode": true }), "quota_mode"),
            (json!({ "metadata": {} }), "metadata"),
            (json!({ "domain": "x" }), "domain"),
            (json!({ "descriptors": [] }), "descriptors"),
            (json!({ "key": "k" }), "key"),
            (json!({ "tenant": "t" }), "tenant"),
            (
                json!({ "domains": { "a": { "shadow_mode": true } } }),
                "domains.a: ",
            ),
            (
                json!({ "domains": { "a": { "burst": 5, "algorithm": "fixed_window" } } }),
                "domains.a: ",
            ),
        ] {
            let said = defaults(value).expect_err(part).to_string();
            assert!(said.contains(part), "{said}");
            assert!(!said.contains("in a rate_limit"), "{said}");
        }
    }
}
