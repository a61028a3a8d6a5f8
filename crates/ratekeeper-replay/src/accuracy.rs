//! How far the sliding window is from the exact log, by its number of sub-windows.
//!
//! Each limiter keeps its own admissions: the approximation is charged what it admits, the
//! exact log what that admits. A request is *wrongly denied* if only the approximation
//! denies it and *wrongly allowed* if only the exact log does; one error often causes the
//! other a moment later, so the two mostly cancel out. `ratekeeper replay --compare
//! sliding_log` does the same for the rules of a file.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use ratekeeper_core::{Algorithm, Limit, LimitError, LimitSpec, Micros, Moment, State, Timestamp};

use crate::exact::ExactLog;
use crate::generate::{Request, Shape, Traffic};
use crate::input::{Line, Lines, Log};
use crate::parse::LineParser;
use crate::{Fields, ReplayError};

/// The numbers of sub-windows that are compared.
pub const SUB_WINDOWS: [u32; 9] = [1, 2, 4, 6, 8, 12, 16, 32, 60];

/// The limits that are compared: hits, and seconds of the window.
pub const LIMITS: [(u64, u64); 4] = [(20, 60), (60, 60), (10, 10), (200, 3_600)];

/// How often a sliding window and the exact log decided the same requests differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Errors {
    /// All requests.
    pub requests: u64,
    /// Requests that the exact log denied.
    pub over: u64,
    /// Requests that only the exact log denied.
    pub wrongly_allowed: u64,
    /// Requests that only the sliding window denied.
    pub wrongly_denied: u64,
    /// Those of them whose client the exact log never denied anything: people who kept to the
    /// limit, not bots whose denials came a moment early.
    pub blameless_denied: u64,
}

impl Errors {
    /// Wrongly allowed less wrongly denied, in % of all requests.
    #[must_use]
    pub fn net_percent(&self) -> f64 {
        self.percent(self.wrongly_allowed) - self.percent(self.wrongly_denied)
    }

    /// `count` in % of all requests; 0 of none.
    #[must_use]
    pub fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.requests.max(1) as f64
    }
}

/// The requests of a log, each client by a number, time never going back.
///
/// # Errors
/// [`ReplayError`] if the log cannot be read.
pub fn requests_of_log(path: &Path) -> Result<Vec<Request>, ReplayError> {
    let log = Log::File(path.to_owned());
    let mut lines = log
        .open()
        .and_then(|(source, _)| Lines::new(source))
        .map_err(|source| ReplayError::Read {
            log: log.name(),
            source,
        })?;
    let mut parser = LineParser::new(None, Fields::default());
    let mut clients: HashMap<String, u32> = HashMap::new();
    let mut requests: Vec<Request> = Vec::new();
    let mut now = Timestamp::EPOCH;
    while let Some(line) = lines.next().map_err(|source| ReplayError::Read {
        log: log.name(),
        source,
    })? {
        let Line::Whole(line) = line else { continue };
        let Ok(record) = parser.parse(line) else {
            continue;
        };
        now = now.max(record.time);
        let fresh = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        let client = *clients
            .entry(record.remote_address.into_owned())
            .or_insert(fresh);
        requests.push(Request { time: now, client });
    }
    Ok(requests)
}

/// The same requests with their times in whole seconds, as most logs have them.
#[must_use]
pub fn in_seconds(requests: &[Request]) -> Vec<Request> {
    let whole = |time: Timestamp| Timestamp::from_secs(time.as_micros() / 1_000_000);
    requests
        .iter()
        .map(|&request| Request {
            time: whole(request.time),
            ..request
        })
        .collect()
}

/// What a sliding window with each number of `sub_windows` gets wrong.
///
/// Clients must be numbered without large gaps: each has a counter in a list.
///
/// # Errors
/// [`LimitError`] if a limit cannot have that many sub-windows.
pub fn measure(
    requests: &[Request],
    quota: u64,
    window: Micros,
    sub_windows: &[u32],
) -> Result<Vec<Errors>, LimitError> {
    let exact = exact_decisions(requests, quota, window);
    let over = exact.iter().filter(|&&allowed| !allowed).count() as u64;
    let denials = requests
        .iter()
        .zip(&exact)
        .filter(|(_, allowed)| !**allowed);
    let to_blame: HashSet<u32> = denials.map(|(request, _)| request.client).collect();
    sub_windows
        .iter()
        .map(|&count| {
            let mut spec = LimitSpec::new(Algorithm::SlidingWindow, quota, window);
            spec.sub_windows = Some(count);
            let limit = Limit::try_new(spec)?;
            let mut errors = Errors {
                requests: requests.len() as u64,
                over,
                ..Errors::default()
            };
            let mut states: Vec<Option<State>> = Vec::new();
            for (request, &allowed) in requests.iter().zip(&exact) {
                let state = slot(&mut states, request.client);
                let state = state.get_or_insert_with(|| State::new(limit.shape()));
                let fits = limit.step(state, 1, &Moment::at(request.time)).fits();
                errors.wrongly_allowed += u64::from(fits && !allowed);
                if !fits && allowed {
                    errors.wrongly_denied += 1;
                    errors.blameless_denied += u64::from(!to_blame.contains(&request.client));
                }
            }
            Ok(errors)
        })
        .collect()
}

fn exact_decisions(requests: &[Request], quota: u64, window: Micros) -> Vec<bool> {
    let mut logs: Vec<Option<ExactLog>> = Vec::new();
    let decide = |request: &Request| {
        let log = slot(&mut logs, request.client).get_or_insert_default();
        let fits = log.fits(quota, window, request.time);
        if fits {
            log.take(quota, request.time);
        }
        fits
    };
    requests.iter().map(decide).collect()
}

