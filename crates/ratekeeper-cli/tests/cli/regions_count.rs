//! Regions that count a limit together: each with two nodes on a Redis of its own, and links that can be cut.

use crate::regions_lend::{AP, EU, NAMES, US, World};
use crate::regions_lie::{LiedTo, admitted, eu_beside_us, hello, link};
use crate::support::run;
use ratekeeper_proto::ratekeeper::v1::region_service_server::RegionService;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswers, LoanAsks, RegionTotal};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use std::sync::{Arc, Mutex};
use tempfile::tempdir;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The limit, of which the share of each region is a third.
pub(crate) const LIMIT: usize = 300;

pub(crate) fn rules(more: &str) -> String {
    format!(
        "domain: d\nregions: counted\non_store_failure: deny\ndescriptors:\n- {{ key: key, rate_limit: {{ window: 24h, \
         limit: {LIMIT}, algorithm: fixed_window{more} }} }}\n"
    )
}

/// Waits until all nodes know of each other region what it has counted of `value`.
pub(crate) fn wait_for_totals(world: &World, value: &str, counted: [usize; 3]) {
    for region in &world.regions {
        eventually("a region knows what the others have counted", || {
            let told = region.explained(value);
            let knows = |at: usize| told.contains(&format!(" {} {}", NAMES[at], counted[at]));
            let own = |at: usize| told.contains(&format!("{} counted {}", NAMES[at], counted[at]));
            (0..3).all(|at| knows(at) || own(at))
        });
    }
}

/// Waits until every node counts the other regions as they say.
pub(crate) fn wait_until_heard(world: &World) {
    world.wait_for_links();
    for region in &world.regions {
        for node in 0..2 {
            eventually("a node has heard all other regions for a while", || {
                !region.explained_by(node, "a").contains(" is silent, with")
            });
        }
    }
}

/// Asks by turns in all regions for three times the limit. Whenever all know what the others have counted, each asks for a
/// part of it again: so no more passes beyond the limit than two of them ask for in the meantime.
#[test]
fn connected_regions_admit_the_limit_and_what_others_cannot_know_of_yet() {
    let world = World::start(|_| rules(""));
    wait_until_heard(&world);
    let (part, mut counted) = (30, [0; 3]);
    for _ in 0..LIMIT / part {
        for region in [AP, EU, US] {
            counted[region] += world.regions[region].ask("a", part);
        }
        wait_for_totals(&world, "a", counted);
    }
    let all: usize = counted.iter().sum();
    assert!((LIMIT..=LIMIT + 2 * part).contains(&all), "{counted:?}");
    for region in [AP, EU, US] {
        assert_eq!(world.regions[region].ask("a", 10), 0, "{counted:?}");
    }

    // One region may use all of it, and then there is nothing left for others.
    let eu = world.regions[EU].ask("b", 2 * LIMIT);
    assert_eq!(eu, LIMIT);
    // A region that nobody asks in needs not be told by itself: it hears what the busy one posts.
    wait_for_totals(&world, "b", [0, LIMIT, 0]);
    assert_eq!(world.regions[US].ask("b", 10), 0);
    let metrics = world.regions[EU].nodes[0].metrics();
    let posts = metrics
        .lines()
        .filter(|line| line.starts_with("ratelimit_region_posts_total{"));
    assert!(
        posts.clone().count() == 2 && posts.clone().all(|line| !line.ends_with(" 0")),
        "{metrics}"
    );
    let told = world.regions[EU].explained("b");
    assert_contains(&told, "eu counted 300, ap 0, us 0, of 300");
    assert_contains(
        &told,
        "region eu counts with ap and us: about 300, and what others admit in 1.2 s",
    );
}

