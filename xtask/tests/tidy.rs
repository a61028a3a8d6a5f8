//! Checks that no compiler makes: the dependencies between crates, where the environment is read, how long functions are, and
//! that nothing in the repository belongs to one machine.

mod repository;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use repository::{cargo, is_of_tests, packages, read, texts};

/// Crates that may use the wire formats.
const KNOW_PROTOBUF: [&str; 10] = [
    "ratekeeper-proto",
    "ratekeeper-server",
    "ratekeeper-sources",
    "ratekeeper-client",
    // The channel to the collector, in the exporter alone.
    "ratekeeper-trace",
    "ratekeeper-bench",
    "ratekeeper-compat",
    "ratekeeper-chaos",
    // A control plane for tests.
    "ratekeeper-testkit",
    "example-tonic",
];

/// Crates that must not be in an embedder's build.
const NOT_IN_THE_LIBRARY: &str =
    "axum clap hyper jsonwebtoken maxminddb notify prost ring tokio tonic";

/// Crates that limits as values do without, besides.
const NOT_BY_DEFAULT: &str =
    "jiff ratekeeper-limiter ratekeeper-rules rustls saphyr-parser schemars serde serde_json";

/// The most lines of code in the body of a function outside tests. It only ever gets smaller.
const FUNCTION_LINES_MAX: usize = 80;

/// Functions that are longer, by file and name.
const LONG_FUNCTIONS: [(&str, &str); 1] =
    // The random history of a simulation, field by field.
    [("crates/ratekeeper-testkit/src/regions/plan.rs", "random")];

/// The most crates that `cargo add ratekeeper` may build.
const CRATES_BY_DEFAULT_MAX: usize = 25;

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a package has a name")
}

/// The dependencies of a package outside its tests.
fn dependencies(package: &Value) -> BTreeSet<&str> {
    let all = package["dependencies"]
        .as_array()
        .expect("a package lists its dependencies");
    all.iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter_map(|dependency| dependency["name"].as_str())
        .collect()
}

/// Background work that panics is begun again, and a request that does costs its connection: not if a panic ends the process.
#[test]
fn no_profile_has_a_panic_end_the_process() {
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("[profile.release]"));
    let sets_panic = |line: &&str| {
        line.split('=')
            .next()
            .is_some_and(|key| key.trim() == "panic")
    };
    assert_eq!(manifest.lines().find(sets_panic), None);
}

#[test]
fn dependencies_between_crates_are_those_of_architecture_md() {
    let table = table_of_dependencies();
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(name).collect();
    for package in &packages {
        let name = name(package);
        let allowed = table.get(name);
        let allowed =
            allowed.unwrap_or_else(|| panic!("{name} is new: list it in ARCHITECTURE.md"));
        let uses: BTreeSet<&str> = dependencies(package).intersection(&ours).copied().collect();
        let allowed: BTreeSet<&str> = allowed.iter().map(String::as_str).collect();
        assert_eq!(
            uses, allowed,
            "of {name}: left the manifest, right ARCHITECTURE.md"
        );
    }
    for listed in table.keys() {
        assert!(ours.contains(listed.as_str()), "{listed} is no crate");
    }
}

/// Our crates, each with those of ours that its library or program may use, by ARCHITECTURE.md.
fn table_of_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("ARCHITECTURE.md");
    let (_, section) = page
        .split_once("\n### Dependencies\n")
        .expect("a section has the table");
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let mut table = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, crates, uses, must_not_know, _] = cells[..] else {
            panic!("not three cells: {row}");
        };
        assert!(!must_not_know.is_empty(), "{crates} may know everything?");
        let uses: BTreeSet<String> = names(uses).collect();
        table.extend(names(crates).map(|from| (from, uses.clone())));
    }
    table
}

/// The names of crates in a cell, in full.
fn names(cell: &str) -> impl Iterator<Item = String> {
    let short = cell.split(", ").filter(|name| !name.is_empty());
    short.map(|name| match name {
        "ratekeeper" | "xtask" => name.to_owned(),
        example if example.starts_with("example-") => example.to_owned(),
        part => format!("ratekeeper-{part}"),
    })
}

#[test]
fn only_the_edges_know_protobuf() {
    for package in packages() {
        let name = name(&package);
        if KNOW_PROTOBUF.contains(&name) {
            continue;
        }
        let wire = |to: &&str| to.starts_with("prost") || to.starts_with("tonic");
        let known: Vec<&str> = dependencies(&package).into_iter().filter(wire).collect();
        assert!(known.is_empty(), "{name} must not know {known:?}");
    }
}

#[test]
fn the_library_brings_no_server() {
    // The layer waits, so it needs tokio's timers; its users have a runtime.
    for (features, besides) in [(&[][..], ""), (&["--features", "tower"], "tokio")] {
        let tree = cargo(
            &[
                &["tree", "--package", "ratekeeper", "--edges", "normal"][..],
                &["--prefix", "none"],
                features,
            ]
            .concat(),
        );
        for line in tree.lines() {
            let crate_name = line.split(' ').next().unwrap_or_default();
            assert!(
                crate_name == besides || NOT_IN_THE_LIBRARY.split(' ').all(|it| it != crate_name),
                "`cargo add ratekeeper {features:?}` would build {crate_name}"
            );
        }
    }
}

