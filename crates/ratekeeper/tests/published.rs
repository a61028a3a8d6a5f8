//! The crates as they are published, in a project outside of the repository.

use std::fs;

use ratekeeper_testkit::library_user::LibraryUser;

/// The examples of the repository's README and of the crate's own.
#[test]
fn the_examples_of_both_readmes_run_in_an_empty_project() {
    let user = LibraryUser::new("readme", "ratekeeper = \"0.1\"");
    for (page, readme) in [
        ("the project", "../../README.md"),
        ("the crate", "README.md"),
    ] {
        let readme = fs::read_to_string(readme).expect("a README");
        let example = rust_block(&readme);
        let main = format!("fn main() {{\n{example}\nprintln!(\"limited\");\n}}\n");
        user.write("src/main.rs", &main);
        assert_eq!(user.run(), "limited\n", "{page}:\n{main}");
    }
}

/// The first Rust block of a page.
fn rust_block(page: &str) -> &str {
    let (_, rest) = page.split_once("```rust\n").expect("a Rust block");
    let (block, _) = rest.split_once("```").expect("the block ends");
    block
}
