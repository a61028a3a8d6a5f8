//! A reverse proxy that limits what it forwards.
//!
//! A [`Gateway`] is the [`GatewayService`](ratekeeper_server::GatewayService) of a server: what comes in there passes
//! a [`RulesLayer`](ratekeeper_tower::RulesLayer), finds its upstream by host and path, and
//! is streamed there and back over connections that each worker thread keeps for itself. HTTP/1.1
//! and HTTP/2 are spoken on both sides, connections may be upgraded (WebSocket), and nothing is
//! buffered. Ambiguous requests are refused; a request that gets no answer from its upstream is
//! answered with the upstream's name and the cause.
//!
//! It decides nothing about limits, caches nothing, and changes no bodies.

mod abandoned;
mod answer;
mod body;
mod connect;
mod denials;
mod edge;
mod exchange;
mod fault;
mod fleet;
mod gateway;
mod head;
mod health;
mod log;
mod media_type;
mod metrics;
mod peek;

mod proxy;
mod routes;
mod shared;
mod shed_metrics;
mod tls;
mod upgrade;
mod upstream;

pub use body::{ProxyBody, RequestBody};
pub use edge::{Answering, Edge, EdgeBody};
pub use fleet::{FleetAnswer, FleetPeers, FleetUnknown};
pub use gateway::{Gateway, GatewayConfig, RoutesHandle};
pub use log::{AccessLog, LogFormat};
pub use proxy::{ForwardFuture, Proxy};
pub use routes::{
    BadRoutes, HealthCheckConfig, OnClientGone, RouteConfig, Routes, RoutesConfig, RoutesFault,
    UpstreamConfig,
};
