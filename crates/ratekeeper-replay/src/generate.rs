//! Traffic that is half bots, made up from a seed: the same on every run.
//!
//! Real logs that are free to keep are benign: hardly anyone in them is near a limit, and
//! every algorithm looks perfect. Here half of the requests are over the limit. How bots
//! are over it decides how often an approximation errs, so there are several [`Shape`]s,
//! all scaled to the limit they are made for: from bots far above it, whose excess every
//! algorithm denies, to those that stay near it, where single decisions swap most.

mod clients;
mod random;

use std::io::{self, Write};

use ratekeeper_core::{Micros, Timestamp};

use crate::exact::ExactLog;
use clients::{Client, FIRST_PERSON, VISITORS, merge};
use random::Random;

/// How bots go over the limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// Scrapers and credential stuffers: bursts at 5 to 50 times the limit, for a twentieth
    /// of a window to two windows, then a pause of three windows on average.
    Bursts,
    /// Bots that work in turns of half a window to four windows at 2 to 5 times the limit,
    /// then pause for one window on average.
    Turns,
    /// Crawlers that never pause, at 2 to 4 times the limit.
    Steady,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bursts, Self::Turns, Self::Steady];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bursts => "bursts",
            Self::Turns => "turns",
            Self::Steady => "steady",
        }
    }

    /// How many times the limit's rate, least and most.
    fn rate(self) -> (f64, f64) {
        match self {
            Self::Bursts => (5.0, 50.0),
            Self::Turns => (2.0, 5.0),
            Self::Steady => (2.0, 4.0),
        }
    }

    /// How many windows a burst lasts, least and most; none if it never ends.
    fn burst(self) -> Option<(f64, f64)> {
        match self {
            Self::Bursts => Some((0.05, 2.0)),
            Self::Turns => Some((0.5, 4.0)),
            Self::Steady => None,
        }
    }

    /// How many windows a pause lasts on average.
    fn pause(self) -> f64 {
        match self {
            Self::Bursts => 3.0,
            Self::Turns | Self::Steady => 1.0,
        }
    }
}

/// What to generate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Another seed is another log; the same one is the same log.
    pub seed: u64,
    /// How bots go over the limit.
    pub shape: Shape,
    /// The limit that half of the requests are over: hits a window, 1 or more.
    pub quota: u64,
    /// The window of that limit.
    pub window: Micros,
    /// About how many requests; the last burst is not cut off.
    pub requests: usize,
}

/// One generated request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Request {
    /// When.
    pub time: Timestamp,
    /// Who: a small number for each client.
    pub client: u32,
}

/// Where every generated log begins: 1 November 2026, 00:00 UTC.
pub const START: Timestamp = Timestamp::from_secs(1_793_491_200);

/// Bots are few and busy, people many and calm.
const BOTS: u32 = 24;

