//! `deploy/kubernetes`, which the chart renders.

use ratekeeper_testkit::certificates::Identity;
use ratekeeper_testkit::postgres;
use ratekeeper_testkit::redis::Server;
use serde_json::Value;

use crate::container::{Container, is_for_all_hosts, words};
use crate::yaml::{list, read, text};

const MANIFESTS: [&str; 3] = [
    "deploy/kubernetes/ratekeeper.yaml",
    "deploy/kubernetes/ratekeeper-scaled.yaml",
    "deploy/kubernetes/ratekeeper-single.yaml",
];

/// The secrets that docs/deploy.md has operators make: each one's name, and its keys with their values.
type Secrets<'a> = [(&'a str, &'a [(&'a str, &'a str)])];

/// The first document of that kind, and of that name if one is given.
fn find<'a>(documents: &'a [Value], kind: &str, name: Option<&str>) -> &'a Value {
    let is_it =
        |it: &&Value| it["kind"] == kind && name.is_none_or(|name| it["metadata"]["name"] == name);
    let found = documents.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {kind} {name:?}"))
}

/// The label `job` that the Prometheus operator gives to what a ServiceMonitor finds: that of the Service that it names, or
/// the Service's name.
fn job(documents: &[Value]) -> &str {
    let monitor = &find(documents, "ServiceMonitor", None)["spec"];
    let wanted = monitor["selector"]["matchLabels"].as_object();
    let wanted = wanted.expect("it selects by labels");
    let is_selected = |it: &&Value| {
        let labels = &it["metadata"]["labels"];
        it["kind"] == "Service" && wanted.iter().all(|(name, value)| labels[name] == *value)
    };
    let service = documents
        .iter()
        .find(is_selected)
        .expect("it finds a Service");
    let label = monitor["jobLabel"].as_str();
    let named = label.and_then(|label| service["metadata"]["labels"][label].as_str());
    named.unwrap_or_else(|| text(&service["metadata"]["name"]))
}

#[test]
fn the_alerts_look_for_the_job_of_the_service_monitor() {
    let documents = read("deploy/kubernetes/ratekeeper-scaled.yaml");
    let wanted = format!("up{{job=\"{}\"}}", job(&documents));
    let alerts = &read("deploy/prometheus/alerts.yml").remove(0)["groups"][0]["rules"];
    let expressions = list(alerts).iter().map(|alert| text(&alert["expr"]));
    let of_jobs: Vec<&str> = expressions.filter(|it| it.contains("job=")).collect();
    assert_eq!(of_jobs.len(), 2, "{of_jobs:?}");
    for expression in of_jobs {
        assert!(expression.contains(&wanted), "{expression} has no {wanted}");
    }
}

/// The value of a variable in a pod.
fn value(variable: &Value, secrets: &Secrets<'_>) -> String {
    if let Some(value) = variable["value"].as_str() {
        return value.to_owned();
    }
    let from = &variable["valueFrom"];
    if from["fieldRef"].is_object() {
        return "pod-1".to_owned();
    }
    let reference = &from["secretKeyRef"];
    let (name, key) = (text(&reference["name"]), text(&reference["key"]));
    let secret = secrets.iter().find(|(secret, _)| *secret == name);
    let keys = secret.map(|(_, keys)| *keys).unwrap_or_default();
    let found = keys.iter().find(|(held, _)| *held == key);
    let (_, value) = found.unwrap_or_else(|| panic!("no secret {name} with the key {key}"));
    (*value).to_owned()
}

/// The container of a pod.
fn container(documents: &[Value], pod: &Value, secrets: &Secrets<'_>) -> Container {
    let of_pod = &pod["containers"][0];
    let mut container = Container::new();
    container.args = words(list(&of_pod["args"]));
    for variable in list(&of_pod["env"]) {
        let name = text(&variable["name"]).to_owned();
        container.variables.push((name, value(variable, secrets)));
    }
    for mount in list(&of_pod["volumeMounts"]) {
        let path = text(&mount["mountPath"]);
        let volume = list(&pod["volumes"])
            .iter()
            .find(|it| it["name"] == mount["name"]);
        let volume = volume.expect("the pod has the volume");
        container.mount(path);
        let Some(map) = volume["configMap"]["name"].as_str() else {
            continue;
        };
        let files = find(documents, "ConfigMap", Some(map))["data"].as_object();
        for (file, content) in files.expect("it has files") {
            container.put(&format!("{path}/{file}"), text(content));
        }
    }
    container
}

/// A pod whose clients have taken all connections, or to which they come over TLS, is not to be killed for it.
#[test]
fn the_probes_are_answered_whatever_clients_have_of_their_own_ports() {
    let mut redis = Server::start();
    let store = format!("redis://127.0.0.1:{}", redis.port());
    let secrets: &Secrets<'_> = &[("ratekeeper-redis", &[("url", &store)])];
    for manifest in [
        "deploy/kubernetes/ratekeeper.yaml",
        "deploy/kubernetes/ratekeeper-single.yaml",
    ] {
        let documents = read(manifest);
        let pod = &find(&documents, "Deployment", None)["spec"]["template"]["spec"];
        let of_pod = &pod["containers"][0];
        let mut container = container(&documents, pod, secrets);
        let identity = Identity::self_signed("ratekeeper.example.com");
        container.put("/tls/tls.crt", &identity.certificate);
        container.put("/tls/tls.key", &identity.key);
        for (variable, path) in [
            ("RATEKEEPER_HTTP_TLS_CERT", "/tls/tls.crt"),
            ("RATEKEEPER_HTTP_TLS_KEY", "/tls/tls.key"),
        ] {
            let variable = (variable.to_owned(), path.to_owned());
            container.variables.push(variable);
        }
        container.mount("/tls");
        let running = container.start_asked_at("metrics");
        let _others = running.fill("metrics");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            running.exec(&words(list(&of_pod[probe]["exec"]["command"])));
        }
        running.stop();
    }
    redis.process().kill();
}

#[test]
fn the_pod_of_each_manifest_starts_and_listens_on_its_ports() {
    let (mut redis, mut postgres) = (Server::start(), postgres::Server::start());
    let store = format!("redis://127.0.0.1:{}", redis.port());
    let quotas = postgres.create("ratekeeper");
    let secrets: &Secrets<'_> = &[
        ("ratekeeper-redis", &[("url", &store)]),
        (
            "ratekeeper-postgresql",
            &[
                ("url", &quotas),
                ("tenant-key", "00112233445566778899aabbccddeeff"),
            ],
        ),
    ];
    for manifest in MANIFESTS {
        let documents = read(manifest);
        let pod = &find(&documents, "Deployment", None)["spec"]["template"]["spec"];
        let container = container(&documents, pod, secrets);
        let listeners = container.listeners();
        for port in list(&pod["containers"][0]["ports"]) {
            let end = format!(":{}", port["containerPort"]);
            let listens =
                |(_, address): &(_, String)| is_for_all_hosts(address) && address.ends_with(&end);
            assert!(
                listeners.iter().any(listens),
                "{manifest}: {port} of {listeners:?}"
            );
        }
        container.start().stop();
    }
    postgres.kill();
    redis.process().kill();
}
