//! Nodes of the binary that share a database of tenants, SQLite or PostgreSQL.

use crate::support::{Ratekeeper, Said, ratekeeper, said, serve};
use ratekeeper_testkit::postgres::Server;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

pub(crate) const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro, enterprise]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10 }
  plans:
    pro: { window: 24h, limit: 1000 }
    enterprise: { window: 24h, limit: 5000 }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { window: 24h, limit: 20 } }
";

pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f";

pub(crate) const ORDERS: &str = "endpoint:POST /orders";

/// A database of either kind that can go away and come back.
pub(crate) enum Database {
    Sqlite(PathBuf),
    Postgres(Box<Server>, String),
}

impl Database {
    fn sqlite(folder: &Path) -> Self {
        Self::Sqlite(folder.join("quotas.db"))
    }

    pub(crate) fn postgres() -> Self {
        let server = Server::start();
        let url = server.create("quotas");
        Self::Postgres(Box::new(server), url)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite://{}", path.display()),
            Self::Postgres(_, url) => url.clone(),
        }
    }

    /// Makes it unusable for whoever opens it.
    pub(crate) fn leave(&mut self) {
        match self {
            Self::Sqlite(path) => {
                fs::rename(&*path, path.with_extension("away")).expect("the file is there");
                fs::create_dir(path).expect("a folder stands in its place");
            }
            Self::Postgres(server, _) => server.kill(),
        }
    }

    pub(crate) fn come_back(&mut self) {
        match self {
            Self::Sqlite(path) => {
                fs::remove_dir(&*path).expect("the folder is empty");
                fs::rename(path.with_extension("away"), &*path).expect("the file is there");
            }
            Self::Postgres(server, _) => server.restart(),
        }
    }
}

pub(crate) struct Fleet {
    pub(crate) folder: TempDir,
    pub(crate) database: Database,
    rules: &'static str,
}

impl Fleet {
    pub(crate) fn sqlite() -> Self {
        let folder = tempdir().expect("a folder can be made");
        let database = Database::sqlite(folder.path());
        Self {
            folder,
            database,
            rules: RULES,
        }
    }

    pub(crate) fn postgres() -> Self {
        Self {
            folder: tempdir().expect("a folder can be made"),
            database: Database::postgres(),
            rules: RULES,
        }
    }

    /// The same, with other rules for its nodes.
    pub(crate) fn with_rules(self, rules: &'static str) -> Self {
        Self { rules, ..self }
    }

    /// Starts the node `name`, with a data folder of its own.
    pub(crate) fn node(&self, name: &str) -> Ratekeeper {
        self.node_with(name, &[])
    }

    /// The same, with more flags.
    pub(crate) fn node_with(&self, name: &str, more: &[&str]) -> Ratekeeper {
        self.node_at(&self.database.url(), name, more)
    }

    /// The same, with another database.
    pub(crate) fn node_at(&self, url: &str, name: &str, more: &[&str]) -> Ratekeeper {
        let setup = serve(&self.folder.path().join(name)).rules(self.rules);
        let setup = setup.args(&format!("--data-dir data --quotas {url}"));
        setup
            .args(more)
            .variable("RATEKEEPER_TENANT_KEY", KEY)
            .start()
    }

    /// Runs a command about `service`.
    pub(crate) fn tell(&self, service: &Ratekeeper, args: &[&str]) -> Said {
        let admin = format!("http://127.0.0.1:{}", service.admin);
        let args = [args, &["--admin", &admin]].concat();
        let command = ratekeeper(self.folder.path(), &args).output();
        said(command.expect("the binary starts"))
    }

    pub(crate) fn done(&self, service: &Ratekeeper, args: &[&str]) -> String {
        self.tell(service, args).succeeded()
    }

    pub(crate) fn json(&self, service: &Ratekeeper, args: &[&str]) -> Value {
        let text = self.done(service, &[args, &["--json"]].concat());
        serde_json::from_str(&text).expect("it is JSON")
    }

    /// Checks the chain of the audit trail, and returns the number of its rows.
    pub(crate) fn verified(&self) -> u64 {
        let url = self.database.url();
        let mut command = ratekeeper(self.folder.path(), &["audit", "verify", "--quotas", &url]);
        let verified = command.env("RATEKEEPER_TENANT_KEY", KEY).output();
        let verified = said(verified.expect("the binary starts"));
        assert_eq!(verified.code, Some(0), "{}{}", verified.out, verified.err);
        let rows = verified
            .out
            .strip_prefix("the audit trail is intact: ")
            .and_then(|rest| rest.split_once(" row"))
            .map(|(rows, _)| rows);
        let rows = rows.unwrap_or_else(|| panic!("{}", verified.out));
        rows.parse().expect("it is a number")
    }
}

/// Tests with a function of that name on SQLite and on PostgreSQL.
macro_rules! on_each_database {
    ($test:ident) => {
        mod $test {
            use crate::fleet::Fleet;

            #[test]
            fn sqlite() {
                super::$test(&mut Fleet::sqlite());
            }

            #[test]
            fn postgres() {
                super::$test(&mut Fleet::postgres());
            }
        }
    };
}
pub(crate) use on_each_database;

/// The limits of a customer as a whole and on its orders.
pub(crate) fn limits(service: &Ratekeeper, customer: &str) -> (u64, u64) {
    let limit = |entries: &[(&str, &str)]| {
        let answer = service.check(entries);
        answer["limit"].as_u64().expect("there is a limit")
    };
    let own = ("customer", customer);
    (limit(&[own]), limit(&[own, ("endpoint", "POST /orders")]))
}
