//! Tables of keys: one line for each key gives its field, its reader and its schema.
//!
//! Without the feature `yaml` the fields are all that is made of a table.

/// A kind of value that a key has.
pub(crate) trait Typed {
    /// The value, once it is read.
    type Is;
}

impl Typed for bool {
    type Is = Self;
}

impl Typed for u64 {
    type Is = Self;
}

/// Defines kinds of values: `Name: type of the value;`.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident: $is:ty;)*) => {
        $(
            $(#[doc = $doc])*
            pub(crate) struct $name;

            impl Typed for $name {
                type Is = $is;
            }
        )*
    };
}

pub(crate) use kinds;

/// Defines mappings: `struct Name ("in a place", ["first", "keys"]) { key: Typed, ..group: Group }`.
///
/// A key may be spelt otherwise than its field (`as "name"`), have more in its schema (`where { … }`), and be required
/// by it. Without a place it is a group of keys that several mappings have. `envoy` is a mapping of
/// envoyproxy/ratelimit.
macro_rules! mappings {
    ($(
        $(#[doc = $doc:literal])*
        struct $name:ident $(($place:literal, [$($first:literal),*] $(, $envoy:ident)?))? {
            $(
                $(#[doc = $key_doc:literal])*
                $field:ident: $kind:ty $(as $key:literal)? $(where $extra:tt)? $(= $required:ident)?,
            )*
            $(..$group:ident: $keys:ident,)*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug, Default)]
            pub(crate) struct $name {
                $(
                    $(#[doc = $key_doc])*
                    pub(crate) $field: Field<<$kind as Typed>::Is>,
                )*
                $(pub(crate) $group: $keys,)*
            }

            #[cfg(feature = "yaml")]
            impl Keys for $name {
                const DOC: &'static str = concat!($($doc, "\n"),*);

                fn read(fields: &Fields<'_>, report: &mut Report<'_>) -> Self {
                    Self {
                        $($field: fields.read::<$kind>(mappings!(@key $field $($key)?), report),)*
                        $($group: Keys::read(fields, report),)*
                    }
                }

                fn has(key: &str) -> bool {
                    [$(mappings!(@key $field $($key)?)),*].contains(&key) $(|| $keys::has(key))*
                }

                fn list(keys: &mut Vec<&'static str>) {
                    keys.extend([$(mappings!(@key $field $($key)?)),*]);
                    $($keys::list(keys);)*
                }

                fn describe(properties: &mut Properties<'_>) {
                    $(properties.add::<$kind>(
                        mappings!(@key $field $($key)?),
                        concat!($($key_doc, "\n"),*),
                        mappings!(@is $($required)?),
                        mappings!(@extra $($extra)?),
                    );)*
                    $($keys::describe(properties);)*
                }
            }

            $(
                impl Mapping for $name {
                    const SHAPE: Shape =
                        Shape::of::<Self>($place, &[$($first),*], mappings!(@is $($envoy)?));
                }

                impl Typed for $name {
                    type Is = Box<At<Self>>;
                }

                impl Value for $name {
                    type Schema = Self;

                    fn read(_: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self::Is> {
                        read_mapping(node, report).map(Box::new)
                    }
                }

                impl JsonSchema for $name {
                    fn schema_name() -> Cow<'static, str> {
                        stringify!($name).into()
                    }

                    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                        schema_of::<Self>(generator)
                    }
                }
            )?
        )*
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@is) => { false };
    (@is $yes:ident) => { true };
    (@extra) => { serde_json::Value::Null };
    (@extra $extra:tt) => { serde_json::json!($extra) };
}

pub(crate) use mappings;
