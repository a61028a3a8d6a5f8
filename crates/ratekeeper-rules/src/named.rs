//! Enums that files, settings and metrics name by words.

/// Gives an enum its values in order, the word for each, and the way back; as a [`Choice`](crate::choice::Choice) too.
macro_rules! named {
    ($type:ident: $($variant:ident $name:literal),+) => {
        impl $type {
            /// All values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in rules files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The value with that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl $crate::choice::Choice for $type {
            const CHOICES: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                self.name()
            }
        }
    };
}

pub(crate) use named;
