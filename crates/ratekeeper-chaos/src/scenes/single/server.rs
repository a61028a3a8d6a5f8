//! Faults of a server.

use std::time::Duration;

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server, encode, is_7_or_later};

use super::scene::{FAULT, OFTEN, Single};
use crate::fault::{Counters, Fault, Spares, Stage};

/// Options that make a server slow to load what it had saved: a key each 100 microseconds.
/// Before Redis 7, which added the second option, it answers no client meanwhile.
const SLOW_START: [&str; 4] = [
    "--key-load-delay",
    "100",
    "--loading-process-events-interval-bytes",
    "1024",
];

/// The time that nodes may take to see a setting of the server: they look each minute.
const LONG: Duration = Duration::from_secs(75);

/// The user of [`Single::with_user`], and its login.
const USER: &str = "app";
const LOGIN: &str = "app:word";

/// The rights that `docs/redis.md` grants.
const RIGHTS: &str = "on >word +ping +info +time +eval +evalsha +get +set +del +pexpire +pttl +exists +incrby +hget +hset +zadd \
    +zrangebyscore +zrem +zcount +zscore +zremrangebyscore +wait";

impl Single {
    /// A server that nodes use as a user with only the documented rights.
    fn with_user() -> Self {
        let scene = Self::new(Server::start());
        let mut command = vec!["ACL", "SETUSER", USER];
        command.extend(RIGHTS.split(' '));
        command.push("~rk:*");
        scene.ask(&command);
        Self {
            user: Some(LOGIN),
            ..scene
        }
    }

    fn with_slow_start() -> Self {
        let options = match is_7_or_later() {
            true => &SLOW_START[..],
            false => &SLOW_START[..2],
        };
        Self::new(Server::with(options))
    }

    fn with_clock() -> Self {
        Self::new(Server::clocked(&[]))
    }

    /// The keys of all counters.
    fn counters(&self) -> Vec<String> {
        let Reply::Array(keys) = self.ask(&["KEYS", "rk:{*"]) else {
            panic!("keys are a list");
        };
        let keys = keys.iter().map(Reply::text);
        keys.filter(|key| !key.starts_with(BOARD)).collect()
    }
}

/// The beginning of the keys under which nodes tell each other who is denied.
const BOARD: &str = "rk:{top}";

/// Puts a value of another type under the key of the victim, which is found by one request while no other caller asks.
fn break_victim(scene: &mut Single, stage: &mut Stage) {
    let mut found = Vec::new();
    eventually("the victim is counted in Redis", || {
        stage.ask_victim();
        found = scene.counters();
        !found.is_empty()
    });
    let [key] = found.as_slice() else {
        panic!("{found:?} is not the victim alone");
    };
    scene.ask(&["DEL", key]);
    scene.ask(&["RPUSH", key, "garbage"]);
}

pub(super) static FAULTS: &[Fault<Single>] = &[
    Fault {
        name: "killed (kill -9), back empty",
        counters: Counters::Lost,
        begin: |scene| scene.server.process().kill(),
        heal: |scene, _| scene.server.restart(),
        opens: true,
        told: Some(""),
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "hangs (SIGSTOP)",
        begin: |scene| scene.server.process().pause(),
        heal: |scene, _| scene.server.process().resume(),
        opens: true,
        answers_late: true,
        told: Some(""),
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "hangs (SIGSTOP), and no requests",
        begin: |scene| scene.server.process().pause(),
        heal: |scene, _| scene.server.process().resume(),
        is_idle: true,
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "killed and loading 20,000 keys from its disk",
        scene: Single::with_slow_start,
        counters: Counters::Lost,
        begin: |scene| {
            let mut client = scene.server.client();
            let mut commands = Vec::new();
            for number in 0..20_000 {
                encode(&["SET", &format!("other:{number}"), "x"], &mut commands);
            }
            client.send(&commands);
            (0..20_000).for_each(|_| drop(client.read()));
            // Hits that pass after that are forgotten.
            scene.ask(&["SAVE"]);
            scene.server.restart();
        },
        heal: |scene, _| {
            eventually("it has loaded everything", || {
                !scene.server.client().ask(&["GET", "other:0"]).is_error()
            });
        },
        ..FAULT
    },
    Fault {
        name: "scripts forgotten (SCRIPT FLUSH), each 10 ms",
        strike: |scene, stage| {
            stage.keep(OFTEN, || drop(scene.ask(&["SCRIPT", "FLUSH"])));
        },
        ..FAULT
    },
    Fault {
        name: "everything forgotten (FLUSHALL), once",
        spares: Spares::Everything,
        counters: Counters::Lost,
        strike: |scene, _| drop(scene.ask(&["FLUSHALL"])),
        ..FAULT
    },
    Fault {
        name: "full (maxmemory)",
        begin: |scene| drop(scene.ask(&["CONFIG", "SET", "maxmemory", "1"])),
        heal: |scene, _| drop(scene.ask(&["CONFIG", "SET", "maxmemory", "0"])),
        opens: true,
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "read-only (a replica of nobody)",
        begin: |scene| drop(scene.ask(&["REPLICAOF", "127.0.0.1", "1"])),
        heal: |scene, _| drop(scene.ask(&["REPLICAOF", "NO", "ONE"])),
        opens: true,
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "writes paused (CLIENT PAUSE WRITE)",
        begin: |scene| drop(scene.ask(&["CLIENT", "PAUSE", "600000", "WRITE"])),
        heal: |scene, _| drop(scene.ask(&["CLIENT", "UNPAUSE"])),
        opens: true,
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "right to run scripts withdrawn (ACL)",
        scene: Single::with_user,
        begin: |scene| drop(scene.ask(&["ACL", "SETUSER", USER, "-eval", "-evalsha"])),
        heal: |scene, _| drop(scene.ask(&["ACL", "SETUSER", USER, "+eval", "+evalsha"])),
        opens: true,
        told: Some("evalsha"),
        ..FAULT
    },
    Fault {
        name: "eviction allowed at run time",
        strike: |scene, stage| {
            scene.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
            stage.until(LONG, |look| look.tells("maxmemory-policy"));
        },
        heal: |scene, stage| {
            scene.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
            stage.until(LONG, |look| look.faults.is_empty());
        },
        told: Some("maxmemory-policy"),
        is_long: true,
        ..FAULT
    },
    Fault {
        name: "one counter of the wrong type",
        prepare: break_victim,
        spares: Spares::AllButVictim,
        ..FAULT
    },
    Fault {
        name: "clock 20 s back",
        spares: Spares::Everything,
        scene: Single::with_clock,
        begin: |scene| scene.server.set_clock(-20),
        told: Some("clock"),
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "clock an hour ahead, and back",
        spares: Spares::Everything,
        scene: Single::with_clock,
        strike: |scene, stage| {
            scene.server.set_clock(3_600);
            stage.last();
            scene.server.set_clock(0);
        },
        told: Some("clock"),
        // By the server's clock, the reservation was settled an hour late.
        excused: Some("EXPIRED"),
        ..FAULT
    },
];
