//! `deploy/compose.yaml`.

use ratekeeper_testkit::redis::Server;
use serde_json::Value;

use crate::container::{Container, is_for_all_hosts, words};
use crate::yaml::{list, read, text};

/// The nodes of the file, by their names.
fn nodes(file: &Value) -> Vec<(&String, &Value)> {
    let services = file["services"].as_object().expect("it has services");
    let is_node = |service: &Value| text(&service["image"]).contains("/ratekeeper:");
    services
        .iter()
        .filter(|(_, service)| is_node(service))
        .collect()
}

/// The container of a service, whose Redis listens on `port` of this host.
fn container(service: &Value, port: u16) -> Container {
    let mut container = Container::new();
    container.args = words(list(&service["command"]));
    let variables = service["environment"]
        .as_object()
        .expect("it has variables");
    let here = format!("//127.0.0.1:{port}");
    for (name, value) in variables {
        let value = text(value).replace("//redis:6379", &here);
        container.variables.push((name.clone(), value));
    }
    for volume in list(&service["volumes"]) {
        if volume["type"] == "tmpfs" {
            container.mount(text(&volume["target"]));
        }
    }
    container
}

#[test]
fn each_node_of_the_compose_file_starts_and_listens_on_the_ports_that_are_published() {
    let file = read("deploy/compose.yaml").remove(0);
    let nodes = nodes(&file);
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    let mut redis = Server::start();
    for (name, service) in nodes {
        let container = container(service, redis.port());
        let listeners = container.listeners();
        for published in list(&service["ports"]) {
            let (_, port) = text(published).rsplit_once(':').expect("two ports");
            let end = format!(":{port}");
            let listens =
                |(_, address): &(_, String)| is_for_all_hosts(address) && address.ends_with(&end);
            assert!(
                listeners.iter().any(listens),
                "{name}: {published} of {listeners:?}"
            );
        }
        container.start().stop();
    }
    redis.process().kill();
}
