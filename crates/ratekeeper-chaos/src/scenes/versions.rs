//! Two versions of the binary that share a Redis and a database while nodes are replaced one by one.

use std::path::Path;

use ratekeeper_testkit::ratekeeper::{command, run};
use ratekeeper_testkit::redis;
use ratekeeper_testkit::{postgres, process};

use crate::fault::{Fault, Scene, Spares, Stage};
use crate::rules::{DOMAIN, Rule};

/// A tenant with a limit of its own, which is in the database alone, and that limit.
const TENANT: &str = "acme";
const OVERRIDE: u64 = 321;

/// The words of a node whose database has a later format than it knows.
const TOO_OLD: &str = "a later version wrote it";

/// One Redis, and the database of plans.
pub(crate) struct Versions {
    redis: redis::Server,
    database: String,
    /// Ends with this.
    _postgres: postgres::Server,
}

impl Versions {
    fn start() -> Self {
        let postgres = postgres::Server::start();
        Self {
            redis: redis::Server::start(),
            database: postgres.create("plans"),
            _postgres: postgres,
        }
    }
}

/// Gives the tenant its limit by way of the first node, with the older binary.
fn give(stage: &Stage) {
    let admin = format!("http://127.0.0.1:{}", stage.nodes[0].admin);
    let limit = format!("default={OVERRIDE}/day");
    let args = ["quota", "set", TENANT, "--override", &limit];
    let to = ["--domain", DOMAIN, "--admin", &admin];
    let program = &stage.settings.program;
    let mut command = command(program, Path::new("."), &[&args[..], &to].concat());
    let said = run(&mut command);
    assert!(said.code == Some(0), "{command:?}: {}", said.err);
}

impl Scene for Versions {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.redis.port())
    }

    fn quotas(&self) -> Option<String> {
        Some(self.database.clone())
    }
}

/// Replaces every node by one of the other version, the older first by the newer or the other way.
fn replace_all(stage: &mut Stage, program: &Path) {
    for node in 0..stage.nodes.len() {
        stage.replace(node, program);
        stage.last();
        hold(stage);
    }
}

/// Requires that every node knows the tenant's limit, whatever its version is; or says that it is too old for the database,
/// which the newer version has brought to a later format.
fn hold(stage: &Stage) {
    let limit = format!("\"limit\":{OVERRIDE}");
    for (at, node) in stage.nodes.iter().enumerate() {
        process::eventually("each node knows the limit of the tenant", || {
            let answer = stage.say(at, "/v1/peek", Rule::Customer, TENANT);
            answer.contains(&limit) || node.process.output().contains(TOO_OLD)
        });
    }
}

pub(crate) static FAULTS: &[Fault<Versions>] = &[
    Fault {
        name: "upgrade: nodes are replaced one by one",
        prepare: |_, stage| {
            give(stage);
            hold(stage);
        },
        strike: |_, stage| replace_all(stage, &stage.next()),
        spares: Spares::Everything,
        ..Fault::none(Versions::start)
    },
    Fault {
        name: "upgrade: back to the older version",
        prepare: |_, stage| {
            give(stage);
            let (older, newer) = (stage.settings.program.clone(), stage.next());
            for node in 0..stage.nodes.len() {
                stage.replace(node, &newer);
            }
            stage.next = Some(older);
            hold(stage);
        },
        strike: |_, stage| replace_all(stage, &stage.next()),
        spares: Spares::Everything,
        ..Fault::none(Versions::start)
    },
];
