//! Access to the admin listener, by place, token and role.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use ratekeeper_server::{Caller, Powers, Proof, Role, ServerConfig, Tokens};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::admin::bind;
use crate::support::{RULES, Running, start_with};

async fn start_in(folder: &Path) -> Running {
    let folder = folder.to_path_buf();
    start_with(RULES, |config| config.data_dir = Some(folder)).await
}

/// The status and the code of an answer.
async fn ask(running: &Running, token: &str, method: &str, path: &str) -> (u16, String) {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("content-type", "application/json")];
    if !token.is_empty() {
        headers.push(("authorization", &bearer));
    }
    let to = running.addresses.admin;
    let (status, text) = running.send(to, method, path, &headers, "").await;
    let problem: Value = serde_json::from_str(&text).unwrap_or_default();
    (
        status,
        problem["code"].as_str().unwrap_or_default().to_owned(),
    )
}

const LIST: (&str, &str) = ("GET", "/admin/v1/rules");
const SWITCH: (&str, &str) = ("POST", "/admin/v1/rules/d.plain/disable");

#[tokio::test]
async fn from_the_first_token_on_everybody_needs_one() {
    let data = tempfile::tempdir().unwrap();
    let running = start_in(data.path()).await;
    for (method, path) in [LIST, SWITCH] {
        assert_eq!(
            ask(&running, "", method, path).await.0,
            200,
            "this host may, for now"
        );
    }
    let tokens = Tokens::new(data.path());
    let viewer = tokens.create("vera", Role::Viewer).unwrap();
    let editor = tokens.create("ed", Role::Editor).unwrap();
    for (token, list, switch) in [
        ("", (401, "UNAUTHENTICATED"), (401, "UNAUTHENTICATED")),
        (
            "rk_admin_wrong",
            (401, "UNAUTHENTICATED"),
            (401, "UNAUTHENTICATED"),
        ),
        (&viewer, (200, ""), (403, "PERMISSION_DENIED")),
        (&editor, (200, ""), (200, "")),
    ] {
        for ((method, path), (status, code)) in [(LIST, list), (SWITCH, switch)] {
            let answer = ask(&running, token, method, path).await;
            assert_eq!(answer, (status, code.to_owned()), "{method} {path}");
        }
    }
    // Probes and scrapers on this host have none.
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(running.admin(path).await.0, 200, "{path}");
    }
    for path in ["/", "/rlconfig", "/admin/v1/explain?domain=d&entry=plain:a"] {
        assert_eq!(running.admin(path).await.0, 401, "{path}");
    }
    let refused = running
        .metric("ratelimit_admin_refusals_total{reason=\"forbidden\"}")
        .await;
    assert_eq!(refused, 1.0);

    tokens.revoke("ed").unwrap();
    assert_eq!(
        ask(&running, &editor, "GET", LIST.1).await.0,
        401,
        "it is refused at once"
    );
    tokens.revoke("vera").unwrap();
    assert_eq!(
        ask(&running, "", "GET", LIST.1).await.0,
        401,
        "the door stays closed"
    );
    running.stop().await;
    let running = start_in(data.path()).await;
    assert_eq!(
        ask(&running, "", "GET", LIST.1).await.0,
        401,
        "after a restart too"
    );
    running.stop().await;
}

/// The port that everyone reaches is no way around the limit on guesses.
#[tokio::test]
async fn tokens_with_a_role_are_not_guessed_elsewhere() {
    let running = start_with(RULES, |config| {
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        config.http = Some(everywhere.into());
        let caller = |name: &str, role| Caller {
            name: name.into(),
            proof: Proof::TokenSha256(Sha256::digest(name).into()),
            may: Powers {
                refund: true,
                ..Powers::default()
            },
            role,
        };
        config.callers = vec![caller("chief", Some(Role::Admin)), caller("shop", None)];
    })
    .await;
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), running.addresses.http.port());
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;
    let refund = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*bearer),
        ];
        running
            .send(to, "POST", "/v1/refund", &headers, body)
            .await
            .0
    };
    assert_eq!(refund("chief").await, 200);
    for guess in 0..20 {
        assert_eq!(refund(&format!("guess-{guess}")).await, 401);
    }
    assert_eq!(refund("guess").await, 429);
    assert_eq!(refund("chief").await, 429, "no answer to a guess");
    assert_eq!(refund("shop").await, 200, "others work on");
    assert_eq!(
        ask(&running, "chief", "GET", LIST.1).await.0,
        200,
        "operators are not locked out"
    );
    let refused = |reason: &str| format!("ratelimit_caller_refusals_total{{reason=\"{reason}\"}}");
    assert_eq!(running.metric(&refused("unauthenticated")).await, 20.0);
    assert_eq!(running.metric(&refused("guessing")).await, 2.0);
    running.stop().await;
}

