//! Regions that lend each other parts of a limit: each with two nodes on a Redis of its own, and links that can be cut.

use crate::dashboard::page::Page;
use crate::observability;
use crate::support::{Ratekeeper, http, run, serve, url};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::Server;
use std::path::Path;
use std::time::Duration;
use tempfile::{TempDir, tempdir};

pub(crate) const NAMES: [&str; 3] = ["ap", "eu", "us"];
pub(crate) const AP: usize = 0;
pub(crate) const EU: usize = 1;
pub(crate) const US: usize = 2;

/// The limit, of which each region owns a third.
const LIMIT: usize = 300;

/// Three regions of two nodes each.
pub(crate) struct World {
    pub(crate) regions: Vec<Region>,
    /// The links, by who asks and who is asked.
    links: Vec<Vec<Proxy>>,
    pub(crate) servers: Vec<Server>,
    _folder: TempDir,
}

pub(crate) struct Region {
    pub(crate) nodes: [Ratekeeper; 2],
}

impl World {
    pub(crate) fn start(rules: impl Fn(&str) -> String) -> Self {
        let folder = tempdir().expect("a folder can be made");
        let servers: Vec<Server> = NAMES.iter().map(|_| Server::start()).collect();
        let links = NAMES.map(|_| NAMES.map(|_| Proxy::start(0)).into());
        let links: Vec<Vec<Proxy>> = links.into();
        let regions = (0..NAMES.len()).map(|at| {
            let folder = folder.path().join(NAMES[at]);
            Region::start(&folder, at, &rules(NAMES[at]), (&servers[at], &links[at]))
        });
        let regions: Vec<Region> = regions.collect();
        for links in &links {
            for (to, link) in links.iter().enumerate() {
                link.lead_to(regions[to].nodes[1].grpc);
            }
        }
        Self {
            regions,
            links,
            servers,
            _folder: folder,
        }
    }

    /// Cuts a region off, or connects it again.
    pub(crate) fn cut(&self, region: usize, is_cut: bool) {
        for from in 0..NAMES.len() {
            for to in 0..NAMES.len() {
                if from == region || to == region {
                    let link = &self.links[from][to];
                    link.swallow(is_cut);
                    link.cut_all();
                }
            }
        }
    }

    pub(crate) fn wait_for_links(&self) {
        for region in &self.regions {
            for node in &region.nodes {
                eventually("a node has links to both other regions", || {
                    let metrics = node.metrics();
                    let reached = metrics
                        .lines()
                        .filter(|line| line.starts_with("ratelimit_region_reachable"));
                    reached.filter(|line| line.ends_with(" 1")).count() == 2
                });
            }
        }
    }
}

impl Region {
    fn start(folder: &Path, own: usize, rules: &str, (server, links): (&Server, &[Proxy])) -> Self {
        let link = |at: usize| match at == own {
            true => String::new(),
            false => format!(", link: ['http://127.0.0.1:{}']", links[at].port()),
        };
        let regions = (0..NAMES.len()).map(|at| {
            let (name, link) = (NAMES[at], link(at));
            format!("  {name}: {{ weight: 1{link} }}\n")
        });
        let settings = format!(
            "region: {}\nregions:\n  version: 1\n{}store: {}\nstore_deadline: 1s\nstore_hash_key: {}\n",
            NAMES[own],
            regions.collect::<String>(),
            url(server),
            "00112233445566778899aabbccddeeff",
        );
        let nodes = ["one", "two"].map(|node| {
            let setup = serve(&folder.join(node)).rules(rules);
            setup.settings(&settings).args("--require-store").start()
        });
        Self { nodes }
    }

    /// Asks so often, by turns of both nodes; returns how often it was allowed.
    pub(crate) fn ask(&self, value: &str, times: usize) -> usize {
        self.ask_of(("key", value), times)
    }

    fn ask_of(&self, entry: (&str, &str), times: usize) -> usize {
        let allows = |number: &usize| {
            let node = &self.nodes[number % 2];
            node.check(&[entry])["decision"] == "allow"
        };
        (0..times).filter(allows).count()
    }

    /// The answer of `rules explain` for a key.
    pub(crate) fn explained(&self, value: &str) -> String {
        self.explained_by(0, value)
    }

    /// The answer of one node.
    pub(crate) fn explained_by(&self, node: usize, value: &str) -> String {
        let admin = format!("http://127.0.0.1:{}", self.nodes[node].admin);
        let entry = format!("key={value}");
        let args = ["rules", "explain", "--admin", &admin, "d", &entry];
        let said = run(&std::env::temp_dir(), &args);
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out
    }

