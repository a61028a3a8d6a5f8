//! Three regions on this machine, and what is between them.

use std::path::Path;
use std::time::Duration;

use ratekeeper_testkit::process::{eventually, free_port};
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};
use ratekeeper_testkit::redis::{PRIMARY, Sentinels, Server};

use super::scenario::{Event, RegionPlan, Scenario};
use super::{HOME, NAMES, ONE_WAY};

/// The domain of the rules.
pub(super) const DOMAIN: &str = "regions";

/// The nodes of a region.
const NODES: usize = 2;

/// The time that a primary has to be gone before another server takes over.
const GONE: Duration = Duration::from_millis(500);

/// All regions. Everything ends with them.
pub(super) struct World {
    regions: Vec<Region>,
    /// The ways from region to region: to each node there, and from others to the Redis of [`HOME`].
    ways: Vec<Way>,
}

struct Region {
    nodes: Vec<Ratekeeper>,
    redis: Redis,
}

/// The Redis of a region.
enum Redis {
    Single(Server),
    /// With replicas, for a region whose primary is killed.
    Watched(Sentinels),
}

/// A way between two regions.
struct Way {
    from: usize,
    to: usize,
    is_to_home: bool,
    proxy: Proxy,
}

impl Way {
    fn new((from, to): (usize, usize), is_to_home: bool, port: u16) -> Self {
        let proxy = Proxy::start(port);
        proxy.delay(ONE_WAY[from][to]);
        Self {
            from,
            to,
            is_to_home,
            proxy,
        }
    }

    /// True if it begins or ends in that region.
    fn touches(&self, region: usize) -> bool {
        self.from == region || self.to == region
    }
}

impl Redis {
    fn start(at: usize, scenario: &Scenario) -> Self {
        let clock = scenario.clocks[at];
        let is_clocked = scenario.clocks != [0; 3];
        match scenario.event {
            Event::Failover(region) if region == at => {
                let mut servers = match is_clocked {
                    true => Sentinels::clocked(GONE),
                    false => Sentinels::with_down_after(GONE),
                };
                if is_clocked {
                    servers.servers().iter().for_each(|it| it.set_clock(clock));
                }
                Self::Watched(servers)
            }
            _ if is_clocked => {
                let server = Server::clocked(&[]);
                server.set_clock(clock);
                Self::Single(server)
            }
            _ => Self::Single(Server::start()),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Single(server) => format!("redis://127.0.0.1:{}/", server.port()),
            Self::Watched(servers) => {
                let hosts = servers.ports().iter();
                let hosts: Vec<String> = hosts.map(|port| format!("127.0.0.1:{port}")).collect();
                format!("redis+sentinel://{}/{PRIMARY}", hosts.join(","))
            }
        }
    }

    /// The port of the server that is asked first.
    fn port(&self) -> u16 {
        match self {
            Self::Single(server) => server.port(),
            Self::Watched(servers) => servers.primary(),
        }
    }

    fn kill(&mut self) {
        let port = self.port();
        self.server(port).process().kill();
    }

    fn restart(&mut self, port: u16) {
        self.server(port).restart();
    }

    /// The server at that port.
    fn server(&mut self, port: u16) -> &mut Server {
        match self {
            Self::Single(server) => server,
            Self::Watched(servers) => {
                let mut all = servers.servers().iter_mut();
                let server = all.find(|server| server.port() == port);
                server.expect("a server has that port")
            }
        }
    }
}

impl World {
    /// Starts all regions, and waits until they listen.
    pub(super) fn start(program: &Path, plan: &RegionPlan, scenario: &Scenario) -> Self {
        let redis = (0..NAMES.len()).map(|at| Redis::start(at, scenario));
        let redis: Vec<Redis> = redis.collect();
        let home = (redis[HOME].url(), redis[HOME].port());
        let ports = NAMES.map(|_| [(); NODES].map(|()| free_port()));
        let (mut ways, mut regions) = (Vec::new(), Vec::new());
        for (at, redis) in redis.into_iter().enumerate() {
            let first = ways.len();
            for to in (0..NAMES.len()).filter(|to| *to != at) {
                let to_node = |port: &u16| Way::new((at, to), false, *port);
                ways.extend(ports[to].iter().map(to_node));
            }
            let links = links(&ways[first..]);
            let home = match at == HOME {
                true => home.0.clone(),
                false => {
                    let way = Way::new((at, HOME), true, home.1);
                    let url = format!("redis://127.0.0.1:{}/", way.proxy.port());
                    ways.push(way);
                    url
                }
            };
            let settings = settings(at, plan, (&redis.url(), &home), &links);
            let setup = Setup::serve(program).rules(&rules(plan));
            // Its lines are no faults.
            let setup = setup.variable("RATEKEEPER_DENIAL_LOG", "0");
            let setup = setup.settings(&settings);
            let nodes = ports[at].map(|port| setup.clone().grpc_at(port).start());
            regions.push(Region {
                nodes: nodes.into(),
                redis,
            });
        }
        Self { regions, ways }
    }