/// A node that starts without ap goes on counting what ap had told, beside the share of us, which it has no link to.
#[test]
fn a_region_that_is_taken_out_stays_counted_until_the_window_ends() {
    let world = World::start(|_| rules(""));
    wait_until_heard(&world);
    let counted = [AP, EU, US].map(|at| world.regions[at].ask("a", if at == AP { 20 } else { 0 }));
    wait_for_totals(&world, "a", counted);
    let folder = tempdir().expect("a folder can be made");
    let us = world.regions[US].nodes[0].grpc;
    let node = eu_beside_us(folder.path(), &rules(""), (2, us), &world.servers[EU]);
    let admin = format!("http://127.0.0.1:{}", node.admin);
    let told = run(
        folder.path(),
        &["rules", "explain", "--admin", &admin, "d", "key=a"],
    );
    assert_contains(
        &told.out,
        "eu counted 0, us 0, regions that have left 20, of 300; us is silent, with a share of 150",
    );
    assert_eq!(admitted(&node, "a", LIMIT), LIMIT - 20 - LIMIT / 2);
}

/// Cuts all regions off from each other, and waits until each node says so.
fn part(world: &World, told: impl Fn(&str) -> bool) {
    world.cut(EU, true);
    world.cut(US, true);
    for region in &world.regions {
        for node in 0..2 {
            eventually("a node finds out that it is alone", || {
                told(&region.explained_by(node, "a"))
            });
        }
    }
}

#[test]
fn alone_each_region_that_is_cut_off_admits_the_limit() {
    let world = World::start(|_| rules(", on_silence: alone, post_interval: 100ms"));
    world.wait_for_links();
    part(&world, |told| told.matches("; no link to ").count() == 2);
    for region in &world.regions {
        assert_eq!(region.ask("a", LIMIT + 20), LIMIT);
    }
    // Once they hear of each other again they know that nothing is left.
    world.cut(EU, false);
    world.cut(US, false);
    world.wait_for_links();
    wait_for_totals(&world, "a", [LIMIT; 3]);
}

#[test]
fn regions_that_are_cut_off_admit_their_shares_and_no_more_than_the_limit_together() {
    let world = World::start(|_| rules(""));
    wait_until_heard(&world);
    // One has used more than its share, and all know it.
    assert_eq!(world.regions[EU].ask("a", 180), 180);
    wait_for_totals(&world, "a", [0, 180, 0]);
    part(&world, |told| {
        told.matches(" is silent, with a share of 100").count() == 2
    });
    eventually("a region that is cut off says so", || {
        let readiness = world.regions[EU].readiness();
        readiness.contains("region us: no link for")
    });
    assert_eq!(world.regions[EU].ask("a", LIMIT), 0);
    // The larger of what eu posted and its share counts, and the share of the other.
    assert_eq!(world.regions[US].ask("a", LIMIT), 20);
    assert_eq!(world.regions[AP].ask("a", LIMIT), 20);
    for region in &world.regions {
        assert_eq!(region.ask("b", LIMIT), LIMIT / 3);
    }
    world.cut(EU, false);
    world.cut(US, false);
    wait_until_heard(&world);
    wait_for_totals(&world, "b", [LIMIT / 3; 3]);
    wait_for_totals(&world, "a", [20, 180, 20]);
    for region in &world.regions {
        assert_eq!(region.ask("b", 20), 0);
    }
    assert_eq!(world.regions[US].ask("a", LIMIT), LIMIT - 220);
}

/// A region that answers each total with what it is told to say.
#[derive(Clone)]
struct Liar {
    heard: Arc<Mutex<Vec<RegionTotal>>>,
    says: u64,
}

impl Liar {
    fn hear(&self, totals: Vec<RegionTotal>) {
        let mut heard = self.heard.lock().expect("nobody panics");
        heard.extend(totals);
    }
}

