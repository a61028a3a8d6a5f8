//! The picture of a real node, on a screen that is kept in memory.

use super::nodes::Nodes;
use super::screen::draw;
use super::screen::terminal::Screen;
use super::stream::{Event, Watch};
use super::view::{Link, View};
use crate::cli::{AdminAccess, AdminCredentials};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_server::{Server, ServerConfig};
use ratekeeper_store::Answer;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_stores::Stores;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

const RULES: &str = "
domain: shop
descriptors:
- { key: user, rate_limit: { window: 1h, limit: 2 } }
- { key: ip, rate_limit: { window: 1m, limit: 5 }, shadow_mode: true }
";

/// A node, which runs until its stop is dropped.
struct Node {
    admin: String,
    limiter: Arc<Limiter<Stores>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Node {
    fn start() -> Self {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let rules = load(&[source], &Options::default())
            .expect("they are valid")
            .rules;
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let limiter = Arc::new(Limiter::new(rules, store.into(), LimiterOptions::default()));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = ServerConfig {
            grpc: None,
            http: None,
            admin: any.into(),
            drain_delay: std::time::Duration::ZERO,
            ..ServerConfig::default()
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (sender, address) = std::sync::mpsc::channel();
        let shared = Arc::clone(&limiter);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = Server::bind(config, shared, None).await.expect("it binds");
                let admin = server.addresses().admin.to_string();
                sender.send(admin).expect("the test waits");
                server.run(async { _ = stopped.await }).await;
            });
        });
        let admin = address.recv().expect("it listens");
        Self {
            admin: format!("http://{admin}"),
            limiter,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn access(&self) -> AdminAccess {
        AdminAccess {
            address: self.admin.clone(),
            credentials: AdminCredentials::default(),
            json: false,
        }
    }

    /// Asks for a user so many times.
    fn ask(&self, user: &str, times: usize) {
        let check = Check::new("shop").descriptor([("user", user)]);
        for _ in 0..times {
            let (top, now) = (self.limiter.top(), self.limiter.clock().now());
            let answer = self.limiter.ask(&check, now, |ruling| {
                if top.wants(ruling.decision) {
                    top.count(ruling.decision, ruling.descriptors);
                }
            });
            assert!(
                matches!(answer, Answer::Decided(())),
                "memory answers at once"
            );
        }
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// The screen as text.
fn screen(nodes: &Nodes, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
    terminal
        .draw(|frame| draw(frame, nodes, 0))
        .expect("it is in memory");
    terminal.backend().to_string()
}

/// Applies what the first node tells until it is so.
fn until(watch: &mut Watch, nodes: &mut Nodes, is_it: impl Fn(&View) -> bool) {
    let view = nodes.view(0).expect("there is one");
    for _ in 0..60 {
        view.apply(watch.next().expect("the node goes on"))
            .expect("it is understood");
        if is_it(view) {
            return;
        }
    }
    panic!("it is not so: {view:#?}");
}

#[test]
fn a_screen_shows_who_is_denied_by_which_rule() {
    let mut node = Node::start();
    let mut watch = Watch::open(&node.access()).expect("the node is there");
    let mut nodes = Nodes::new([&*node.admin]);
    // The first state tells the counts before.
    until(&mut watch, &mut nodes, |view| view.state.is_some());
    node.ask("ann", 2 + 7);
    until(&mut watch, &mut nodes, |view| {
        let state = view.state.as_ref().expect("there was one before");
        !state.top.is_empty() && view.rows.iter().any(|row| row.rule.counts.denied == 7)
    });
    let picture = screen(&nodes, (140, 40));
    for part in [
        "serving",
        "denied most in the last minute",
        "user:ann",
        "shop.user",
        "2 per 1h",
        "shop.ip",
        "shadow",
        "rules (2 of 2)",
        "counters",
        "q: quit",
    ] {
        assert!(picture.contains(part), "no {part:?} in\n{picture}");
    }
    // However small it is, nothing panics.
    for size in [(1, 1), (20, 5), (80, 24), (300, 80)] {
        screen(&nodes, size);
    }
    node.stop();
}

#[test]
fn several_nodes_have_a_line_each_and_add_up() {
    let (mut nodes, mut shown) = (
        [Node::start(), Node::start()],
        Nodes::new(["http://one", "http://two", "http://three"]),
    );
    for (number, node) in nodes.iter().enumerate() {
        let mut watch = Watch::open(&node.access()).expect("the node is there");
        node.ask("ann", 2 + 7);
        let view = shown.view(number).expect("it is one of them");
        let is_told = |view: &View| {
            let denied = view.rows.iter().map(|row| row.rule.counts.denied);
            let state = view.state.as_ref();
            denied.sum::<u64>() == 7 && state.is_some_and(|state| !state.top.is_empty())
        };
        while !is_told(view) {
            view.apply(watch.next().expect("the node goes on"))
                .expect("it is understood");
        }
    }
    let lost = shown.view(2).expect("there are three");
    lost.link = Link::Lost("cannot connect to http://three".to_owned(), 8);
    for size in [(1, 1), (20, 5), (80, 24), (300, 80)] {
        screen(&shown, size);
    }
    let picture = screen(&shown, (140, 50));
    for part in [
        "3 nodes",
        "1 away, 2 serving",
        "nodes (3 of 3)",
        "http://one",
        "http://three: cannot connect",
        "14",
        "user:ann",
        "trying again in 8 s",
    ] {
        assert!(picture.contains(part), "no {part:?} in\n{picture}");
    }
    nodes.iter_mut().for_each(Node::stop);
}

/// Set in the process that is to panic.
const PANICS: &str = "TEST_PANICS_ON_A_SCREEN";

/// It runs itself again, in a terminal.
#[test]
fn a_panic_restores_the_terminal() {
    if std::env::var_os(PANICS).is_some() {
        let mut screen = Screen::open().expect("there is a terminal");
        let nodes = Nodes::new(["http://one"]);
        screen
            .terminal()
            .draw(|frame| draw(frame, &nodes, 0))
            .expect("it can be drawn on");
        panic!("there was a bug");
    }
    let program = std::env::current_exe().expect("it is a program");
    let (_, test) = module_path!().split_once("::").expect("it is in a crate");
    let command = format!(
        "stty cols 120 rows 40; echo \"before $(stty -g)\"; {PANICS}=1 {} --exact {test}::a_panic_restores_the_terminal \
         --nocapture; echo \"after $(stty -g)\"",
        program.display()
    );
    let mut script = ratekeeper_testkit::process::system("script");
    script.args(["--quiet", "--command", &command, "/dev/null"]);
    script.env("TERM", "xterm-256color");
    let script = script.stdin(std::process::Stdio::null()).output();
    let said = script.expect("script starts").stdout;
    let said = String::from_utf8_lossy(&said);
    let (drawn, message) = (said.find("connecting"), said.find("there was a bug"));
    let leave = said.rfind("\u{1b}[?1049l");
    assert!(
        drawn.is_some() && drawn < leave && leave < message,
        "{said}"
    );
    assert!(
        said.rfind("\u{1b}[?25h") > said.rfind("\u{1b}[?25l"),
        "{said}"
    );
    // Its flags for input, output and lines; the speeds between them may be written in another way.
    let modes = |name: &str| -> Vec<String> {
        let mut lines = said.lines();
        let found = lines.find_map(|line| line.trim_start().strip_prefix(name));
        let words = found.unwrap_or_else(|| panic!("no {name} in {said}"));
        let words: Vec<&str> = words.trim().split(':').collect();
        [0, 1, 3].map(|at| words[at].to_owned()).into()
    };
    assert_eq!(modes("before "), modes("after "));
}

#[test]
fn the_end_of_a_stream_is_said() {
    let mut node = Node::start();
    let mut watch = Watch::open(&node.access()).expect("the node is there");
    let mut nodes = Nodes::new([&*node.admin]);
    until(&mut watch, &mut nodes, |view| view.state.is_some());
    drop(node.stop.take());
    until(&mut watch, &mut nodes, |view| view.link == Link::Ended);
    assert!(screen(&nodes, (100, 30)).contains("shuts down"));
    let why = watch.next().expect_err("the stream has ended").to_string();
    nodes.view(0).expect("there is one").link = Link::Lost(why, 4);
    let picture = screen(&nodes, (100, 30));
    assert!(picture.contains("trying again in 4 s"), "{picture}");
    node.stop();
}

#[test]
fn states_of_other_versions_are_shown_as_far_as_they_go() {
    let mut nodes = Nodes::new(["http://127.0.0.1:6070"]);
    let view = nodes.view(0).expect("there is one");
    let state = r#"{"second":{"allowed":500,"span_ms":1000},"colour":"green"}"#;
    view.apply(Event::State(state.to_owned()))
        .expect("it is understood");
    assert!(view.apply(Event::State("4".to_owned())).is_err());
    assert!(screen(&nodes, (120, 30)).contains("500 allowed/s"));
}
