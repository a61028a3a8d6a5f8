//! Sends counts to a statsd or DogStatsD agent, under the names that envoyproxy/ratelimit gives them.
//!
//! Every few seconds it sends the increase of each count, in datagrams that no request waits for. An agent that is away
//! misses them, as with any statsd.

mod config;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_rules::RuleSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tracing::{info, warn};

pub use config::{StatsdConfig, StatsdFormat};

use super::envoy_stats::{EnvoyCounts, RulePath};
use super::rule_counts::CountsDelta;
use crate::blocking::blocking;

/// The most bytes of a datagram: with its headers it fits any Ethernet.
const DATAGRAM_MAX: usize = 1_432;

/// The longest time that a node which stops sends its last counts: only the look-up of a name takes any.
const LAST_MAX: Duration = Duration::from_secs(1);

/// The beginning of all names.
const PREFIX: &str = "ratelimit.service";

/// A count's name: the part that is the same everywhere, the place in the rules, and the end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    place: Option<RulePath>,
    end: &'static str,
}

type Counts = BTreeMap<Name, u64>;

/// The counts since the start that no rule has, by the ends of their names.
pub(crate) type NodeCounts = [(&'static str, u64); 3];

/// Counts to send to an agent.
#[derive(Debug)]
pub(crate) struct StatsdCounts {
    config: StatsdConfig,
    /// Those that were not sent yet.
    new: Mutex<Counts>,
    /// The counts that no rule has, as they were last added.
    of_node: Mutex<[u64; 3]>,
}

impl StatsdCounts {
    pub(crate) fn new(config: StatsdConfig) -> Self {
        Self {
            config,
            new: Mutex::default(),
            of_node: Mutex::default(),
        }
    }

    /// Adds the `answers` of the rules of `rules`.
    pub(crate) fn add(&self, rules: &RuleSet, answers: &CountsDelta<'_>) {
        let counted = answers.iter().filter(|(_, counts)| counts.answers() > 0);
        let mut new = self.new.lock();
        for (place, of_place) in EnvoyCounts::by_place(rules, counted) {
            for (end, count) in of_place.named() {
                let place = Some(place.clone());
                add(&mut new, Name { place, end }, count);
            }
        }
    }

    /// Adds the increase of the counts `of_node`.
    fn add_of_node(&self, of_node: NodeCounts) {
        let mut last = self.of_node.lock();
        let mut new = self.new.lock();
        for ((end, count), before) in of_node.into_iter().zip(&mut *last) {
            let more = count.saturating_sub(std::mem::replace(before, count));
            add(&mut new, Name { place: None, end }, more);
        }
    }

    /// Takes back what was not sent.
    fn put_back(&self, unsent: Counts) {
        let mut new = self.new.lock();
        for (name, count) in unsent {
            add(&mut new, name, count);
        }
    }
}

fn add(counts: &mut Counts, name: Name, more: u64) {
    if more > 0 {
        *counts.entry(name).or_default() += more;
    }
}

/// The reason why counts were not sent.
#[derive(Debug, thiserror::Error)]
enum StatsdError {
    #[error("the address cannot be looked up")]
    Lookup(#[source] io::Error),
    #[error("the name has no address")]
    NoAddress,
    #[error("there is no socket")]
    Socket(#[source] io::Error),
    #[error("not sent")]
    Send(#[source] io::Error),
}

/// Sends counts to the agent of `statsd` as long as the server runs, and the increase of those `of_node`.
pub(crate) async fn send(statsd: &StatsdCounts, of_node: impl Fn() -> NodeCounts) {
    let config = &statsd.config;
    let first = Instant::now() + config.interval;
    let mut ticks = interval_at(first, config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut works = true;
    loop {
        ticks.tick().await;
        // One at a time: while a name server does not answer, counts wait, added up.
        let posted = send_new(statsd, of_node()).await;
        match (&posted, works) {
            (Ok(()), false) => info!(statsd = config.address, "counts are sent again"),
            (Err(error), true) => warn!(
                error = %chain(error), statsd = config.address,
                "counts are not sent to statsd; they are added to the next ones"
            ),
            _ => {}
        }
        works = posted.is_ok();
    }
}

/// Sends what was not sent yet, before the process ends; nothing is added any more.
pub(crate) async fn send_last(statsd: &StatsdCounts, of_node: NodeCounts) {
    let error = match timeout(LAST_MAX, send_new(statsd, of_node)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => chain(&error),
        Err(_) => "the address was not looked up in time".to_owned(),
    };
    warn!(%error, statsd = statsd.config.address, "the last counts are not sent to statsd");
}

/// Sends what was not sent yet, and the increase of the counts `of_node`.
async fn send_new(statsd: &StatsdCounts, of_node: NodeCounts) -> Result<(), StatsdError> {
    statsd.add_of_node(of_node);
    let (to, counts) = (
        statsd.config.clone(),
        std::mem::take(&mut *statsd.new.lock()),
    );
    let (unsent, posted) = blocking(move || post(&to, counts)).await;
    statsd.put_back(unsent);
    posted
}

/// An error with its causes.
fn chain(error: &StatsdError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Sends `counts` in as few datagrams as they fit into, without waiting for room. Returns those that were not sent,
/// with the first reason.
fn post(config: &StatsdConfig, counts: Counts) -> (Counts, Result<(), StatsdError>) {
    if counts.is_empty() {
        return (counts, Ok(()));
    }
    let (socket, to) = match open(config) {
        Ok(agent) => agent,
        Err(error) => return (counts, Err(error)),
    };
    let (mut unsent, mut posted) = (Counts::new(), Ok(()));
    for (text, of_text) in datagrams(config.format, counts) {
        if let Err(error) = socket.send_to(text.as_bytes(), to) {
            posted = posted.and(Err(StatsdError::Send(error)));
            unsent.extend(of_text);
        }
    }
    (unsent, posted)
}

/// A socket, and the address of the agent.
fn open(config: &StatsdConfig) -> Result<(UdpSocket, SocketAddr), StatsdError> {
    let addresses = config.address.to_socket_addrs();
    let mut addresses = addresses.map_err(StatsdError::Lookup)?;
    let to = addresses.next().ok_or(StatsdError::NoAddress)?;
    let socket = socket(&to).map_err(StatsdError::Socket)?;
    Ok((socket, to))
}

/// The texts of datagrams, each with its counts. A line that is too long is a datagram of its own.
fn datagrams(format: StatsdFormat, counts: Counts) -> Vec<(String, Counts)> {
    let mut datagrams: Vec<(String, Counts)> = Vec::new();
    for (name, count) in counts {
        let line = line(format, &name, count);
        let last = datagrams.last_mut();
        match last.filter(|(text, _)| text.len() + line.len() <= DATAGRAM_MAX) {
            Some((text, of_text)) => {
                text.push_str(&line);
                of_text.insert(name, count);
            }
            None => datagrams.push((line, Counts::from([(name, count)]))),
        }
    }
    datagrams
}

fn socket(to: &SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn line(format: StatsdFormat, name: &Name, count: u64) -> String {
    let end = name.end;
    let Some((domain, path)) = &name.place else {
        return format!("{PREFIX}.{end}:{count}|c\n");
    };
    let path = path.iter().map(|node| clean(node));
    let path = path.collect::<Vec<_>>().join(".");
    let domain = clean(domain);
    match format {
        StatsdFormat::Statsd => format!("{PREFIX}.rate_limit.{domain}.{path}.{end}:{count}|c\n"),
        StatsdFormat::DogStatsd => {
            format!("{PREFIX}.rate_limit.{end}:{count}|c|#domain:{domain},rule:{path}\n")
        }
    }
}

/// A part of a name or a tag: without the characters that mean something in the format, and, as envoyproxy/ratelimit
/// writes them, with underscores for the dots of an IPv4 address.
fn clean(text: &str) -> String {
    let is_special = |c: char| c.is_control() || ":|,@#".contains(c);
    let clean = text.replace(is_special, "_");
    let value = clean.rsplit_once('_').map_or(&*clean, |(_, value)| value);
    match value.parse::<std::net::Ipv4Addr>() {
        Ok(_) => {
            let start = clean.len() - value.len();
            format!("{}{}", &clean[..start], value.replace('.', "_"))
        }
        Err(_) => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent, and the settings to send to it.
    fn agent(format: StatsdFormat) -> (UdpSocket, StatsdConfig) {
        let agent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let wait = Some(Duration::from_secs(60));
        agent.set_read_timeout(wait).expect("a timeout can be set");
        let address = agent.local_addr().expect("an address").to_string();
        let config = StatsdConfig {
            address: address.into(),
            format,
            interval: Duration::from_secs(1),
        };
        (agent, config)
    }

    /// The lines that have arrived, once there are `wanted`.
    fn arrived(agent: &UdpSocket, wanted: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < wanted {
            let mut buffer = [0; 65_536];
            let length = agent.recv(&mut buffer).expect("it arrives");
            assert!(length <= DATAGRAM_MAX, "{length}");
            let text = std::str::from_utf8(&buffer[..length]).expect("UTF-8");
            lines.extend(text.lines().map(str::to_owned));
        }
        lines
    }

    fn posted(format: StatsdFormat, counts: &[(&str, &[&str], &'static str, u64)]) -> Vec<String> {
        let (agent, config) = agent(format);
        let name = |(domain, path, end, count): &(&str, &[&str], &'static str, u64)| {
            let path: Vec<String> = path.iter().map(|node| (*node).to_owned()).collect();
            let place = (!domain.is_empty()).then(|| (Box::from(*domain), path));
            (Name { place, end }, *count)
        };
        let counts: Counts = counts.iter().map(name).collect();
        let (unsent, posted) = post(&config, counts.clone());
        posted.expect("it is sent");
        assert_eq!(unsent, Counts::new());
        arrived(&agent, counts.len())
    }

    #[test]
    fn names_are_those_of_envoyproxy_ratelimit() {
        let lines = posted(
            StatsdFormat::Statsd,
            &[
                ("", &[], "config_load_success", 1),
                ("d", &["ip_10.0.0.1"], "total_hits", 5),
                ("d", &["path_a:b|c", "k"], "over_limit", 2),
            ],
        );
        assert_eq!(
            lines,
            [
                "ratelimit.service.config_load_success:1|c",
                "ratelimit.service.rate_limit.d.ip_10_0_0_1.total_hits:5|c",
                "ratelimit.service.rate_limit.d.path_a_b_c.k.over_limit:2|c",
            ]
        );
    }

    #[test]
    fn a_dog_gets_tags() {
        let lines = posted(
            StatsdFormat::DogStatsd,
            &[("d", &["a", "b_c,d"], "near_limit", 3)],
        );
        let wanted = "ratelimit.service.rate_limit.near_limit:3|c|#domain:d,rule:a.b_c_d";
        assert_eq!(lines, [wanted]);
    }

    #[test]
    fn many_counts_are_several_datagrams() {
        let nodes: Vec<String> = (0..200).map(|number| format!("key_{number:03}")).collect();
        let paths: Vec<[&str; 1]> = nodes.iter().map(|node| [&**node]).collect();
        let counts: Vec<_> = paths
            .iter()
            .map(|path| ("d", &path[..], "total_hits", 1))
            .collect();
        assert_eq!(posted(StatsdFormat::Statsd, &counts).len(), 200);
    }

    #[test]
    fn only_what_was_not_sent_is_sent_again() {
        let (agent, config) = agent(StatsdFormat::Statsd);
        // No datagram is that long.
        let refused = "x".repeat(70_000);
        let name = |node: &str| Name {
            place: Some(("d".into(), vec![node.to_owned()])),
            end: "total_hits",
        };
        let counts = Counts::from([(name("a"), 1), (name(&refused), 2), (name("z"), 3)]);
        let (unsent, posted) = post(&config, counts);
        assert!(matches!(posted, Err(StatsdError::Send(_))), "{posted:?}");
        assert!(unsent.values().eq(&[2]), "{:?}", unsent.values());
        let (unsent, _) = post(&config, unsent);
        assert!(unsent.values().eq(&[2]), "{:?}", unsent.values());
        let last = post(&config, Counts::from([(name("last"), 4)]));
        last.1.expect("it is sent");
        assert_eq!(
            arrived(&agent, 3),
            [
                "ratelimit.service.rate_limit.d.a.total_hits:1|c",
                "ratelimit.service.rate_limit.d.z.total_hits:3|c",
                "ratelimit.service.rate_limit.d.last.total_hits:4|c",
            ]
        );
    }

    #[test]
    fn counts_that_wait_are_added_up() {
        let name = |end| Name { place: None, end };
        let mut counts = Counts::from([(name("a"), 5)]);
        for (end, more) in [("a", 3), ("b", 7), ("c", 0)] {
            add(&mut counts, name(end), more);
        }
        assert_eq!(counts, Counts::from([(name("a"), 8), (name("b"), 7)]));
    }
}