#[tonic::async_trait]
impl RegionService for Liar {
    type LinkStream = ReceiverStream<Result<LoanAnswers, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<LoanAsks>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let (answers, sent) = mpsc::channel(64);
        let liar = self.clone();
        let mut asks = request.into_inner();
        tokio::spawn(async move {
            let hello = LoanAnswers {
                weights_version: 1,
                ..LoanAnswers::default()
            };
            let _ = answers.send(Ok(hello)).await;
            while let Some(Ok(message)) = asks.next().await {
                let lies = message.totals.iter().map(|told| RegionTotal {
                    told_window: u64::MAX,
                    told_total: u64::MAX,
                    total: liar.says,
                    ..*told
                });
                let lies = LoanAnswers {
                    totals: lies.collect(),
                    ..LoanAnswers::default()
                };
                liar.hear(message.totals);
                let _ = answers.send(Ok(lies)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(sent)))
    }
}

/// A region that lies can deny the other its limit, and can never raise it.
#[test]
fn a_region_that_posts_huge_totals_raises_no_limit() {
    let liar = Liar {
        heard: Arc::default(),
        says: u64::MAX,
    };
    let rules = rules(", on_silence: alone");
    let LiedTo { node, runtime, .. } = &LiedTo::by(liar.clone(), &rules);
    let heard = || liar.heard.lock().expect("nobody panics").clone();

    // What it answers is more than any region of these terms has counted.
    let mut passed = 0;
    eventually("the region has posted, and is lied to", || {
        passed += admitted(node, "a", 5);
        heard().len() > 1
    });
    let told = heard()[0];
    assert_eq!(told.total.min(LIMIT as u64), told.total);
    let lie = |window: u64, total: u64| RegionTotal {
        window,
        total,
        ..told
    };
    let now = told.window;
    let lies = vec![
        lie(now, u64::MAX),
        lie(now, LIMIT as u64 + 1),
        lie(now - 1, 5),
        lie(now + 2, 5),
        lie(u64::MAX, 5),
        RegionTotal {
            terms: 1,
            ..lie(now, 5)
        },
    ];
    let flood = (0..100).map(|_| LoanAsks {
        totals: lies.clone(),
        ..LoanAsks::default()
    });
    let flood = std::iter::once(hello("us", 1)).chain(flood);
    let answers = runtime.block_on(link(node, flood.collect()));
    let answers = answers.expect("a flood is answered");
    let answers: Vec<RegionTotal> = answers.into_iter().flat_map(|it| it.totals).collect();
    assert_eq!(answers.len(), 600);
    let refused = |at: usize| answers[at].refused().as_str_name().to_owned();
    let why = ["TERMS", "TERMS", "OLD", "APART", "APART", "TERMS"];
    for (at, why) in why.iter().enumerate() {
        assert_eq!(refused(at), format!("REFUSAL_{why}"), "{at}");
    }
    let metrics = node.metrics();
    assert_contains(
        &metrics,
        "ratelimit_region_posted_total{peer=\"us\",result=\"refused\"} ",
    );
    // None of it left its trace.
    assert_eq!(passed + admitted(node, "a", 2 * LIMIT), LIMIT);

    // The most that it can say takes the limit away, of this counter.
    assert_eq!(admitted(node, "b", 10), 10);
    let key = |it: &RegionTotal| (it.subject, it.identity);
    let mut other = None;
    eventually("the other counter is posted", || {
        other = heard().into_iter().find(|it| key(it) != key(&told));
        other.is_some()
    });
    let other = other.expect("it was found");
    for total in [LIMIT as u64, 0, 5] {
        let asks = LoanAsks {
            totals: vec![RegionTotal { total, ..other }],
            ..LoanAsks::default()
        };
        let answers = runtime.block_on(link(node, vec![hello("us", 1), asks]));
        let answers = answers.expect("it is answered");
        let answers: Vec<RegionTotal> = answers.into_iter().flat_map(|it| it.totals).collect();
        assert_eq!((answers[0].total, answers[0].refused), (10, 0));
        assert_eq!(admitted(node, "b", 5), 0);
    }
    assert_eq!(admitted(node, "c", 2 * LIMIT), LIMIT);
    let many = LoanAsks {
        totals: vec![other; 1_001],
        ..LoanAsks::default()
    };
    let refused = runtime.block_on(link(node, vec![hello("us", 1), many]));
    assert!(refused.is_err());
}