#[test]
fn limits_as_values_bring_few_crates() {
    let crates = |features: &str| -> BTreeSet<String> {
        let tree = cargo(&[
            "tree",
            "--package",
            "ratekeeper",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--no-default-features",
            "--features",
            features,
        ]);
        let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        tree.lines()
            .map(name)
            .filter(|name| !name.is_empty())
            .collect()
    };
    let alone = crates("");
    let most = CRATES_BY_DEFAULT_MAX;
    assert!(alone.len() <= most, "{} crates: {alone:#?}", alone.len());
    for features in ["", "layer"] {
        let built = crates(features);
        let unwanted = NOT_IN_THE_LIBRARY
            .split(' ')
            .chain(NOT_BY_DEFAULT.split(' '));
        let unwanted: Vec<_> = unwanted.filter(|name| built.contains(*name)).collect();
        assert!(unwanted.is_empty(), "`{features}` would build {unwanted:?}");
    }
    let page = read("docs/library.md");
    for (feature, row) in [
        ("", "| none | "),
        ("layer", "| `layer` | "),
        ("tower", "| `tower` | "),
    ] {
        let row = page
            .lines()
            .find(|line| line.starts_with(row))
            .expect("the page has a row");
        let told = row.trim_end_matches(" |").rsplit("| ").next();
        let built = crates(feature).len().to_string();
        assert_eq!(told, Some(&*built), "docs/library.md: {row}");
    }
}

#[test]
fn only_the_command_reads_the_environment() {
    let reads = ["env::var", "env::vars", "env::set_var"];
    for (file, text) in texts(&[]) {
        let ours = file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs");
        // Only tests use the test kit, and only the environment can tell them which server to
        // start.
        let told = ["crates/ratekeeper-cli/", "crates/ratekeeper-testkit/"];
        if !ours || is_of_tests(&file) || told.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        for read in reads {
            assert!(
                !text.contains(read),
                "{file} uses {read}: take it as an argument instead"
            );
        }
    }
}

#[test]
fn every_crate_has_a_licence_and_says_what_it_is() {
    for package in packages() {
        let name = name(&package);
        assert_eq!(
            package["license"].as_str(),
            Some("Apache-2.0"),
            "{name} has no licence field"
        );
        let description = package["description"].as_str().unwrap_or_default();
        assert!(description.contains(' '), "{name} has no description");
        for target in package["targets"]
            .as_array()
            .expect("a package has targets")
        {
            let library_or_program = ["lib", "bin"]
                .iter()
                .any(|kind| target["kind"][0].as_str() == Some(kind));
            let source = target["src_path"].as_str().expect("a target has a source");
            let text = std::fs::read_to_string(source).expect("its source can be read");
            let documented = text.starts_with("//!") || text.starts_with("#![doc");
            assert!(
                !library_or_program || documented,
                "{source} does not say what it is for"
            );
        }
    }
    let licence = read("LICENSE");
    assert!(licence.contains("Apache License"));
}

#[test]
fn no_file_belongs_to_one_machine() {
    // Split in two, so that this file does not match itself.
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tmp/tar", "get"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("registry.np", "mjs.org"),
        concat!("files.python", "hosted.org"),
        concat!("proxy.go", "lang.org"),
        concat!("deb.deb", "ian.org"),
    ];
    for (file, text) in texts(&[]) {
        for word in forbidden {
            assert!(
                !text.contains(word),
                "{file} names {word}, which is of one machine or one registry"
            );
        }
    }
}

/// Tests may be longer: many are tables of cases.
#[test]
fn functions_fit_a_screen() {
    let sources = texts(&["crates/*/src/*.rs", "xtask/src/*.rs"]).into_iter();
    let sources =
        sources.filter(|(file, _)| !is_of_tests(file) && !file.contains("/src/generated/"));
    let mut long = BTreeSet::new();
    for (file, text) in sources {
        let code = text.split("#[cfg(test)]\nmod tests").next();
        for (name, lines) in functions(code.unwrap_or_default()) {
            if lines > FUNCTION_LINES_MAX {
                long.insert((file.clone(), name.to_owned()));
            }
        }
    }
    let known = LONG_FUNCTIONS.map(|(file, name)| (file.to_owned(), name.to_owned()));
    assert_eq!(
        long,
        BTreeSet::from(known),
        "a function is longer than {FUNCTION_LINES_MAX} lines, or one that is listed no longer is"
    );
}

/// The functions of a text that rustfmt has written, and the lines of code in their bodies.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let name = head.split_once("fn ").filter(|(before, _)| {
            let mut words = before.split_whitespace();
            words.all(|word| word.starts_with("pub") || ["async", "const"].contains(&word))
        });
        let Some((_, name)) = name else {
            continue;
        };
        let end = format!("{}}}", &line[..line.len() - head.len()]);
        let mut rest = lines[at..].iter();
        // Others have no body, or an empty one.
        if !rest
            .find(|it| it.ends_with(['{', '}', ';']))
            .is_some_and(|head| head.ends_with('{'))
        {
            continue;
        }
        let code = rest
            .take_while(|it| **it != end)
            .map(|it| it.trim_start())
            .filter(|it| !it.is_empty() && !it.starts_with("//"));
        let name = name.split(['(', '<']).next().unwrap_or_default();
        found.push((name, code.count()));
    }
    found
}

#[test]
fn the_lines_of_functions_are_counted() {
    let text = "impl A {\n    pub(crate) const fn one(\n        a: u8,\n    ) -> u8 {\n        // Why.\n\n        let b = a;\n        b\n    }\n}\n\ntrait B {\n    fn none(&self);\n}\n\nasync fn two<T>() {\n    if true {\n    }\n}\n";
    assert_eq!(functions(text), [("one", 2), ("two", 2)]);
}

#[test]
fn no_second_tls_or_c_crypto_is_locked() {
    let lock = read("Cargo.lock");
    for unwanted in ["aws-lc-sys", "openssl-sys"] {
        assert!(
            !lock.contains(&format!("name = \"{unwanted}\"")),
            "{unwanted} came in: cargo tree -i {unwanted}"
        );
    }
}
