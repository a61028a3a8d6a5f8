//! A node under load: a process of its own, which is asked what its callers saw.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::{NODE, Plan};

/// What callers saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Microseconds, the shortest first.
    latencies: Vec<u32>,
    pub(super) degraded: u64,
    /// Checks that nobody answered in time.
    pub(super) errors: u64,
    /// Keys that a failure mode answered for most of the time, by node.
    pub(super) away: u64,
}

impl Seen {
    pub(super) fn all(parts: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.latencies.extend(part.latencies);
            all.degraded += part.degraded;
            all.errors += part.errors;
            all.away += part.away;
        }
        all.latencies.sort_unstable();
        all
    }

    pub(super) fn answers(&self) -> usize {
        self.latencies.len()
    }

    /// The latency that such a share of the answers did not exceed.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    pub(super) fn percentile(&self, share: f64) -> Duration {
        let place = (self.latencies.len() as f64 * share).ceil() as usize;
        let micros = self.latencies.get(place.saturating_sub(1)).copied();
        Duration::from_micros(micros.unwrap_or_default().into())
    }
}

/// What a node has done when it ends.
pub(super) struct End {
    /// How often the limited key passed.
    pub(super) admitted: u64,
    /// Answers of a failure mode.
    pub(super) degraded: u64,
}

/// A node. It ends when its input does, so that none outlives the campaign.
pub(super) struct Node {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Node {
    /// A node that asks the Redis at `url`.
    pub(super) fn start(url: &str, plan: &Plan) -> Self {
        let program = std::env::current_exe().expect("a program knows where it lies");
        let millis = |span: Duration| span.as_millis().to_string();
        let mut command = Command::new(program);
        command
            .args([NODE, url, &plan.limit.to_string()])
            .args([millis(plan.deadline), millis(plan.patience)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("a node can be started");
        Self {
            input: child.stdin.take().expect("it has an input"),
            output: BufReader::new(child.stdout.take().expect("it has an output")),
            child,
        }
    }

    /// What was seen since it was last asked for.
    pub(super) fn seen(&mut self) -> Seen {
        let numbers = self.ask("seen");
        let [errors, degraded, away, latencies @ ..] = &numbers[..] else {
            panic!("{numbers:?} is not what a node has seen");
        };
        let latencies = latencies.iter().map(|latency| {
            let micros = u32::try_from(*latency);
            micros.unwrap_or(u32::MAX)
        });
        Seen {
            latencies: latencies.collect(),
            degraded: *degraded,
            errors: *errors,
            away: *away,
        }
    }

    /// How long it takes until the store answers every caller.
    pub(super) fn until_shared(&mut self) -> Duration {
        Duration::from_micros(self.ask("shared")[0])
    }

    /// Ends the load.
    pub(super) fn stop(mut self) -> End {
        let numbers = self.ask("stop");
        let [admitted, degraded] = numbers[..] else {
            panic!("{numbers:?} is not what a node ends with");
        };
        self.child.wait().expect("it can be waited for");
        End { admitted, degraded }
    }

    fn ask(&mut self, what: &str) -> Vec<u64> {
        writeln!(self.input, "{what}").expect("a node takes a question");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a node answers");
        let numbers = line.split_ascii_whitespace().map(str::parse);
        let numbers: Result<Vec<u64>, _> = numbers.collect();
        let numbers = numbers.expect("a node answers with numbers");
        assert!(
            !numbers.is_empty(),
            "a node has ended before it was told to"
        );
        numbers
    }
}
