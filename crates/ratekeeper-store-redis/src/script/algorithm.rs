//! The algorithms, as the script knows them.

/// Defines the algorithms: a number in a call, and the name that the Lua files have for it.
macro_rules! script_algorithms {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// An algorithm of the script. Its files say `FIXED_WINDOW`, and calls say 1.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(super) enum ScriptAlgorithm {
            $($(#[$doc])* $variant = $code,)*
        }

        impl ScriptAlgorithm {
            pub(super) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name in Lua.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

script_algorithms! {
    /// Windows aligned to the epoch.
    FixedWindow = 1, "FIXED_WINDOW";
    /// Windows aligned to a calendar.
    CalendarWindow = 2, "CALENDAR_WINDOW";
    /// A sliding window with sub-windows.
    SubWindows = 3, "SUB_WINDOWS";
    /// Also GCRA.
    TokenBucket = 4, "TOKEN_BUCKET";
    /// A leaky bucket whose callers wait for any turn.
    LeakyBucket = 5, "LEAKY_BUCKET";
    SlidingLog = 6, "SLIDING_LOG";
    /// Permits: the only state that is not a string.
    Concurrency = 7, "CONCURRENCY";
    /// A leaky bucket whose callers cannot wait for every turn: the only algorithm that may refuse the
    /// second of two requests although there is room.
    LeakyWithin = 8, "LEAKY_WITHIN";
    /// A sliding window without sub-windows.
    EqualCount = 9, "EQUAL_COUNT";
    /// A token bucket of which regions hold parts for a time.
    LentBucket = 10, "LENT_BUCKET";
    /// A sliding window of which regions hold parts for a time.
    LentCount = 11, "LENT_COUNT";
}

impl ScriptAlgorithm {
    /// Returns the number in the script.
    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns true if leases can be open on its counters.
    pub(super) const fn is_leasable(self) -> bool {
        match self {
            Self::FixedWindow | Self::CalendarWindow => true,
            Self::SubWindows | Self::EqualCount | Self::TokenBucket => true,
            Self::LentBucket | Self::LentCount => true,
            Self::SlidingLog | Self::Concurrency | Self::LeakyBucket | Self::LeakyWithin => false,
        }
    }

    /// Returns true if regions hold parts of it for a time.
    pub(super) const fn is_timed(self) -> bool {
        match self {
            Self::LentBucket | Self::LentCount => true,
            Self::FixedWindow | Self::CalendarWindow | Self::SubWindows => false,
            Self::EqualCount | Self::TokenBucket | Self::SlidingLog => false,
            Self::Concurrency | Self::LeakyBucket | Self::LeakyWithin => false,
        }
    }

    /// Puts numbers in place of the names in a line of a Lua file: a local would be set in each call.
    pub(super) fn encode(line: &str) -> String {
        let put = |line: String, algorithm: &Self| {
            line.replace(algorithm.name(), &algorithm.code().to_string())
        };
        Self::ALL.iter().fold(line.to_owned(), put)
    }
}
