//! The layer around services of every kind of end.

mod answers;
mod modes;
mod permits;
mod support;
mod waiting;
