//! The layer around services that end in every possible way.

mod answers;
mod gone;
mod levels;
mod modes;
mod permits;
mod shed;
mod support;
mod usage;
mod waiting;
