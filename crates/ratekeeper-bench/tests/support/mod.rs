//! A server on free ports in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{Options, ReadOptions};
use ratekeeper_server::{
    Addresses, ConstantAnswer, ListenAddress, RulesLoader, RulesSource, Server, ServerConfig,
};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_stores::Stores;
use tokio::sync::oneshot;

/// A running server, stopped on drop.
pub(crate) struct TestServer {
    limiter: Arc<Limiter<Stores>>,
    addresses: Addresses,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub(crate) fn start(rules: &str) -> Self {
        Self::serve(rules, None)
    }

    /// A server that answers `answer` and decides nothing.
    pub(crate) fn constant(rules: &str, answer: &[u8]) -> Self {
        let answer = ConstantAnswer::decode(answer).expect("it is an answer");
        Self::serve(rules, Some(answer))
    }

    fn serve(rules: &str, constant_answer: Option<ConstantAnswer>) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::write(folder.path().join("rules.yaml"), rules).expect("a file can be written");
        let (limiter, loader) = limiter(folder.path());
        let free = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let mut config = ServerConfig {
            grpc: Some(free.into()),
            http: Some(free.into()),
            admin: free.into(),
            drain_delay: Duration::ZERO,
            constant_answer,
            ..ServerConfig::default()
        };
        config.bounds.drain_timeout = Duration::ZERO;
        let (stop, stopped) = oneshot::channel();
        let (say, bound) = std::sync::mpsc::channel();
        let kept = Arc::clone(&limiter);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime can be made");
            runtime.block_on(async {
                let server = Server::bind(config, limiter, loader).await;
                let server = server.expect("free ports can be had");
                say.send(server.addresses()).expect("the test waits");
                server.run(async { stopped.await.unwrap_or(()) }).await;
            });
            drop(folder);
        });
        Self {
            limiter: kept,
            addresses: bound.recv().expect("it says where it listens"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn grpc(&self) -> String {
        shown(self.addresses.grpc.as_ref())
    }

    pub(crate) fn http(&self) -> String {
        shown(self.addresses.http.as_ref())
    }

    /// The number of decisions by all of its rules.
    pub(crate) fn decisions(&self) -> u64 {
        let snapshot = self.limiter.snapshot();
        let stats = snapshot.stats().map(|stats| stats.counts());
        stats.map(|counts| counts.allowed + counts.denied).sum()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the server panicked"
            );
        }
    }
}

fn limiter(folder: &Path) -> (Arc<Limiter<Stores>>, RulesLoader) {
    let mut loader = RulesLoader::new(RulesSource {
        path: folder.to_path_buf(),
        tenants: None,
        read: ReadOptions::default(),
        options: Options::default(),
    });
    let loaded = loader.load().expect("the rules are good");
    let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let limiter = Limiter::new(loaded.rules, store.into(), LimiterOptions::default());
    (Arc::new(limiter), loader)
}

fn shown(address: Option<&ListenAddress>) -> String {
    address.expect("it is served").to_string()
}
