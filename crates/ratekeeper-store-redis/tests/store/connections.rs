//! Ways into a server: logins, databases, sockets, certificates; and the errors of those that are shut.

use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, Micros};
use ratekeeper_store::{HashKey, Post, Store, StoreError};
use ratekeeper_store_redis::{Circuit, Endpoint, RedisConfig, RedisStore, ServerStatus};
use ratekeeper_testkit::certificates::{Authority, Validity, put};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::process::free_port;
use ratekeeper_testkit::redis::{Reply, Server};
use ratekeeper_tls::{TlsFiles, TlsIdentity};

use crate::leases::{self, leased, until_leased};
use crate::support::{LASTING, decide, home, limit, patient, step, until};
use crate::synced::{added, now, synced};

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::LeakyBucket,
];

fn endpoint(url: &str) -> Endpoint {
    Endpoint::parse(url).expect("a good URL")
}

fn open(endpoint: Endpoint) -> RedisStore {
    RedisStore::new(endpoint, patient(), home())
}

fn two() -> Limit {
    limit(Algorithm::FixedWindow, 2, LASTING)
}

/// Returns the status of a store after its servers were asked.
async fn status(endpoint: Endpoint) -> ServerStatus {
    let store = open(endpoint);
    store.greeted().await;
    store.server_status()
}

async fn refusal(endpoint: Endpoint) -> String {
    let status = status(endpoint).await;
    status.error.expect("it is refused")
}

/// Checks that a store counts there.
async fn counts(endpoint: Endpoint) {
    let store = open(endpoint);
    store.greeted().await;
    assert_eq!(store.server_status().error, None);
    let limit = two();
    for allowed in [true, true, false] {
        let verdicts = decide(&store, &[step(&limit, 1)]).await;
        assert_eq!(verdicts.expect("it answers").allowed, allowed);
    }
}

#[tokio::test]
async fn passwords_and_what_the_server_says_to_a_wrong_one() {
    let server = Server::with(&["--requirepass", "right horse"]);
    let port = server.port();
    counts(endpoint(&format!(
        "redis://:right%20horse@127.0.0.1:{port}/"
    )))
    .await;
    for (login, said) in [
        (
            ":wr0ng@",
            "refuses the login: WRONGPASS invalid username-password pair",
        ),
        ("nobody:wr0ng@", "refuses the login: WRONGPASS"),
        ("", "refuses the login: NOAUTH Authentication required"),
    ] {
        let why = refusal(endpoint(&format!("redis://{login}127.0.0.1:{port}/"))).await;
        assert!(why.starts_with(&format!("127.0.0.1:{port} ")), "{why}");
        assert!(why.contains(said) && !why.contains("wr0ng"), "{why}");
    }
    let open = Server::start();
    let url = format!("redis://:wr0ng@127.0.0.1:{}/", open.port());
    let why = refusal(endpoint(&url)).await;
    assert!(why.contains("without any password configured"), "{why}");
}

/// Leases a counter, adds up another, and posts to a third: commands that decisions do without.
async fn everything_but_decisions(store: &RedisStore) {
    let board = store.top();
    let laid_out = board.publish("a list").await;
    assert!(laid_out.is_ok(), "{laid_out:?}");
    let read = board.read().await;
    assert!(read.is_ok(), "{read:?}");
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    let lease = leased(&step(&limit, 100));
    until_leased(store, &lease).await;
    store.give_leases_back().await;
    assert_eq!(leases::counts(store).leases, 0);
    until("the nodes that lease are counted", async || {
        let _ = decide(store, &[lease]).await;
        leases::counts(store).nodes == 1
    })
    .await;
    assert!(now(store, &[synced(Algorithm::FixedWindow, 1_000, 101)]).allowed);
    added(slice::from_ref(store)).await;
    assert_eq!(store.sync_counts().applied, 1);
    let post = Post {
        id: 7,
        step: step(&limit, 102),
        age: Micros::ZERO,
        named_by: None,
    };
    let posted = store.post(&post).expect("it takes posts").await;
    assert!(posted.expect("it answers").allowed);
}

