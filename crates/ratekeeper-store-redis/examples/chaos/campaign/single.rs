//! What can go wrong with a server, and with the way to it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::{Server, encode, is_7_or_later};

use super::faults::{Counters, Fault, Scene};

/// A server, and a proxy before it.
pub(super) struct Single {
    server: Server,
    proxy: Proxy,
    lasting: Duration,
}

impl Scene for Single {
    fn new(options: &[&str], lasting: Duration) -> Self {
        let known = match options.starts_with(&SLOW_START) && !is_7_or_later() {
            true => &options[..2],
            false => options,
        };
        let server = Server::with(known);
        let proxy = Proxy::start(server.port());
        Self {
            server,
            proxy,
            lasting,
        }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.proxy.port())
    }
}

impl Single {
    fn ask(&self, command: &[&str]) {
        let reply = self.server.client().ask(command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
    }

    /// Waits while the fault lasts.
    fn last(&self) {
        sleep(self.lasting);
    }

    /// Does something again and again while the fault lasts.
    fn keep(&mut self, every: Duration, mut act: impl FnMut(&mut Self)) {
        let end = Instant::now() + self.lasting;
        while Instant::now() < end {
            act(self);
            sleep(every);
        }
    }
}

/// What most faults begin with.
const FAULT: Fault<Single> = Fault {
    name: "none",
    options: &[],
    counters: Counters::Kept,
    strike: |scene| scene.last(),
    heal: |_| {},
    is_brief: true,
};

/// Loads what it had saved, and takes its time: a key each 100 microseconds.
/// Before Redis 7, which has no second option, it answers nobody meanwhile.
const SLOW_START: [&str; 4] = [
    "--key-load-delay",
    "100",
    "--loading-process-events-interval-bytes",
    "1024",
];

/// All of them.
pub(super) static FAULTS: &[Fault<Single>] = &[
    FAULT,
    Fault {
        name: "killed (kill -9), and started again",
        counters: Counters::Lost,
        strike: |scene| {
            scene.server.process().kill();
            scene.last();
        },
        heal: |scene| scene.server.restart(),
        ..FAULT
    },
    Fault {
        name: "hangs (SIGSTOP)",
        strike: |scene| {
            scene.server.process().pause();
            scene.last();
        },
        heal: |scene| scene.server.process().resume(),
        ..FAULT
    },
    Fault {
        name: "network adds 50 ms each way",
        strike: |scene| {
            scene.proxy.delay(Duration::from_millis(50));
            scene.last();
        },
        heal: |scene| scene.proxy.delay(Duration::ZERO),
        ..FAULT
    },
    Fault {
        name: "network swallows everything",
        strike: |scene| {
            scene.proxy.swallow(true);
            scene.last();
        },
        heal: |scene| scene.proxy.swallow(false),
        ..FAULT
    },
    Fault {
        name: "connections cut one by one, each 100 ms",
        strike: |scene| {
            scene.keep(Duration::from_millis(100), |scene| {
                scene.proxy.cut_one();
            });
        },
        ..FAULT
    },
    Fault {
        name: "scripts forgotten (SCRIPT FLUSH), each 10 ms",
        strike: |scene| {
            scene.keep(Duration::from_millis(10), |scene| {
                scene.ask(&["SCRIPT", "FLUSH"]);
            });
        },
        ..FAULT
    },
    Fault {
        name: "everything forgotten (FLUSHALL), once",
        counters: Counters::Lost,
        strike: |scene| {
            scene.ask(&["FLUSHALL"]);
            scene.last();
        },
        ..FAULT
    },
    Fault {
        name: "full (maxmemory)",
        strike: |scene| {
            scene.ask(&["CONFIG", "SET", "maxmemory", "1"]);
            scene.last();
        },
        heal: |scene| scene.ask(&["CONFIG", "SET", "maxmemory", "0"]),
        ..FAULT
    },
    Fault {
        name: "read-only (a replica of nobody)",
        strike: |scene| {
            scene.ask(&["REPLICAOF", "127.0.0.1", "1"]);
            scene.last();
        },
        heal: |scene| scene.ask(&["REPLICAOF", "NO", "ONE"]),
        ..FAULT
    },
    Fault {
        name: "killed and loading 20,000 keys from its disk",
        options: &SLOW_START,
        strike: |scene| {
            let mut client = scene.server.client();
            let mut commands = Vec::new();
            for number in 0..20_000 {
                encode(&["SET", &format!("other:{number}"), "x"], &mut commands);
            }
            client.send(&commands);
            (0..20_000).for_each(|_| drop(client.read()));
            // What passes after that is forgotten.
            scene.ask(&["SAVE"]);
            scene.server.restart();
            scene.last();
        },
        heal: |scene| {
            eventually("it has loaded everything", || {
                !scene.server.client().ask(&["GET", "other:0"]).is_error()
            });
        },
        counters: Counters::Lost,
        ..FAULT
    },
];
