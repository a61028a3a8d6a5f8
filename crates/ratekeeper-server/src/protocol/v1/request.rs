//! The requests of `ratekeeper.v1`. JSON bodies are read as these, and the OpenAPI document describes them from here;
//! gRPC's messages become these.

use std::borrow::Cow;
use std::fmt;

use ratekeeper_limiter::Override;
use ratekeeper_proto::json::Object;
use ratekeeper_proto::text;
use ratekeeper_rules::Unit;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use utoipa::ToSchema;

use super::refusal::Refusal;

/// The descriptors of a request.
pub(crate) type Descriptors<'a> = Vec<Object<DescriptorRequest<'a>>>;

/// A property of a request.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Descriptor)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescriptorRequest<'a> {
    /// The domain of its rules, if not the request's.
    #[serde(borrow, default)]
    pub(crate) domain: Cow<'a, str>,
    /// 1 to 32.
    #[serde(borrow)]
    #[schema(value_type = Vec<EntryRequest<'a>>, min_items = 1, max_items = 32)]
    pub(crate) entries: Vec<Object<EntryRequest<'a>>>,
    /// The cost: 1 if absent; 0 decides without charging.
    pub(crate) hits: Option<u64>,
    /// A limit in place of those of the rules, for callers with the permission.
    #[schema(value_type = Option<OverrideRequest>)]
    pub(crate) limit: Option<Object<OverrideRequest>>,
}

/// An entry of a descriptor.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Entry)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryRequest<'a> {
    #[serde(borrow, deserialize_with = "entry_text")]
    #[schema(min_length = 1)]
    pub(crate) key: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "entry_text")]
    pub(crate) value: Cow<'a, str>,
}

/// Reads a key or a value as any protocol does: a sender that writes JSON without looking may put bytes into it that
/// are no text, or half of a surrogate pair.
pub(super) fn entry_text<'de: 'a, 'a, D: Deserializer<'de>>(
    reader: D,
) -> Result<Cow<'a, str>, D::Error> {
    struct TextVisitor;

    impl<'de> Visitor<'de> for TextVisitor {
        type Value = Cow<'de, str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
            Ok(text::read(bytes))
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
            Ok(Cow::Owned(text::read(bytes).into_owned()))
        }
    }

    reader.deserialize_bytes(TextVisitor)
}

/// A limit that a descriptor brings along.
#[derive(Deserialize, ToSchema, Clone, Copy, Debug)]
#[schema(as = BroughtLimit)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverrideRequest {
    pub(crate) requests_per_unit: u64,
    /// Always there in JSON; gRPC may leave it unspecified.
    #[serde(deserialize_with = "UnitName::read")]
    #[schema(value_type = UnitName)]
    pub(crate) unit: Option<Unit>,
}

/// The unit of such a limit, in JSON.
#[derive(Deserialize, ToSchema)]
#[schema(as = Unit)]
#[serde(remote = "Unit", rename_all = "snake_case")]
enum UnitName {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl UnitName {
    fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Unit>, D::Error> {
        Self::deserialize(reader).map(Some)
    }
}

impl OverrideRequest {
    /// Returns the limit; none if its unit is not specified.
    pub(super) fn limit(self) -> Option<Override> {
        Some(Override {
            quota: self.requests_per_unit,
            unit: self.unit?,
        })
    }
}

/// A request to decide.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Check)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest<'a> {
    /// The namespace of rules.
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    /// 1 to 100, unless there are `entries`.
    #[serde(borrow, default)]
    #[schema(value_type = Vec<DescriptorRequest<'a>>, min_items = 1, max_items = 100)]
    pub(crate) descriptors: Descriptors<'a>,
    /// The entries of the only descriptor: `{"user": "ada"}`, matched in this order.
    #[serde(borrow, default)]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    pub(crate) entries: Option<EntryMap<'a>>,
    /// The cost of `entries`: 1 if absent; 0 decides without charging.
    pub(crate) hits: Option<u64>,
    /// The longest time the request can be delayed, in milliseconds; any if absent.
    pub(crate) wait_ms_max: Option<u64>,
    /// True to have `standing` in the answer.
    #[serde(default)]
    pub(crate) standing: bool,
    /// The same check of the same caller is carried out once in 24 hours under it. Not in a batch.
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
    /// Asks for `statuses` in the answer, where JSON always has them.
    #[serde(skip)]
    pub(crate) statuses: bool,
}

