//! The container image is built from what the repository says elsewhere.

mod repository;

use serde_json::Value;

use repository::{read, root};

#[test]
fn the_image_is_built_with_the_toolchain_of_the_repository() {
    let toolchain = read("rust-toolchain.toml");
    let line = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = "));
    let channel = line.expect("it names a channel").trim_matches('"');
    let image = stage("build");
    assert_eq!(
        image.split_once('-').map(|(version, _)| version),
        Some(&*format!("rust:{channel}")),
        "the Rust of the image"
    );
    assert_eq!(
        words("ENV RUSTUP_TOOLCHAIN="),
        [channel],
        "the Rust that it runs"
    );
}

#[test]
fn the_image_needs_nothing_but_a_static_binary() {
    let dockerfile = read("deploy/Dockerfile");
    let last = dockerfile.lines().rfind(|line| line.starts_with("FROM "));
    assert_eq!(last, Some("FROM scratch"));
    // The one official image of Rust whose programs need no C library.
    assert!(stage("build").ends_with("-alpine"), "{}", stage("build"));
}

/// The Dockerfile and `cargo xtask image` make the same image.
#[test]
fn both_ways_to_the_image_agree() {
    let xtask = read("xtask/src/image.rs");
    let user = words("USER ");
    let user = user.first().and_then(|user| user.split_once(':'));
    let (user, group) = user.expect("the image has a user and a group");
    assert!(user == group && xtask.contains(&format!("const USER: u32 = {user};")));
    let entry = words("ENTRYPOINT ");
    assert_eq!(entry, [r#"["/bin/ratekeeper"]"#]);
    assert!(xtask.contains(r#"["--config.entrypoint", "/bin/ratekeeper"]"#));
    for port in words("EXPOSE ").concat().split(' ') {
        let same = format!(r#"["--config.exposedports", "{port}/tcp"]"#);
        assert!(xtask.contains(&same), "{same}");
    }
    assert!(xtask.contains(r#""usr/share/doc/ratekeeper/LICENSE""#));
    assert!(words("COPY ").contains(&"LICENSE /usr/share/doc/ratekeeper/".to_owned()));
}

/// A volume takes over the owner of the folder that it is mounted on: root's could not be written by the image's user.
#[test]
fn both_images_have_a_folder_for_state_and_names_of_users() {
    let xtask = read("xtask/src/image.rs");
    assert!(xtask.contains(r#"tree.join("var/lib/ratekeeper")"#));
    assert!(xtask.contains("from_mode(0o700)"));
    // The folder above is copied, so that the mode of this one survives.
    let made = "install -d -m 700 -o 65534 -g 65534 /state/ratekeeper";
    let run = words("RUN ").into_iter().find(|run| run.contains(made));
    assert!(run.is_some(), "no {made}");
    assert!(
        words("COPY ").contains(&"--from=build --chown=65534:65534 /state /var/lib".to_owned())
    );
    for (file, line) in [
        ("passwd", r"nobody:x:65534:65534::/:\n"),
        ("group", r"nobody:x:65534:\n"),
    ] {
        let of_xtask = line.replace("65534", "{USER}");
        assert!(xtask.contains(&of_xtask), "{of_xtask}");
        let written = format!("printf '{line}' > /names/{file}");
        assert!(read("deploy/Dockerfile").contains(&written), "{written}");
    }
    let volume = words("VOLUME ").concat();
    let same = format!(r#"["--config.volume", "{volume}"]"#);
    assert!(!volume.is_empty() && xtask.contains(&same), "{same}");
}

/// The same steps as those of `cargo xtask build`, with a Node that they run on.
#[test]
fn the_page_is_built_as_outside_of_the_image() {
    let page: Value = serde_json::from_str(&read("dashboard/package.json")).expect("it is JSON");
    let wanted = page["engines"]["node"].as_str().expect("it names a Node");
    let (major, minor) = wanted
        .strip_prefix(">=")
        .and_then(|version| version.split_once('.'))
        .expect("a least version");
    let xtask = read("xtask/src/dashboard.rs");
    let same = format!("NODE_MIN: (u32, u32) = ({major}, {minor});");
    assert!(xtask.contains(&same), "xtask wants {same}");
    let image = stage("dashboard");
    let version = image.strip_prefix("node:").expect("an image of Node");
    let version = version.split('-').next().and_then(|it| it.parse().ok());
    let least: u32 = major.parse().expect("a number");
    assert!(version > Some(least), "{image}, and {wanted} is wanted");

    let steps = words("RUN npm ");
    assert_eq!(steps, ["ci --ignore-scripts && npm run build"]);
    assert!(xtask.contains(r#"["ci", "--ignore-scripts","#), "{xtask}");
    assert!(xtask.contains(r#"["run", "--silent", "build"]"#), "{xtask}");
    assert!(page["scripts"]["build"].is_string());
}

#[test]
fn what_is_copied_into_the_image_exists_and_is_not_ignored() {
    let ignored = read(".dockerignore");
    let copied = words("COPY ");
    assert!(copied.len() >= 4, "{copied:?}");
    for from in copied.iter().filter(|copy| !copy.starts_with("--from=")) {
        let source = from.split(' ').next().expect("a source");
        assert!(root().join(source).exists(), "{source}");
        let is_ignored = ignored.lines().any(|line| line == format!("/{source}"));
        assert!(!is_ignored, "{source} is ignored");
    }
    // Whatever a build has left here would be taken for the image's own.
    for folder in ["/target", "/dashboard/node_modules", "/dashboard/dist"] {
        assert!(ignored.lines().any(|line| line == folder), "{folder}");
    }
}

/// The image that the stage of that name begins with.
fn stage(name: &str) -> String {
    let end = format!(" AS {name}");
    let stages = words("FROM ");
    let found = stages.iter().find_map(|image| image.strip_suffix(&end));
    found.expect("the Dockerfile has that stage").to_owned()
}

/// The rest of each line that begins so.
fn words(begin: &str) -> Vec<String> {
    let dockerfile = read("deploy/Dockerfile");
    let rest = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix(begin));
    rest.map(str::to_owned).collect()
}
