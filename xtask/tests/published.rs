//! The crates that are published are those that a library's user needs, and each is fit for it.

mod repository;

use std::collections::BTreeSet;

use repository::{packages, root};
use serde_json::Value;

/// The crates that programs depend on. All others are published because these need them.
const FOR_USERS: [&str; 2] = ["ratekeeper", "ratekeeper-client"];

#[test]
fn what_users_depend_on_is_published_and_nothing_else() {
    let packages = packages();
    let mut needed: BTreeSet<&str> = BTreeSet::new();
    let mut wanted = FOR_USERS.to_vec();
    while let Some(name) = wanted.pop() {
        let package = packages.iter().find(|it| it["name"] == name);
        let is_of_others = package.is_none() || !needed.insert(name);
        if !is_of_others {
            wanted.extend(dependencies(&packages, name));
        }
    }
    let published = packages.iter().filter(|it| it["publish"].is_null());
    let published: BTreeSet<&str> = published.map(|it| text(&it["name"])).collect();
    assert_eq!(published, needed);
}

#[test]
fn a_published_crate_is_described_and_brings_its_readme_and_licence() {
    for package in packages().iter().filter(|it| it["publish"].is_null()) {
        let name = text(&package["name"]);
        for field in ["description", "license", "repository", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        let folder = root().join("crates").join(name);
        for file in ["README.md", "LICENSE"] {
            assert!(folder.join(file).is_file(), "{name} has no {file}");
        }
        // Programs are built with the parts that belong together.
        for dependency in list(&package["dependencies"]) {
            let (other, version) = (text(&dependency["name"]), text(&dependency["req"]));
            if other.starts_with("ratekeeper") && !dependency["kind"].is_string() {
                let wanted = format!("={}", text(&package["version"]));
                assert_eq!(version, wanted, "{name} needs {other}");
            }
        }
    }
}

/// The dependencies of a package outside of its tests.
fn dependencies<'a>(packages: &'a [Value], name: &str) -> Vec<&'a str> {
    let package = packages.iter().find(|it| it["name"] == name);
    let all = list(&package.expect("a package of ours")["dependencies"]);
    let all = all.iter().filter(|it| it["kind"].is_null());
    all.map(|it| text(&it["name"])).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
