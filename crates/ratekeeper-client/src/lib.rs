//! A client for the Ratekeeper service.
//!
//! It calls the service over gRPC (`ratekeeper.v1`) with a deadline for each call, a retry budget,
//! and a fallback while the service is away: an outage of the limiter must not become an outage of
//! the API that it protects. While the service answers, the client decides nothing by itself.
//!
//! ```no_run
//! use ratekeeper_client::{Client, Config, CheckRequest};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Config::new("http://127.0.0.1:8081"))?;
//! let question = CheckRequest::new("api_platform").descriptor([("api_key", "abc"), ("endpoint", "GET /orders")]);
//! let answer = client.check(&question).await?;
//! if !answer.allowed {
//!     println!("come back in {:?}", answer.retry_after());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A permit is renewed while it is held, and released when dropped:
//!
//! ```no_run
//! # use ratekeeper_client::{Client, CheckRequest};
//! # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
//! let acquired = client.acquire(&CheckRequest::new("jobs").descriptor([("tenant", "abc")])).await?;
//! if acquired.answer.allowed {
//!     // The work, while `acquired.permit` is held.
//!     drop(acquired.permit);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`ServiceEnforcer`] puts the client behind the tower layer of `ratekeeper`: the service limits requests
//! to an axum or tonic application, and the [`FallbackPolicy`] does while the service is away.
//!
//! If the cost of a request is known only afterwards, reserve and commit:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use ratekeeper_client::{Client, CheckRequest, ToReserve};
//! # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
//! let question = CheckRequest::new("llm").descriptor([("tenant", "abc")]);
//! let reserved = client.reserve(&ToReserve::new(question, 4_000)).await?;
//! if let Some(reservation) = reserved.reservation {
//!     let tokens_used = 1_234;
//!     client.commit(&reservation, tokens_used).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod authorization;
mod budget;
mod calls;
mod channel;
mod client;
mod config;
mod enforcer;
mod error;
mod fallback;
mod health;
mod permit;
mod pool;
mod question;
mod results;
mod throttle;
mod unsettled;

pub use client::{Acquired, Client};
pub use config::{Config, ConfigError, RetryBudget, Tls};
pub use enforcer::{ServiceAdmission, ServiceEnforcer};
pub use error::Error;
pub use fallback::{FallbackPolicy, LocalLimiter};
pub use health::Trouble;
pub use permit::Permit;
pub use question::{CheckAnswer, CheckRequest, Peek};
pub use ratekeeper_tls::{TlsFiles, TlsIdentity};
pub use results::{ClientCounts, Refund, Reservation, Reserved, Settled, ToReserve};
