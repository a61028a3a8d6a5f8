//! The differences that are meant: what docs/migrating-from-envoy-ratelimit.md lists, under the
//! same names. A test holds the two lists to each other.

macro_rules! differences {
    ($($(#[$doc:meta])+ $variant:ident $name:literal)+) => {
        /// One of them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) enum Difference {
            $($(#[$doc])+ $variant,)+
        }

        impl Difference {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name, under which the migration page has it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

differences! {
    /// `INVALID_ARGUMENT` where it says `UNKNOWN`.
    GrpcCode "grpc-code"
    /// A 400 of `/json` says what is wrong.
    JsonMessage "json-message"
    /// A limit in the request with a unit that is none: refused, and its process ends.
    OverrideUnit "override-unit"
    /// Quota mode as its newer versions have it.
    QuotaMode "quota-mode"
    /// No `quotaModeEnabled` and `quotaModeViolations` in the metadata, as in its newer versions.
    QuotaMetadata "quota-metadata"
    /// `*` anywhere in a value, as in its newer versions; there it is a star only at the end.
    StarInside "star-inside"
    /// `is_negative_hits` gives back, as in its newer versions; there it is not looked at.
    NegativeHits "negative-hits"
    /// More hits at once than 2^53 - 1 are refused.
    HitsMax "hits-max"
    /// Descriptors whose keys and values join to one text have a counter each; there they share one.
    JoinedKeys "joined-keys"
    /// More than 100 descriptors, or 32 entries in one, are refused.
    Bounds "bounds"
    /// Rules that are refused at start end the process; it serves errors.
    RefusedAtStart "refused-at-start"
    /// `/rlconfig` marks what is unlimited.
    RlconfigUnlimited "rlconfig-unlimited"
    /// `metadata` in rules, as in its newer versions.
    MetadataKey "metadata-key"
    /// A `...` before the first document means nothing; there it is an error.
    YamlEndFirst "yaml-end-first"
    /// Of a key that is there twice only the last value is looked at; there all must be of its type.
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
