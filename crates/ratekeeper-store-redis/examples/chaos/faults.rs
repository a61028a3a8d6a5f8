//! What can go wrong with a server, and with the way to it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::Server;

/// A server, and a proxy before it.
pub(crate) struct Scene {
    server: Server,
    proxy: Proxy,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port());
        Self { server, proxy }
    }

    /// Where nodes ask.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.proxy.port())
    }

    fn ask(&self, command: &[&str]) {
        self.server.client().ask(command);
    }
}

/// A way to fail.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Begins it, and returns when it has lasted long enough.
    pub(crate) strike: fn(&mut Scene),
    /// Ends it.
    pub(crate) heal: fn(&mut Scene),
}

const LASTING: Duration = Duration::from_secs(3);

/// All of them.
pub(crate) static FAULTS: &[Fault] = &[
    Fault {
        name: "none",
        strike: |_| sleep(LASTING),
        heal: |_| {},
    },
    Fault {
        name: "killed (kill -9), started again after 3 s",
        strike: |scene| {
            scene.server.process().kill();
            sleep(LASTING);
        },
        heal: |scene| scene.server.restart(),
    },
    Fault {
        name: "hangs for 5 s (SIGSTOP)",
        strike: |scene| {
            scene.server.process().pause();
            sleep(Duration::from_secs(5));
        },
        heal: |scene| scene.server.process().resume(),
    },
    Fault {
        name: "network adds 50 ms each way for 3 s",
        strike: |scene| {
            scene.proxy.delay(Duration::from_millis(50));
            sleep(LASTING);
        },
        heal: |scene| scene.proxy.delay(Duration::ZERO),
    },
    Fault {
        name: "network swallows everything for 3 s",
        strike: |scene| {
            scene.proxy.swallow(true);
            sleep(LASTING);
        },
        heal: |scene| scene.proxy.swallow(false),
    },
    Fault {
        name: "connections cut one by one for 3 s",
        strike: |scene| {
            let end = Instant::now() + LASTING;
            while Instant::now() < end {
                scene.proxy.cut_one();
                sleep(Duration::from_millis(100));
            }
        },
        heal: |_| {},
    },
    Fault {
        name: "scripts forgotten (SCRIPT FLUSH) each 10 ms for 3 s",
        strike: |scene| {
            let end = Instant::now() + LASTING;
            while Instant::now() < end {
                scene.ask(&["SCRIPT", "FLUSH"]);
                sleep(Duration::from_millis(10));
            }
        },
        heal: |_| {},
    },
    Fault {
        name: "everything forgotten (FLUSHALL), once",
        strike: |scene| {
            scene.ask(&["FLUSHALL"]);
            sleep(LASTING);
        },
        heal: |_| {},
    },
    Fault {
        name: "full (maxmemory) for 3 s",
        strike: |scene| {
            scene.ask(&["CONFIG", "SET", "maxmemory", "1"]);
            sleep(LASTING);
        },
        heal: |scene| scene.ask(&["CONFIG", "SET", "maxmemory", "0"]),
    },
];
