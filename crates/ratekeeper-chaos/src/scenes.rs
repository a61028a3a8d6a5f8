//! The servers that fail: one, a set under sentinels, a cluster.

pub(crate) mod sentinels;
pub(crate) mod shards;
pub(crate) mod single;

fn hosts(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    hosts.join(",")
}
