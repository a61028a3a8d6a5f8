//! Resources as files of rules: the JSON form of a resource is what a file says.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, Struct};
use ratekeeper_proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use ratekeeper_rules::Source;
use serde_json::{Map, Number, Value, json};

use super::{TYPE_URL, XdsDefaults};

/// The most resources of a response, as many as a folder may have files.
const RESOURCES_MAX: usize = 10_000;

/// The texts of a response, and what is wrong with the others.
#[derive(Debug, Default)]
pub(super) struct Resources {
    pub(super) sources: Vec<Source>,
    pub(super) mistakes: Vec<String>,
    /// Equal for the same resources, in whatever order they came. Only compared with others of this process.
    pub(super) fingerprint: u64,
}

impl Resources {
    /// Reads the resources of a response, in the order of their names: a control plane may send a map, in another order each
    /// time. The texts `before` stay if they cannot be told from ones that are unreadable.
    pub(super) fn read(resources: Vec<Any>, defaults: &XdsDefaults, before: &[Source]) -> Self {
        let count = resources.len();
        if count > RESOURCES_MAX {
            return Self {
                sources: before.to_vec(),
                mistakes: vec![format!("{count} resources are more than {RESOURCES_MAX}")],
                fingerprint: fingerprint(&count),
            };
        }
        let (mut readable, mut unreadable) = (Vec::with_capacity(count), Vec::new());
        let mut mistakes = Vec::new();
        for (index, resource) in resources.into_iter().enumerate() {
            match config(&resource) {
                Ok(config) => readable.push(source(config, defaults)),
                Err(why) => {
                    mistakes.push(format!("resources[{index}]: {why}"));
                    unreadable.push((resource.type_url, resource.value));
                }
            }
        }
        readable.sort_unstable_by(by_name);
        unreadable.sort_unstable();
        let fingerprint = fingerprint(&(&readable, &unreadable));
        let twice = |pair: &[Source]| pair[0].name == pair[1].name;
        for pair in readable.windows(2).filter(|pair| twice(pair)) {
            mistakes.push(format!(
                "{}: two resources have this name: the one whose rules sort first counts",
                pair[0].name
            ));
        }
        let mut sources = readable;
        sources.dedup_by(|later, first| later.name == first.name);
        if !unreadable.is_empty() {
            let names: HashSet<_> = sources.iter().map(|source| &*source.name).collect();
            let missing = before
                .iter()
                .filter(|before| !names.contains(&*before.name));
            let missing: Vec<_> = missing.cloned().collect();
            sources.extend(missing);
            sources.sort_unstable_by(by_name);
        }
        Self {
            sources,
            mistakes,
            fingerprint,
        }
    }
}

fn by_name(one: &Source, other: &Source) -> Ordering {
    (&one.name, &one.text).cmp(&(&other.name, &other.text))
}

pub(super) fn fingerprint(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn config(resource: &Any) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        return Err(format!(
            "it is of the type {}, which was not asked for",
            resource.type_url
        ));
    }
    RateLimitConfig::decode(&*resource.value).map_err(|error| error.to_string())
}

/// The file that a resource is. Errors name it; a resource without a name has its domain's.
fn source(config: RateLimitConfig, defaults: &XdsDefaults) -> Source {
    let name = match config.name.is_empty() {
        true => config.domain.clone(),
        false => config.name,
    };
    let mut file = Map::new();
    defaults.put(&config.domain, {
        let descriptors = config.descriptors.into_iter().map(descriptor);
        file.insert("domain".to_owned(), config.domain.as_str().into());
        file.insert("descriptors".to_owned(), descriptors.collect());
        &mut file
    });
    Source {
        name,
        text: format!("{:#}", Value::Object(file)),
    }
}

