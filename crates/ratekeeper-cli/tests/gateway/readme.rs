//! README's lines about the gateway, pasted.

use std::path::Path;
use std::process::Command;

use ratekeeper_testkit::process::{Process, free_port};

#[test]
fn its_three_lines_work_when_pasted() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("there is a README");
    let (_, block) = readme
        .split_once("## In front of a service")
        .expect("it has that part");
    let (_, block) = block.split_once("```sh\n").expect("with lines to paste");
    let (block, _) = block.split_once("```").expect("and their end");
    assert_eq!(block.lines().count(), 3);

    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::create_dir(folder.path().join("target")).expect("a folder can be made");
    let [upstream, edge, admin] = [(); 3].map(|()| free_port());
    // As it stands, but for this run's ports, binary and rules, which are the ones that are shipped.
    let settings = format!(
        "rules: {}\nadmin: 127.0.0.1:{admin}\nlisten: 127.0.0.1:{edge}\n",
        root.join("config/rules").display()
    );
    std::fs::write(folder.path().join("ratekeeper.yaml"), settings).expect("a file can be written");
    let pasted = block
        .replace(
            "target/release/ratekeeper",
            env!("CARGO_BIN_EXE_ratekeeper"),
        )
        .replace(" 3000 ", &format!(" {upstream} "))
        .replace(":3000", &format!(":{upstream}"))
        .replace(":8082", &format!(":{edge}"));
    let mut command = Command::new("sh");
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .current_dir(folder.path())
        .args(["-c", &format!("{pasted}\necho over; wait")]);
    let mut shell = Process::spawn("the shell", command);
    let printed = shell.wait_for_output("over").to_ascii_lowercase();
    assert!(printed.contains("x-ratelimit-limit: "), "{printed}");
    let count = |status: &str| {
        let line = printed
            .lines()
            .find_map(|line| line.trim().strip_suffix(status));
        line.and_then(|count| count.trim().parse::<u32>().ok())
            .unwrap_or_default()
    };
    assert!(count(" 200") >= 29 && count(" 429") > 0, "{printed}");
    assert_eq!(count(" 200") + count(" 429"), 100, "{printed}");
}