    pub(crate) fn readiness(&self) -> String {
        http(self.nodes[0].admin, "GET", "/readyz", "").1
    }
}

fn rules(limit: usize) -> String {
    format!(
        "domain: d\nregions: bounded\non_store_failure: deny\ndescriptors:\n- {{ key: key, rate_limit: {{ window: 24h, \
         limit: {limit}, algorithm: fixed_window }} }}\n"
    )
}

/// The number after `text` in `said`.
pub(crate) fn number_after(said: &str, text: &str) -> usize {
    let (_, rest) = said
        .split_once(text)
        .unwrap_or_else(|| panic!("no {text:?} in {said}"));
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().expect("a number")
}

#[test]
fn explain_says_what_a_region_enforces_and_of_whom_it_holds_that() {
    let world = World::start(|_| rules(LIMIT));
    world.wait_for_links();
    let told = world.regions[EU].explained("a");
    assert!(
        told.contains("eu enforces 100 of 300: owns 100\n"),
        "{told}"
    );
    let mut admitted = 0;
    eventually("the busy region has borrowed from both others", || {
        admitted += world.regions[EU].ask("a", 20);
        let told = world.regions[EU].explained("a");
        told.contains(" of us (") && told.contains(" of ap (") && told.contains("; us had ")
    });
    eventually("both sides say the same", || {
        world.regions[EU].ask("a", 2);
        let eu = world.regions[EU].explained("a");
        let us = world.regions[US].explained("a");
        let ap = world.regions[AP].explained("a");
        let [enforces, of_ap] = [" enforces ", ", holds "].map(|text| number_after(&eu, text));
        let of_us = number_after(&eu, ") and ");
        assert_eq!(enforces, 100 + of_ap + of_us, "{eu}");
        us.contains(&format!("has lent {of_us} to eu"))
            && ap.contains(&format!("has lent {of_ap} to eu"))
    });
    world.cut(EU, true);
    eventually("a region that is cut off says so", || {
        let told = world.regions[EU].explained("a");
        told.contains("; no link to us") && told.contains(" s ago")
    });
}

#[test]
fn a_busy_region_borrows_and_no_more_than_the_limit_ever_passes() {
    let world = World::start(|_| rules(LIMIT));
    world.wait_for_links();
    let mut admitted = [0; 3];
    eventually("the busy region has borrowed from both others", || {
        admitted[EU] += world.regions[EU].ask("a", 20);
        admitted[EU] > LIMIT / 3 + LIMIT / 3
    });
    let metrics = world.regions[EU].nodes[0].metrics();
    let told = observability::names(|name| name.starts_with(observability::OF_REGIONS));
    assert!(told.len() > 2, "{told:?}");
    observability::assert_has_all(&metrics, &told);
    assert_contains(&metrics, "ratelimit_region_borrowed_hits{peer=\"us\"}");
    assert_contains(&metrics, "ratelimit_region_owned_hits 100");
    for region in [AP, US, EU] {
        admitted[region] += world.regions[region].ask("a", LIMIT);
    }
    let all: usize = admitted.iter().sum();
    assert!(all <= LIMIT, "{admitted:?}");
    // Nothing is lost: what a region holds, it can use.
    eventually("all that is left passes somewhere", || {
        for region in [AP, US, EU] {
            admitted[region] += world.regions[region].ask("a", 10);
        }
        admitted.iter().sum::<usize>() >= LIMIT - 1
    });
    for region in [AP, US, EU] {
        admitted[region] += world.regions[region].ask("a", 50);
    }
    let all: usize = admitted.iter().sum();
    assert!(all <= LIMIT, "{admitted:?}");

    // Cut off, a region has what it owns, and what it held before.
    world.cut(EU, true);
    eventually("a region that is cut off says so", || {
        world.regions[EU]
            .readiness()
            .contains("region us: no link for")
    });
    let apart: Vec<usize> = (0..3).map(|at| world.regions[at].ask("b", LIMIT)).collect();
    assert_eq!(apart[EU], LIMIT / 3, "{apart:?}");
    assert!(apart.iter().sum::<usize>() <= LIMIT, "{apart:?}");
    world.cut(EU, false);
    world.wait_for_links();
    let mut healed = 0;
    eventually("a region that is connected again borrows", || {
        healed += world.regions[EU].ask("c", 20);
        healed > LIMIT / 3
    });
}

