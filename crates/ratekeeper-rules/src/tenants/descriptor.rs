//! The descriptor of an override, and its text: one entry as it is, several as a list.

use std::ops::Deref;

/// The descriptor of a limit of the tenant as a whole.
pub const WHOLE_TENANT: &str = "default";

/// The entries of an override after the tenant's, each as `key:value`; none for the tenant as a whole.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct OverrideDescriptor(pub Vec<Box<str>>);

impl Deref for OverrideDescriptor {
    type Target = [Box<str>];

    fn deref(&self) -> &[Box<str>] {
        &self.0
    }
}

impl<T: Into<Box<str>>> FromIterator<T> for OverrideDescriptor {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        Self(entries.into_iter().map(Into::into).collect())
    }
}

#[cfg(feature = "yaml")]
mod text {
    use std::fmt;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{OverrideDescriptor, WHOLE_TENANT};

    /// Returns true for an entry that, without the brackets of a list, would stand for the tenant as a whole.
    fn is_ambiguous(entry: &str) -> bool {
        entry.is_empty() || entry == WHOLE_TENANT
    }

    impl FromStr for OverrideDescriptor {
        type Err = serde_json::Error;

        /// Reads one entry, or a JSON list of several.
        fn from_str(text: &str) -> Result<Self, Self::Err> {
            Ok(match text {
                "" | WHOLE_TENANT => Self::default(),
                list if list.starts_with('[') => Self(serde_json::from_str(list)?),
                one => Self(vec![one.into()]),
            })
        }
    }

    impl fmt::Display for OverrideDescriptor {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0.as_slice() {
                [] => f.write_str(WHOLE_TENANT),
                [one] if !is_ambiguous(one) && !one.starts_with('[') => f.write_str(one),
                several => {
                    let entries = several.iter().map(|entry| &**entry);
                    write!(f, "{}", serde_json::Value::from_iter(entries))
                }
            }
        }
    }

    impl Serialize for OverrideDescriptor {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self.0.as_slice() {
                [] => serializer.serialize_str(WHOLE_TENANT),
                [one] if !is_ambiguous(one) => serializer.serialize_str(one),
                several => several.serialize(serializer),
            }
        }
    }

    impl<'de> Deserialize<'de> for OverrideDescriptor {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            #[serde(
                untagged,
                expecting = "expected an entry as key:value, or a list of entries"
            )]
            enum Either {
                One(Box<str>),
                Several(Vec<Box<str>>),
            }
            Ok(match Either::deserialize(deserializer)? {
                Either::One(one) if is_ambiguous(&one) => Self::default(),
                Either::One(one) => Self(vec![one]),
                Either::Several(several) => Self(several),
            })
        }
    }

    #[cfg(feature = "openapi")]
    impl utoipa::PartialSchema for OverrideDescriptor {
        fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
            use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
            let text = || ObjectBuilder::new().schema_type(Type::String);
            OneOfBuilder::new()
                .item(text())
                .item(ArrayBuilder::new().items(text()))
                .into()
        }
    }

    #[cfg(feature = "openapi")]
    impl utoipa::ToSchema for OverrideDescriptor {}

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_descriptor_is_read_as_it_is_written() {
            for entries in [
                &[][..],
                &["endpoint:POST /orders"],
                &["a:1", "b:2"],
                // A key without a value that is called as the tenant as a whole is.
                &["default"],
                &["[a"],
                &["a: b "],
            ] {
                let descriptor: OverrideDescriptor = entries.iter().copied().collect();
                let json = serde_json::to_string(&descriptor).expect("texts are JSON");
                let read: OverrideDescriptor =
                    serde_json::from_str(&json).expect("it was written so");
                assert_eq!(read, descriptor, "{json}");
                let shown = descriptor.to_string();
                assert_eq!(shown.parse().ok(), Some(descriptor), "{shown}");
            }
        }

        #[test]
        fn one_entry_is_shown_without_brackets_unless_they_are_needed() {
            for (entry, expected) in [
                ("endpoint:POST /orders", "endpoint:POST /orders"),
                ("default", r#"["default"]"#),
                ("[a", r#"["[a"]"#),
                ("", r#"[""]"#),
            ] {
                let descriptor: OverrideDescriptor = [entry].into_iter().collect();
                assert_eq!(descriptor.to_string(), expected);
                let json = serde_json::to_value(&descriptor).expect("texts are JSON");
                let is_list = entry.is_empty() || entry == "default";
                assert_eq!(json.is_array(), is_list, "{json}");
            }
            let none = OverrideDescriptor::default();
            assert_eq!(none.to_string(), "default");
        }

        #[cfg(feature = "openapi")]
        #[test]
        fn its_schema_is_a_text_or_a_list_of_texts() {
            use utoipa::PartialSchema as _;
            let schema = serde_json::to_value(OverrideDescriptor::schema());
            let text = serde_json::json!({ "type": "string" });
            let list = serde_json::json!({ "type": "array", "items": text });
            let either = serde_json::json!({ "oneOf": [text, list] });
            assert_eq!(schema.expect("a schema is JSON"), either);
        }
    }
}