/// With the rights that `docs/redis.md` grants, everything works; with fewer, the error names what is missing.
#[tokio::test]
async fn a_user_of_an_acl_needs_what_the_manual_grants() {
    let server = Server::start();
    let mut client = server.client();
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/redis.md");
    let manual = std::fs::read_to_string(manual).expect("the manual is there");
    let grant = manual
        .lines()
        .find(|line| line.contains("ACL SETUSER ratekeeper on"));
    let grant = grant
        .expect("the manual says what to grant")
        .replace("PASSWORD", "s3cret");
    let words: Vec<&str> = grant.split_whitespace().collect();
    let made = client.ask(&words);
    assert!(!made.is_error(), "{made:?}");
    let url = format!("redis://ratekeeper:s3cret@127.0.0.1:{}/", server.port());
    let store = open(endpoint(&url));
    store.greeted().await;
    assert_eq!(store.server_status().error, None);
    for (number, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let limit = limit(algorithm, 1, LASTING);
        for allowed in [true, false] {
            let verdicts = decide(&store, &[step(&limit, number as u64)]).await;
            assert_eq!(
                verdicts.expect("it answers").allowed,
                allowed,
                "{algorithm:?}"
            );
        }
    }
    assert_eq!(client.ask(&["EXISTS", "rk:hash-key"]), Reply::Int(1));
    everything_but_decisions(&store).await;

    client.ask(&["ACL", "SETUSER", "ratekeeper", "-zadd", "-get"]);
    let store = open(endpoint(&url));
    store.greeted().await;
    let why = store.server_status().error.expect("it lacks something");
    assert!(
        why.contains("may not use GET, ZADD on keys that begin with rk:"),
        "{why}"
    );
    assert!(
        why.contains("ACL SETUSER ratekeeper +ping") && why.contains("~rk:*"),
        "{why}"
    );
    assert_eq!(store.shards()[0].circuit, Circuit::Open);
    let answer = decide(&store, &[step(&two(), 9)]).await;
    assert_eq!(answer, Err(StoreError::Unavailable));

    client.ask(&["ACL", "SETUSER", "ratekeeper", "+get", "+zadd", "-eval"]);
    let why = refusal(endpoint(&url)).await;
    assert!(
        why.contains("NOPERM") && why.contains("grant what is needed"),
        "{why}"
    );
    client.ask(&[
        "ACL",
        "SETUSER",
        "ratekeeper",
        "+eval",
        "resetkeys",
        "~other:*",
    ]);
    assert!(
        refusal(endpoint(&url))
            .await
            .contains("keys that begin with rk:")
    );
    counts(endpoint(&format!("{url}?prefix=other:"))).await;
}

/// INFO is among the dangerous commands, which many users may not run.
#[tokio::test]
async fn a_server_need_not_say_what_it_is() {
    let server = Server::start();
    let mut client = server.client();
    let words = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "~*",
        "+@all",
        "-@dangerous",
    ];
    client.ask(&words);
    let url = format!("redis://app:pw@127.0.0.1:{}/", server.port());
    let status = status(endpoint(&url)).await;
    assert_eq!(status.error, None);
    assert!(
        status.warnings[0].contains("does not say what it is (NOPERM"),
        "{status:?}"
    );
    counts(endpoint(&url)).await;
}

#[tokio::test]
async fn databases_and_prefixes_keep_services_apart() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    for rest in ["/", "/3", "/?prefix=eu:", "/3?prefix=eu:"] {
        counts(endpoint(&format!("{url}{rest}"))).await;
    }
    let mut client = server.client();
    let mut keys = |pattern: &str| match client.ask(&["KEYS", pattern]) {
        Reply::Array(keys) => keys.len(),
        other => panic!("{other:?}"),
    };
    // The counters of probes are gone a second later.
    eventually("each has its counter and its secret", || {
        (keys("rk:*"), keys("eu:rk:*"), keys("*")) == (2, 2, 4)
    });
    let why = refusal(endpoint(&format!("{url}/999"))).await;
    assert!(
        why.contains("refuses database 999: ERR DB index is out of range"),
        "{why}"
    );
}

#[tokio::test]
async fn unix_sockets() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("redis.sock");
    let shown = path.to_str().expect("a path in Unicode");
    let _server = Server::with(&["--unixsocket", shown, "--requirepass", "pw"]);
    counts(endpoint(&format!("redis+unix://{shown}?pass=pw&db=1"))).await;
    let why = refusal(endpoint(&format!("redis+unix://{shown}?pass=no"))).await;
    assert!(
        why.starts_with(&format!("{shown} refuses the login: WRONGPASS")),
        "{why}"
    );
    let why = refusal(endpoint("redis+unix:///nowhere/redis.sock")).await;
    assert!(
        why.starts_with("cannot connect to /nowhere/redis.sock"),
        "{why}"
    );
}

