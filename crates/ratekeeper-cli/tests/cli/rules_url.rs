//! Rules at a URL.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::{Authority, Identity, Validity, put};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use tempfile::tempdir;

use crate::quotas;
use crate::support::{self, Ratekeeper, http, run};

/// The answers of a web server, and the requests that it got.
#[derive(Default)]
struct Web {
    status: u16,
    text: String,
    heads: Vec<String>,
}

/// Serves until the test ends.
fn serve(tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Arc<Mutex<Web>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let web = Arc::new(Mutex::new(Web::default()));
    let served = Arc::clone(&web);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("it accepts");
            match &tls {
                None => answer(stream, &served),
                Some(config) => {
                    let connection = ServerConnection::new(Arc::clone(config));
                    answer(
                        StreamOwned::new(connection.expect("a session"), stream),
                        &served,
                    );
                }
            }
        }
    });
    (address, web)
}

/// Answers one request; a client that turns away gets none.
fn answer<S: Read + Write>(stream: S, web: &Mutex<Web>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).is_ok_and(|read| read > 0) {
            continue;
        }
        return;
    }
    let mut web = web.lock().expect("no thread panics");
    let tag = format!("\"{}\"", web.text.len());
    let text = match head.contains(&tag) {
        true => format!("HTTP/1.1 304 Not Modified\r\netag: {tag}\r\n\r\n"),
        false => format!(
            "HTTP/1.1 {} Any\r\netag: {tag}\r\ncontent-length: {}\r\n\r\n{}",
            web.status,
            web.text.len(),
            web.text
        ),
    };
    web.heads.push(head.to_ascii_lowercase());
    drop(web);
    let _ = reader.get_mut().write_all(text.as_bytes());
    let _ = reader.get_mut().flush();
}

fn publish(web: &Mutex<Web>, status: u16, text: &str) {
    let mut web = web.lock().expect("no thread panics");
    (web.status, web.text) = (status, text.to_owned());
}

pub(crate) fn rules(limit: u32) -> String {
    format!(
        "domain: d\ndescriptors:\n- {{ key: key, rate_limit: {{ unit: hour, requests_per_unit: {limit} }} }}\n"
    )
}

pub(crate) fn start(folder: &Path, url: &str, more: &[&str]) -> Ratekeeper {
    let interval = match more.contains(&"--rules-interval") {
        true => "",
        false => "--rules-interval 1s",
    };
    let setup = support::serve(folder).args(&format!("--rules {url} --data-dir data"));
    setup.args(interval).args(more).start()
}

pub(crate) fn limit(service: &Ratekeeper) -> Option<u64> {
    limit_of(service, ("key", "a"))
}

fn limit_of(service: &Ratekeeper, (key, value): (&str, &str)) -> Option<u64> {
    let entry = json!({ "key": key, "value": value });
    let question = json!({ "domain": "d", "descriptors": [{ "entries": [entry] }] });
    let (status, body) = http(service.port, "POST", "/v1/check", &question.to_string());
    let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    (status == 200).then(|| body["limit"].as_u64()).flatten()
}

#[test]
fn a_text_is_fetched_when_it_changes_and_the_last_good_one_stays() {
    let folder = tempdir().expect("a folder");
    let (address, web) = serve(None);
    publish(&web, 200, &rules(5));
    let url = format!("http://{address}/rules.yaml?team=a");
    let service = start(folder.path(), &url, &["--rules-token", "geheim"]);
    eventually("the rules come", || limit(&service) == Some(5));
    eventually("the text is asked for by its tag", || {
        let web = web.lock().expect("no thread panics");
        web.heads
            .iter()
            .any(|head| head.contains("if-none-match: \""))
    });
    {
        let web = web.lock().expect("no thread panics");
        let head = &web.heads[0];
        assert!(
            head.starts_with("get /rules.yaml?team=a http/1.1\r\n"),
            "{head}"
        );
        assert_contains(&head, "authorization: bearer geheim\r\n");
    }
    publish(&web, 200, &rules(50));
    eventually("the change comes", || limit(&service) == Some(50));

    let readyz = || http(service.admin, "GET", "/readyz", "").1;
    publish(&web, 200, "domain: d\ndescriptors:\n- { kee: key }\n");
    eventually("a broken text is told", || {
        readyz().contains("rules.yaml?team=a:3:5: unknown key")
    });
    let bomb = format!(
        "a: &a [{0}]\nb: &b [{1}]\nc: &c [{2}]\nd: [{3}]\n",
        "x,".repeat(99),
        "*a,".repeat(99),
        "*b,".repeat(99),
        "*c,".repeat(99)
    );
    publish(&web, 200, &bomb);
    eventually("a bomb is told", || {
        readyz().contains("error loading config file")
    });
    publish(&web, 503, "away");
    eventually("a fault is told", || readyz().contains("it answers 503"));
    assert_eq!(limit(&service), Some(50));
    assert!(!service.log().contains("geheim") && !readyz().contains("geheim"));
    assert!(service.stop().success());

    let service = start(folder.path(), &url, &[]);
    assert_eq!(limit(&service), Some(50), "the last good ones serve");
    publish(&web, 200, &rules(500));
    eventually("the server is back", || limit(&service) == Some(500));
}

