//! Clients of the synthetic traffic: bots in bursts, and people who read pages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::Micros;
use ratekeeper_testkit::random::Random;

use super::{GeneratedRequest, START, Traffic, below};

/// The number of the first person; bots have lower numbers.
pub(super) const FIRST_PERSON: u32 = 1_000;
/// People at a time: so many that each of them stays below the limit.
pub(super) const VISITORS: u32 = 1_000;

/// A client that sends requests one after the other.
pub(super) struct Client {
    id: u32,
    /// The time of the next request, in microseconds since [`START`].
    now: f64,
    habit: Habit,
    random: Random,
}

enum Habit {
    /// Sends requests about every `gap` microseconds until the burst ends.
    Bot {
        traffic: Traffic,
        gap: f64,
        burst_ends: f64,
    },
    /// Visits pages of a few requests each, reads for a while, then gives way to the next person.
    Person {
        pace: f64,
        pages_left: u64,
        assets_left: u64,
        visits: u32,
    },
}

impl Client {
    /// A bot that exceeds the limit in the shape of `traffic`.
    pub(super) fn bot(id: u32, traffic: Traffic, mut random: Random) -> Self {
        let window = traffic.window.get();
        let times = log_uniform(&mut random, traffic.shape.rate());
        let rate = times * traffic.quota.max(1) as f64 / window.max(1) as f64;
        let start = random.unit() * window as f64;
        let habit = Habit::Bot {
            traffic,
            gap: 1.0 / rate,
            burst_ends: 0.0,
        };
        let mut bot = Self {
            id,
            now: start,
            habit,
            random,
        };
        bot.begin_burst();
        bot
    }

    /// A person; `pace` is the mean time from one request to the next.
    pub(super) fn person(id: u32, pace: f64, mut random: Random) -> Self {
        let now = random.unit() * 4.0 * pace;
        let habit = Habit::Person {
            pace,
            pages_left: 1,
            assets_left: 0,
            visits: 0,
        };
        Self {
            id,
            now,
            habit,
            random,
        }
    }

    fn request(&mut self) -> GeneratedRequest {
        let client = match &self.habit {
            Habit::Bot { .. } => self.id,
            Habit::Person { visits, .. } => FIRST_PERSON + visits * VISITORS + self.id,
        };
        let time = START.after(Micros::new(self.now as u64));
        self.go_on();
        GeneratedRequest { time, client }
    }

    fn go_on(&mut self) {
        match &mut self.habit {
            Habit::Bot {
                gap, burst_ends, ..
            } => {
                // Programs wait for an answer, then ask again: their times are neither regular nor
                // Poisson.
                self.now += *gap * (0.5 + self.random.exponential(0.5));
                if self.now > *burst_ends {
                    self.pause();
                }
            }
            Habit::Person {
                pace,
                pages_left,
                assets_left,
                visits,
            } => {
                if *assets_left > 0 {
                    *assets_left -= 1;
                    self.now += self.random.exponential(0.25e6);
                    return;
                }
                *assets_left = below(&mut self.random, 6);
                *pages_left = pages_left.saturating_sub(1);
                if *pages_left == 0 {
                    *pages_left = 1 + below(&mut self.random, 8);
                    *visits += 1;
                }
                // A page has 3.5 requests on average, so its reader pauses for as many paces.
                self.now += self.random.exponential(3.5 * *pace);
            }
        }
    }

    fn pause(&mut self) {
        if let Habit::Bot { traffic, .. } = self.habit {
            let window = traffic.window.get() as f64;
            self.now += self.random.exponential(traffic.shape.pause() * window);
        }
        self.begin_burst();
    }

    fn begin_burst(&mut self) {
        if let Habit::Bot {
            traffic,
            burst_ends,
            ..
        } = &mut self.habit
        {
            let window = traffic.window.get() as f64;
            *burst_ends = match traffic.shape.burst() {
                Some(burst) => self.now + window * log_uniform(&mut self.random, burst),
                None => f64::INFINITY,
            };
        }
    }
}

/// A number between these, small ones as likely as large ones.
fn log_uniform(random: &mut Random, (least, most): (f64, f64)) -> f64 {
    least * (most / least).powf(random.unit())
}

/// The first `most` requests of all clients, in order of time.
pub(super) fn merge(mut clients: Vec<Client>, most: usize) -> Vec<GeneratedRequest> {
    let mut next: BinaryHeap<Reverse<(GeneratedRequest, usize)>> = BinaryHeap::new();
    for (index, client) in clients.iter_mut().enumerate() {
        next.push(Reverse((client.request(), index)));
    }
    let mut requests = Vec::with_capacity(most);
    while requests.len() < most
        && let Some(Reverse((request, index))) = next.pop()
    {
        requests.push(request);
        if let Some(client) = clients.get_mut(index) {
            next.push(Reverse((client.request(), index)));
        }
    }
    requests
}
