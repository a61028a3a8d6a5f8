//! Faults of settings that are one value.

use ratekeeper_core::duration::DurationError;
use ratekeeper_rules::PathPatternError;
use ratekeeper_store_redis::EndpointError;
use std::io;

/// The fault of a setting's text. Its message says what to write instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("`{0}` is not an address to listen on; write HOST:PORT, as in 127.0.0.1:8080 or :8080")]
    Address(Box<str>),
    #[error("`{0}` is not a statsd agent; write HOST:PORT, as in 127.0.0.1:8125")]
    StatsdAddress(Box<str>),
    #[error("`{host}` cannot be looked up ({error}); write an IP address")]
    Lookup { host: Box<str>, error: io::Error },
    #[error("`{0}` has no address; write an IP address")]
    NoAddress(Box<str>),
    #[error(
        "`{0}` is not a Unix socket; write its whole path, as in unix:/run/ratekeeper/grpc.sock"
    )]
    UnixSocket(Box<str>),
    #[error("`{0}` is not a mode; write it as for chmod, as in 0660")]
    Permissions(Box<str>),
    #[error("`{0}` is not a size; write a whole number and a unit, as in 256MiB or 1GiB")]
    Size(Box<str>),
    #[error("`{0}` is too large")]
    TooManyBytes(Box<str>),
    #[error("`{0}` is too little to keep counters in; write 1MiB or more")]
    TooLittleMemory(Box<str>),
    #[error("`{text}` is not a duration: {error}; write 3s, 250ms or 1m30s")]
    Duration {
        text: Box<str>,
        error: DurationError,
    },
    #[error("`{0}` is too short; write 1s or more")]
    TooShort(Box<str>),
    #[error("`{text}` is not valid; write {least} to {most}")]
    NotWithin {
        text: Box<str>,
        least: String,
        most: String,
    },
    #[error("`{0}` is not 100ms to 24h; write 0s for no limit")]
    StallTimeout(Box<str>),
    #[error("`{0}` is neither true nor false")]
    Switch(Box<str>),
    #[error("`{text}` is not known here; write {known}")]
    Word {
        text: Box<str>,
        /// The words that are known, in backticks.
        known: Box<str>,
    },
    /// Does not repeat the text, which is a secret.
    #[error("this is not a key of 32 hexadecimal digits, as `openssl rand -hex 16` prints them")]
    HashKey,
    #[error("`{0}` is not a node's name; write at most 64 letters, digits, and `-._:`")]
    NodeName(Box<str>),
    /// The text has no password.
    #[error(
        "`{0}` is not a collector; write http://HOST:PORT, as in http://127.0.0.1:4317, or https://HOST:PORT for TLS"
    )]
    Collector(Box<str>),
    /// Does not repeat the text, which may hold a secret.
    #[error(
        "these are not headers; write NAME=VALUE, with a comma or a new line after each, and other than visible ASCII \
         characters in a value as %XX"
    )]
    TraceHeaders,
    #[error("this is not the name of a service; write 1 to 128 bytes without control characters")]
    ServiceName,
    #[error("`{0}` is not a number above 0 and up to 1, such as 0.5")]
    LocalFactor(Box<str>),
    #[error("`{0}` is not a share; write a whole number from 1% to 100%")]
    Percent(Box<str>),
    #[error(
        "`{0}` is not a kind of headers; write `limits`, `draft`, `degraded`, or several with commas"
    )]
    HeaderKind(Box<str>),
    #[error("`{0}` cannot be the name of a header; write letters, digits and dashes")]
    HeaderName(Box<str>),
    #[error("`{text}` is not a log level; write one of {known}")]
    LogLevel { text: Box<str>, known: Box<str> },
    #[error("`{text}` is not a log filter: {error}")]
    LogFilter {
        text: Box<str>,
        error: tracing_subscriber::filter::ParseError,
    },
    /// The text has no password.
    #[error("`{0}` is not a store; write `memory`, or where Redis is, such as redis://127.0.0.1/")]
    Store(Box<str>),
    /// The text has no password.
    #[error("`{text}`: {error}")]
    Endpoint {
        text: Box<str>,
        error: EndpointError,
    },
    /// The text has no password.
    #[error(
        "`{0}` is not a service; write grpc://HOST:PORT, as in grpc://127.0.0.1:8081, grpcs://HOST:PORT or unix:/PATH"
    )]
    Service(Box<str>),
    /// The text has no password.
    #[error(
        "`{0}` is not a control plane; write xds://HOST:PORT, as in xds://envoy-gateway:18001, or xdss://HOST:PORT for TLS"
    )]
    ControlPlane(Box<str>),
    #[error("these are not properties; write NAME=VALUE, with commas between them")]
    NodeMetadata,
    #[error("either all of them are encrypted or none; write grpcs:// for all")]
    MixedEncryption,
    #[error("at most {0} services")]
    TooManyServices(usize),
    /// Does not repeat the text, which may have a password in it.
    #[error("write sqlite://PATH, postgres://USER:PASSWORD@HOST/DATABASE, or off")]
    Database,
    #[error("write `default` or `allow`")]
    QuotaFailure,
    /// Does not repeat the text, which is a secret.
    #[error("a token has visible ASCII characters only")]
    Token,
    #[error(transparent)]
    Path(#[from] PathPatternError),
    #[error("a base cannot end in `**`: write the path up to where the patterns start")]
    BaseRest,
}
