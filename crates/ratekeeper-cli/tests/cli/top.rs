//! `ratekeeper top`, as people and scripts run it.

use crate::support::{self, Ratekeeper, http, run, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{eventually, free_port, system};
use ratekeeper_testkit::ratekeeper::Args;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::tempdir;

const RULES: &str = "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }\n";

fn serve(folder: &Path, more: &[&str]) -> Ratekeeper {
    support::serve(folder).rules(RULES).args(more).start()
}

#[test]
fn once_prints_a_state_as_text() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    for _ in 0..4 {
        service.check(&[("user", "ann")]);
    }
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let said = run(folder.path(), &["top", "--once", "--admin", &admin]).succeeded();
    for part in [
        "serving",
        "allowed/s",
        "Denied most",
        "RULE",
        "d.user",
        "1 per 1d",
        "counters",
    ] {
        assert_contains(&said, part);
    }
    assert!(!said.contains('\u{1b}'), "{said}");
    // Into a pipe it is one text, asked for or not.
    let piped = run(folder.path(), &["top", "--admin", &admin]).succeeded();
    assert!(piped.contains("d.user"), "{piped}");
    let json = run(folder.path(), &["top", "--json", "--admin", &admin]);
    let state: Value = serde_json::from_str(&json.out).expect("it is JSON");
    assert_eq!(state["node"]["state"], "serving", "{state}");
    assert!(service.stop().success());
}

/// The words of the lines about rules, the header left out.
fn rule_rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().skip_while(|line| !line.contains("RULE "));
    lines
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// A state has counts since the start, so that a rate takes two of them.
#[test]
fn once_tells_the_rates_of_rules_and_what_no_rule_matches() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let admin = format!("http://127.0.0.1:{}", service.admin);
    let asked = |body: &str| http(service.port, "POST", "/v1/check", body).0;
    let is_over = AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                service.check(&[("user", "ann")]);
                service.check(&[("usr", "ann")]);
                let unknown = r#"{"domain":"shpo","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
                assert_eq!(asked(unknown), 200);
            }
        });
        let said = run(folder.path(), &["top", "--once", "--admin", &admin]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out
    });
    let rows = rule_rows(&text);
    // Denied in this second; after it come those allowed and denied since the start.
    let denied = rows.first().and_then(|row| row.iter().rev().nth(2));
    let denied = denied.and_then(|word| word.parse().ok());
    assert!(denied.is_some_and(|rate: u64| rate > 0), "{text}");
    for part in [" unmatched/s pass", " of unknown domains/s pass"] {
        assert_contains(&text, part);
    }
    assert!(service.stop().success());
}

#[test]
fn a_token_is_asked_for_and_taken_from_a_file() {
    let folder = tempdir().expect("a folder can be made");
    let create = "token create ann --role viewer --data-dir data";
    let made = run(folder.path(), create).succeeded();
    let is_token = |word: &&str| word.starts_with("rk_admin_");
    let mut words = made.split_whitespace();
    let token = words.find(is_token).expect("it is printed");
    write(folder.path(), "token.txt", token);
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let admin = format!("http://127.0.0.1:{}", service.admin);
    run(folder.path(), &["top", "--once", "--admin", &admin]).refused("401");
    let with = format!("top --once --admin {admin} --token-file token.txt");
    let with = with.words();
    run(folder.path(), &with).succeeded();
    assert!(service.stop().success());
}

#[test]
fn an_absent_service_is_reported_in_one_line() {
    let folder = tempdir().expect("a folder can be made");
    let admin = format!("http://127.0.0.1:{}", free_port());
    run(folder.path(), &["top", "--once", "--admin", &admin]).refused("cannot connect");
}

/// `ratekeeper top` in a terminal of its own.
struct Terminal {
    script: Child,
    input: ChildStdin,
    output: ChildStdout,
    said: String,
}