fn slot<T>(all: &mut Vec<Option<T>>, client: u32) -> &mut Option<T> {
    let index = client as usize;
    if all.len() <= index {
        all.resize_with(index + 1, || None);
    }
    &mut all[index]
}

/// A table of [`Errors`], one row for each log and number of sub-windows, one column for
/// each limit; it displays as Markdown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    rows: Vec<(String, u32, Vec<Errors>)>,
}

impl Table {
    /// Adds the rows of a log: the same requests whatever the limit.
    ///
    /// # Errors
    /// As [`measure`].
    pub fn add_log(&mut self, name: &str, requests: &[Request]) -> Result<(), LimitError> {
        self.add(name, |_, _| requests.to_vec())
    }

    /// Adds the rows of generated traffic: made anew for each limit, so that half of the
    /// requests are over it.
    ///
    /// # Errors
    /// As [`measure`].
    pub fn add_generated(&mut self, shape: Shape, requests: usize) -> Result<(), LimitError> {
        self.add(&format!("generated: {}", shape.name()), |quota, window| {
            in_seconds(
                &Traffic {
                    seed: 1,
                    shape,
                    quota,
                    window,
                    requests,
                }
                .requests(),
            )
        })
    }

    /// The largest share of wrongly denied requests with `sub_windows`, in %.
    #[must_use]
    pub fn worst_denied_percent(&self, sub_windows: u32) -> f64 {
        let rows = self.rows.iter().filter(|row| row.1 == sub_windows);
        let shares = rows
            .flat_map(|row| &row.2)
            .map(|cell| cell.percent(cell.wrongly_denied));
        shares.fold(0.0, f64::max)
    }

    /// The rows of one number of sub-windows in detail, as Markdown: how many requests are
    /// over, both errors and their net, and the wrong denials that met somebody blameless.
    #[must_use]
    pub fn detail(&self, sub_windows: u32) -> String {
        let head =
            "| log | limit | over | wrongly allowed | wrongly denied | net | denied blamelessly |";
        let mut text = format!("{head}\n|---|---|---:|---:|---:|---:|---:|\n");
        for (name, _, cells) in self.rows.iter().filter(|row| row.1 == sub_windows) {
            for ((quota, seconds), cell) in LIMITS.into_iter().zip(cells) {
                let [over, allowed, denied, blameless] = [
                    cell.over,
                    cell.wrongly_allowed,
                    cell.wrongly_denied,
                    cell.blameless_denied,
                ]
                .map(|count| format!("{:.3} %", cell.percent(count)));
                let net = cell.net_percent();
                text += &format!(
                    "| {name} | {quota} in {seconds} s | {over} | {allowed} | {denied} | {net:+.3} % | {blameless} |\n"
                );
            }
        }
        text
    }

    fn add(
        &mut self,
        name: &str,
        requests: impl Fn(u64, Micros) -> Vec<Request>,
    ) -> Result<(), LimitError> {
        let mut columns = Vec::with_capacity(LIMITS.len());
        for (quota, seconds) in LIMITS {
            let window = Micros::from_secs(seconds);
            columns.push(measure(
                &requests(quota, window),
                quota,
                window,
                &SUB_WINDOWS,
            )?);
        }
        for (index, count) in SUB_WINDOWS.into_iter().enumerate() {
            let cells = columns
                .iter()
                .filter_map(|column| column.get(index).copied())
                .collect();
            self.rows.push((name.to_owned(), count, cells));
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| log | sub_windows |")?;
        for (quota, seconds) in LIMITS {
            write!(f, " {quota} in {seconds} s |")?;
        }
        writeln!(f, "\n|---|---:|{}", "---:|".repeat(LIMITS.len()))?;
        let mut last = "";
        for (name, count, cells) in &self.rows {
            if name != last {
                write!(f, "| {name} | over |")?;
                for cell in cells {
                    write!(f, " {:.1} % |", cell.percent(cell.over))?;
                }
                writeln!(f)?;
            }
            last = name;
            write!(f, "| | {count} |")?;
            for cell in cells {
                let allowed = cell.percent(cell.wrongly_allowed);
                write!(
                    f,
                    " {allowed:.3} / {:.3} |",
                    cell.percent(cell.wrongly_denied)
                )?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: &[u64]) -> Vec<Request> {
        let request = |&second| Request {
            time: Timestamp::from_secs(second),
            client: 0,
        };
        seconds.iter().map(request).collect()
    }

    /// Window 10 s, one hit each. The exact log forgets the hit of second 109 at second 119.
    /// The two-counter estimate spreads it over the whole previous window: at second 110 it
    /// still weighs 1, at 111 already less than that, but one more hit needs it to be 0.
    #[test]
    fn errors_are_counted_on_each_limiters_own_admissions() {
        let window = Micros::from_secs(10);
        let early = measure(&at(&[101, 111]), 1, window, &[1]).expect("a valid limit");
        let expected = Errors {
            requests: 2,
            over: 0,
            wrongly_allowed: 0,
            wrongly_denied: 1,
            blameless_denied: 1,
        };
        assert_eq!(early, [expected]);
        let late = measure(&at(&[109, 118, 119]), 1, window, &[1]).expect("a valid limit");
        assert_eq!((late[0].over, late[0].wrongly_allowed), (1, 0));
    }

    #[test]
    fn more_sub_windows_err_less() {
        let traffic = Traffic {
            seed: 7,
            shape: Shape::Turns,
            quota: 20,
            window: Micros::from_secs(60),
            requests: 20_000,
        };
        let requests = traffic.requests();
        let errors = measure(&requests, 20, traffic.window, &[1, 60]).expect("a valid limit");
        assert!(errors[1].wrongly_denied < errors[0].wrongly_denied);
    }
}
