//! Rebuilds the crate when the dashboard's files are.

fn main() {
    // The folder is in every clone, with nothing but a .gitignore until the dashboard is built.
    println!("cargo::rerun-if-changed=../../dashboard/dist");
}
