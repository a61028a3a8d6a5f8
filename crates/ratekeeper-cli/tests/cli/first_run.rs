//! What the README's first command shows, on the example configuration.

use crate::support::{Service, ratekeeper, repository, write};
use ratekeeper_testkit::process::{Process, free_port};
use std::process::Command;
use tempfile::tempdir;

#[test]
fn a_bare_run_serves_the_example_and_its_three_commands_work_when_pasted() {
    let folder = tempdir().expect("a folder can be made");
    let mut command = ratekeeper(&repository(), &[]);
    for name in ["RATEKEEPER_GRPC", "RATEKEEPER_HTTP", "RATEKEEPER_ADMIN"] {
        command.env(name, "127.0.0.1:0");
    }
    command.env("RATEKEEPER_DRAIN_DELAY", "0s");
    let service = Service::start(command, folder.path());
    let [ask, metrics, explain] = &service.commands[..] else {
        panic!("there are not three commands: {:?}", service.commands);
    };

    let log = service.log();
    assert!(
        !log.contains("WARN"),
        "the example starts with a warning: {log}"
    );

    let asked = paste(ask);
    let decisions: Vec<serde_json::Value> = asked
        .lines()
        .map(|line| serde_json::from_str(line).expect("each answer is JSON"))
        .collect();
    let (last, before) = decisions.split_last().expect("there were answers");
    assert_eq!(last["decision"], "deny", "{asked}");
    assert!(
        before.iter().all(|answer| answer["decision"] == "allow"),
        "{asked}"
    );

    assert!(paste(metrics).contains("ratelimit_decisions_total{"));
    let explained = paste(explain);
    assert!(explained.contains("would be denied"), "{explained}");
    assert!(service.stop().success());
}

/// Runs a line as a shell does. It needs curl, which `cargo xtask test` installs.
fn paste(line: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", line])
        .output()
        .expect("there is a shell");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {complaint}");
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

/// README's lines about several nodes, as they stand but for this run's ports, binary and folder.
#[test]
fn the_lines_about_several_nodes_work_when_pasted() {
    let readme =
        std::fs::read_to_string(repository().join("README.md")).expect("there is a README");
    let (_, block) = readme
        .split_once("## Several nodes")
        .expect("it has that part");
    let (_, block) = block.split_once("```sh\n").expect("with lines to paste");
    let (block, _) = block.split_once("```").expect("and their end");

    let folder = tempdir().expect("a folder can be made");
    std::fs::create_dir(folder.path().join("target")).expect("folders can be made");
    let [redis, http, grpc, admin, http_2, grpc_2, admin_2] = [(); 7].map(|()| free_port());
    let settings = format!(
        "rules: {}\nhttp: 127.0.0.1:{http}\ngrpc: 127.0.0.1:{grpc}\nadmin: 127.0.0.1:{admin}\nstore_deadline: 1s\n",
        repository().join("config/rules").display()
    );
    write(folder.path(), "ratekeeper.yaml", &settings);
    let pasted = block
        .replace(
            "redis-server --daemonize yes",
            &format!("redis-server --port {redis} --save '' > target/redis.log 2>&1 &"),
        )
        .replace("redis-cli ping", &format!("redis-cli -p {redis} ping"))
        .replace("redis://127.0.0.1/", &format!("redis://127.0.0.1:{redis}/"))
        .replace(
            "target/release/ratekeeper",
            env!("CARGO_BIN_EXE_ratekeeper"),
        )
        .replace(":9081", &format!(":{grpc_2}"))
        .replace("127.0.0.1:9070", &format!("127.0.0.1:{admin_2}"))
        .replace("--http :9080", &format!("--http :{http_2}"))
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{http}"))
        .replace("127.0.0.1:9080", &format!("127.0.0.1:{http_2}"))
        .replace("8080 9080 8080", &format!("{http} {http_2} {http}"));
    let mut command = Command::new("sh");
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .current_dir(folder.path())
        .args(["-c", &format!("{pasted}\necho over; wait")]);
    let mut shell = Process::spawn("the shell", command);
    let printed = shell.wait_for_output("over");
    for left in [99, 98, 97] {
        let told = format!("\"remaining\":{left}");
        assert!(printed.contains(&told), "no {told} in {printed}");
    }
}
