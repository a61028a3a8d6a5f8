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
    /// One sentence or two.
    pub(crate) help: &'static str,
    /// True if a bare `--flag` means `true`.
    pub(crate) switch: bool,
    /// True if the value may be a list or a mapping; it is then kept as JSON.
    pub(crate) nested: bool,
    /// True if the value must not be shown.
    pub(crate) secret: bool,
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
}

/// The prefix of our environment variables.
pub(crate) const PREFIX: &str = "RATEKEEPER_";

/// A setting with a text for its value.
pub(super) const fn value(
    key: &'static str,
    value_name: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        key,
        value_name,
        default,
        help,
        switch: false,
        nested: false,
        secret: false,
    }
}

/// A setting whose value must not be shown.
pub(super) const fn secret(
    key: &'static str,
    value_name: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        secret: true,
        ..value(key, value_name, "", help)
    }
}

/// A setting whose value may be a list or a mapping.
pub(super) const fn nested(
    key: &'static str,
    value_name: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        nested: true,
        ..value(key, value_name, "", help)
    }
}

/// A switch that is off by default.
pub(super) const fn switch(key: &'static str, help: &'static str) -> Setting {
    Setting {
        switch: true,
        ..value(key, "BOOL", "false", help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_three_ways() {
        let setting = value("memory_limit", "SIZE", "", "");
        assert_eq!(setting.flag(), "memory-limit");
        assert_eq!(setting.variable(), "RATEKEEPER_MEMORY_LIMIT");
    }
}