impl Traffic {
    /// All requests, in the order of time.
    ///
    /// People are added to the bots until half of all requests are over the limit, by the
    /// exact log. Bots that are over it by less than half have no people beside them.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        let mut random = Random(self.seed);
        let bots: Vec<Client> = (0..BOTS)
            .map(|id| Client::bot(id, *self, random.fork()))
            .collect();
        // Bots alone fill at least half of the log, people the rest: make both, then cut.
        let mut requests = merge(bots, self.requests);
        let over = self.over(&requests);
        let share_of_bots = requests.len() as f64 / (2 * over).max(requests.len()) as f64;
        let of_bots = (self.requests as f64 * share_of_bots) as usize;
        requests.truncate(of_bots);
        let of_people = self.requests - of_bots;
        if let Some(last) = requests.last().filter(|_| of_people > 0) {
            let span = last.time.since(START).get() as f64;
            let pace = span * f64::from(VISITORS) / of_people as f64;
            let people = (0..VISITORS)
                .map(|id| Client::person(id, pace, random.fork()))
                .collect();
            requests.extend(merge(people, of_people));
            requests.sort_unstable();
        }
        requests
    }

    /// The requests as a log in combined format, times in whole seconds.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_combined(&self, out: &mut impl Write) -> io::Result<()> {
        const PATHS: [&str; 6] = [
            "/",
            "/login",
            "/api/v1/orders",
            "/search?q=a",
            "/static/app.js",
            "/favicon.ico",
        ];
        const PERSON: &str =
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        const BOT: &str = "python-requests/2.32.3";
        let mut random = Random(!self.seed);
        for request in self.requests() {
            let time = clf_time(request.time);
            let path = PATHS[random.below(PATHS.len() as u64) as usize];
            let bytes = 200 + random.below(20_000);
            let [_, high, middle, low] = request.client.to_be_bytes();
            // Addresses set aside for documentation and for benchmarks: nobody's.
            let (agent, a, b, c) = if request.client < FIRST_PERSON {
                (BOT, 203, 0, 113)
            } else {
                (PERSON, 198, 18 + high % 2, middle)
            };
            writeln!(
                out,
                "{a}.{b}.{c}.{low} - - [{time}] \"GET {path} HTTP/1.1\" 200 {bytes} \"-\" \"{agent}\"",
            )?;
        }
        Ok(())
    }

    /// How many of `requests` the exact log denies.
    fn over(&self, requests: &[Request]) -> usize {
        let mut logs = vec![ExactLog::default(); BOTS as usize];
        let mut over = 0;
        for request in requests {
            let Some(log) = logs.get_mut(request.client as usize) else {
                continue;
            };
            if log.fits(self.quota, self.window, request.time) {
                log.take(self.quota, request.time);
            } else {
                over += 1;
            }
        }
        over
    }
}

/// As the Common Log Format has it.
fn clf_time(time: Timestamp) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(0);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fields, LineParser};

    fn traffic(shape: Shape) -> Traffic {
        Traffic {
            seed: 3,
            shape,
            quota: 20,
            window: Micros::from_secs(60),
            requests: 30_000,
        }
    }

    #[test]
    fn half_of_the_requests_are_over_the_limit_whatever_the_shape() {
        for shape in Shape::ALL {
            let traffic = traffic(shape);
            let requests = traffic.requests();
            assert_eq!(requests.len(), traffic.requests);
            assert!(requests.is_sorted_by_key(|request| request.time));
            let share = traffic.over(&requests) as f64 / requests.len() as f64;
            assert!((0.47..0.53).contains(&share), "{}: {share}", shape.name());
        }
    }

    #[test]
    fn a_seed_is_a_log() {
        let (traffic, mut one, mut other) = (traffic(Shape::Bursts), Vec::new(), Vec::new());
        traffic
            .write_combined(&mut one)
            .expect("memory takes every write");
        traffic
            .write_combined(&mut other)
            .expect("memory takes every write");
        assert_eq!(one, other);
        let reseeded = Traffic { seed: 4, ..traffic };
        assert_ne!(reseeded.requests(), traffic.requests());
    }

    #[test]
    fn every_line_reads_as_what_it_was_made_from() {
        let (traffic, mut log) = (traffic(Shape::Turns), Vec::new());
        traffic
            .write_combined(&mut log)
            .expect("memory takes every write");
        let mut parser = LineParser::new(None, Fields::default());
        let mut lines = log.split(|&byte| byte == b'\n');
        for (request, line) in traffic.requests().iter().zip(&mut lines) {
            let record = parser.parse(line).expect("a good line");
            assert_eq!(
                record.time.as_micros() / 1_000_000,
                request.time.as_micros() / 1_000_000
            );
            let is_bot = record.remote_address.starts_with("203.0.113.");
            assert_eq!(is_bot, request.client < FIRST_PERSON);
            assert!(record.path.is_some() && record.user_agent.is_some());
        }
        assert_eq!(lines.next(), Some(&b""[..]));
    }
}
