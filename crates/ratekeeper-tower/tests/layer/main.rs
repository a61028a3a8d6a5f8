//! The layer around services of every kind of end.

mod answers;
mod gone;
mod levels;
mod modes;
mod permits;
mod support;
mod waiting;
