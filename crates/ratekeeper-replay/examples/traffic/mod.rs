//! Synthetic traffic, half of it from bots; the same seed gives the same traffic.
//!
//! Public logs are benign: hardly a client in them comes near a limit, and every algorithm looks
//! perfect. Here half of the requests exceed the limit. The error of an approximation depends on
//! how bots exceed it, so there are several [`TrafficShape`]s, all scaled to the limit: from bots far
//! above it, whose excess every algorithm denies, to bots that stay near it, where most decisions
//! can swap.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "random traffic needs no exact numbers"
)]

mod clients;

use std::io::{self, Write};

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Moment, State, Timestamp};

use clients::{Client, FIRST_PERSON, VISITORS, merge};
use ratekeeper_testkit::random::Random;

/// The pattern in which bots exceed the limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum TrafficShape {
    /// Scrapers and credential stuffers: bursts at 5 to 50 times the limit, for a twentieth of a
    /// window to two windows, with pauses of three windows on average.
    Bursts,
    /// Bots that work for half a window to four windows at 2 to 5 times the limit, and then pause
    /// for one window on average.
    Turns,
    /// Crawlers that never pause, at 2 to 4 times the limit.
    Steady,
}

impl TrafficShape {
    /// All shapes.
    pub(crate) const ALL: [Self; 3] = [Self::Bursts, Self::Turns, Self::Steady];

    /// The name in tables.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bursts => "bursts",
            Self::Turns => "turns",
            Self::Steady => "steady",
        }
    }

    /// The least and greatest rate, in multiples of the limit's.
    fn rate(self) -> (f64, f64) {
        match self {
            Self::Bursts => (5.0, 50.0),
            Self::Turns => (2.0, 5.0),
            Self::Steady => (2.0, 4.0),
        }
    }

    /// The shortest and longest burst in windows; none if it never ends.
    fn burst(self) -> Option<(f64, f64)> {
        match self {
            Self::Bursts => Some((0.05, 2.0)),
            Self::Turns => Some((0.5, 4.0)),
            Self::Steady => None,
        }
    }

    /// The average pause in windows.
    fn pause(self) -> f64 {
        match self {
            Self::Bursts => 3.0,
            Self::Turns | Self::Steady => 1.0,
        }
    }
}

/// The traffic to generate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Traffic {
    /// The random seed: the same seed gives the same log.
    pub(crate) seed: u64,
    /// The pattern in which bots exceed the limit.
    pub(crate) shape: TrafficShape,
    /// The limit that half of the requests exceed: hits per window, at least 1.
    pub(crate) quota: u64,
    /// The window of that limit.
    pub(crate) window: Micros,
    /// The approximate number of requests; the last burst is not cut off.
    pub(crate) requests: usize,
}

/// One generated request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GeneratedRequest {
    /// The time.
    pub(crate) time: Timestamp,
    /// The client: a small number.
    pub(crate) client: u32,
}

/// The start of every generated log: 1 November 2026, 00:00 UTC.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_793_491_200);

/// The number of bots: bots are few and busy, people many and calm.
const BOTS: u32 = 24;

impl Traffic {
    /// All requests, in order of time.
    ///
    /// Adds people to the bots until half of all requests exceed the limit, by the exact log. If
    /// less than half of the bots' requests exceed it, no people are added.
    #[must_use]
    pub(crate) fn requests(&self) -> Vec<GeneratedRequest> {
        let mut random = Random::new(self.seed);
        let bots: Vec<Client> = (0..BOTS)
            .map(|id| Client::bot(id, *self, fork(&mut random)))
            .collect();
        // Bots fill at least half of the log, people the rest: generate both, then cut.
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
                .map(|id| Client::person(id, pace, fork(&mut random)))
                .collect();
            requests.extend(merge(people, of_people));
            requests.sort_unstable();
        }
        requests
    }

    /// Writes the requests as a log in combined format, with times in whole seconds.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write_combined(&self, out: &mut impl Write) -> io::Result<()> {
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
        let mut random = Random::new(!self.seed);
        for request in self.requests() {
            let time = clf_time(request.time);
            let path = PATHS[below(&mut random, PATHS.len() as u64) as usize];
            let bytes = 200 + below(&mut random, 20_000);
            let [_, high, middle, low] = request.client.to_be_bytes();
            // Addresses reserved for documentation and benchmarks.
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

    /// The number of `requests` that the exact log denies.
    fn over(&self, requests: &[GeneratedRequest]) -> usize {
        let spec = LimitSpec::new(Algorithm::SlidingLog, self.quota, self.window);
        let limit = Limit::try_new(spec).expect("the limits of the examples fit into a log");
        let mut logs = vec![State::new(limit.shape()); BOTS as usize];
        let mut over = 0;
        for request in requests {
            let Some(log) = logs.get_mut(request.client as usize) else {
                continue;
            };
            let outcome = limit.step(log, 1, &Moment::at(request.time));
            over += usize::from(!outcome.fits());
        }
        over
    }
}

/// The random numbers of one client.
fn fork(random: &mut Random) -> Random {
    Random::new(random.bits())
}

/// A number below `end`, by the remainder: the manual's figures are of traffic that was made so.
fn below(random: &mut Random, end: u64) -> u64 {
    random.bits() % end
}

/// A time in Common Log Format.
fn clf_time(time: Timestamp) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(0);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use ratekeeper_replay::{Fields, LineParser};

    use super::*;

    fn traffic(shape: TrafficShape) -> Traffic {
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
        for shape in TrafficShape::ALL {
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
        let (traffic, mut one, mut other) = (traffic(TrafficShape::Bursts), Vec::new(), Vec::new());
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
        let (traffic, mut log) = (traffic(TrafficShape::Turns), Vec::new());
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
