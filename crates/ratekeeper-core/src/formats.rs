//! The versions of all formats in which something outlives a process: values in Redis, files, and texts that clients keep.
//!
//! `docs/formats.md` lists them, and a test compares it with [`ALL`]. A change of a format raises its version here. Builds then read both and write the earlier one until every node reads
//! both.
//!
//! A counter in Redis tells its version in bytes that it has anyway: values of version 1 begin with a byte below
//! [`MARKED`], those of a later one with its [`StoredFormat::first_byte`]. So no value became larger, and an integer of
//! Redis stays one. A version in the *key* would be an empty counter to an older node.

/// The first byte from which on it tells the version of a counter's format. All forms of version 1 begin with a lower one.
pub const MARKED: u8 = 128;

/// A format in which something is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredFormat {
    /// The name of what is stored, as in `docs/formats.md`.
    pub name: &'static str,
    /// The version that is written, and the latest that is read.
    pub version: u32,
}

impl StoredFormat {
    /// Returns the first byte of a counter of this version, which is above 1.
    ///
    /// # Panics
    /// The version is 1, whose values begin otherwise, or beyond 93.
    #[must_use]
    pub const fn first_byte(self) -> u8 {
        assert!(self.version > 1 && self.version <= 93, "161 to 253");
        #[expect(clippy::cast_possible_truncation, reason = "at most 93")]
        let version = self.version as u8;
        160 + version
    }

    /// Returns the version after this one, as another build may have it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            name: self.name,
            version: self.version + 1,
        }
    }

    /// Checks the version that was found.
    ///
    /// # Errors
    /// [`OtherVersion`], if it is not read.
    pub const fn check(self, found: u32) -> Result<(), OtherVersion> {
        match found == self.version {
            true => Ok(()),
            false => Err(OtherVersion {
                format: self,
                found,
            }),
        }
    }
}

/// A version that is not read: whatever has it must be left as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the {} is of format {found}, and this version of Ratekeeper knows format {}: {}",
    format.name,
    format.version,
    self.advice()
)]
pub struct OtherVersion {
    /// The format that is known.
    pub format: StoredFormat,
    /// The version found.
    pub found: u32,
}

impl OtherVersion {
    const fn advice(&self) -> &'static str {
        match self.found > self.format.version {
            true => "a later version wrote it; run that one, or move it away",
            false => "no version wrote it, or one that is not read any more; move it away",
        }
    }
}

/// Defines the formats: a constant for each, and the list of all.
macro_rules! stored_formats {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $version:literal;)*) => {
        $($(#[$doc])* pub const $constant: StoredFormat = StoredFormat { name: $name, version: $version };)*

        /// All formats.
        pub const ALL: &[StoredFormat] = &[$($constant,)*];
    };
}

stored_formats! {
    /// A counter of `fixed_window`.
    FIXED_WINDOW = "fixed_window", 1;
    /// A counter of `sliding_window`, in groups.
    SLIDING_WINDOW = "sliding_window", 1;
    /// A counter of `sliding_window` with `sub_windows`.
    SUB_WINDOWS = "sliding_window with sub_windows", 1;
    /// A counter of `sliding_log`.
    SLIDING_LOG = "sliding_log", 1;
    /// A counter of `token_bucket` or `gcra`.
    TOKEN_BUCKET = "token_bucket, gcra", 1;
    /// A counter of `leaky_bucket`.
    LEAKY_BUCKET = "leaky_bucket", 1;
    /// The permits of `concurrency`.
    CONCURRENCY = "concurrency", 1;
    /// The leases that are open on a counter, in front of its state.
    LEASES = "leases of a counter", 1;
    /// The count of a synced counter in a window, and the nodes' marks beside it.
    SYNCED = "synced counter", 1;
    /// An idempotent request that was carried out.
    ONCE = "idempotent request", 1;
    /// A post that was carried out.
    POST = "post", 1;
    /// The hash key that counters are named by.
    HASH_KEY = "hash key", 1;
    /// The keys that a node denies and allows most.
    TOP_KEYS = "top keys of a node", 1;
    /// The quota database of a node.
    DATABASE_REPORT = "quota database of a node", 1;
    /// The lists of nodes, and the requests that a fleet has in flight.
    NODES = "lists of nodes", 1;
    /// A permit or reservation, as its holder has it.
    HOLD = "permit, reservation", 1;
    /// The counters of a node without Redis, its idempotent requests, and the slots of its rules. Version 3, without the
    /// slots, and version 2, without the requests either, are read too.
    STATE_FILE = "state file", 4;
    /// The last good rules.
    LAST_GOOD_RULES = "file of the last good rules", 1;
    /// Rules that were switched at run time.
    SWITCHES = "file of switches", 1;
    /// Switches made on a node that its quota database does not have yet.
    WAITING_SWITCHES = "file of waiting switches", 1;
    /// The hashes of tokens for the admin API.
    TOKENS = "file of tokens", 1;
    /// The hashes of tokens that were revoked on a node.
    REVOKED_TOKENS = "file of revoked tokens", 1;
    /// The tokens and switches that a node saves for the time without its quota database.
    FLEET_COPY = "copy of tokens and switches", 1;
    /// The key of tenants' hashes.
    TENANT_KEY = "file of the tenant key", 1;
    /// The quotas that a node saves for a start without its database.
    QUOTA_COPY = "copy of the quotas", 1;
    /// The tables of the quota database.
    QUOTA_TABLES = "quota database", 7;
    /// A row of the audit trail, as it is exported.
    AUDIT_RECORD = "exported audit record", 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, format) in ALL.iter().enumerate() {
            let mut others = ALL[..index].iter();
            assert!(!others.any(|other| other.name == format.name), "{format:?}");
        }
    }

    #[test]
    fn the_manual_lists_each_with_its_version() {
        let page = include_str!("../../../docs/formats.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| *"));
        let told = rows.filter_map(|row| {
            let mut cells = row.split(" | ");
            let name = cells.next()?.trim_end_matches('*');
            Some((name, cells.nth(1)?.parse().ok()?))
        });
        let told: Vec<(&str, u32)> = told.collect();
        let all: Vec<_> = ALL.iter().map(|it| (it.name, it.version)).collect();
        assert_eq!(told, all);
    }

    #[test]
    fn what_is_not_read_says_what_to_do() {
        let [later, earlier] = [TOKENS.check(2), QUOTA_TABLES.check(1)];
        let said = later.expect_err("it is unknown").to_string();
        let begun = "the file of tokens is of format 2, and this version of Ratekeeper knows format 1: a later version wrote it";
        assert!(said.starts_with(begun), "{said}");
        let said = earlier.expect_err("it is unknown").to_string();
        assert!(said.contains("not read any more"), "{said}");
        assert_eq!(TOKENS.check(1), Ok(()));
    }

    #[test]
    fn later_counters_begin_with_a_byte_of_their_own() {
        assert_eq!(FIXED_WINDOW.next().first_byte(), 162);
        assert!(FIXED_WINDOW.next().first_byte() >= MARKED);
        let last = StoredFormat {
            version: 93,
            ..FIXED_WINDOW
        };
        // 254 is the mark of leases, and 255 of nothing.
        assert!(last.first_byte() < crate::lease::MARK);
    }
}