/// A server that requires certificates, and the authority that signs them.
struct Encrypted {
    server: Server,
    port: u16,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Encrypted {
    fn start(clients: &str) -> Self {
        let (authority, port) = (Authority::new(), free_port());
        let folder = tempfile::tempdir().expect("a folder can be made");
        authority
            .issue("127.0.0.1", Validity::Valid)
            .write(folder.path());
        put(&folder.path().join("ca.pem"), &authority.pem());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (tls_port, certificate, key) = (port.to_string(), path("tls.crt"), path("tls.key"));
        let server = Server::with(&[
            "--tls-port",
            &tls_port,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &path("ca.pem"),
            "--tls-auth-clients",
            clients,
        ]);
        Self {
            server,
            port,
            authority,
            folder,
        }
    }

    fn endpoint(&self, identity: Option<TlsIdentity>) -> Endpoint {
        let files = TlsFiles {
            authorities: Some(self.path("ca.pem")),
            identity,
        };
        let url = format!("rediss://127.0.0.1:{}/", self.port);
        endpoint(&url).with_tls(files).expect("it is encrypted")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The files of a client whose certificate `authority` signs.
    fn identity(&self, authority: &Authority, name: &str) -> TlsIdentity {
        let folder = self.path(name);
        std::fs::create_dir(&folder).expect("a folder can be made");
        authority.issue(name, Validity::Valid).write(&folder);
        TlsIdentity {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
        }
    }
}

#[tokio::test]
async fn encrypted_and_verified_by_an_authority_of_our_own() {
    let encrypted = Encrypted::start("no");
    counts(encrypted.endpoint(None)).await;
    let port = encrypted.port;
    let by_system = endpoint(&format!("rediss://127.0.0.1:{port}/"));
    let why = refusal(by_system).await;
    assert!(
        why.starts_with(&format!("no TLS with 127.0.0.1:{port}: ")),
        "{why}"
    );
    // Its certificate is for the address alone.
    let files = TlsFiles {
        authorities: Some(encrypted.path("ca.pem")),
        identity: None,
    };
    let by_name = endpoint(&format!("rediss://localhost:{port}/")).with_tls(files);
    let why = refusal(by_name.expect("it is encrypted")).await;
    assert!(
        why.contains("certificate not valid for name \"localhost\""),
        "{why}"
    );
    // Each side of a listener of the other kind.
    let why = refusal(endpoint(&format!("redis://127.0.0.1:{port}/"))).await;
    assert!(
        why.contains("closed the connection before it answered"),
        "{why}"
    );
    let plain = format!("rediss://127.0.0.1:{}/", encrypted.server.port());
    let mut config = patient();
    config.connect_timeout = Duration::from_secs(2);
    let store = RedisStore::new(endpoint(&plain), config, home());
    store.greeted().await;
    let why = store.server_status().error.expect("it is refused");
    assert!(
        why.contains("no TLS with") && why.contains("no answer within 2s"),
        "{why}"
    );
}

#[tokio::test]
async fn servers_that_want_a_certificate_are_shown_one() {
    let encrypted = Encrypted::start("yes");
    let ours = encrypted.identity(&encrypted.authority, "node-1");
    counts(encrypted.endpoint(Some(ours.clone()))).await;
    let why = refusal(encrypted.endpoint(None)).await;
    assert!(why.contains("received fatal alert"), "{why}");
    let strangers = encrypted.identity(&Authority::new(), "node-2");
    let why = refusal(encrypted.endpoint(Some(strangers.clone()))).await;
    assert!(why.contains("received fatal alert"), "{why}");
    let mixed = TlsIdentity {
        key: strangers.key,
        ..ours.clone()
    };
    let why = refusal(encrypted.endpoint(Some(mixed.clone()))).await;
    assert!(why.contains(&mixed.key.display().to_string()), "{why}");
}

/// Certificates are renewed beneath a running service.
#[tokio::test]
async fn files_that_change_count_from_the_next_connection_on() {
    let encrypted = Encrypted::start("yes");
    let ours = encrypted.identity(&encrypted.authority, "node-1");
    put(&ours.certificate, "no certificate");
    let store = open(encrypted.endpoint(Some(ours.clone())));
    store.greeted().await;
    let why = store.server_status().error.expect("it cannot connect");
    assert!(
        why.contains("there is no `-----BEGIN CERTIFICATE-----` in it"),
        "{why}"
    );
    encrypted
        .authority
        .issue("node-1", Validity::Valid)
        .write(ours.certificate.parent().expect("a folder"));
    let end = tokio::time::Instant::now() + ratekeeper_testkit::process::DEADLINE;
    while decide(&store, &[step(&two(), 1)]).await.is_err() {
        assert!(tokio::time::Instant::now() < end, "the new files are used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn settings_are_shown_without_secrets() {
    let mut config = RedisConfig::default();
    config.hash_key = Some(HashKey::from_bytes([171; 16]));
    assert!(!format!("{config:?}").contains("171"));
}
