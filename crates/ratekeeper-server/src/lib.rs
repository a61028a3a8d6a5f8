//! The service: Envoy's rate limit protocol over gRPC and JSON, our own check API, metrics,
//! hot reload of rules, and a shutdown that loses no answer.
//!
//! Handlers translate and never decide: each parses, asks the
//! [`Limiter`](ratekeeper_limiter::Limiter) once, and maps its answer. Nothing here reads the
//! environment or the command line.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use ratekeeper_limiter::{Limiter, LimiterOptions};
//! use ratekeeper_rules::{Options, ReadOptions};
//! use ratekeeper_server::{RulesLoader, RulesSource, Server, ServerConfig};
//! use ratekeeper_store::{MemoryConfig, MemoryStore};
//!
//! let mut loader = RulesLoader::new(RulesSource {
//!     path: "config".into(),
//!     tenants: None,
//!     read: ReadOptions::default(),
//!     options: Options::default(),
//! });
//! let loaded = loader.load()?;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let limiter = Arc::new(Limiter::new(loaded.rules, store.into(), LimiterOptions::default()));
//! let server = Server::bind(ServerConfig::default(), limiter, loader).await?;
//! println!("gRPC and HTTP on {:?}", server.addresses());
//! server.run(async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await;
//! # Ok(())
//! # }
//! ```

mod access;
mod admin;
pub mod admin_json;
mod app;
mod atomic_file;
mod blocking;
mod callers;
mod config;
mod constant;
mod debt_log;
mod degraded;
mod denials;
mod drain;
mod dropped;
mod durations;
mod envoy_stats;
mod error_body;
mod families;
mod fleet;
mod follow;
mod gateway_listener;
mod growth_log;
mod grpc;
mod http;
mod listen;
mod live;
mod maintenance;
mod media_type;
mod moments;
mod pages;
mod problem;
mod quotas;
mod reading;
mod regions;
mod reload;
mod rls;
mod rule_counts;
mod server;
mod shadow_log;
mod share_alarm;
mod statsd;
mod switches;
mod tls;
mod top_nodes;
mod unenforced;
mod unreadable;
mod v1;

pub use access::{AdminToken, AdminTokenError, Role, Tokens, UnknownRole};
pub use atomic_file::make_private_folder;
pub use callers::{Caller, Powers, Proof};
pub use config::{
    AuthConfig, DESCRIPTORS_MAX, ENTRIES_MAX, EnvoyCallers, GatewayListener, GrpcTransport,
    LimitHeaderNames, ListenersTls, RlsConfig, RulesSource, ServerConfig, WatchConfig,
};
pub use constant::{ConstantAnswer, NoAnswer};
pub use denials::{DenialLog, DenialLogConfig};
pub use drain::DrainDelay;
pub use families::{Families, Label, by};
pub use fleet::{FleetCopy, FleetCopyError, ImportError, import_node_files};
pub use follow::{FilesRead, Followed};
pub use gateway_listener::{ClassShedding, GatewayService, Monitored, Shedding, UpstreamShedding};
pub use listen::{
    Fault, FramedTwice, HttpService, ListenAddress, Pace, Patience, Peer, PeerAddress, ServerBounds,
};
pub use quotas::QuotaAdmin;
pub use regions::{PeerLink, PeerRegion, RegionLoans};
pub use reload::{
    DeliveryError, FeedConfig, LoadError, OnBadText, ReloadStatus, RulesFeed, RulesLoader,
};
pub use server::{Addresses, BindError, Drained, OPERATORS_MAX, Reload, Server};
pub use statsd::{StatsdConfig, StatsdFormat};
pub use tls::{BadClientName, ClientName, PeerName, TlsConfig};
pub use top_nodes::{KeyList, PeerLists, TopAnswer, TopPeers, TopUnknown, merge_keys};
pub use unreadable::OnUnreadable;
