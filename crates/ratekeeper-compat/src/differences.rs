//! The intended differences, under the names that docs/migrating-from-envoy-ratelimit.md uses. A
//! test keeps the two lists equal.

macro_rules! differences {
    ($($(#[$doc:meta])+ $variant:ident $name:literal)+) => {
        /// An intended difference.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) enum Difference {
            $($(#[$doc])+ $variant,)+
        }

        impl Difference {
            /// All differences.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name on the migration page.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

differences! {
    /// `INVALID_ARGUMENT` in place of `UNKNOWN`.
    GrpcCode "grpc-code"
    /// A 400 from `/json` explains the error.
    JsonMessage "json-message"
    /// A limit in the request with an invalid unit: we refuse it; its process ends.
    OverrideUnit "override-unit"
    /// Quota mode as in its newer versions.
    QuotaMode "quota-mode"
    /// No `quotaModeEnabled` and `quotaModeViolations` in the metadata, as in its newer versions.
    QuotaMetadata "quota-metadata"
    /// `*` anywhere in a value, as in its newer versions; the compared version takes it only at the
    /// end.
    StarInside "star-inside"
    /// `is_negative_hits` gives hits back, as in its newer versions; the compared version ignores
    /// it.
    NegativeHits "negative-hits"
    /// More than 2^53 - 1 hits at once are denied.
    HitsMax "hits-max"
    /// Descriptors whose keys and values join to the same text have separate counters; there they
    /// share one.
    JoinedKeys "joined-keys"
    /// More than 100 descriptors, or 32 entries in one, are denied.
    Bounds "bounds"
    /// Invalid rules at startup end the process; there it serves errors.
    RefusedAtStart "refused-at-start"
    /// `/rlconfig` marks unlimited rules.
    RlconfigUnlimited "rlconfig-unlimited"
    /// `metadata` in rules, as in its newer versions.
    MetadataKey "metadata-key"
    /// A `...` before the first document is ignored; there it is an error.
    YamlEndFirst "yaml-end-first"
    /// Only the last value of a repeated key is checked; there all must have the right type.
    YamlTwice "yaml-twice"
    /// A directive between documents needs a `...` before it; there it does not.
    YamlDirective "yaml-directive"
}

#[cfg(test)]
mod tests {
    use super::Difference;

    #[test]
    fn the_migration_page_lists_these_and_no_others() {
        let page = include_str!("../../../docs/migrating-from-envoy-ratelimit.md");
        let (_, differences) = page.split_once("## Differences\n").expect("the heading");
        let listed: Vec<_> = differences
            .lines()
            .filter_map(|line| {
                line.strip_prefix("| `")?
                    .split_once("` | ")
                    .map(|(name, _)| name)
            })
            .collect();
        let known: Vec<_> = Difference::ALL.iter().map(|known| known.name()).collect();
        assert_eq!(listed, known);
    }
}