#[test]
fn the_server_of_the_rules_proves_who_it_is() {
    let folder = tempdir().expect("a folder");
    let authority = Authority::new();
    let Identity { certificate, key } = authority.issue("127.0.0.1", Validity::Valid);
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let chain: Result<Vec<_>, _> = chain.collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(chain.expect("certificates"), key)
        .expect("they fit");
    let (address, web) = serve(Some(Arc::new(config)));
    publish(&web, 200, &rules(6));
    let url = format!("https://{address}/");
    let ca = folder.path().join("ca.pem");
    put(&ca, &Authority::new().pem());
    let service = start(folder.path(), &url, &["--rules-ca", "ca.pem"]);
    service.wait_for_log("rules cannot be fetched");
    assert_eq!(limit(&service), None);
    put(&ca, &format!("{}\n", authority.pem()));
    eventually("the right authority is read", || limit(&service) == Some(6));
}

#[test]
fn places_without_a_secret_kept_are_refused() {
    let folder = tempdir().expect("a folder");
    for url in [
        "http://rules.example/r.yaml",
        "https://u:geheim@rules.example/",
    ] {
        let said = run(folder.path(), &["serve", "--rules", url])
            .refused("--rules: this is not a place to fetch from");
        assert!(!said.contains("geheim"), "{said}");
    }
}

#[test]
fn fetched_rules_have_their_tenants_in_the_database_of_the_data_folder() {
    let folder = tempdir().expect("a folder");
    let (address, web) = serve(None);
    publish(&web, 200, quotas::RULES);
    let url = format!("http://{address}/rules.yaml");
    let known = folder.path().join("known");
    let of_files = support::serve(&known).rules(quotas::RULES);
    let of_files = of_files.args("--data-dir data").start();
    let put = |service: &Ratekeeper| {
        let path = "/admin/v1/quotas/acme";
        http(service.admin, "PUT", path, r#"{"plan":"pro"}"#)
    };
    assert_eq!(put(&of_files).0, 200);
    assert!(of_files.stop().success());

    // The same rules from elsewhere: those that were in force last are of another place, and do not count.
    let service = start(&known, &url, &[]);
    let (acme, bob) = (("customer", "acme"), ("customer", "bob"));
    eventually("the rules come", || limit_of(&service, bob) == Some(10));
    assert_eq!(limit_of(&service, acme), Some(1_000));
    eventually("what the database has means something", || {
        support::faults(&service) == "[]"
    });

    let fresh = start(&folder.path().join("fresh"), &url, &[]);
    eventually("the rules come", || limit_of(&fresh, acme) == Some(10));
    let (status, said) = put(&fresh);
    assert_eq!(status, 200, "{said}");
    assert_eq!(limit_of(&fresh, acme), Some(1_000));
}

#[test]
fn databases_matter_to_other_nodes_as_long_as_the_rules_have_tenants() {
    let folder = tempdir().expect("a folder");
    let (server, (address, web)) = (Server::start(), serve(None));
    publish(&web, 200, quotas::RULES);
    let (url, store) = (
        format!("http://{address}/rules.yaml"),
        support::url(&server),
    );
    let node = |name: &str| {
        let more = [
            "--node-name",
            name,
            "--store",
            &store,
            "--store-deadline",
            "1s",
        ];
        start(&folder.path().join(name), &url, &more)
    };
    let (a, b) = (node("a"), node("b"));
    let is_told = || {
        let faults = support::faults(&a);
        faults.contains("node b shares these counters and uses another quota database")
    };
    eventually("a sees b", is_told);
    publish(&web, 200, &rules(5));
    eventually("there are no tenants", || {
        limit(&a) == Some(5) && limit(&b) == Some(5)
    });
    eventually("it matters no more", || !is_told());
}
