//! The files of the dashboard, a web page that shows what a node does.
//!
//! `cargo xtask build` and `cargo xtask run` build them from `dashboard/` where Node is installed. Without it this crate is
//! empty, and whoever serves the page says how to get it. Builds with debug assertions read the files when they are asked
//! for; others embed them.
//!
//! ```
//! match ratekeeper_dashboard::file("index.html") {
//!     Some(file) => assert_eq!(file.content_type, "text/html; charset=utf-8"),
//!     None => println!("the dashboard was not built"),
//! }
//! ```

use std::borrow::Cow;

use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "../../dashboard/dist"]
#[allow_missing = true]
struct Files;

/// One file of the dashboard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DashboardFile {
    /// Its content.
    pub bytes: Cow<'static, [u8]>,
    /// Its media type.
    pub content_type: &'static str,
}

/// The types of the files that a build makes; others are not served.
const CONTENT_TYPES: [(&str, &str); 4] = [
    (".html", "text/html; charset=utf-8"),
    (".js", "text/javascript; charset=utf-8"),
    (".css", "text/css; charset=utf-8"),
    (".svg", "image/svg+xml"),
];

/// The file of that name; [`None`] if there is none, or the dashboard was not built.
#[must_use]
pub fn file(name: &str) -> Option<DashboardFile> {
    let mut types = CONTENT_TYPES.iter();
    let (_, content_type) = types.find(|(end, _)| name.ends_with(end))?;
    let bytes = Files::get(name)?.data;
    Some(DashboardFile {
        bytes,
        content_type,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_build_is_found() {
        // It is in every clone, also where the dashboard was not built.
        assert!(Files::get(".gitignore").is_some());
    }

    #[test]
    fn only_files_of_the_build_are_found() {
        for name in [
            "",
            ".gitignore",
            "../package.json",
            "../index.html",
            "/etc/passwd.html",
            "nothing.js",
        ] {
            assert_eq!(file(name), None, "{name}");
        }
    }
}
