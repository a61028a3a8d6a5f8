//! Trust between a gateway and its service, and the fate of requests while there is none.

use ratekeeper_testkit::certificates::{Authority, Identity, Validity};
use ratekeeper_testkit::process::{eventually, free_port};
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use tempfile::TempDir;

use crate::support::{Gateway, RULES, Upstream, ok, serve};

/// The SHA-256 of `secret`, in hexadecimal.
const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// The SHA-256 of `another`.
const ANOTHER: &str = "ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5";

/// A service that encrypts, and the files of both sides.
struct Site {
    folder: TempDir,
    authority: Authority,
    port: u16,
}

impl Site {
    /// The service's certificate is in the name of `ratekeeper.internal`.
    fn new(validity: Validity) -> Site {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let authority = Authority::new();
        authority
            .issue("ratekeeper.internal", validity)
            .write(folder.path());
        let site = Site {
            folder,
            authority,
            port: free_port(),
        };
        let gateway = site.authority.issue("gateway.internal", Validity::Valid);
        site.put("gateway.crt", &gateway.certificate);
        site.put("gateway.key", &gateway.key);
        site.put("ca.crt", &site.authority.pem());
        site.put("other-ca.crt", &Authority::new().pem());
        site.put("rules.yaml", RULES);
        site
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file can be written");
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The service, with more lines of settings.
    fn serve(&self, settings: &str) -> Ratekeeper {
        self.put("ratekeeper.yaml", settings);
        serve(self.folder.path(), self.port, &[])
    }

    /// A gateway that asks it over `scheme`, as the lines of settings say.
    fn gateway(&self, upstream: &Upstream, scheme: &str, settings: &[String]) -> Gateway {
        let url = format!("{scheme}://127.0.0.1:{}", self.port);
        let upstream = upstream.url();
        let args = ["--upstream", &upstream, "--service", &url];
        let patient = ["--service-deadline", "10s"];
        let headers = "headers: draft, x-ratelimit, degraded";
        let settings = format!(
            "auth: {{ domain: api }}\n{headers}\n{}\n",
            settings.join("\n")
        );
        Gateway::asking(&settings, &[args.as_slice(), &patient].concat())
    }

    fn trust(&self) -> Vec<String> {
        vec![
            format!("service_ca: {}", self.path("ca.crt")),
            "service_server_name: ratekeeper.internal".to_owned(),
        ]
    }

    fn identity(&self) -> Vec<String> {
        vec![
            format!("service_cert: {}", self.path("gateway.crt")),
            format!("service_key: {}", self.path("gateway.key")),
        ]
    }
}

const ENCRYPTED: &str = "grpc_tls_cert: tls.crt\ngrpc_tls_key: tls.key\n";

const MUTUAL: &str = "grpc_tls_cert: tls.crt\ngrpc_tls_key: tls.key\ngrpc_tls_client_ca: ca.crt\n\
                      grpc_tls_client_names: gateway.internal\n";

fn fallbacks(gateway: &Gateway) -> u64 {
    let metrics = gateway.told("/metrics");
    let name = "ratelimit_gateway_service_fallbacks_total{mode=\"allow\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or_else(|| panic!("{name} is not among {metrics}"))
}

/// The service decides about requests with `key`, which may come three times.
fn is_enforced(gateway: &Gateway) {
    let few = || gateway.get("/", &["X-Api-Key: few"]).status;
    assert_eq!([few(), few(), few(), few()], [200, 200, 200, 429]);
    assert_eq!(fallbacks(gateway), 0);
}

/// Requests pass, marked and counted, and the log and `/readyz` say why.
fn goes_on_without(gateway: &Gateway, why: &str, readiness: &str) {
    let answer = gateway.get("/", &["X-Api-Key: few"]);
    let degraded = answer.header("x-ratelimit-degraded");
    assert_eq!((answer.status, degraded), (200, Some("true")), "{answer:?}");
    assert!(fallbacks(gateway) > 0);
    eventually("the log says why", || gateway.process.has_printed(why));
    gateway.tells("/readyz", readiness);
}

#[test]
fn gateway_and_service_show_each_other_certificates() {
    let site = Site::new(Validity::Valid);
    let _service = site.serve(MUTUAL);
    let upstream = Upstream::start(|_| ok(""));
    let settings = [site.trust(), site.identity()].concat();
    is_enforced(&site.gateway(&upstream, "grpcs", &settings));
}

/// As `openssl req -x509` makes it: it signs itself, and says that it is an authority.
#[test]
fn a_service_may_show_a_certificate_that_is_its_own_authority() {
    let site = Site::new(Validity::Valid);
    let own = Identity::self_signed("ratekeeper.internal");
    own.write(site.folder.path());
    let _service = site.serve(ENCRYPTED);
    let upstream = Upstream::start(|_| ok(""));
    let name = "service_server_name: ratekeeper.internal".to_owned();
    let trust = |file: &str| vec![format!("service_ca: {}", site.path(file)), name.clone()];
    is_enforced(&site.gateway(&upstream, "grpcs", &trust("tls.crt")));
    // Another one of the same name is not this one, and it is said why.
    let other = Identity::self_signed("ratekeeper.internal");
    site.put("other.crt", &other.certificate);
    let gateway = site.gateway(&upstream, "grpcs", &trust("other.crt"));
    goes_on_without(&gateway, "(CA:TRUE)", "the service that decides");
}

#[test]
fn a_service_that_is_not_believed_or_does_not_believe_is_gone_on_without() {
    let site = Site::new(Validity::Valid);
    let _service = site.serve(MUTUAL);
    let upstream = Upstream::start(|_| ok(""));
    let mut other = site.identity();
    other.push(format!("service_ca: {}", site.path("other-ca.crt")));
    let mut by_address = site.identity();
    by_address.push(format!("service_ca: {}", site.path("ca.crt")));
    let distrust = "gives no answer, and the fallback decides: invalid peer certificate";
    for (scheme, settings, why) in [
        ("grpcs", other, distrust),
        ("grpcs", by_address, distrust),
        (
            "grpcs",
            site.trust(),
            "the rate limit service gives no answer",
        ),
        ("grpc", Vec::new(), "the rate limit service gives no answer"),
    ] {
        let gateway = site.gateway(&upstream, scheme, &settings);
        goes_on_without(
            &gateway,
            why,
            "the service that decides gives no answer: allow",
        );
    }
}

#[test]
fn a_certificate_that_has_expired_is_renewed_and_the_service_is_asked_again() {
    let site = Site::new(Validity::Expired);
    let _service = site.serve(ENCRYPTED);
    let upstream = Upstream::start(|_| ok(""));
    let gateway = site.gateway(&upstream, "grpcs", &site.trust());
    goes_on_without(&gateway, "certificate expired", "gives no answer");
    let renewed = site.authority.issue("ratekeeper.internal", Validity::Valid);
    renewed.write(site.folder.path());
    eventually("the service decides", || {
        let answer = gateway.get("/", &["X-Api-Key: other"]);
        answer.header("x-ratelimit-limit") == Some("1000000")
    });
    eventually("the log says so", || {
        let output = gateway.process.output();
        output.contains("the rate limit service answers again")
    });
}

#[test]
fn renewed_files_of_a_gateway_are_used_for_its_next_connection() {
    let site = Site::new(Validity::Valid);
    let mut service = site.serve(MUTUAL);
    let upstream = Upstream::start(|_| ok(""));
    let settings = [site.trust(), site.identity()].concat();
    let gateway = site.gateway(&upstream, "grpcs", &settings);
    is_enforced(&gateway);
    service.process.kill();
    // All of them by another authority, which the files before do not know.
    let authority = Authority::new();
    let server = authority.issue("ratekeeper.internal", Validity::Valid);
    server.write(site.folder.path());
    let client = authority.issue("gateway.internal", Validity::Valid);
    site.put("gateway.crt", &client.certificate);
    site.put("gateway.key", &client.key);
    site.put("ca.crt", &authority.pem());
    let _renewed = site.serve(MUTUAL);
    eventually("the service decides", || is_decided(&gateway));
}

/// The service that the gateway asks has decided about a request.
fn is_decided(gateway: &Gateway) -> bool {
    let answer = gateway.get("/", &["X-Api-Key: other"]);
    answer.header("x-ratelimit-limit") == Some("1000000")
}

#[test]
fn a_token_that_is_renewed_is_read_again_and_costs_no_request_its_limit() {
    let site = Site::new(Validity::Valid);
    let known =
        |hash: &str| format!("{{ name: gateway, token_sha256: \"{hash}\", may: [ hold ] }}");
    let callers = |hash: &str| format!("{ENCRYPTED}callers: [ {} ]\n", known(hash));
    let mut service = site.serve(&callers(SECRET));
    site.put("token", "secret\n");
    let upstream = Upstream::start(|_| ok(""));
    let mut settings = site.trust();
    settings.push(format!("service_token_file: {}", site.path("token")));
    settings.push("service_permits: true".to_owned());
    let gateway = site.gateway(&upstream, "grpcs", &settings);
    is_enforced(&gateway);
    // What the service knows from now on is the token in the file, not the one before.
    service.process.kill();
    site.put("token", "another\n");
    let _again = site.serve(&callers(ANOTHER));
    eventually("the service decides", || is_decided(&gateway));
    let refused = "the rate limit service refuses to answer";
    assert!(
        !gateway.process.has_printed(refused),
        "the call is repeated"
    );
}

#[test]
fn a_token_that_the_service_does_not_know_is_mended_there() {
    let site = Site::new(Validity::Valid);
    let callers = |hash: &str| {
        format!(
            "{ENCRYPTED}callers: [ {{ name: gateway, token_sha256: \"{hash}\", may: [ hold ] }} ]\n"
        )
    };
    let mut service = site.serve(&callers(&SECRET.replace("2bb", "3bb")));
    site.put("token", "secret\n");
    let upstream = Upstream::start(|_| ok(""));
    let mut settings = site.trust();
    settings.push(format!("service_token_file: {}", site.path("token")));
    settings.push("service_permits: true".to_owned());
    let gateway = site.gateway(&upstream, "grpcs", &settings);
    let readiness = "the service that decides refuses to answer: allow";
    goes_on_without(
        &gateway,
        "the rate limit service refuses to answer",
        readiness,
    );
    assert!(!gateway.process.output().contains("secret"));
    service.process.kill();
    let _mended = site.serve(&callers(SECRET));
    eventually("the service decides", || {
        let answer = gateway.get("/", &["X-Api-Key: other"]);
        answer.header("x-ratelimit-limit") == Some("1000000")
    });
    gateway.no_longer_tells("/readyz", "the service that decides");
}
