//! Reads files and folders.

use std::fs;
use std::path::Path;

use ratekeeper_rules::{Options, ReadError, ReadOptions, read, read_tests};
use tempfile::TempDir;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    folder
}

fn names(path: &Path, every_file: bool) -> Vec<String> {
    let sources = read(path, &ReadOptions { every_file }).expect("it can be read");
    let name = |name: &str| {
        name.strip_prefix(&format!("{}/", path.display()))
            .unwrap_or(name)
            .to_owned()
    };
    sources.iter().map(|source| name(&source.name)).collect()
}

#[test]
fn folders_are_read_in_order_and_without_dot_files() {
    let folder = folder(&[
        ("b.yaml", b""),
        ("a.yml", b""),
        ("z/c.yaml", b""),
        ("c.txt", b""),
        ("README", b""),
        (".hidden.yaml", b""),
        ("..data/a.yaml", b""),
        (".git/x.yaml", b""),
        ("d.yaml~", b""),
    ]);
    assert_eq!(names(folder.path(), false), ["a.yml", "b.yaml", "z/c.yaml"]);
    assert_eq!(
        names(folder.path(), true),
        ["README", "a.yml", "b.yaml", "c.txt", "d.yaml~", "z/c.yaml"]
    );
}

#[test]
fn tests_are_no_rules_and_rules_are_no_tests() {
    let folder = folder(&[
        ("a.yaml", b"domain: a\n"),
        ("a.test.yaml", b"rules: a.yaml\ntests:\n- name: t\n"),
        ("b/b.test.yml", b"tests: []\n"),
        // The name alone takes no rules out of force.
        ("c.test.yaml", b"domain: c\n"),
        // Neither does the key.
        ("d.yaml", b"tests: []\n"),
    ]);
    let rules = ["a.yaml", "c.test.yaml", "d.yaml"];
    assert_eq!(names(folder.path(), false), rules);
    assert_eq!(names(folder.path(), true), rules);
    let tests = read_tests(folder.path()).expect("they can be read");
    let tests: Vec<_> = tests.iter().map(|source| &*source.name).collect();
    let name = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(tests, [name("a.test.yaml"), name("b/b.test.yml")]);
    // Whoever names a file wants it.
    let one = read(&folder.path().join("a.test.yaml"), &ReadOptions::default());
    assert_eq!(one.expect("it can be read").len(), 1);
}

#[test]
fn tests_are_known_however_their_keys_are_spelt() {
    let folder = folder(&[
        ("a.test.yaml", "\u{feff}tests:\n- name: t\n".as_bytes()),
        ("b.test.yaml", b"\"tests\":\n- name: t\n"),
        ("c.test.yaml", b"tests : []\n"),
        // A file that is begun.
        (
            "d.test.yaml",
            b"rules: shop.yaml\ndomain: shop\n# tests: to come\n",
        ),
        ("e.test.yaml", b"{ rules: shop.yaml, tests: [] }\n"),
        // A text in rules is none of their keys.
        ("f.test.yaml", b"domain: f\ndescriptors:\n- key: |-\n   a\n"),
        // What cannot be read is told by whom its lines say.
        ("g.test.yaml", b"tests:\n- {\n"),
    ]);
    assert_eq!(names(folder.path(), false), ["f.test.yaml"]);
    assert_eq!(
        read_tests(folder.path()).expect("they can be read").len(),
        6
    );
}

#[test]
fn one_file_is_read_whatever_its_name() {
    let folder = folder(&[("rules.conf", b"domain: d\n")]);
    let path = folder.path().join("rules.conf");
    let sources = read(&path, &ReadOptions::default()).expect("it can be read");
    assert_eq!(sources.len(), 1);
    assert_eq!(
        (sources[0].name.as_str(), sources[0].text.as_str()),
        (path.to_str().expect("UTF-8"), "domain: d\n")
    );
}

#[test]
fn a_missing_file_is_an_error_with_its_path() {
    let folder = folder(&[]);
    assert!(names(folder.path(), false).is_empty());
    let path = folder.path().join("nowhere");
    let error = read(&path, &ReadOptions::default()).expect_err("it is not there");
    assert!(matches!(error, ReadError::Io { .. }));
    assert!(error.to_string().ends_with("nowhere"));
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_never_in_circles() {
    use std::os::unix::fs::symlink;
    // As Kubernetes mounts a ConfigMap.
    let folder = folder(&[
        ("..2026_01_01/rules.yaml", b"domain: d\n"),
        ("sub/x.yaml", b""),
    ]);
    let root = folder.path();
    symlink("..2026_01_01", root.join("..data")).expect("a link");
    symlink("..data/rules.yaml", root.join("rules.yaml")).expect("a link");
    symlink(root, root.join("sub/up")).expect("a link");
    symlink("sub", root.join("tub")).expect("a link");
    symlink("nowhere", root.join("dangling.txt")).expect("a link");
    assert_eq!(names(root, false), ["rules.yaml", "sub/x.yaml"]);
    symlink("nowhere", root.join("dangling.yaml")).expect("a link");
    assert!(read(root, &ReadOptions::default()).is_err());
}

#[test]
fn a_binary_file_is_an_error_with_its_position() {
    let folder = folder(&[
        ("a.yaml", "domain: d\n# größe: \u{1f600}\nkey: ".as_bytes()),
        ("b.yaml", b"domain: d\nkey: abc\xff\xfe def\n"),
        ("c.yaml", b"\xfe\xff\0d\0"),
    ]);
    let error = read(folder.path(), &ReadOptions::default()).expect_err("two are no text");
    let ReadError::Unreadable(errors) = error else {
        panic!("{error}")
    };
    let told: Vec<_> = errors
        .errors
        .iter()
        .map(|error| (error.place.line, error.place.column, error.message.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (2, 9, "this is not UTF-8: byte 0xff"),
            (1, 1, "this starts like UTF-16, and is none")
        ]
    );
    assert!(errors.to_string().contains("2 | key: abc"), "{errors}");
}

#[test]
fn a_file_that_is_no_text_does_not_hide_what_is_wrong_with_the_others() {
    let large = vec![b' '; (16 << 20) + 1];
    let folder = folder(&[
        ("a.yaml", b"domain: d\ndescriptors:\n  - key: ''\n"),
        ("b.yaml", b"\xff"),
        ("c.yaml", &large),
        ("d.yaml", b"domain: e\nbananas: 3\n"),
    ]);
    let error = read(folder.path(), &ReadOptions::default()).expect_err("two are no text");
    let ReadError::Unreadable(unreadable) = error else {
        panic!("{error}")
    };
    let all = unreadable.all(&Options::default());
    let told: Vec<_> = all
        .errors()
        .iter()
        .map(|error| {
            let file = error.place.file.rsplit('/').next().unwrap_or_default();
            (file, error.message.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("a.yaml", "descriptor has empty key"),
            ("b.yaml", "this is not UTF-8: byte 0xff"),
            ("c.yaml", "this is larger than 16 MiB"),
            ("d.yaml", "unknown key 'bananas' at the top of a file"),
        ]
    );
}

#[test]
fn utf_16_is_read_with_a_byte_order_mark() {
    let text: Vec<u8> = "\u{feff}domain: größe\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let folder = folder(&[("a.yaml", &text)]);
    let sources = read(folder.path(), &ReadOptions::default()).expect("it is text");
    assert_eq!(sources[0].text, "domain: größe\n");
}
