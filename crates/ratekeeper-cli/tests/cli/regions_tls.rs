//! Links between regions over TLS: a certificate names the region that it may ask for, and no other.

use crate::support::{Ratekeeper, http, serve, url, write};
use ratekeeper_proto::ratekeeper::v1::region_service_client::RegionServiceClient;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswers, LoanAsk, LoanAsks};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::{Authority, Identity, Validity};
use ratekeeper_testkit::process::{eventually, free_port};
use ratekeeper_testkit::redis::Server;
use std::path::Path;
use tempfile::tempdir;
use tokio::runtime::Runtime;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

const RULES: &str = "domain: d\nregions: bounded\non_store_failure: deny\ndescriptors:\n- { key: key, rate_limit: { \
                     window: 24h, limit: 200, algorithm: fixed_window } }\n";

const CALLERS: &str = "callers:
- { name: eu, tls_name: eu.rk.example, may: [regions] }
- { name: us, tls_name: us.rk.example, may: [regions] }
- { name: ap, tls_name: ap.rk.example, may: [regions] }
- { name: jobs, tls_name: jobs.rk.example, may: [hold] }
";

/// A node of region `own`, whose links present the certificate of `client`.
fn node(folder: &Path, authority: &Authority, server: &Server, place: Place<'_>) -> Ratekeeper {
    let folder = &folder.join(place.own);
    write(folder, "rules.yaml", RULES);
    write(folder, "ca.crt", &authority.pem());
    let identity = authority.issue("127.0.0.1", Validity::Valid);
    write(folder, "server.crt", &identity.certificate);
    write(folder, "server.key", &identity.key);
    write(folder, "link.crt", &place.client.certificate);
    write(folder, "link.key", &place.client.key);
    let regions = ["ap", "eu", "us"].map(|name| match name == place.other {
        true => format!(
            "  {name}: {{ weight: 1, link: ['https://127.0.0.1:{}'] }}\n",
            place.other_port
        ),
        false => format!("  {name}: {{ weight: 1 }}\n"),
    });
    let settings = format!(
        "region: {}\nregions:\n  version: 1\n  link_ca: ca.crt\n  link_cert: link.crt\n  link_key: link.key\n{}store: {}\n\
         store_deadline: 1s\nstore_hash_key: 00112233445566778899aabbccddeeff\n\
         grpc_tls_cert: server.crt\ngrpc_tls_key: server.key\ngrpc_tls_client_ca: ca.crt\n{CALLERS}",
        place.own,
        regions.concat(),
        url(server),
    );
    let setup = serve(folder).settings(&settings);
    let setup = setup.args("--rules rules.yaml --require-store");
    setup.for_all_hosts().grpc_at(place.port).start()
}

struct Place<'a> {
    own: &'a str,
    port: u16,
    other: &'a str,
    other_port: u16,
    client: &'a Identity,
}

/// A connection that presents `identity`, and trusts `authority`.
async fn connect(
    port: u16,
    authority: &Authority,
    identity: Option<&Identity>,
) -> Result<Channel, Status> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()));
    if let Some(Identity { certificate, key }) = identity {
        tls = tls.identity(tonic::transport::Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}")).expect("an address");
    let endpoint = endpoint.tls_config(tls).expect("valid certificates");
    let connected = endpoint.connect().await;
    connected.map_err(|error| Status::unavailable(error.to_string()))
}

/// Asks as a link of `region` does; returns the first answer, or why there is none.
async fn ask(channel: Result<Channel, Status>, region: &str) -> Result<LoanAnswers, Status> {
    let hello = LoanAsks {
        region: region.to_owned(),
        weights_version: 1,
        ..LoanAsks::default()
    };
    let greedy = LoanAsks {
        asks: vec![LoanAsk {
            number: 1,
            want_now: 50,
            want_next: 50,
            ..LoanAsk::default()
        }],
        ..LoanAsks::default()
    };
    let mut client = RegionServiceClient::new(channel?);
    let answers = client.link(tokio_stream::iter([hello, greedy])).await?;
    let first = answers.into_inner().message().await?;
    first.ok_or_else(|| Status::unavailable("it ended"))
}

