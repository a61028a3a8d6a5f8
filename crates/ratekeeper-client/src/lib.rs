//! A client of Ratekeeper's service.
//!
//! It asks over gRPC (`ratekeeper.v1`), with a deadline for each call, a budget for retries, and
//! an answer of its own while the service is away: a limiter's outage must not become an
//! outage of what it guards. It decides nothing by itself while the service answers.
//!
//! ```no_run
//! use ratekeeper_client::{Client, Config, Question};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Config::new("http://127.0.0.1:8081"))?;
//! let question = Question::new("api_platform").descriptor([("api_key", "abc"), ("endpoint", "GET /orders")]);
//! let answer = client.check(&question).await?;
//! if !answer.allowed {
//!     println!("come back in {:?}", answer.retry_after());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What is held while something runs is given back when it is dropped, and renewed until then:
//!
//! ```no_run
//! # use ratekeeper_client::{Client, Question};
//! # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
//! let acquired = client.acquire(&Question::new("jobs").descriptor([("tenant", "abc")])).await?;
//! if acquired.answer.allowed {
//!     // The work, while `acquired.permit` is held.
//!     drop(acquired.permit);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Service`] puts the client behind the tower layer of `ratekeeper`: requests to an axum or tonic service are limited by
//! the service, and by the [`Fallback`] while it is away.
//!
//! What a request costs may be known only afterwards:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use ratekeeper_client::{Client, Question, ToReserve};
//! # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
//! let question = Question::new("llm").descriptor([("tenant", "abc")]);
//! let reserved = client.reserve(&ToReserve::new(question, 4_000)).await?;
//! if let Some(reservation) = reserved.reservation {
//!     let tokens_used = 1_234;
//!     client.commit(&reservation, tokens_used).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod budget;
mod calls;
mod channel;
mod client;
mod config;
mod enforcer;
mod error;
mod fallback;
mod lanes;
mod permit;
mod presence;
mod question;
mod unsettled;

pub use client::{Acquired, Client, Counts, Refund, Reservation, Reserved, Settled, ToReserve};
pub use config::{Config, ConfigError, Identity, RetryBudget, Tls};
pub use enforcer::{Asking, Held, Service};
pub use error::Error;
pub use fallback::Fallback;
pub use permit::Permit;
pub use presence::Trouble;
pub use question::{Answer, Limit, Peek, Question, Told};
