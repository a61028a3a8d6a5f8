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
mod blocking;
mod config;
mod data_dir;
mod figures;
mod fleet;
mod grpc;
mod http;
mod listen;
mod logs;
mod maintenance_task;
mod protocol;
mod regions;
mod reload;
mod server;

pub use access::callers::{Caller, Powers, Proof};
pub use access::{AdminToken, AdminTokenError, Role, Tokens, UnknownRole};
pub use config::constant::{ConstantAnswer, NoAnswer};
pub use config::gateway::{GatewayListener, GatewayService};
pub use config::quotas::QuotaAdmin;
pub use config::{
    AuthConfig, DESCRIPTORS_MAX, ENTRIES_MAX, EnvoyCallers, LimitHeaderNames, ListenersTls,
    RlsConfig, ServerConfig,
};
pub use data_dir::atomic_file::make_private_folder;
pub use figures::families::{Families, Label, by};
pub use figures::monitored::{ClassShedding, Monitored, Shedding, UpstreamShedding};
pub use figures::statsd::{StatsdConfig, StatsdFormat};
pub use figures::top_nodes::{KeyList, PeerLists, TopAnswer, TopPeers, TopUnknown, merge_keys};
pub use fleet::{FleetCopy, FleetCopyError, ImportError, import_node_files};
pub use listen::drain::DrainDelay;
pub use listen::tls::{BadClientName, ClientName, PeerName, TlsConfig};
pub use listen::{
    Fault, FramedTwice, HttpService, ListenAddress, Pace, Patience, Peer, PeerAddress, ServerBounds,
};
pub use logs::denials::{DenialLog, DenialLogConfig};
pub use logs::unreadable::OnUnreadable;
pub use maintenance_task::MaintenanceTask;
pub use regions::{PeerLink, PeerRegion, RegionLoans, ToRegion};
pub use reload::follow::{FilesRead, Followed};
pub use reload::{
    DeliveryError, FeedConfig, LoadError, OnBadText, ReloadStatus, RulesFeed, RulesLoader,
    RulesSource, WatchConfig,
};
pub use server::{Addresses, BindError, Drained, OPERATORS_MAX, Reload, Server};
