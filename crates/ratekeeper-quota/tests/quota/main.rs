//! The quota store on both of its databases, and the nodes that follow it.

mod adjusting;
mod audit;
mod editors;
mod following;
mod records;
mod support;
mod usage;