impl Terminal {
    /// Runs it, and waits until rules are drawn, which is once the first state has come.
    fn start(service: &Ratekeeper) -> Self {
        let top = format!(
            "stty cols 120 rows 40; echo before $(stty -g); sh -c 'echo pid=$$; exec {} top --admin http://127.0.0.1:{}'; \
             echo code=$?; echo after $(stty -g)",
            env!("CARGO_BIN_EXE_ratekeeper"),
            service.admin
        );
        let mut script = system("script");
        script.args(["--quiet", "--command", &top, "/dev/null"]);
        script.env("TERM", "xterm-256color");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().expect("script starts");
        let mut terminal = Self {
            input: script.stdin.take().expect("its input is piped"),
            output: script.stdout.take().expect("its output is piped"),
            script,
            said: String::new(),
        };
        let mut piece = [0; 4096];
        while !terminal.said.contains("d.user") {
            let read = terminal.output.read(&mut piece).expect("it can be read");
            assert!(read > 0, "it ended: {}", terminal.said);
            terminal.said += &String::from_utf8_lossy(&piece[..read]);
        }
        terminal
    }

    fn press(&mut self, key: &str) {
        self.input.write_all(key.as_bytes()).expect("it reads keys");
    }

    fn signal(&self, name: &str) {
        let pid = self.line("pid=");
        let kill = system("kill").args([&format!("-{name}"), &pid]).status();
        assert!(kill.expect("kill starts").success());
    }

    /// The rest of the line that begins so.
    fn line(&self, start: &str) -> String {
        let after = self.said.split_once(start).map(|(_, after)| after);
        let after = after.unwrap_or_else(|| panic!("no {start} in {}", self.said));
        after.lines().next().unwrap_or_default().trim().to_owned()
    }

    /// Waits for the end, and fails unless the terminal is as it was; returns the exit code.
    fn end(mut self) -> String {
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).expect("it can be read");
        self.said += &String::from_utf8_lossy(&rest);
        self.script.wait().expect("it ends");
        let said = &self.said;
        let (enter, leave) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
        assert!(said.contains(enter) && said.contains(leave), "{said}");
        assert!(said.rfind(leave) > said.rfind("d.user"), "{said}");
        let (hide, show) = ("\u{1b}[?25l", "\u{1b}[?25h");
        assert!(said.rfind(show) > said.rfind(hide), "{said}");
        // Its flags for input, output and lines; the speeds between them may be written in another way.
        let modes = |line: &str| {
            let line = self.line(line);
            let words: Vec<&str> = line.split(':').collect();
            [0, 1, 3].map(|at| words[at].to_owned())
        };
        assert_eq!(modes("before "), modes("after "));
        self.line("code=")
    }
}

/// It takes another screen, and gives the first one back.
#[test]
fn a_terminal_is_restored() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    for key in ["q", "\u{3}"] {
        let mut terminal = Terminal::start(&service);
        terminal.press(key);
        assert_eq!(terminal.end(), "0");
    }
    for (signal, code) in [("TERM", "143"), ("HUP", "129"), ("INT", "130")] {
        let terminal = Terminal::start(&service);
        terminal.signal(signal);
        assert_eq!(terminal.end(), code, "{signal}");
    }
    assert!(service.stop().success());
}

#[test]
fn several_nodes_are_one_text() {
    let folders = [tempdir(), tempdir()].map(|folder| folder.expect("a folder can be made"));
    let services = folders
        .each_ref()
        .map(|folder| serve(folder.path(), &["--node-name", "ann"]));
    for service in &services {
        for _ in 0..3 {
            service.check(&[("user", "ann")]);
        }
    }
    let urls = services
        .each_ref()
        .map(|service| format!("http://127.0.0.1:{}", service.admin));
    let both = ["top", "--once", "--admin", &urls[0], "--admin", &urls[1]];
    eventually("the second with the checks has ended", || {
        let said = run(folders[0].path(), &both).succeeded();
        assert_contains(&said, "2 nodes");
        let mut lines = said.lines();
        // Allowed and denied since the start.
        lines.any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.first() == Some(&"d.user") && words.ends_with(&["2", "4"])
        })
    });
    let closed = format!("http://127.0.0.1:{}", free_port());
    let three = [&both[..], &["--admin", &closed]].concat();
    let said = run(folders[0].path(), &three);
    assert_eq!(said.code, Some(1));
    for part in ["1 away, 2 serving", "NODE", &closed, "cannot connect"] {
        assert_contains(&said.out, part);
    }
    let said = run(folders[0].path(), &[&three[..], &["--json"]].concat());
    assert_eq!(said.code, Some(1));
    assert_contains(&said.err, "cannot connect");
    let states: Value = serde_json::from_str(&said.out).expect("it is JSON");
    assert_eq!(states.as_array().map(Vec::len), Some(2), "{states}");
    for service in services {
        assert!(service.stop().success());
    }
}
