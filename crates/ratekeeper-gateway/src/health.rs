//! Active health checks of upstreams, made whether there is traffic or not.

use std::sync::Arc;

use http::header::{HOST, HeaderValue, USER_AGENT};
use http::uri::Uri;
use http::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::body::RequestBody;
use crate::connect::{ConnectError, ConnectionUse, open};
use crate::connect::{Connection, Pool};
use crate::head;
use crate::shared::Shared;
use crate::upstream::{Health, HealthCheck, Upstream};

/// Checks the upstreams of the routes in force. Returns if a bug ends one of the checks: then the work is to be begun again.
pub(crate) async fn check(shared: Arc<Shared>) {
    loop {
        let routes = shared.routes.load_full();
        // Dropped together with the routes that the checks are for.
        let mut checks = JoinSet::new();
        for upstream in routes.upstreams() {
            let Some(check) = &upstream.health_check else {
                continue;
            };
            for index in 0..upstream.addresses.len() {
                checks.spawn(watch(Arc::clone(upstream), index, check.clone()));
            }
        }
        if let Next::Again(why) = next(&mut checks, &shared.replaced).await {
            error!(%why, "a health check of an upstream has ended: please report this bug");
            return;
        }
    }
}

/// The reason for other checks.
#[derive(Debug)]
enum Next {
    /// There are new routes.
    Routes,
    /// A check has ended, which none does by itself.
    Again(Box<str>),
}

async fn next(checks: &mut JoinSet<()>, replaced: &Notify) -> Next {
    tokio::select! {
        () = replaced.notified() => Next::Routes,
        Some(ended) = checks.join_next() => {
            let why = ended.map_or_else(|error| error.to_string(), |()| "it returned".to_owned());
            Next::Again(why.into())
        }
    }
}

async fn watch(upstream: Arc<Upstream>, index: usize, check: HealthCheck) {
    let address = &upstream.addresses[index];
    let mut streak = Streak::new(address.health());
    loop {
        let asked = timeout(check.timeout, ask(&upstream, index, &check)).await;
        let outcome = asked.unwrap_or_else(|_| Err("no answer in time".into()));
        if let Some(health) = streak.observe(outcome.is_ok(), &check) {
            address.set_health(health);
            let (name, at) = (&*upstream.name, tracing::field::display(address));
            match &outcome {
                Ok(()) => info!(upstream = name, address = at, "an upstream is healthy"),
                Err(why) => {
                    warn!(upstream = name, address = at, %why, "an upstream fails its health check");
                }
            }
        }
        sleep(check.interval).await;
    }
}

/// Makes one check on a connection of its own: a kept connection says little about the next one.
async fn ask(upstream: &Upstream, index: usize, check: &HealthCheck) -> Result<(), Box<str>> {
    let pool = Pool::default();
    let connection = open(upstream, index, &pool, ConnectionUse::Requests).await;
    let connection = connection.map_err(|error| match error {
        ConnectError::TooSlow => "it could not be connected to in time".into(),
        ConnectError::Failed(why) => why,
    })?;
    let authority = upstream.addresses[index].authority.as_str();
    let host = upstream
        .host
        .clone()
        .map_or_else(|| HeaderValue::from_str(authority), Ok);
    let mut request = Request::new(RequestBody::none());
    *request.uri_mut() = Uri::from(check.path.clone());
    let headers = request.headers_mut();
    headers.insert(HOST, host.map_err(|error| error.to_string())?);
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static("ratekeeper-health-check"),
    );
    let answer = match connection {
        Connection::Http1(mut lease) => lease.sender.send_request(request).await,
        Connection::Http2(mut shared) => {
            let (mut parts, body) = request.into_parts();
            head::as_http2(&mut parts, upstream, index);
            shared
                .sender
                .send_request(Request::from_parts(parts, body))
                .await
        }
    };
    match answer {
        Ok(answer) if (StatusCode::OK..StatusCode::BAD_REQUEST).contains(&answer.status()) => {
            Ok(())
        }
        Ok(answer) => Err(format!("it answered {}", answer.status()).into()),
        Err(error) => Err(error.to_string().into()),
    }
}

