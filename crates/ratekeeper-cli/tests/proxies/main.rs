//! Real proxies with the configurations we ship, the real binary behind them, and a service of the test's own.
#![cfg(unix)]

mod ai_gateway;
mod envoy;
mod forward_auth;
mod llm_gateway;
mod pasted;
mod support;