#[test]
fn a_certificate_asks_for_its_own_region_only() {
    let runtime = Runtime::new().expect("a runtime can be made");
    let (folder, server) = (tempdir().expect("a folder can be made"), Server::start());
    let (authority, stranger) = (Authority::new(), Authority::new());
    let issue = |name: &str| authority.issue(name, Validity::Valid);
    let port = free_port();
    let place = Place {
        own: "eu",
        port,
        other: "us",
        other_port: free_port(),
        client: &issue("eu.rk.example"),
    };
    let node = node(folder.path(), &authority, &server, place);
    let try_as = |identity: Option<&Identity>, region: &str| {
        runtime.block_on(async { ask(connect(port, &authority, identity).await, region).await })
    };

    let us = issue("us.rk.example");
    assert!(try_as(Some(&us), "us").is_ok());
    let refused = |identity: Option<&Identity>, region: &str| {
        let refused = try_as(identity, region).expect_err("it is refused");
        (refused.code(), refused.message().to_owned())
    };
    // Another region's certificate, a long name, and one's own.
    for region in ["ap", "eu", "nowhere", &"u".repeat(60_000)] {
        let (code, why) = refused(Some(&us), region);
        assert_eq!(code, Code::PermissionDenied, "{region}: {why}");
        assert_contains(&why, "the caller \"us\" is not the region");
        assert!(why.len() < 100, "{why}");
    }
    let (code, why) = refused(Some(&issue("eu.rk.example")), "eu");
    assert_eq!(code, Code::FailedPrecondition, "{why}");
    let (code, why) = refused(Some(&issue("jobs.rk.example")), "us");
    assert_eq!(code, Code::PermissionDenied, "{why}");
    assert_contains(&why, "regions");
    let (code, why) = refused(Some(&issue("someone.rk.example")), "us");
    assert_eq!(code, Code::Unauthenticated, "{why}");
    // Neither a certificate of someone else's authority, nor none, gets that far.
    let forged = stranger.issue("us.rk.example", Validity::Valid);
    let expired = authority.issue("us.rk.example", Validity::Expired);
    for identity in [Some(&forged), Some(&expired), None] {
        assert!(try_as(identity, "us").is_err());
    }
    let metrics = node.metrics();
    // Three of another region, a long name, and its own.
    assert_contains(&metrics, "ratelimit_region_links_refused_total 5\n");
}

#[test]
fn regions_lend_over_tls_unless_a_certificate_is_of_another() {
    let (folder, authority) = (tempdir().expect("a folder can be made"), Authority::new());
    let servers = [Server::start(), Server::start()];
    let ports = [free_port(), free_port()];
    let issue = |name: &str| authority.issue(name, Validity::Valid);
    let start = |at: usize, client: &Identity| {
        let names = ["eu", "us"];
        let place = Place {
            own: names[at],
            port: ports[at],
            other: names[1 - at],
            other_port: ports[1 - at],
            client,
        };
        node(folder.path(), &authority, &servers[at], place)
    };
    let eu = start(0, &issue("eu.rk.example"));
    // It presents the certificate of ap, and says that it is us.
    let us = start(1, &issue("ap.rk.example"));
    eventually("the region is told why it has no link", || {
        let (_, ready) = http(us.admin, "GET", "/readyz", "");
        ready.contains(r#"the caller \"ap\" is not the region \"us\""#)
    });
    let reached = |node: &Ratekeeper, peer: &str| {
        let metrics = node.metrics();
        metrics.contains(&format!(
            "ratelimit_region_reachable{{peer=\"{peer}\"}} 1\n"
        ))
    };
    assert!(!reached(&us, "eu"));
    eventually("eu has a link to us", || reached(&eu, "us"));
    let asked = |node: &Ratekeeper| node.check(&[("key", "a")])["decision"] == "allow";
    let mut admitted = 0;
    eventually("eu has borrowed", || {
        admitted += (0..20).filter(|_| asked(&eu)).count();
        admitted > 67
    });
}
