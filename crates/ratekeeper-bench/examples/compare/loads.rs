//! The loads that comparisons share.

use ratekeeper_bench::{Keys, Load, Pace};

use crate::servers::Server;

/// Connections and streams of the closed loops.
const CONNECTIONS: u32 = 4;
const STREAMS: u32 = 16;

/// Keys of the spread loads.
const MANY: u32 = 100_000;

pub(crate) const SPREADS: [(&str, Keys); 3] = [
    ("hot", Keys::Hot),
    ("100 k uniform", Keys::Uniform(MANY)),
    (
        "100 k zipf",
        Keys::Zipf {
            keys: MANY,
            exponent: 1.0,
        },
    ),
];

pub(crate) fn closed(server: &Server, keys: Keys) -> Load {
    let mut load = server.load();
    load.connections = CONNECTIONS;
    load.streams = STREAMS;
    load.keys = keys;
    load
}

pub(crate) fn open(server: &Server, keys: Keys, per_second: f64) -> Load {
    let mut load = closed(server, keys);
    load.pace = Pace::Open { per_second };
    load
}
