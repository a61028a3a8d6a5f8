//! The binary as the files in `deploy/` start it: with the environment and the arguments of each container and of the unit.

#![cfg(unix)]

mod compose;
mod container;
mod kubernetes;
mod unit;
mod yaml;