fn descriptor(from: RateLimitDescriptor) -> Value {
    let mut to = Map::new();
    let mut put = |key: &str, value: Value| to.insert(key.to_owned(), value);
    put("key", from.key.into());
    if !from.value.is_empty() {
        put("value", from.value.into());
    }
    if let Some(policy) = from.rate_limit {
        put("rate_limit", limit(policy));
    }
    if !from.descriptors.is_empty() {
        put(
            "descriptors",
            from.descriptors.into_iter().map(descriptor).collect(),
        );
    }
    let switches = [
        ("shadow_mode", from.shadow_mode),
        ("detailed_metric", from.detailed_metric),
        ("quota_mode", from.quota_mode),
    ];
    for (key, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
        put(key, true.into());
    }
    if let Some(metadata) = from.metadata {
        put("metadata", object(metadata));
    }
    Value::Object(to)
}

fn limit(from: RateLimitPolicy) -> Value {
    let mut to = Map::new();
    // An unlimited one has no unit, and a unit that is not set is told by its name, as envoyproxy/ratelimit does.
    let unit = RateLimitUnit::try_from(from.unit).unwrap_or(RateLimitUnit::Unknown);
    if unit != RateLimitUnit::Unknown || !from.unlimited {
        to.insert("unit".to_owned(), unit.as_str_name().into());
    }
    if from.unlimited {
        to.insert("unlimited".to_owned(), true.into());
    } else {
        to.insert(
            "requests_per_unit".to_owned(),
            from.requests_per_unit.into(),
        );
    }
    if !from.name.is_empty() {
        to.insert("name".to_owned(), from.name.into());
    }
    if !from.replaces.is_empty() {
        let replaces = from
            .replaces
            .into_iter()
            .map(|it| json!({ "name": it.name }));
        to.insert("replaces".to_owned(), replaces.collect());
    }
    Value::Object(to)
}

fn object(from: Struct) -> Value {
    let fields = from.fields.into_iter();
    Value::Object(
        fields
            .map(|(key, value)| (key, json_value(value)))
            .collect(),
    )
}

fn json_value(from: prost_types::Value) -> Value {
    match from.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => value.into(),
        Some(Kind::NumberValue(value)) => number(value),
        Some(Kind::StringValue(value)) => value.into(),
        Some(Kind::StructValue(value)) => object(value),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json_value).collect(),
    }
}