/// The number of results in a row that contradict the current health.
#[derive(Debug)]
struct Streak {
    health: Health,
    against: u32,
}

impl Streak {
    const fn new(health: Health) -> Self {
        Self { health, against: 0 }
    }

    /// Records a result, and returns the address's new health if it changes. While the health is unknown,
    /// the first result decides.
    fn observe(&mut self, is_good: bool, check: &HealthCheck) -> Option<Health> {
        let (seen, threshold) = match is_good {
            true => (Health::Healthy, check.healthy_threshold),
            false => (Health::Unhealthy, check.unhealthy_threshold),
        };
        self.against = if seen == self.health {
            0
        } else {
            self.against + 1
        };
        let is_enough = self.health == Health::Unknown || self.against >= threshold;
        if seen == self.health || !is_enough {
            return None;
        }
        *self = Self::new(seen);
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::Response;
    use http::uri::PathAndQuery;
    use hyper::server;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::TcpListener;

    use super::*;
    use crate::connect::KEPT_FOR;
    use crate::upstream::{Address, KeptUpstream, Speech};

    #[tokio::test]
    async fn a_check_that_ends_is_noticed() {
        let replaced = Notify::new();
        let mut checks = JoinSet::new();
        replaced.notify_one();
        assert!(matches!(next(&mut checks, &replaced).await, Next::Routes));
        checks.spawn(std::future::pending());
        checks.spawn(async { panic!("a bug") });
        let Next::Again(why) = next(&mut checks, &replaced).await else {
            panic!("the other check goes on, and there are no new routes");
        };
        assert!(why.contains("a bug"), "{why}");
    }

    fn each_second() -> HealthCheck {
        HealthCheck {
            path: PathAndQuery::from_static("/"),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            unhealthy_threshold: 3,
            healthy_threshold: 2,
        }
    }

    /// Serves one connection over HTTP/2, and returns once its client has ended it.
    async fn serve_one(listener: TcpListener) {
        let (stream, _) = listener.accept().await.expect("one comes");
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
        let builder = server::conn::http2::Builder::new(TokioExecutor::new());
        let served = builder.serve_connection(TokioIo::new(stream), service);
        served.await.expect("it ends as it should");
    }

    #[tokio::test]
    async fn the_connection_of_a_check_ends_with_it() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        let address = Address::new(at.parse().expect("an authority"));
        let kept = KeptUpstream::default();
        let upstream = Upstream::new("u", vec![address], Speech::Http2, &kept);
        let serving = tokio::spawn(serve_one(listener));
        ask(&upstream, 0, &each_second()).await.expect("it answers");
        // Earlier than what requests share is closed that none uses.
        let ended = timeout(KEPT_FOR / 2, serving).await;
        ended.expect("at once").expect("it does not panic");
    }

    #[test]
    fn it_takes_several_answers_in_a_row_to_change() {
        let check = each_second();
        let (good, bad) = (true, false);
        let changes = |from, answers: &[bool]| {
            let mut streak = Streak::new(from);
            let observe = |answer: &bool| streak.observe(*answer, &check);
            answers.iter().map(observe).collect::<Vec<_>>()
        };
        let (healthy, unhealthy) = (Some(Health::Healthy), Some(Health::Unhealthy));
        assert_eq!(changes(Health::Unknown, &[good]), [healthy]);
        assert_eq!(
            changes(Health::Unknown, &[bad, good, good]),
            [unhealthy, None, healthy]
        );
        assert_eq!(
            changes(Health::Healthy, &[bad, bad, good, bad, bad, bad, bad]),
            [None, None, None, None, None, unhealthy, None]
        );
        assert_eq!(
            changes(Health::Unhealthy, &[good, bad, good, good]),
            [None, None, None, healthy]
        );
    }
}
