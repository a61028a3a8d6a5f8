//! The status of a server, as its monitor last saw it.

/// The last known status of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's name and version, such as `Redis 7.0.15`; [`None`] before it was reached.
    pub server: Option<String>,
    /// The reason it cannot be asked, or could not the last time; [`None`] if it can.
    pub error: Option<String>,
    /// True if that error does not go away by itself: the server refuses us, or is no Redis.
    pub is_refused: bool,
    /// Warnings about settings that will cause trouble later.
    pub warnings: Vec<String>,
}