    /// The gRPC ports of a region's nodes.
    pub(super) fn grpc(&self, region: usize) -> Vec<u16> {
        let nodes = self.regions[region].nodes.iter();
        nodes.map(|node| node.grpc).collect()
    }

    /// The admin ports of all nodes, by region.
    pub(super) fn admins(&self) -> Vec<u16> {
        let nodes = self.regions.iter().flat_map(|region| &region.nodes);
        nodes.map(|node| node.admin).collect()
    }

    /// The ends of all nodes' logs, with their regions.
    pub(super) fn logs(&self) -> Vec<(usize, String)> {
        let regions = self.regions.iter().enumerate();
        let nodes = regions.flat_map(|(at, region)| region.nodes.iter().map(move |it| (at, it)));
        nodes
            .map(|(at, node)| (at, node.process.output()))
            .collect()
    }

    /// Cuts a region off: nothing arrives from it or in it, and no one is told. Or connects it again.
    pub(super) fn cut(&self, region: usize, is_cut: bool) {
        for way in self.ways.iter().filter(|way| way.touches(region)) {
            way.proxy.swallow(is_cut);
            if !is_cut {
                // What was swallowed would be sent again by a network, and is lost here.
                way.proxy.cut_all();
            }
        }
    }

    /// Kills all that is in a region.
    pub(super) fn kill(&mut self, region: usize) {
        let Region { nodes, redis } = &mut self.regions[region];
        nodes.iter_mut().for_each(|node| node.process.kill());
        redis.kill();
    }

    /// Kills the primary of a region, waits for the next, and starts the one that was killed again: nothing is lent while a
    /// replica is away.
    pub(super) fn fail_over(&mut self, region: usize) {
        let redis = &mut self.regions[region].redis;
        let before = redis.port();
        redis.kill();
        eventually("another server is the primary", || redis.port() != before);
        redis.restart(before);
        if region == HOME {
            let port = redis.port();
            for way in self.ways.iter().filter(|way| way.is_to_home) {
                way.proxy.lead_to(port);
                way.proxy.cut_all();
            }
        }
    }
}

/// The ports of the ways of one region, by the region they lead to.
fn links(ways: &[Way]) -> Vec<Vec<u16>> {
    let to = |to: usize| {
        let ways = ways.iter().filter(|way| way.to == to);
        ways.map(|way| way.proxy.port()).collect()
    };
    (0..NAMES.len()).map(to).collect()
}

fn rules(plan: &RegionPlan) -> String {
    let (window, limit) = (plan.window.as_secs(), plan.limit);
    let limit = format!("window: {window}s, limit: {limit}, algorithm: fixed_window");
    format!(
        "domain: {DOMAIN}
on_store_failure: deny
descriptors:
- {{ key: bounded, rate_limit: {{ {limit}, regions: bounded }} }}
- {{ key: counted, rate_limit: {{ {limit}, regions: counted }} }}
- {{ key: regional, rate_limit: {{ {limit}, regions: regional }} }}
- {{ key: home, store: home, rate_limit: {{ {limit} }} }}
- {{ key: plain, rate_limit: {{ {limit} }} }}
"
    )
}

fn settings(
    own: usize,
    plan: &RegionPlan,
    (store, home): (&str, &str),
    links: &[Vec<u16>],
) -> String {
    let regions = NAMES.iter().zip(links).map(|(name, ports)| {
        let links = ports
            .iter()
            .map(|port| format!("'http://127.0.0.1:{port}'"));
        let links: Vec<String> = links.collect();
        let link = match links.is_empty() {
            true => String::new(),
            false => format!(", link: [{}]", links.join(", ")),
        };
        format!("  {name}: {{ weight: 1{link} }}\n")
    });
    format!(
        "region: {}
regions:
  version: 1
  loan_time: {}s
{}store: {store}
store_deadline: 1s
stores:
  home: {{ url: '{home}', deadline: 1s }}
store_hash_key: 00112233445566778899aabbccddeeff
",
        NAMES[own],
        plan.loan_time.as_secs(),
        regions.collect::<String>(),
    )
}
