//! The picture of a real node, on a screen that is kept in memory.

use super::screen::draw;
use super::stream::{Event, Watch};
use super::view::{Link, View};
use crate::cli::AdminAccess;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratekeeper_limiter::{Check, Descriptor, Limiter, LimiterOptions};
use ratekeeper_rules::{Entry, Options, Source, load};
use ratekeeper_server::{Server, ServerConfig};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
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
    limiter: Arc<Limiter<MemoryStore>>,
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
        let limiter = Arc::new(Limiter::new(rules, store, LimiterOptions::default()));
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
            token_file: None,
            ca: None,
            cert: None,
            key: None,
            json: false,
        }
    }

    /// Asks for a user so many times.
    fn ask(&self, user: &str, times: usize) {
        let entries = [Entry {
            key: "user",
            value: user,
        }];
        let descriptors = [Descriptor::new(&entries)];
        let check = Check::new("shop", &descriptors);
        for _ in 0..times {
            let decision = self.limiter.check_now(&check);
            if self.limiter.top().wants(&decision) {
                self.limiter.top().count(&decision, &check);
            }
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
fn screen(view: &View, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
    terminal
        .draw(|frame| draw(frame, view, 0))
        .expect("it is in memory");
    terminal.backend().to_string()
}

fn until(watch: &mut Watch, view: &mut View, is_it: impl Fn(&View) -> bool) {
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
    let mut view = View::new(&node.admin);
    // The first state tells the counts before.
    until(&mut watch, &mut view, |view| view.state.is_some());
    node.ask("ann", 2 + 7);
    until(&mut watch, &mut view, |view| {
        let state = view.state.as_ref().expect("there was one before");
        !state.top.is_empty() && view.rows.iter().any(|row| row.rule.counts.denied == 7)
    });
    let picture = screen(&view, (140, 40));
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
        screen(&view, size);
    }
    node.stop();
}

#[test]
fn the_end_of_a_stream_is_said() {
    let mut node = Node::start();
    let mut watch = Watch::open(&node.access()).expect("the node is there");
    let mut view = View::new(&node.admin);
    until(&mut watch, &mut view, |view| view.state.is_some());
    drop(node.stop.take());
    until(&mut watch, &mut view, View::has_ended);
    assert!(screen(&view, (100, 30)).contains("shuts down"));
    let why = watch.next().expect_err("the stream has ended").to_string();
    view.link = Link::Lost(why, 4);
    let picture = screen(&view, (100, 30));
    assert!(picture.contains("trying again in 4 s"), "{picture}");
    node.stop();
}

#[test]
fn states_of_other_versions_are_shown_as_far_as_they_go() {
    let mut view = View::new("http://127.0.0.1:6070");
    let state = r#"{"second":{"allowed":500,"span_ms":1000},"colour":"green"}"#;
    view.apply(Event::State(state.to_owned()))
        .expect("it is understood");
    assert!(screen(&view, (120, 30)).contains("500 allowed/s"));
    assert!(view.apply(Event::State("4".to_owned())).is_err());
}
