//! The gateway between clients and servers that others have written; docs/gateway.md lists them.

use std::path::Path;

use crate::spelling::{BY_SCHEME, ENCRYPTED_ONLY};
use crate::support::{Gateway, RULES, Upstream, ok};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::certificates::Identity;
use ratekeeper_testkit::process::{Process, eventually, free_port, output_of, system};
use tempfile::TempDir;

/// Runs curl, which has to succeed, and returns what it printed.
fn curl(args: &[&str]) -> String {
    let mut command = system("curl");
    command
        .args(["--silent", "--show-error", "--max-time", "30", "--fail"])
        .args(args);
    output_of(&mut command)
}

/// NGINX with kept connections that it closes after three requests, and a file of 5 MiB.
struct Nginx {
    port: u16,
    folder: TempDir,
    _process: Process,
}

impl Nginx {
    fn start(tls: Option<&Certificate>) -> Nginx {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (here, port) = (folder.path(), free_port());
        let large: Vec<u8> = (0..5 << 20).map(|at: u32| (at % 251) as u8).collect();
        std::fs::write(here.join("large"), large).expect("a file can be written");
        let (ssl, certificate) = match tls {
            None => ("", String::new()),
            Some(it) => {
                let (cert, key) = (it.cert.display(), it.key.display());
                (
                    "ssl http2",
                    format!("ssl_certificate {cert}; ssl_certificate_key {key};"),
                )
            }
        };
        let socket = here.join("socket").display().to_string();
        let config = format!(
            "worker_processes 1; pid nginx.pid; error_log stderr; events {{}}
             http {{ access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;
               uwsgi_temp_path t4; scgi_temp_path t5; client_max_body_size 0;
               server {{ listen 127.0.0.1:{port} {ssl}; listen unix:{socket} {ssl}; {certificate} keepalive_requests 3; root .;
                 location = /host {{ return 200 $host:$server_protocol; }}
                 location = /chunked {{ gzip on; gzip_min_length 1; gzip_types *; gzip_proxied any; alias large; }}
                 location = /large {{ alias large; }}
                 location / {{ return 200 hello; }} }} }}"
        );
        std::fs::write(here.join("nginx.conf"), config).expect("a file can be written");
        let mut command = system("nginx");
        command
            .arg("-p")
            .arg(here)
            .args(["-c", "nginx.conf", "-g", "daemon off;"]);
        let mut process = Process::spawn("nginx", command);
        process.wait_for_port(port);
        Nginx {
            port,
            folder,
            _process: process,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// A certificate for `localhost`, which is its own authority.
struct Certificate {
    cert: std::path::PathBuf,
    key: std::path::PathBuf,
    _folder: TempDir,
}

impl Certificate {
    /// One that also says that it is an authority (CA:TRUE), as `openssl req -x509` makes them.
    fn of_an_authority() -> Certificate {
        let made = Identity::self_signed("localhost");
        Self::of(&made.certificate, &made.key)
    }

    fn new() -> Certificate {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let made = made.expect("a certificate can be made");
        Self::of(&made.cert.pem(), &made.signing_key.serialize_pem())
    }

    fn of(certificate: &str, private_key: &str) -> Certificate {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (cert, key) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        std::fs::write(&cert, certificate).expect("a file can be written");
        std::fs::write(&key, private_key).expect("a file can be written");
        Certificate {
            cert,
            key,
            _folder: folder,
        }
    }
}

#[test]
fn curl_speaks_both_versions_in_the_clear_and_encrypted() {
    let nginx = Nginx::start(None);
    let gateway = Gateway::start(&nginx.url(), &[]);
    let version = ["--write-out", "%{http_version}", "--output", "/dev/null"];
    for (flag, expected) in [
        ("--http1.0", "1"),
        ("--http1.1", "1.1"),
        ("--http2-prior-knowledge", "2"),
    ] {
        let mut args = vec![flag];
        args.extend(version);
        let url = gateway.url("/");
        args.push(&url);
        assert!(curl(&args).starts_with(expected), "{flag}");
        assert_eq!(curl(&[flag, &url]), "hello", "{flag}");
    }
    let certificate = Certificate::new();
    let (cert, key) = (
        certificate.cert.to_string_lossy(),
        certificate.key.to_string_lossy(),
    );
    let tls = Gateway::start(
        &nginx.url(),
        &["--listen-tls-cert", &cert, "--listen-tls-key", &key],
    );
    let url = format!("https://localhost:{}/", tls.port);
    for (flag, expected) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let mut args = vec![flag, "--cacert", &cert];
        args.extend(version);
        args.push(&url);
        assert_eq!(curl(&args), expected, "{flag}");
    }
    let tls = Gateway::start_with(
        ENCRYPTED_ONLY,
        BY_SCHEME,
        &[
            "--upstream",
            &nginx.url(),
            "--listen-tls-cert",
            &cert,
            "--listen-tls-key",
            &key,
        ],
    );
    let url = format!("https://localhost:{}/", tls.port);
    for flag in ["--http1.1", "--http2"] {
        assert_eq!(curl(&[flag, "--cacert", &cert, &url]), "hello", "{flag}");
    }
}

#[test]
fn curl_uploads_in_chunks_and_after_100_continue() {
    let upstream = Upstream::start(|asked| {
        ok(&format!(
            "{} {:?}",
            asked.body.len(),
            asked.header("expect")
        ))
    });
    let gateway = Gateway::start(&upstream.url(), &[]);
    let file = gateway.folder().join("body");
    std::fs::write(&file, vec![b'x'; 300_000]).expect("a file can be written");
    let (data, url) = (format!("@{}", file.display()), gateway.url("/"));
    for header in ["Transfer-Encoding: chunked", "Expect: 100-continue"] {
        assert_eq!(
            curl(&["--header", header, "--data-binary", &data, &url]),
            "300000 None",
            "{header}"
        );
    }
    assert_eq!(
        curl(&["--http2-prior-knowledge", "--data-binary", &data, &url]),
        "300000 None"
    );
}

#[test]
fn a_denied_client_that_waits_for_100_sends_no_body() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    for _ in 0..3 {
        gateway.get("/", &["X-Api-Key: few"]);
    }
    let said = gateway.say("POST / HTTP/1.1\r\nHost: a\r\nX-Api-Key: few\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 429 "), "{said}");
}

