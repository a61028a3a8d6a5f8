//! The rooms of a crate, and what each uses of the others.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use super::circles::Needs;
use super::paths::{CratePath, WithoutTests, paths, tree};

/// The modules of a crate that are not only for tests.
pub(crate) struct Crate {
    files: Vec<File>,
    /// The names that the root exports, and the room of each.
    exports: BTreeMap<String, String>,
}

struct File {
    name: String,
    /// The path of its module; empty for the root.
    module: Vec<String>,
    tokens: Vec<TokenTree>,
}

impl Crate {
    /// Reads the files of a crate, by their paths in its folder of sources.
    pub(crate) fn read(sources: &BTreeMap<String, String>) -> Self {
        let roots = ["lib.rs", "main.rs"];
        let root = roots.into_iter().find(|root| sources.contains_key(*root));
        let mut files = Vec::new();
        let root = root.expect("a crate has a root");
        read(root.to_owned(), Vec::new(), sources, &mut files);
        let exports = exports(&files[0].tokens);
        Self { files, exports }
    }

    /// The rooms that each room needs, with one use of each.
    pub(crate) fn needs(&self) -> Needs {
        let rooms = self.files.iter().filter_map(|file| file.module.first());
        let mut needs: Needs = rooms.map(|room| (room.clone(), BTreeMap::new())).collect();
        for file in &self.files {
            let Some(room) = file.module.first() else {
                continue;
            };
            for path in paths(&file.tokens, 0) {
                let to = self.room_of(&path, file.module.len(), &needs);
                if let Some(to) = to.filter(|to| to != room) {
                    let used = format!("{} in {}", path.segments.join("::"), file.name);
                    let of_room = needs.entry(room.clone()).or_default();
                    of_room.entry(to).or_insert(used);
                }
            }
        }
        needs
    }

    /// The room that a path leads into, used in a module of this depth.
    fn room_of(&self, path: &CratePath, depth: usize, needs: &Needs) -> Option<String> {
        if path.ups.is_some_and(|ups| ups < depth) {
            return None;
        }
        let first = path.segments.first()?;
        match needs.contains_key(first) {
            true => Some(first.clone()),
            false => self.exports.get(first).cloned(),
        }
    }
}

/// Reads a file, and those of its modules.
fn read(
    name: String,
    module: Vec<String>,
    sources: &BTreeMap<String, String>,
    files: &mut Vec<File>,
) {
    let Ok(tokens) = sources[&name].parse::<TokenStream>() else {
        panic!("{name} is no Rust");
    };
    let without = WithoutTests::of(tokens);
    let modules = file_modules(&without.tokens);
    files.push(File {
        name,
        module: module.clone(),
        tokens: without.tokens,
    });
    for child in modules {
        let path = [&module[..], &[child]].concat();
        let beside = format!("{}.rs", path.join("/"));
        let within = format!("{}/mod.rs", path.join("/"));
        if let Some(name) = [beside, within]
            .into_iter()
            .find(|it| sources.contains_key(it))
        {
            read(name, path, sources, files);
        }
    }
}

/// The modules that have files of their own.
fn file_modules(tokens: &[TokenTree]) -> Vec<String> {
    let found = tokens.windows(3).filter_map(|three| match three {
        [
            TokenTree::Ident(word),
            TokenTree::Ident(name),
            TokenTree::Punct(end),
        ] if *word == "mod" && end.as_char() == ';' => Some(name.to_string()),
        _ => None,
    });
    found.collect()
}

/// The names that a root takes from its rooms.
fn exports(root: &[TokenTree]) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for (at, token) in root.iter().enumerate() {
        if matches!(token, TokenTree::Ident(word) if *word == "use") {
            for mut path in tree(root, at + 1).0 {
                path.retain(|segment| segment != "crate" && segment != "self");
                if let [room, .., name] = &path[..] {
                    exports.insert(name.clone(), room.clone());
                }
            }
        }
    }
    exports
}

#[test]
fn uses_are_counted_in_all_their_forms() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; mod c; mod d; mod e; mod f; mod g; #[cfg(test)] mod t; pub use b::{Exported, deep::Other as Renamed};",
        ),
        (
            "a.rs",
            "mod inner; use crate::Exported; fn a() { super::c::x(); }",
        ),
        (
            "a/inner.rs",
            "use super::own; fn i() { let x = super::super::d::y; }",
        ),
        (
            "b.rs",
            "mod deep { fn up() { super::only_here(); super::super::c::z() } } // crate::e::in_a_comment",
        ),
        (
            "c.rs",
            "use crate::{b::{self, Exported}, d::D as E}; /// [`crate::e`]\nconst C: &str = \"crate::e::in_a_text\";",
        ),
        (
            "d.rs",
            "#[cfg(test)] mod tests; #[cfg(test)] use crate::{e, f}; #[cfg(test)] fn t() { crate::e::x() } pub(crate) fn d() { vec![crate::f::x]; }",
        ),
        ("d/tests.rs", "use crate::a;"),
        ("e.rs", "use crate::Renamed;"),
        (
            "f.rs",
            "#[cfg(test)] mod tests { use crate::a; } fn f() { if true { #[cfg(not(test))] crate::g::x(); } }",
        ),
        ("g.rs", ""),
        ("t.rs", "use crate::a;"),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let needs = Crate::read(&files.into()).needs();
    let needs: Vec<(&str, Vec<&str>)> = needs
        .iter()
        .map(|(room, to)| (room.as_str(), to.keys().map(String::as_str).collect()))
        .collect();
    let wanted = [
        ("a", vec!["b", "c", "d"]),
        ("b", vec!["c"]),
        ("c", vec!["b", "d"]),
        ("d", vec!["f"]),
        ("e", vec!["b"]),
        ("f", vec!["g"]),
        ("g", vec![]),
    ];
    assert_eq!(needs, wanted);
}
