//! Every setting there is: its name, its default and what it means, in one place.
//!
//! A setting has one name in three spellings: `memory_limit` in `ratekeeper.yaml`, `RATEKEEPER_MEMORY_LIMIT` in the
//! environment and `--memory-limit` on the command line. The flags, the help, `config show`, the messages about
//! unknown keys and the table in `docs/configuration.md` (held equal by a test) all come from here.

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The name as the file spells it.
    pub(crate) key: &'static str,
    /// What stands for the value in the help.
    pub(crate) value_name: &'static str,
    /// The value when nobody says anything; empty for a setting that is then off.
    pub(crate) default: &'static str,
    /// One sentence or two.
    pub(crate) help: &'static str,
    /// Whether a bare `--flag` means `true`.
    pub(crate) switch: bool,
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

/// What the names of our environment variables begin with.
pub(crate) const PREFIX: &str = "RATEKEEPER_";

/// The setting of that name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

const fn value(
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
    }
}

const fn switch(key: &'static str, help: &'static str) -> Setting {
    Setting {
        key,
        value_name: "BOOL",
        default: "false",
        help,
        switch: true,
    }
}

/// All settings, in the order in which they are shown.
pub(crate) static SETTINGS: &[Setting] = &[
    value(
        "rules",
        "PATH",
        "",
        "The rules: a file, or a folder of `*.yaml` and `*.yml`. Unset: the folder rules/ in \
         ./config or in /etc/ratekeeper",
    ),
    Setting {
        key: "watch",
        value_name: "BOOL",
        default: "true",
        help: "Put changed rules in force as they are saved; SIGHUP does that in either case",
        switch: true,
    },
    switch(
        "merge_domains",
        "Let several files add to one domain instead of refusing that",
    ),
    value(
        "profile",
        "NAME",
        "ratekeeper",
        "What rules mean where they do not say: `ratekeeper` (sliding windows, denied requests cost nothing) or \
         `envoy` (fixed windows that count denied requests, as envoyproxy/ratelimit does)",
    ),
    value(
        "grpc",
        "ADDR",
        "0.0.0.0:8081",
        "Where Envoy's RateLimitService listens; port 0 picks a free one",
    ),
    value(
        "http",
        "ADDR",
        "0.0.0.0:8080",
        "Where HTTP checks are answered: /v1/check, /json, /healthcheck",
    ),
    value(
        "admin",
        "ADDR",
        "127.0.0.1:6070",
        "Where operators look: /metrics, /rlconfig, /admin/v1; keep it private",
    ),
    value(
        "metrics",
        "ADDR",
        "",
        "One more address that serves /metrics alone, for scrapers on other hosts",
    ),
    value(
        "drain_delay",
        "DURATION",
        "3s",
        "For how long after SIGTERM everyone is still served while /readyz already says no, so that balancers can \
         notice; 0s for not at all, 10m at most",
    ),
    value(
        "store",
        "WHERE",
        "memory",
        "Where counters live; `memory` is what this version has",
    ),
    value(
        "memory_limit",
        "SIZE",
        "256MiB",
        "The most that counters in memory may take, 1MiB at least; when full, expired counters go first and denied \
         ones last",
    ),
    value(
        "max_share",
        "PERCENT",
        "50%",
        "The most of that one rule may hold, 1% to 100%, so that a flood of keys on one leaves room for the others",
    ),
    value(
        "state",
        "FILE",
        "",
        "Save the counters of windows of a minute or more here every 10 s and on SIGTERM, and load them at start, so \
         that a restart does not reset a month's quota",
    ),
    value(
        "data_dir",
        "DIR",
        "",
        "A folder for what outlives a restart; with it, `state` is counters.state in it. Unset: nothing is written",
    ),
    value(
        "on_store_failure",
        "MODE",
        "local",
        "What is answered when the store cannot: `local` (decide by this node's own counters), `allow` or `deny`; a \
         rule's own on_store_failure goes before it",
    ),
    switch(
        "shadow_mode",
        "Deny nothing; decide and count as usual, and say what would have been denied",
    ),
    switch(
        "quota_mode",
        "Every rule is in quota mode: a request is denied only if all of its limits are over",
    ),
    value(
        "response_headers",
        "KINDS",
        "",
        "Headers in answers to Envoy: `limits` (RateLimit-Limit, -Remaining, -Reset as envoyproxy/ratelimit has \
         them), `draft` (the IETF draft's RateLimit-Policy and RateLimit), or `limits,draft`",
    ),
    value(
        "limit_header",
        "NAME",
        "RateLimit-Limit",
        "The name of the header with the limit",
    ),
    value(
        "remaining_header",
        "NAME",
        "RateLimit-Remaining",
        "The name of the header with the hits left",
    ),
    value(
        "reset_header",
        "NAME",
        "RateLimit-Reset",
        "The name of the header with the seconds until the reset",
    ),
    switch(
        "dynamic_metadata",
        "Answer Envoy with dynamic metadata: domain, descriptors, the rules' metadata",
    ),
    value(
        "log_level",
        "LEVEL",
        "info",
        "error, warn, info, debug, trace, or a filter like `info,ratekeeper_server=debug`",
    ),
    value(
        "log_format",
        "FORMAT",
        "text",
        "`text` for people, `json` for machines: one object a line, on stderr",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_three_ways() {
        let setting = find("memory_limit").expect("it is in the table");
        assert_eq!(setting.flag(), "memory-limit");
        assert_eq!(setting.variable(), "RATEKEEPER_MEMORY_LIMIT");
    }

    #[test]
    fn keys_are_unique_and_snake_case() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(
                setting
                    .key
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '_'),
                "{}",
                setting.key
            );
            assert!(
                SETTINGS[..index]
                    .iter()
                    .all(|other| other.key != setting.key),
                "{}",
                setting.key
            );
        }
    }
}
