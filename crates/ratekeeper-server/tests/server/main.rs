//! A real server on free ports, and real clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod admin;
mod anomalies;
mod auth;
mod certificates;
mod connections;
mod dashboard_types;
mod drain;
mod envoy_callers;
mod envoyproxy_ratelimit;
mod faults;
mod first_requests;
mod grpc_extras;
mod hostile;
mod http;
mod long_messages;
mod namesakes;
mod openapi;
mod quotas;
mod rls;
mod several_domains;
mod support;
mod switches;
mod tenants;
mod tls;
mod transports;
mod unix_sockets;
mod unreadable;
mod usage;
mod v1_grpc;
mod v1_http;
mod v1_limit;
mod watching;
