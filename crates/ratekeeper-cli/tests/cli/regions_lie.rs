//! A region whose neighbour lies, repeats, floods and asks for everything.

use crate::support::{Ratekeeper, serve, url};
use ratekeeper_proto::ratekeeper::v1::region_service_client::RegionServiceClient;
use ratekeeper_proto::ratekeeper::v1::region_service_server::{RegionService, RegionServiceServer};
use ratekeeper_proto::ratekeeper::v1::{LoanAnswer, LoanAnswers, LoanAsk, LoanAsks};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::{TempDir, tempdir};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};

/// The limit, of which each of two regions owns half.
const LIMIT: usize = 200;

/// A region that answers each ask with more than there is, three times.
#[derive(Clone, Default)]
struct Liar {
    asks: Arc<Mutex<Vec<LoanAsk>>>,
}

#[tonic::async_trait]
impl RegionService for Liar {
    type LinkStream = ReceiverStream<Result<LoanAnswers, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<LoanAsks>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let (answers, sent) = mpsc::channel(64);
        let heard = Arc::clone(&self.asks);
        let mut asks = request.into_inner();
        tokio::spawn(async move {
            let hello = LoanAnswers {
                weights_version: 1,
                ..LoanAnswers::default()
            };
            let _ = answers.send(Ok(hello)).await;
            while let Some(Ok(message)) = asks.next().await {
                let lies = message.asks.iter().map(|ask| LoanAnswer {
                    subject: ask.subject,
                    identity: ask.identity,
                    number: ask.number,
                    first: ask.first,
                    now: u64::MAX,
                    next: u64::MAX,
                    last: u64::MAX,
                    spare: u64::MAX,
                    tokens: u64::MAX,
                    ..LoanAnswer::default()
                });
                let lies: Vec<LoanAnswer> = lies.collect();
                heard.lock().expect("nobody panics").extend(message.asks);
                for _ in 0..3 {
                    let lies = LoanAnswers {
                        weights_version: 1,
                        answers: lies.clone(),
                        ..LoanAnswers::default()
                    };
                    let _ = answers.send(Ok(lies)).await;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(sent)))
    }
}

/// A region eu whose only neighbour is a liar.
pub(crate) struct LiedTo {
    pub(crate) node: Ratekeeper,
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
    _folder: TempDir,
}

impl LiedTo {
    /// Starts the liar, and a node of eu with these rules.
    pub(crate) fn by(liar: impl RegionService, rules: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime can be made");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let serving = tonic::transport::Server::builder()
            .add_service(RegionServiceServer::new(liar))
            .serve_with_incoming(TcpListenerStream::new(listener));
        runtime.spawn(serving);
        let server = Server::start();
        let folder = tempdir().expect("a folder can be made");
        let node = eu_beside_us(folder.path(), rules, (1, port), &server);
        Self {
            node,
            runtime,
            server,
            _folder: folder,
        }
    }
}

/// Starts a node of eu, on `server`, whose only neighbour is us at this port; both have this version of the weights.
pub(crate) fn eu_beside_us(
    folder: &Path,
    rules: &str,
    (version, port): (u32, u16),
    server: &Server,
) -> Ratekeeper {
    let settings = format!(
        "region: eu\nregions: {{ version: {version}, eu: {{ weight: 1 }}, us: {{ weight: 1, link: ['http://127.0.0.1:{port}'] }} }}\n\
         store: {}\nstore_deadline: 1s\nstore_hash_key: 00112233445566778899aabbccddeeff\n",
        url(server)
    );
    let setup = serve(folder).rules(rules).settings(&settings);
    setup.args("--require-store").start()
}

fn rules() -> String {
    format!(
        "domain: d\nregions: bounded\non_store_failure: deny\ndescriptors:\n- {{ key: key, rate_limit: {{ window: 24h, \
         limit: {LIMIT}, algorithm: fixed_window }} }}\n- {{ key: bucket, rate_limit: {{ window: 24h, limit: {LIMIT}, \
         algorithm: token_bucket }} }}\n"
    )
}

pub(crate) fn admitted(node: &Ratekeeper, value: &str, asked: usize) -> usize {
    admitted_of(node, ("key", value), asked)
}

fn admitted_of(node: &Ratekeeper, entry: (&str, &str), asked: usize) -> usize {
    let allows = |_: &usize| node.check(&[entry])["decision"] == "allow";
    (0..asked).filter(allows).count()
}

/// Sends `messages` as a link does; returns the answers to them, or why it ended.
pub(crate) async fn link(
    node: &Ratekeeper,
    messages: Vec<LoanAsks>,
) -> Result<Vec<LoanAnswers>, Status> {
    let mut client = RegionServiceClient::connect(format!("http://127.0.0.1:{}", node.grpc))
        .await
        .expect("it listens");
    let mut answers = client
        .link(tokio_stream::iter(messages))
        .await?
        .into_inner();
    let mut all = Vec::new();
    while let Some(message) = answers.message().await? {
        all.push(message);
    }
    Ok(all)
}

pub(crate) fn hello(region: &str, weights_version: u32) -> LoanAsks {
    LoanAsks {
        region: region.to_owned(),
        weights_version,
        ..LoanAsks::default()
    }
}

#[test]
fn a_region_that_lies_floods_and_repeats_gets_no_more_than_is_spare() {
    let liar = Liar::default();
    let LiedTo { node, runtime, .. } = &LiedTo::by(liar.clone(), &rules());

    // It is lent the whole world, three times, and believes in what the other region owns.
    let mut passed = 0;
    eventually("the region has used what it was told", || {
        passed += admitted(node, "a", 20);
        passed >= LIMIT
    });
    assert_eq!(passed + admitted(node, "a", 2 * LIMIT), LIMIT);

    // Asked for everything, and told of holdings that never were, it lends what it does not use.
    passed = 0;
    let mut asks = Vec::new();
    eventually("the region has asked for another counter", || {
        passed += admitted(node, "b", 1);
        let heard = liar.asks.lock().expect("nobody panics");
        asks.clone_from(&heard);
        let first = (asks[0].subject, asks[0].identity);
        asks.retain(|ask| (ask.subject, ask.identity) != first);
        !asks.is_empty()
    });
    let greedy = |number: u64, first: u64| LoanAsk {
        number,
        first,
        hold_now: u64::MAX,
        hold_next: u64::MAX,
        want_now: u64::MAX,
        want_next: u64::MAX,
        recall: u64::MAX,
        ..asks[0]
    };
    let now = asks[0].first;
    let flood = (1..200).map(|number| LoanAsks {
        asks: vec![
            greedy(number, now),
            greedy(number, now),
            greedy(number / 2, now),
            greedy(u64::MAX, u64::MAX),
            LoanAsk {
                terms: 1,
                ..greedy(number, now)
            },
        ],
        ..LoanAsks::default()
    });
    let flood = std::iter::once(hello("us", 1)).chain(flood);
    let answers = runtime.block_on(link(node, flood.collect()));
    let answers = answers.expect("a flood is answered");
    let answers: Vec<LoanAnswer> = answers.into_iter().flat_map(|it| it.answers).collect();
    assert_eq!(answers.len(), 5 * 199);
    let taken = answers.iter().filter(|it| it.refused == 0).map(|it| it.now);
    let most = taken.max().expect("some asks are answered");
    // Never its last tenth.
    assert!(most <= 90, "{most}");
    assert!(
        answers
            .iter()
            .any(|it| it.refused().as_str_name() == "REFUSAL_TERMS")
    );
    assert!(
        answers
            .iter()
            .any(|it| it.refused().as_str_name() == "REFUSAL_APART")
    );
    // The next answers to it may be lies as well, and are bounded by what the other owns.
    let rest = admitted(node, "b", 3 * LIMIT);
    let most = usize::try_from(most).expect("it is small");
    let all = passed + rest + most;
    assert!(all <= LIMIT, "{passed} and {rest} beside {most}");

    // To a bucket come no more tokens than that of the other region holds.
    passed = 0;
    eventually("the bucket has used what it was told", || {
        passed += admitted_of(node, ("bucket", "a"), 20);
        passed >= LIMIT
    });
    assert_eq!(
        passed + admitted_of(node, ("bucket", "a"), 2 * LIMIT),
        LIMIT
    );

    for (region, version) in [("eu", 1), ("nowhere", 1), ("us", 2), ("", 1)] {
        let refused = runtime.block_on(link(node, vec![hello(region, version)]));
        let refused = refused.expect_err(region).code();
        assert_eq!(refused, Code::FailedPrecondition, "{region} {version}");
    }
    let other_regions = LoanAsks {
        regions_hash: 7,
        ..hello("us", 1)
    };
    let refused = runtime.block_on(link(node, vec![other_regions]));
    let refused = refused.expect_err("its regions are others");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let metrics = node.metrics();
    assert_contains(
        &metrics,
        "ratelimit_region_asked_total{peer=\"us\",result=\"refused\"}",
    );
}

/// The first ask of the region that is lied to.
fn first_ask(lied_to: &LiedTo, liar: &Liar) -> LoanAsk {
    let mut found = None;
    eventually("the region has asked", || {
        admitted(&lied_to.node, "a", 20);
        let heard = liar.asks.lock().expect("nobody panics");
        found = heard.first().copied();
        found.is_some()
    });
    found.expect("it has asked")
}

/// Asks wait for the store of whoever lends, and the link does not: it is given up after five seconds without an answer.
#[test]
fn asks_are_answered_before_their_link_is_given_up_while_redis_hangs() {
    let liar = Liar::default();
    let mut lied_to = LiedTo::by(liar.clone(), &rules());
    let found = first_ask(&lied_to, &liar);
    let asks = (0..1_000).map(|identity| LoanAsk { identity, ..found });
    let asks = LoanAsks {
        asks: asks.collect(),
        ..LoanAsks::default()
    };
    lied_to.server.process().pause();
    let answers = link(&lied_to.node, vec![hello("us", 1), asks]);
    let patience = Duration::from_secs(5);
    let answers = lied_to
        .runtime
        .block_on(async { timeout(patience, answers).await });
    let answers = answers
        .expect("all are answered in time")
        .expect("the link stays");
    let answers: Vec<LoanAnswer> = answers.into_iter().flat_map(|it| it.answers).collect();
    assert_eq!(answers.len(), 1_000);
    let refused = |it: &LoanAnswer| it.refused().as_str_name() == "REFUSAL_STORE";
    assert!(answers.iter().all(refused));
}

/// Else a region could fill the store of another one with asks for counters that nobody uses.
#[test]
fn asks_that_give_nothing_leave_nothing_in_redis() {
    let liar = Liar::default();
    let lied_to = LiedTo::by(liar.clone(), &rules());
    let found = first_ask(&lied_to, &liar);
    let asked = |identities: std::ops::Range<u64>, want: u64| {
        let asks = identities.map(|identity| LoanAsk {
            identity,
            number: 1,
            hold_now: 5,
            hold_next: 5,
            want_now: 0,
            want_next: want,
            recall: 1,
            ..found
        });
        let asks = LoanAsks {
            asks: asks.collect(),
            ..LoanAsks::default()
        };
        let answers = link(&lied_to.node, vec![hello("us", 1), asks]);
        let answers = lied_to
            .runtime
            .block_on(answers)
            .expect("they are answered");
        let answers = answers.into_iter().flat_map(|it| it.answers);
        answers.filter(|it| it.refused == 0).count()
    };
    let kept = || match lied_to.server.client().ask(&["KEYS", "*:loans"]) {
        Reply::Array(keys) => keys.len(),
        other => panic!("{other:?}"),
    };
    let before = kept();
    assert_eq!(asked(0..100, 0), 100);
    assert_eq!(kept(), before);
    assert_eq!(asked(0..3, 10), 3);
    assert_eq!(kept(), before + 3);
}
