//! The servers that fail: one, a set under sentinels, a cluster; and one for two versions.

pub(crate) mod sentinels;
pub(crate) mod shards;
pub(crate) mod single;
pub(crate) mod versions;

use ratekeeper_testkit::redis::{Client, Reply};

fn hosts(ports: &[u16]) -> String {
    let hosts = ports.iter().map(|port| format!("127.0.0.1:{port}"));
    hosts.collect::<Vec<_>>().join(",")
}

fn is_primary(client: &mut Client) -> bool {
    match client.ask(&["ROLE"]) {
        Reply::Array(role) => role[0].text() == "master",
        other => panic!("{other:?} is not a role"),
    }
}