#[test]
fn curl_is_told_of_a_denial_whatever_it_still_has_to_send() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    for _ in 0..3 {
        gateway.get("/", &["X-Api-Key: few"]);
    }
    let url = gateway.url("/");
    let body = gateway.folder().join("body");
    std::fs::write(&body, vec![b'x'; 100_000]).expect("a file can be written");
    let body = format!("@{}", body.display());
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for body in ["{}", &body] {
            for _ in 0..10 {
                let mut curl = system("curl");
                curl.args(["--silent", "--show-error", "--max-time", "30", version]);
                curl.args(["--output", "/dev/null", "--write-out", "%{http_code}"]);
                curl.args(["--header", "X-Api-Key: few", "--data-binary", body, &url]);
                assert_eq!(output_of(&mut curl), "429", "{version}");
            }
        }
    }
}

#[test]
fn nginx_closes_kept_connections_and_no_client_notices() {
    let nginx = Nginx::start(None);
    let gateway = Gateway::start(&nginx.url(), &["--worker-threads", "1"]);
    let said =
        output_of(system("h2load").args(["-n", "2000", "-c", "4", "-m", "10", &gateway.url("/")]));
    assert_contains(&said, "2000 succeeded, 0 failed");
    let said =
        output_of(system("h2load").args(["--h1", "-n", "2000", "-c", "8", &gateway.url("/")]));
    assert_contains(&said, "2000 succeeded, 0 failed");
    let answers = r#"ratelimit_gateway_requests_total{upstream="upstream",status="2xx"} 4000"#;
    gateway.tells("/metrics", answers);
}

