//! The manual of the library: `cargo test -p example-library` compiles all of it, and runs the
//! parts that need no other program.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Manual;
