//! Puts load on a rate limit service and reports rates and latencies.
//!
//! There are two kinds of load. In a *closed loop*, each of C connections times S streams sends the
//! next request as soon as it has an answer: it finds the maximum rate of the service. In an *open
//! loop*, requests are due at a fixed rate, answered or not, and latency counts from the time when
//! a request was due: a service that stalls cannot hide the requests that it prevented from being
//! sent (coordinated omission).
//!
//! The client is lean, so that the service saturates before the client does: requests are encoded
//! before the run, answers are inspected rather than decoded, each thread has its own runtime and
//! histogram. There is no TLS, and no retry.
//!
//! ```no_run
//! use std::time::Duration;
//! use ratekeeper_bench::{Keys, Load, Question, Service, run};
//!
//! let question = Question::new("api", &[("api_key", "{key}")]);
//! let mut load = Load::new("127.0.0.1:8081", Service::Rls(question));
//! load.keys = Keys::Uniform(100_000);
//! load.duration = Duration::from_secs(5);
//! let report = run(&load, |_| {})?;
//! println!("{report}");
//! # Ok::<(), ratekeeper_bench::LoadError>(())
//! ```

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod answer;
mod connect;
mod failure;
mod keys;
mod load;
mod pace;
mod payload;
mod process;
mod question;
mod report;
mod run;
mod service;
mod tally;
mod thread;
mod windows;

pub use failure::{LoadError, NoConnection};
pub use keys::{KEYS_MAX, Keys, KeysError};
pub use load::{Load, Pace};
pub use process::{ProcessUse, cpu_time, resident_bytes};
pub use question::Question;
pub use report::{Latency, Report, SCHEMA, ServerUse};
pub use run::{Progress, first_answer, run};
pub use service::{BATCH_MAX, Forwarded, HttpPath, Over, Service};
pub use windows::{Due, Windows};