/// Rules of these algorithms, each named by its key.
fn rules_of(algorithms: &[&str], limit: usize, more: &str) -> String {
    let rule = |name: &&str| {
        format!(
            "- {{ key: {name}, rate_limit: {{ window: 24h, limit: {limit}, algorithm: {name}{more} }} }}\n"
        )
    };
    let rules: String = algorithms.iter().map(rule).collect();
    format!("domain: d\nregions: bounded\non_store_failure: deny\ndescriptors:\n{rules}")
}

/// Asks for hits of a limit until the busy region has borrowed, and then everywhere: no more than the limit passes.
fn use_up(world: &World, name: &str, limit: usize) {
    let mut admitted = [0; 3];
    eventually("the busy region has borrowed", || {
        admitted[EU] += world.regions[EU].ask_of((name, "a"), limit / 15);
        admitted[EU] > limit / 2
    });
    let ask_everywhere = |admitted: &mut [usize; 3]| {
        for region in [AP, US, EU] {
            admitted[region] += world.regions[region].ask_of((name, "a"), limit / 3);
        }
        admitted.iter().sum::<usize>()
    };
    eventually("all but the last of the limit is used", || {
        ask_everywhere(&mut admitted) > limit - limit / 20
    });
    for _ in 0..3 {
        ask_everywhere(&mut admitted);
    }
    let all: usize = admitted.iter().sum();
    // A log counts its hits by groups, and a bucket fills up meanwhile.
    let more = match name {
        "fixed_window" => 0,
        "sliding_window" => limit / 16,
        _ => 1,
    };
    assert!(all <= limit + more, "{name}: {admitted:?}");
}

/// Of each algorithm whose parts are lent for a time.
#[test]
fn parts_of_buckets_and_logs_are_borrowed_and_no_more_than_the_limit_passes() {
    let names = ["token_bucket", "gcra", "sliding_window"];
    let world = World::start(|_| rules_of(&names, LIMIT, ""));
    world.wait_for_links();
    // Longer than nodes wait before they ask: answers come when another one has asked already.
    for link in world.links.iter().flatten() {
        link.delay(Duration::from_millis(250));
    }
    names.iter().for_each(|name| use_up(&world, name, LIMIT));
}

/// Nodes lease hits of a share that moves: what they hold counts as used.
#[test]
fn a_region_whose_nodes_lease_borrows_and_no_more_than_the_limit_passes() {
    let (names, limit) = (["fixed_window", "sliding_window"], 3 * LIMIT);
    let world = World::start(|_| rules_of(&names, limit, ", consistency: leased"));
    world.wait_for_links();
    let granted = || {
        let metrics = world.regions[EU].nodes[0].metrics();
        let mut lines = metrics.lines();
        let line = lines.find(|line| {
            line.starts_with("ratelimit_lease_hits_total{") && line.contains("granted")
        });
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        value.unwrap_or(0)
    };
    let mut before = 0;
    for name in names {
        use_up(&world, name, limit);
        let after = granted();
        assert!(after > before, "{name}: nothing was leased");
        before = after;
    }
}

#[test]
fn regions_with_other_rules_lend_nothing_and_say_so() {
    let world = World::start(|name| rules(if name == "us" { 2 * LIMIT } else { LIMIT }));
    world.wait_for_links();
    let mut admitted = 0;
    // The region with the larger limit owns its third of that, and gets no more.
    eventually("the region is told that it differs", || {
        admitted += world.regions[US].ask("a", 30);
        world.regions[US]
            .readiness()
            .contains("lends or counts on other terms")
    });
    admitted += world.regions[US].ask("a", LIMIT);
    assert_eq!(admitted, 2 * LIMIT / 3);
}

#[test]
fn the_dashboard_tells_who_lent_to_whom_and_which_link_is_down() {
    let world = World::start(|_| rules(LIMIT));
    world.wait_for_links();
    let mut admitted = 0;
    eventually("the busy region has borrowed from both others", || {
        admitted += world.regions[EU].ask("a", 20);
        admitted > LIMIT / 3 + LIMIT / 3
    });
    let mut page = Page::open(&world.regions[EU].nodes[0]);
    page.click("#health summary");
    let panel = "section:has(h2:text-is(\"Regions\"))";
    page.shows(panel, "eu owns 100 hits of a window");
    page.wait("tr:has([data-region=us]) [data-label=borrowed]", |hits| {
        hits.parse::<usize>().is_ok_and(|hits| hits > 0)
    });
    page.shows("[data-region=us]", "up for");
    world.cut(EU, true);
    page.shows("[data-region=us]", "down for");
    page.shows("tr:has([data-region=us])", "region us: no link for");
    page.end();
}