#[test]
fn large_and_chunked_answers_of_nginx_arrive_whole() {
    let nginx = Nginx::start(None);
    let gateway = Gateway::start(&nginx.url(), &[]);
    let whole = std::fs::read(nginx.folder.path().join("large")).expect("it is there");
    for (path, flag) in [
        ("/large", "--http1.1"),
        ("/large", "--http2-prior-knowledge"),
        ("/chunked", "--compressed"),
    ] {
        let file = gateway.folder().join("got");
        curl(&[
            flag,
            "--output",
            &file.to_string_lossy(),
            &gateway.url(path),
        ]);
        assert!(
            std::fs::read(&file).expect("it was written") == whole,
            "{path} {flag}"
        );
    }
}

#[test]
fn an_upstream_may_be_a_unix_socket() {
    let nginx = Nginx::start(None);
    let socket = nginx.folder.path().join("socket");
    let gateway = Gateway::start(&format!("unix:{}", socket.display()), &[]);
    assert_eq!(curl(&[&gateway.url("/host")]), "127.0.0.1:HTTP/1.1");
    drop(nginx);
    let answer = gateway.get("/", &[]);
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(answer.body.contains("UPSTREAM_UNREACHABLE"), "{answer:?}");
}

#[test]
fn an_encrypted_upstream_is_verified() {
    let certificate = Certificate::new();
    let nginx = Nginx::start(Some(&certificate));
    let upstream = |ca: &Path| {
        format!(
            "upstreams:\n  web: {{ url: 'https://localhost:{}', ca: {} }}\n",
            nginx.port,
            ca.display()
        )
    };
    let gateway = Gateway::start_with(RULES, &upstream(&certificate.cert), &[]);
    // The version is that between the gateway and NGINX.
    assert_eq!(
        curl(&["--http1.1", &gateway.url("/host")]),
        "127.0.0.1:HTTP/2.0"
    );
    let stranger = Certificate::new();
    let gateway = Gateway::start_with(RULES, &upstream(&stranger.cert), &[]);
    let answer = gateway.get("/", &[]);
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(answer.body.contains("certificate"), "{answer:?}");
}

#[test]
fn an_encrypted_upstream_may_show_a_certificate_that_is_its_own_authority() {
    let own = Certificate::of_an_authority();
    let nginx = Nginx::start(Some(&own));
    for (trusted, status) in [(&own, 200), (&Certificate::of_an_authority(), 502)] {
        let upstream = format!(
            "upstreams:\n  web: {{ url: 'https://localhost:{}', ca: {} }}\n",
            nginx.port,
            trusted.cert.display()
        );
        let gateway = Gateway::start_with(RULES, &upstream, &[]);
        let answer = gateway.get("/host", &[]);
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

#[test]
fn authorities_of_an_upstream_are_read_again_when_they_change() {
    let (certificate, stranger) = (Certificate::new(), Certificate::new());
    let nginx = Nginx::start(Some(&certificate));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let ca = folder.path().join("ca.pem");
    std::fs::copy(&stranger.cert, &ca).expect("a file can be written");
    let settings = format!(
        "upstreams:\n  web: {{ url: 'https://localhost:{}', ca: {}, health_check: {{ path: /, interval: 50ms }} }}\n",
        nginx.port,
        ca.display()
    );
    let gateway = Gateway::start_with(RULES, &settings, &[]);
    assert_eq!(gateway.get("/", &[]).status, 502);
    let fails = "upstream web fails its health check at localhost";
    eventually("its check fails, too", || {
        gateway.told("/readyz").contains(fails)
    });
    std::fs::copy(&certificate.cert, &ca).expect("a file can be written");
    eventually("the new authorities are believed", || {
        gateway.get("/", &[]).status == 200
    });
    eventually("its check passes, too", || {
        !gateway.told("/readyz").contains(fails)
    });
}
