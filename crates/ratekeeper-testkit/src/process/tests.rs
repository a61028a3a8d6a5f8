use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::ports::is_free;
use super::{OUTPUT_BYTES_MAX, Process, eventually, free_port, system, tool};

fn shell(script: &str) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::spawn("the shell", command)
}

/// Returns true if a process exists and is not a zombie.
fn is_alive(id: u32) -> bool {
    let ps = Command::new("ps")
        .args(["-o", "stat=", "-p", &id.to_string()])
        .output();
    let state = ps.expect("ps starts").stdout;
    let state = state.trim_ascii();
    !state.is_empty() && !state.starts_with(b"Z")
}

fn state(id: u32) -> u8 {
    let ps = Command::new("ps")
        .args(["-o", "stat=", "-p", &id.to_string()])
        .output();
    *ps.expect("ps starts").stdout.first().unwrap_or(&b'-')
}

#[test]
fn both_streams_are_kept_in_the_order_they_came() {
    let mut process = shell("echo one; echo two >&2; echo three; exec sleep 60");
    let printed = process.wait_for_output("three");
    assert_eq!(printed, "one\ntwo\nthree\n");
}

#[test]
fn a_line_in_pieces_is_waited_for_to_its_end() {
    let mut process = shell("printf 'port '; sleep 0.2; echo 8080; exec sleep 60");
    assert_eq!(process.wait_for_output("port"), "port 8080\n");
    assert!(process.has_printed("8080") && !process.has_printed("8081"));
}

#[test]
fn of_much_output_the_end_is_kept() {
    let mut process = shell("yes abcdefg | head -c 3000000; echo; echo done; exec sleep 60");
    let printed = process.wait_for_output("\ndone");
    assert!(printed.len() <= OUTPUT_BYTES_MAX + 10);
    assert!(printed.starts_with("[…]"));
    assert_eq!(process.lines(), 375_000 + 2, "all of it is counted");
}

#[test]
fn a_panic_is_known_however_much_comes_after_it() {
    let mut process = shell(
        "printf \"thread 'x' panick\" >&2; sleep 0.2; echo 'ed at a.rs:1' >&2; yes abcdefg | head -c 3000000; echo; \
         echo done; exec sleep 60",
    );
    let printed = process.wait_for_output("\ndone");
    assert!(!printed.contains("panicked"), "it is no longer kept");
    assert!(process.has_panicked());
    let mut calm = shell("echo panic; exec sleep 60");
    calm.wait_for_output("panic");
    assert!(!calm.has_panicked());
}

#[test]
fn children_end_with_their_program() {
    let mut process = shell("sleep 60 & echo child $!; wait");
    let printed = process.wait_for_output("child");
    let child: u32 = printed
        .trim()
        .rsplit(' ')
        .next()
        .and_then(|id| id.parse().ok())
        .expect("it printed an id");
    assert!(is_alive(child));
    drop(process);
    eventually("the child is gone", || !is_alive(child));
}

#[test]
fn it_can_be_held_and_let_go() {
    let mut process = shell("trap 'exit 7' TERM; sleep 60 & echo ready; wait");
    process.wait_for_output("ready");
    process.pause();
    let id = process.id();
    assert_eq!(state(id), b'T', "it stands still at once");
    process.resume();
    assert_eq!(process.terminate().code(), Some(7));
    assert_eq!(process.ended().and_then(|status| status.code()), Some(7));
}

#[test]
fn killing_does_not_ask() {
    let mut process = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done");
    process.wait_for_output("ready");
    process.kill();
    process.kill();
    let ended = process.ended().and_then(|status| status.signal());
    assert_eq!(ended, Some(9));
}

#[test]
#[should_panic(expected = "the shell ended with exit status: 3 before it printed \"ready\"")]
fn an_early_end_is_told_at_once() {
    shell("exit 3").wait_for_output("ready");
}

#[test]
#[should_panic(
    expected = "no-such-program is not on this machine, and this test needs it: `cargo xtask test` installs it"
)]
fn a_missing_program_fails_the_test() {
    let _ = Process::spawn("nothing", system("no-such-program"));
}

#[test]
#[should_panic(expected = "`cargo xtask test` installs it")]
fn a_missing_tool_fails_the_test() {
    let _ = tool("no-such-tool");
}

#[test]
#[should_panic(expected = "the shell ended with exit status: 3 before it listens on 127.0.0.1:")]
fn a_stranger_that_listens_is_not_taken_for_the_program() {
    let port = free_port();
    let _stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    shell("sleep 0.2; exit 3").wait_for_port(port);
}

#[test]
fn a_child_that_listens_counts_even_in_a_group_of_its_own() {
    let port = free_port();
    let mut command = Command::new("bash");
    command.args([
        "-c",
        &format!(
            "set -m; trap 'kill %1; wait; exit' TERM
             redis-server --port {port} --bind 127.0.0.1 --save '' & wait"
        ),
    ]);
    let mut process = Process::spawn("the shell", command);
    process.wait_for_port(port);
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it answers");
    process.terminate();
    eventually("its child has ended", || is_free(port));
}
