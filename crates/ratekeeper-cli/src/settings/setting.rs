//! A setting: one name in three spellings, what its value may be, and what it means.

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The name as the file spells it.
    pub(crate) key: &'static str,
    /// The placeholder for the value in the help.
    pub(crate) value_name: &'static str,
    /// The value of a setting that is not set; empty if that turns it off.
    pub(crate) default: &'static str,
    /// One sentence or two, line by line.
    pub(super) lines: &'static [&'static str],
    /// True if a bare `--flag` means `true`.
    pub(crate) is_switch: bool,
    /// True if the value may be a list or a mapping; it is then kept as JSON.
    pub(crate) is_nested: bool,
    /// True if the value must not be shown.
    pub(crate) is_secret: bool,
    /// True if an empty variable sets it to nothing. Other settings take one for a variable that is not set.
    pub(super) may_be_empty: bool,
    /// True if the short help (`-h`) has it.
    pub(crate) is_in_short_help: bool,
}

impl Setting {
    /// The flag without its dashes: `memory-limit`.
    pub(crate) fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The name in the environment: `RATEKEEPER_MEMORY_LIMIT`.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// The meaning, in one sentence or two.
    pub(crate) fn help(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }

    /// Lets an empty variable set it to nothing.
    pub(super) const fn or_empty(self) -> Self {
        Self {
            may_be_empty: true,
            ..self
        }
    }

    /// Puts the setting into the short help.
    pub(super) const fn in_short_help(self) -> Self {
        Self {
            is_in_short_help: true,
            ..self
        }
    }
}

/// The prefix of our environment variables.
pub(crate) const PREFIX: &str = "RATEKEEPER_";

/// Settings that are shown together.
pub(super) struct Group {
    /// The heading in the help, without its colon.
    pub(super) heading: &'static str,
    /// True if only `ratekeeper gateway` uses them.
    pub(super) is_gateways: bool,
    pub(super) settings: &'static [&'static Setting],
}

/// Settings of every program.
pub(super) const fn group(heading: &'static str, settings: &'static [&'static Setting]) -> Group {
    Group {
        heading,
        is_gateways: false,
        settings,
    }
}

/// Settings that only `ratekeeper gateway` uses.
pub(super) const fn gateways(
    heading: &'static str,
    settings: &'static [&'static Setting],
) -> Group {
    Group {
        is_gateways: true,
        ..group(heading, settings)
    }
}

/// A setting with a text for its value.
pub(super) const fn value(value_name: &'static str, default: &'static str) -> Setting {
    Setting {
        key: "",
        value_name,
        default,
        lines: &[],
        is_switch: false,
        is_nested: false,
        is_secret: false,
        may_be_empty: false,
        is_in_short_help: false,
    }
}

/// A setting that names a file, and need not.
pub(super) const fn file() -> Setting {
    value("FILE", "")
}

/// A setting whose value must not be shown.
pub(super) const fn secret(value_name: &'static str) -> Setting {
    Setting {
        is_secret: true,
        ..value(value_name, "")
    }
}

/// A setting whose value may be a list or a mapping.
pub(super) const fn nested(value_name: &'static str) -> Setting {
    Setting {
        is_nested: true,
        ..value(value_name, "")
    }
}

/// A switch.
pub(super) const fn switch(default: &'static str) -> Setting {
    Setting {
        is_switch: true,
        ..value("BOOL", default)
    }
}

/// Makes settings of rows, in groups:
///
/// ```text
/// /// What it means, for the help and the manual
/// key: Type = form => parser;
/// ```
///
/// The form is one of the functions above; the parser takes the text of a value, or a [`RawValue`](super::layer::RawValue),
/// to which it owes a `Result`. Of a row come the static `row::key`, its place in `GROUPS`, and the field `key` of `Values`.
macro_rules! settings {
    ($($group:ident($heading:literal) {$(
        $(#[doc = $line:expr])+
        $key:ident: $type:ty = $form:expr => $parse:expr;
    )+})+) => {
        /// Each setting, by its key.
        #[expect(non_upper_case_globals, reason = "a row has the name of its key")]
        pub(crate) mod row {
            use super::*;
            $($(
                pub(crate) static $key: Setting = Setting {
                    key: stringify!($key),
                    lines: &[$($line),+],
                    ..$form
                };
            )+)+
        }

        /// All groups, in the order in which they are shown.
        pub(super) static GROUPS: &[Group] = &[$($group($heading, &[$(&row::$key),+])),+];

        /// The value of every setting.
        #[derive(Debug)]
        pub(crate) struct Values {
            $($(pub(crate) $key: Given<$type>,)+)+
        }

        impl Values {
            /// Parses every value.
            pub(super) fn read(reader: &mut Reader<'_>) -> Self {
                Self {
                    $($($key: reader.read(&row::$key, |said| $parse(said.as_ref())),)+)+
                }
            }

            /// Every value as it was given.
            pub(super) fn said(&self) -> impl Iterator<Item = &RawValue> {
                [$($(&self.$key.said),+),+].into_iter()
            }
        }
    };
}

pub(super) use settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_three_ways() {
        let setting = Setting {
            key: "memory_limit",
            ..value("SIZE", "")
        };
        assert_eq!(setting.flag(), "memory-limit");
        assert_eq!(setting.variable(), "RATEKEEPER_MEMORY_LIMIT");
    }
}