#[tokio::test]
async fn callers_of_the_settings_may_have_a_role() {
    let running = start_with(RULES, |config| {
        let caller = |name: &str, role| Caller {
            name: name.into(),
            proof: Proof::TokenSha256(Sha256::digest(name).into()),
            may: Powers::default(),
            role,
        };
        config.callers = vec![
            caller("reader", Some(Role::Viewer)),
            caller("gateway", None),
        ];
    })
    .await;
    for (token, status) in [("reader", 200), ("gateway", 401), ("", 401)] {
        assert_eq!(
            ask(&running, token, "GET", LIST.1).await.0,
            status,
            "{token}"
        );
    }
    assert_eq!(ask(&running, "reader", SWITCH.0, SWITCH.1).await.0, 403);
    running.stop().await;
}

#[tokio::test]
async fn guesses_are_limited() {
    let data = tempfile::tempdir().unwrap();
    let token = Tokens::new(data.path()).create("ann", Role::Admin).unwrap();
    let running = start_in(data.path()).await;
    assert_eq!(ask(&running, &token, "GET", LIST.1).await.0, 200);
    let mut answers = Vec::new();
    for guess in 0..60 {
        let guess = format!("{token}{guess}");
        answers.push(ask(&running, &guess, "GET", LIST.1).await.0);
    }
    assert_eq!(answers[..20], [401; 20]);
    assert!(answers.contains(&429), "{answers:?}");
    // So is the right one, else an answer to it would be one to a guess; and then it is let in again.
    let deadline = tokio::time::Instant::now() + crate::support::PATIENCE;
    while ask(&running, &token, "GET", LIST.1).await.0 != 200 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "it is let in after a while"
        );
        tokio::task::yield_now().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_token() {
    let data = tempfile::tempdir().unwrap();
    let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let config = || ServerConfig {
        admin: everywhere.into(),
        grpc: None,
        http: None,
        data_dir: Some(data.path().to_path_buf()),
        ..ServerConfig::default()
    };
    assert!(bind(config()).await.is_err());
    let token = Tokens::new(data.path())
        .create("ann", Role::Viewer)
        .unwrap();
    let folder = data.path().to_path_buf();
    let running = start_with(RULES, |config| {
        config.admin = everywhere.into();
        config.data_dir = Some(folder);
    })
    .await;
    let port = running.addresses.admin.port();
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let bearer = format!("Bearer {token}");
    // Other hosts know it by other names.
    let named = ("host", "node-7.example:6070");
    for (headers, status) in [
        (vec![named], 401),
        (vec![named, ("authorization", &bearer)], 200),
        (
            vec![
                named,
                ("authorization", &bearer),
                ("origin", "http://evil.example"),
            ],
            403,
        ),
    ] {
        let answer = running
            .send(to, "GET", "/admin/v1/rules", &headers, "")
            .await;
        assert_eq!(answer.0, status, "{headers:?}");
        let metrics = running.send(to, "GET", "/metrics", &headers, "").await;
        assert_eq!(metrics.0, status, "metrics, {headers:?}");
    }
    assert_eq!(running.send(to, "GET", "/livez", &[named], "").await.0, 200);
    running.stop().await;
}

#[tokio::test]
async fn other_hosts_read_only_states_unless_they_have_a_role() {
    let data = tempfile::tempdir().unwrap();
    let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let token = Tokens::new(data.path())
        .create("ann", Role::Viewer)
        .unwrap();
    let folder = data.path().to_path_buf();
    let running = start_with(RULES, |config| {
        config.admin = everywhere.into();
        config.metrics = Some(everywhere.into());
        config.data_dir = Some(folder);
    })
    .await;
    let bearer = format!("Bearer {token}");
    let of = |listener: SocketAddr| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.port());
    let admin = of(running.addresses.admin);
    let role = [
        ("authorization", &*bearer),
        ("content-type", "application/json"),
    ];
    let switch = running.send(admin, "POST", "/admin/v1/rules/d.plain/disable", &role, "");
    let (status, text) = switch.await;
    assert_eq!(status, 403, "a viewer switches nothing: {text}");
    let off = Some(ratekeeper_limiter::RuleSwitch::Disabled);
    running.limiter.switch("d.plain", off).unwrap();
    // As a proxy on this host passes on what others ask.
    let afar = ("host", "node-7.example:9090");
    for to in [admin, of(running.addresses.metrics.unwrap())] {
        for (headers, is_told) in [
            (vec![], true),
            (vec![afar], false),
            (vec![afar, ("authorization", "Bearer guess")], false),
            (vec![afar, ("authorization", &*bearer)], true),
        ] {
            let (status, text) = running.send(to, "GET", "/readyz", &headers, "").await;
            assert_eq!(status, 200, "{text}");
            assert_eq!(
                text.contains("d.plain"),
                is_told,
                "{to} {headers:?}: {text}"
            );
        }
    }
    running.stop().await;
}
