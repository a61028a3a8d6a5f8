//! Exports to NATS servers that want to know who asks: over TLS, by nkeys, and by credentials files.

use std::path::Path;

use async_nats::ConnectOptions;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use ratekeeper_audit::ExportFiles;
use ratekeeper_testkit::certificates::{Authority, Validity, put};
use ratekeeper_testkit::nats::Server;
use ratekeeper_tls::{TlsFiles, TlsIdentity};
use serde_json::{Value, json};

use crate::nats::{make_stream, received};
use crate::support::{STREAM, Trail, eventually, run};

fn seed(pair: &KeyPair) -> String {
    pair.seed().expect("a new pair has its seed")
}

fn with_credentials(path: &Path) -> ExportFiles {
    ExportFiles {
        credentials: Some(path.to_owned()),
        ..ExportFiles::default()
    }
}

#[test]
fn a_server_is_asked_over_tls_by_a_user_with_an_nkey() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let files = folder.path();
    let authority = Authority::new();
    authority.issue("127.0.0.1", Validity::Valid).write(files);
    put(&files.join("ca.pem"), &authority.pem());
    let user = KeyPair::new_user();
    put(&files.join("exporter.nk"), &seed(&user));
    let shown = files.display();
    let server = Server::with(&format!(
        "tls {{ cert_file: '{shown}/tls.crt', key_file: '{shown}/tls.key', ca_file: '{shown}/ca.pem', verify: true }}\n\
         authorization {{ users: [ {{ nkey: {} }}, {{ user: reader, password: secret }} ] }}\n",
        user.public_key(),
    ));
    let url = format!("tls://127.0.0.1:{}", server.port());
    let tls = TlsFiles {
        authorities: Some(files.join("ca.pem")),
        identity: Some(TlsIdentity {
            certificate: files.join("tls.crt"),
            key: files.join("tls.key"),
        }),
    };
    run(async {
        let reader = ConnectOptions::with_user_and_password("reader".into(), "secret".into())
            .add_root_certificates(files.join("ca.pem"))
            .add_client_certificate(files.join("tls.crt"), files.join("tls.key"));
        let reader = reader.connect(&url).await.expect("the reader is known");
        make_stream(&reader).await;
        let mut trail = Trail::new();
        trail.change(5).await;
        let without_user = ExportFiles {
            tls: tls.clone(),
            credentials: None,
        };
        let stranger = trail.node_with(&url, without_user).await;
        let status = stranger.exporter.export_status().clone();
        eventually("a node without the nkey is refused", async || {
            let told = status.faults().join("\n").to_ascii_lowercase();
            told.contains("authorization violation")
        })
        .await;
        stranger.exporter.finish().await;

        let known = ExportFiles {
            tls,
            credentials: Some(files.join("exporter.nk")),
        };
        let node = trail.node_with(&url, known).await;
        let status = node.exporter.export_status().clone();
        eventually("the trail is exported", async || status.exported() == 5).await;
        assert_eq!(received(&reader, 5).await, trail.rows().await);
    });
}

/// A JWT of NATS: claims of `issuer` about `subject`.
fn jwt(issuer: &KeyPair, subject: &str, claims: Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
    let body = part(json!({
        "jti": subject, "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject, "name": subject,
        "nats": claims,
    }));
    let text = format!("{head}.{body}");
    let signature = issuer.sign(text.as_bytes()).expect("it has its seed");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The claims of an account; with streams, or without.
fn account(streams: i64) -> Value {
    json!({
        "type": "account", "version": 2,
        "limits": {
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": streams, "disk_storage": streams, "streams": streams, "consumer": streams,
        },
        "default_permissions": { "pub": {}, "sub": {} },
    })
}

/// A user's credentials, as `nsc` writes them.
fn credentials(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let claims = json!({
        "type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1,
    });
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         ************************* IMPORTANT *************************\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(account, &user.public_key(), claims),
        seed(&user),
    )
}

#[test]
fn a_server_of_an_operator_is_asked_with_a_credentials_file_that_may_be_renewed() {
    let (operator, system, owner) = (
        KeyPair::new_operator(),
        KeyPair::new_account(),
        KeyPair::new_account(),
    );
    let operator_claims = json!({ "type": "operator", "version": 2 });
    let of = |pair: &KeyPair, streams| jwt(&operator, &pair.public_key(), account(streams));
    let server = Server::with(&format!(
        "operator: {}\nsystem_account: {system}\nresolver: MEMORY\n\
         resolver_preload: {{ {system}: {}, {owner}: {} }}\n",
        jwt(&operator, &operator.public_key(), operator_claims),
        of(&system, 0),
        of(&owner, -1),
        system = system.public_key(),
        owner = owner.public_key(),
    ));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("exporter.creds");
    run(async {
        let reader = ConnectOptions::with_credentials(&credentials(&owner));
        let reader = reader.expect("they are credentials");
        let reader = reader.connect(server.url()).await;
        let reader = reader.expect("the reader is known");
        make_stream(&reader).await;
        let mut trail = Trail::new();
        trail.change(5).await;

        // Of an account that the server does not know.
        put(&path, &credentials(&KeyPair::new_account()));
        let node = trail
            .node_with(&server.url(), with_credentials(&path))
            .await;
        let status = node.exporter.export_status().clone();
        let told = async |text: &str| {
            eventually(text, async || {
                let faults = status.faults().join("\n").to_ascii_lowercase();
                faults.contains(text)
            })
            .await;
        };
        told("authorization violation").await;
        put(&path, "nothing of the kind");
        told("has neither the seed of a user's nkey nor a jwt with one").await;
        std::fs::remove_file(&path).expect("it is there");
        told("exporter.creds: no such file").await;
        put(&path, &credentials(&owner));
        eventually("the trail is exported", async || status.exported() == 5).await;
        assert!(status.faults().is_empty());
        let rows = trail.rows().await;
        assert_eq!(received(&reader, 5).await, rows, "the subject is {STREAM}");
    });
}
