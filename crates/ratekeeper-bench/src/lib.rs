//! Puts load on a rate limit service and tells how it bore it.
//!
//! Two ways to ask. In a *closed loop* each of C connections times S streams asks again as soon as
//! it is answered: what rate does the service reach? In an *open loop* requests are due at a
//! rate, answered or not, and latency counts from the moment a request was due: a service
//! that stalls cannot hide the requests that it kept from being sent (coordinated omission).
//!
//! The client is as lean as it can be, so that the service is full before the client is: requests
//! are encoded before the run, answers are looked at and not decoded, each thread has its own
//! runtime and its own histogram. It speaks no TLS, and it does not retry.
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

mod answer;
mod connect;
mod failure;
mod keys;
mod load;
mod pace;
mod payload;
mod process;
mod question;
mod random;
mod report;
mod run;
mod service;
mod tally;
mod thread;
mod windows;

pub use failure::LoadError;
pub use keys::{KEYS_MAX, Keys, KeysError};
pub use load::{Load, Pace};
pub use process::{ProcessUse, cpu_time, resident_bytes};
pub use question::Question;
pub use report::{Latency, Report, SCHEMA, ServerUse};
pub use run::{Progress, first_answer, run};
pub use service::{BATCH_MAX, Forwarded, HttpPath, Over, Service};
pub use windows::Windows;