/// A number, whole if it is; one that is not finite is text, as Protobuf's JSON writes it.
fn number(value: f64) -> Value {
    /// The largest whole number that a double has all smaller ones of.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT_MAX {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "it is whole, and within the range of i64"
        )]
        return (value as i64).into();
    }
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratekeeper_proto::ratelimit::config::ratelimit::v3::RateLimitReplace;
    use ratekeeper_rules::{Options, load};

    use super::*;

    fn any(config: &RateLimitConfig) -> Any {
        Any {
            type_url: TYPE_URL.to_owned(),
            value: config.encode_to_vec(),
        }
    }

    fn named(name: &str) -> RateLimitConfig {
        RateLimitConfig {
            name: name.to_owned(),
            domain: name.to_owned(),
            ..RateLimitConfig::default()
        }
    }

    fn read(resources: Vec<Any>, before: &[Source]) -> Resources {
        Resources::read(resources, &XdsDefaults::default(), before)
    }

    #[test]
    fn every_field_of_a_resource_is_in_its_rules() {
        let number = |value| prost_types::Value {
            kind: Some(Kind::NumberValue(value)),
        };
        let metadata =
            BTreeMap::from([("a".to_owned(), number(1.0)), ("b".to_owned(), number(0.5))]);
        let policy = RateLimitPolicy {
            unit: RateLimitUnit::Week.into(),
            requests_per_unit: u32::MAX,
            name: "weekly".to_owned(),
            replaces: vec![RateLimitReplace {
                name: "daily".to_owned(),
            }],
            ..RateLimitPolicy::default()
        };
        let inner = RateLimitDescriptor {
            key: "b".to_owned(),
            value: "404".to_owned(),
            rate_limit: Some(policy),
            shadow_mode: true,
            quota_mode: true,
            detailed_metric: true,
            metadata: Some(Struct { fields: metadata }),
            ..RateLimitDescriptor::default()
        };
        let unlimited = RateLimitPolicy {
            unlimited: true,
            ..RateLimitPolicy::default()
        };
        let outer = RateLimitDescriptor {
            key: "a".to_owned(),
            rate_limit: Some(unlimited),
            descriptors: vec![inner],
            ..RateLimitDescriptor::default()
        };
        let config = RateLimitConfig {
            descriptors: vec![outer],
            ..named("default/eg/http")
        };
        let read = read(vec![any(&config)], &[]);
        assert!(read.mistakes.is_empty(), "{:?}", read.mistakes);
        let rules = load(&read.sources, &Options::default())
            .expect("they are good")
            .rules;
        let ids: Vec<_> = rules.rules().iter().map(|rule| &*rule.id).collect();
        assert_eq!(ids.len(), 2);
        let weekly = rules
            .rules()
            .iter()
            .find(|rule| rule.name.as_deref() == Some("weekly"));
        let weekly = weekly.expect("it is there");
        assert!(weekly.shadow && weekly.quota_mode && weekly.detailed_metric);
        let metadata = weekly.metadata.as_ref().expect("it has some");
        assert_eq!((&metadata["a"], &metadata["b"]), (&json!(1), &json!(0.5)));
    }

    #[test]
    fn resources_that_are_none_or_there_twice_are_left_out() {
        let other = Any {
            type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
            ..any(&named("c"))
        };
        let broken = Any {
            value: vec![0xff],
            ..any(&named("d"))
        };
        let before = source(named("e"), &XdsDefaults::default());
        let again = any(&named("a"));
        let read = read(
            vec![any(&named("a")), again, any(&named("b")), other, broken],
            std::slice::from_ref(&before),
        );
        let names: Vec<_> = read.sources.iter().map(|source| &*source.name).collect();
        assert_eq!(
            names,
            ["a", "b", "e"],
            "e may be one of those that cannot be read"
        );
        assert_eq!(read.mistakes.len(), 3, "{:?}", read.mistakes);
        assert!(read.mistakes[0].starts_with("resources[3]: it is of the type"));
        assert!(read.mistakes[2].starts_with("a: two resources"));
    }

    /// A control plane may send a map, whose order is another one each time.
    #[test]
    fn the_order_of_resources_does_not_matter() {
        let limited = |name: &str, domain: &str, requests_per_unit| {
            let policy = RateLimitPolicy {
                unit: RateLimitUnit::Hour.into(),
                requests_per_unit,
                ..RateLimitPolicy::default()
            };
            let descriptor = RateLimitDescriptor {
                key: "k".to_owned(),
                rate_limit: Some(policy),
                ..RateLimitDescriptor::default()
            };
            any(&RateLimitConfig {
                name: name.to_owned(),
                domain: domain.to_owned(),
                descriptors: vec![descriptor],
            })
        };
        let broken = |byte| Any {
            value: vec![byte],
            ..any(&named("x"))
        };
        let mut resources = vec![
            limited("a", "shop", 3),
            limited("b", "shop", 7),
            limited("a", "shop", 5),
            broken(0xff),
            broken(0xfe),
        ];
        let before = source(named("e"), &XdsDefaults::default());
        let first = read(resources.clone(), std::slice::from_ref(&before));
        assert_eq!(first.sources.len(), 3);
        for _ in 0..resources.len() {
            resources.rotate_left(1);
            let again = read(resources.clone(), std::slice::from_ref(&before));
            assert_eq!(again.sources, first.sources);
            assert_eq!(again.fingerprint, first.fingerprint);
        }
        resources[0] = limited("c", "other", 1);
        assert_ne!(read(resources, &[before]).fingerprint, first.fingerprint);
    }

    #[test]
    fn too_many_resources_change_nothing() {
        let before = source(named("a"), &XdsDefaults::default());
        let many = vec![any(&named("b")); RESOURCES_MAX + 1];
        let read = read(many, std::slice::from_ref(&before));
        assert_eq!(read.sources, [before]);
        assert_eq!(read.mistakes.len(), 1);
    }
}
