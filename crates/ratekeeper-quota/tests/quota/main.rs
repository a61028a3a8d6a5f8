//! The quota store on both of its databases, and the nodes that follow it.

mod adjusting;
mod audit;
mod editors;
mod exports;
mod file;
mod following;
mod many;
mod migrations;
mod model;
mod records;
mod refused;
mod support;
mod texts;
mod tokens;
mod usage;