impl CheckRequest<'_> {
    /// Makes the descriptor of `entries`.
    pub(crate) fn unfold(&mut self) -> Result<(), Refusal> {
        let Some(EntryMap(entries)) = self.entries.take() else {
            let message = "only with `entries`; each descriptor has `hits` of its own";
            return match self.hits {
                Some(_) => Err(Refusal::invalid("hits", message)),
                None => Ok(()),
            };
        };
        if !self.descriptors.is_empty() {
            let message = "either `entries` or `descriptors`";
            return Err(Refusal::invalid("entries", message));
        }
        self.descriptors.push(Object(DescriptorRequest {
            domain: Cow::Borrowed(""),
            entries,
            hits: self.hits.take(),
            limit: None,
        }));
        Ok(())
    }
}

/// Entries as an object, in the order in which it is written.
#[derive(Debug)]
pub(crate) struct EntryMap<'a>(Vec<Object<EntryRequest<'a>>>);

impl<'de: 'a, 'a> Deserialize<'de> for EntryMap<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct MapVisitor;

        impl<'de> Visitor<'de> for MapVisitor {
            type Value = EntryMap<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((EntryText(key), EntryText(value))) = map.next_entry()? {
                    entries.push(Object(EntryRequest { key, value }));
                }
                Ok(EntryMap(entries))
            }
        }

        reader.deserialize_map(MapVisitor)
    }
}

/// A key or a value.
struct EntryText<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for EntryText<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        entry_text(reader).map(Self)
    }
}

/// Independent requests to decide.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Checks)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest<'a> {
    /// 1 to 1,000.
    #[serde(borrow)]
    #[schema(value_type = Vec<CheckRequest<'a>>, min_items = 1, max_items = 1000)]
    pub(crate) checks: Vec<Object<CheckRequest<'a>>>,
}

/// A request that needs permits.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Acquire)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    /// 1 to 100.
    #[serde(borrow)]
    #[schema(value_type = Vec<DescriptorRequest<'a>>, min_items = 1, max_items = 100)]
    pub(crate) descriptors: Descriptors<'a>,
    /// The same request of the same caller runs once under it.
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
    pub(crate) wait_ms_max: Option<u64>,
    #[serde(default)]
    pub(crate) standing: bool,
}

/// A request whose cost is known only afterwards.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Reserve)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReserveRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    /// 1 to 100.
    #[serde(borrow)]
    #[schema(value_type = Vec<DescriptorRequest<'a>>, min_items = 1, max_items = 100)]
    pub(crate) descriptors: Descriptors<'a>,
    /// The most that each descriptor can cost.
    #[schema(minimum = 1)]
    pub(crate) hits: u64,
    /// Milliseconds within which it must be settled; a minute if absent or 0.
    #[serde(default)]
    pub(crate) ttl_ms: u64,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
    pub(crate) wait_ms_max: Option<u64>,
}

/// Hits to give back.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Refund)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefundRequest<'a> {
    #[serde(borrow)]
    pub(crate) domain: Cow<'a, str>,
    /// 1 to 100.
    #[serde(borrow)]
    #[schema(value_type = Vec<DescriptorRequest<'a>>, min_items = 1, max_items = 100)]
    pub(crate) descriptors: Descriptors<'a>,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Cow<'a, str>,
}

/// A permit to release or renew.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Permit)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitRequest<'a> {
    #[serde(borrow)]
    pub(crate) permit: Cow<'a, str>,
}

/// A reservation to settle.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Commit)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommitRequest<'a> {
    #[serde(borrow)]
    pub(crate) reservation: Cow<'a, str>,
    /// The actual cost.
    pub(crate) hits: u64,
}

/// A reservation to cancel.
#[derive(Deserialize, ToSchema, Debug)]
#[schema(as = Cancel)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelRequest<'a> {
    #[serde(borrow)]
    pub(crate) reservation: Cow<'a, str>,
}
