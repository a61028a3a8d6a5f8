//! `ratekeeper bench`: what load is put on whom.

use crate::settings::{self, CommandFlags};
use clap::{Args, Subcommand};
use http::Method;
use ratekeeper_bench::{BATCH_MAX, Keys};
use ratekeeper_rules::entries::{self, EntriesError};
use std::time::Duration;

/// The servers that can be put under load.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Envoy's rate limit service, over gRPC
    #[command(after_help = "\
Examples:
  ratekeeper bench grpc --target 127.0.0.1:8081
  ratekeeper bench grpc --keys zipf:100000 --rate 20000 --duration 30s
  ratekeeper bench grpc --pid $(pgrep -x ratekeeper) --json")]
    Grpc {
        #[command(flatten)]
        load: BenchLoad,
        #[command(flatten)]
        question: BenchQuestion,
        /// Requests in flight on each connection
        #[arg(long, value_name = "N", default_value_t = 16)]
        streams: u32,
    },
    /// Single checks, over HTTP/1.1
    #[command(after_help = "\
Examples:
  ratekeeper bench http --target 127.0.0.1:8080
  ratekeeper bench http --path /json --connections 64")]
    Http {
        #[command(flatten)]
        load: BenchLoad,
        #[command(flatten)]
        question: BenchQuestion,
        /// Endpoint: Ratekeeper's own checks, or Envoy's protocol as JSON
        #[arg(long, value_name = "PATH", default_value = "/v1/check", value_parser = ["/v1/check", "/json"])]
        path: String,
    },
    /// Batches of checks, over gRPC (ratekeeper.v1) or HTTP/1.1 (/v1/checks)
    #[command(after_help = "\
Examples:
  ratekeeper bench batch --size 100 --keys uniform:100000
  ratekeeper bench batch --over http --target 127.0.0.1:8080")]
    Batch {
        #[command(flatten)]
        load: BenchLoad,
        #[command(flatten)]
        question: BenchQuestion,
        /// Protocol of the requests
        #[arg(long, value_name = "PROTOCOL", default_value = "grpc", value_parser = ["grpc", "http"])]
        over: String,
        /// Checks in each request, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_MAX)))]
        size: u32,
    },
    /// Requests through a gateway, or to any HTTP/1.1 service that denies with 429
    #[command(after_help = "\
Examples:
  ratekeeper bench gateway --path '/v1/organizations/{key}/product/7' --keys uniform:25 --rate 1000
  ratekeeper bench gateway --target 127.0.0.1:8082,127.0.0.1:8083 --windows 10s")]
    Gateway {
        #[command(flatten)]
        load: BenchLoad,
        /// Path of the requests; {key} stands for the key
        #[arg(long, value_name = "PATH", default_value = "/")]
        path: String,
        /// Method of the requests
        #[arg(long, value_name = "METHOD", default_value = "GET")]
        method: Method,
    },
    /// Serve a constant answer over gRPC, to measure the cost of everything but decisions
    #[command(after_help = "\
Accepts the flags of `ratekeeper serve`, and has the same listeners, runtime and codec. Requests are decoded and not
decided: each gets the same bytes as its answer. What `bench grpc` measures on it is the upper bound for this binary on
this machine.

Examples:
  ratekeeper bench ceiling --rules rules/ --grpc 127.0.0.1:8091
  ratekeeper bench grpc --target 127.0.0.1:8091")]
    Ceiling {
        #[command(flatten)]
        flags: CommandFlags<false>,
        /// The answer, an encoded RateLimitResponse in hexadecimal [default: one descriptor within its limit]
        #[arg(long, value_name = "HEX", value_parser = hex)]
        answer: Option<Answer>,
    },
}

/// The descriptor to check.
#[derive(Debug, Args)]
pub(crate) struct BenchQuestion {
    /// Domain of the requests
    #[arg(long, default_value = "api")]
    pub(crate) domain: String,
    /// Descriptor of each request; {key} stands for the key
    #[arg(long, value_name = "KEY=VALUE,…", default_value = "api_key={key}", value_parser = entries)]
    pub(crate) entries: Entries,
}

/// Options of every load.
#[derive(Debug, Args)]
pub(crate) struct BenchLoad {
    /// Addresses of the service, separated by commas; connections alternate between them [default: 127.0.0.1 at
    /// the port of `ratekeeper serve` or `gateway`]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) target: Option<String>,
    /// Connections [default: 4 of gRPC, 16 of HTTP]
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u32>,
    /// Threads to spread the connections over
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) threads: u32,
    /// Open loop: send this many requests per second, and measure latency from the time that each was due [default:
    /// closed loop, where each stream sends its next request as soon as it is answered]
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Distribution of keys: hot, uniform:N, zipf:N or zipf:N:EXPONENT [default: uniform:100000, so that few requests
    /// are over a limit by key; hot if no {key} is in the request]
    #[arg(long, value_name = "SPREAD")]
    pub(crate) keys: Option<Keys>,
    /// Length of the measurement
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = settings::duration)]
    pub(crate) duration: Duration,
    /// Time under load before the measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = settings::duration)]
    pub(crate) warm_up: Duration,
    /// Count the requests that pass, for each key and each window of this length, aligned to the epoch
    #[arg(long, value_name = "TIME", value_parser = settings::duration)]
    pub(crate) windows: Option<Duration>,
    /// Process of the server on this machine: report its CPU time per decision and its memory
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Entries as typed. A type of its own: a list would be several arguments to clap.
#[derive(Clone, Debug)]
pub(crate) struct Entries(pub(crate) Vec<(String, String)>);

fn entries(text: &str) -> Result<Entries, EntriesError> {
    entries::parse(text).map(Entries)
}

/// An encoded answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer(pub(crate) Vec<u8>);

/// The fault of an answer that cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an answer is pairs of hexadecimal digits, as in 0801")]
pub(crate) struct NotHex;

fn hex(text: &str) -> Result<Answer, NotHex> {
    hex::decode(text).map(Answer).map_err(|_| NotHex)
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn answers_are_pairs_of_digits() {
        assert_eq!(hex("0801fF").map(|answer| answer.0), Ok(vec![8, 1, 255]));
        for bad in ["080", "zz", "+1", "é"] {
            assert!(hex(bad).is_err(), "{bad}");
        }
    }
}
