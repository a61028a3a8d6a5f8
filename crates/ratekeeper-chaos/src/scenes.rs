//! The servers that fail: one, a set under sentinels, a cluster; and one for two versions.

pub(crate) mod sentinels;
pub(crate) mod shards;
pub(crate) mod single;
pub(crate) mod versions;

use ratekeeper_testkit::redis::{Client, Reply};

fn is_primary(client: &mut Client) -> bool {
    match client.ask(&["ROLE"]) {
        Reply::Array(role) => role[0].text() == "master",
        other => panic!("{other:?} is not a role"),
    }
}
