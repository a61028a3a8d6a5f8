//! Faults of a primary, its replicas, and the sentinels that watch over them.

use std::time::Duration;

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, PRIMARY, Sentinels};

use super::is_primary;
use crate::fault::{Counters, Fault, Scene, Spares, Start};

/// The time that a primary has to be gone before another server takes over.
const GONE: Duration = Duration::from_secs(2);

/// A primary and two replicas under three sentinels.
pub(crate) struct Watched(Sentinels);

impl Scene for Watched {
    fn url(&self) -> String {
        self.0.url()
    }
}

impl Watched {
    /// The index of the server that is the primary.
    fn primary(&mut self) -> usize {
        let port = self.0.primary();
        let mut servers = self.0.servers().iter();
        let found = servers.position(|server| server.port() == port);
        found.expect("the primary is one of the servers")
    }

    /// Waits until a server other than the one at port `before` is the primary.
    fn succeeded(&self, before: u16) {
        eventually("another primary is named", || self.0.primary() != before);
        let mut client = Client::connect(self.0.primary());
        eventually("it is one", || is_primary(&mut client));
    }

    /// Makes the sentinels replace the primary.
    fn replace(&self) {
        let before = self.0.primary();
        let mut sentinel = Client::connect(self.0.ports()[0]);
        eventually("the sentinels begin a failover", || {
            let failover = ["SENTINEL", "FAILOVER", PRIMARY];
            !sentinel.ask(&failover).is_error()
        });
        self.succeeded(before);
    }

    /// Pauses or resumes all servers and sentinels.
    fn hold(&mut self, is_held: bool) {
        let (servers, sentinels) = self.0.parts();
        let servers = servers.iter_mut().map(|server| server.process());
        for process in servers.chain(sentinels) {
            match is_held {
                true => process.pause(),
                false => process.resume(),
            }
        }
    }
}

const FAULT: Fault<Watched> = Fault {
    counters: Counters::Copied(1),
    ..Fault::none(|| Watched(Sentinels::with_down_after(GONE)))
};

/// All of them.
pub(crate) static FAULTS: &[Fault<Watched>] = &[
    Fault {
        name: "sentinels: nodes start before everything",
        before: |scene| scene.hold(true),
        heal: |scene, _| scene.hold(false),
        start: Start::Faulty,
        counters: Counters::Kept,
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "sentinels: the primary killed, until another is named",
        strike: |scene, _| {
            let before = scene.0.primary();
            let primary = scene.primary();
            scene.0.servers()[primary].process().kill();
            scene.succeeded(before);
        },
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "sentinels: the primary paused until another is named, then resumed",
        begin: |scene| {
            let before = scene.0.primary();
            let primary = scene.primary();
            scene.0.servers()[primary].process().pause();
            scene.succeeded(before);
            scene.0.servers()[primary].process().resume();
        },
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "sentinels: the primary replaced (SENTINEL FAILOVER)",
        // On request alone: a busy machine takes longer to answer than a lost primary is waited for.
        scene: || Watched(Sentinels::with_down_after(Duration::from_secs(3_600))),
        strike: |scene, _| scene.replace(),
        spares: Spares::Everything,
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "sentinels: the primary replaced three times",
        counters: Counters::Copied(3),
        strike: |scene, _| (0..3).for_each(|_| scene.replace()),
        ..FAULT
    },
    Fault {
        name: "sentinels: replaced by one whose clock is 20 s behind",
        scene: || {
            let mut set = Sentinels::clocked(GONE);
            for replica in &set.servers()[1..] {
                replica.set_clock(-20);
            }
            Watched(set)
        },
        begin: |scene| scene.replace(),
        told: Some("clock"),
        ..FAULT
    },
    Fault {
        name: "sentinels: all of them killed, the primary serving",
        spares: Spares::Everything,
        counters: Counters::Kept,
        begin: |scene| {
            for sentinel in scene.0.sentinels() {
                sentinel.kill();
            }
        },
        heal: |scene, _| scene.0.restart_sentinels(),
        told: Some("sentinel"),
        ..FAULT
    },
];
