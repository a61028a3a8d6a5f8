//! The layer with a real service behind it, and after that service is gone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use ratekeeper::tower::RulesLayer;
use ratekeeper::{Limiter, LimiterOptions, MemoryConfig, MemoryStore};
use ratekeeper_client::{Client, Config, FallbackPolicy, ServiceEnforcer};
use ratekeeper_server::{ListenAddress, RulesLoader, RulesSource, Server, ServerConfig};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt, service_fn};

/// Limits that no test can wait out.
const RULES: &str = "
domain: d
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 2, algorithm: fixed_window }
  - key: path
    value: /jobs
    concurrency: { limit: 1, timeout: 1h }
";

struct Running {
    address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        let free = || ListenAddress::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        let mut config = ServerConfig {
            grpc: Some(free()),
            http: Some(free()),
            admin: free(),
            drain_delay: Duration::ZERO,
            ..ServerConfig::default()
        };
        config.bounds.drain_timeout = Duration::from_millis(100);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rules.yaml"), RULES).unwrap();
        let mut loader = RulesLoader::new(RulesSource {
            path: dir.path().to_owned(),
            tenants: None,
            read: ratekeeper::rules::ReadOptions::default(),
            options: ratekeeper::rules::Options::default(),
        });
        let rules = loader.load().unwrap().rules;
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        let limiter = Arc::new(Limiter::new(rules, store.into(), LimiterOptions::default()));
        let server = Server::bind(config, limiter, loader).await.unwrap();
        let address = format!("http://{}", server.addresses().grpc.expect("it is served"));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let _dir = dir;
            server.run(async { drop(stopped.await) }).await;
        });
        Self {
            address,
            stop,
            task,
        }
    }

    fn service(&self, fallback: FallbackPolicy) -> ServiceEnforcer {
        let mut config = Config::new(&self.address);
        // The tests are not about deadlines.
        config.deadline = Duration::from_secs(60);
        config.fallback = fallback;
        ServiceEnforcer::new(Client::new(config).unwrap())
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// Sends a request through a layer over `service` and returns the response.
async fn ask(service: &ServiceEnforcer, path: &str) -> Response<Bytes> {
    let (answer, body) = held(service, path).await.into_parts();
    Response::from_parts(answer, body.collect().await.unwrap().to_bytes())
}

async fn held(
    service: &ServiceEnforcer,
    path: &str,
) -> Response<impl http_body::Body<Data = Bytes, Error = Infallible> + use<>> {
    let full =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done"))) };
    let limited = RulesLayer::new(service.clone(), "d").layer(service_fn(full));
    let mut request = Request::get(path);
    if path == "/" {
        request = request.header("x-api-key", "ada");
    }
    limited.oneshot(request.body(()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_service_decides_until_it_is_gone_and_then_the_fallback() {
    let running = Running::start().await;
    let allow = running.service(FallbackPolicy::Allow);
    let deny = running.service(FallbackPolicy::Deny);
    let local = ratekeeper::from_yaml(&RULES.replace("limit: 2", "limit: 1"));
    let local = running.service(FallbackPolicy::Local(Arc::new(local.unwrap())));
    for (service, left) in [(&allow, "1"), (&deny, "0")] {
        let answer = ask(service, "/").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-ratelimit-remaining"], left);
        assert_eq!(
            answer.headers()["ratelimit-policy"],
            r#""d.api_key";q=2;w=864000000"#
        );
        assert_eq!(answer.body(), "done");
    }
    let denied = ask(&local, "/").await;
    assert_eq!(denied.status(), 429);
    assert!(denied.headers().contains_key("retry-after"));
    assert!(String::from_utf8_lossy(denied.body()).contains(r#""code":"RATE_LIMITED""#));
    assert_eq!(allow.client().counts().fallbacks, 0);

    running.stop().await;
    let passed = ask(&allow, "/").await;
    assert_eq!(passed.status(), 200);
    assert!(!passed.headers().contains_key("x-ratelimit-degraded"));
    let refused = ask(&deny, "/").await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(String::from_utf8_lossy(refused.body()).contains(r#""code":"OVERLOADED""#));
    assert_eq!(ask(&local, "/").await.status(), 200);
    assert_eq!(ask(&local, "/").await.status(), 429);
    let fallbacks = [&allow, &deny, &local].map(|service| service.client().counts().fallbacks);
    assert_eq!(fallbacks, [1, 1, 2]);
}

#[tokio::test]
async fn a_permit_is_released_when_the_answer_has_ended() {
    let running = Running::start().await;
    let service = running.service(FallbackPolicy::Deny).with_permits();
    let first = held(&service, "/jobs").await;
    assert_eq!(first.status(), 200);
    assert_eq!(ask(&service, "/jobs").await.status(), 429);
    drop(first);
    // It is released in the background.
    tokio::time::timeout(Duration::from_secs(60), async {
        while ask(&service, "/jobs").await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the permit is released");
    running.stop().await;
}
