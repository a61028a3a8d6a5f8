//! Requests from logs, decided beside an exact log.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_replay::{Fields, LineParser};
use ratekeeper_testkit::accuracy::{Counters, Form, Ledger, Tally};

use crate::traffic::{GeneratedRequest, Traffic, TrafficShape};
use crate::{Broken, Effort};

/// The limits applied to clients: hits, and the window in seconds.
const LIMITS: [(u64, u64); 6] = [
    (10, 10),
    (20, 60),
    (60, 60),
    (60, 3_600),
    (200, 3_600),
    (1_000, 3_600),
];

/// The most wrong denials of the default algorithm, in percent of all requests, on real logs and on
/// bots that come in bursts. Bots that stay near the limit make every approximation swap decisions
/// with the exact log.
const WRONGLY_DENIED_MAX: f64 = 0.5;

/// The algorithms to compare with the exact log.
fn forms() -> impl Iterator<Item = Form> {
    Form::ALL
        .into_iter()
        .filter(|form| *form != Form::SlidingLog)
}

/// The result of one algorithm on one log.
#[derive(Clone, Copy, Default)]
struct Cell {
    tally: Tally,
    /// Wrongly denied requests of clients to which the exact log denied nothing.
    blameless: u64,
}

impl Cell {
    /// Decides the requests, with a counter for each client.
    fn measure(
        form: Form,
        quota: u64,
        window: Micros,
        requests: &[GeneratedRequest],
    ) -> Option<Self> {
        let counters = Counters::new(form, quota, window)?;
        let mut ledgers: Vec<Option<Ledger>> = Vec::new();
        for request in requests {
            let index = request.client as usize;
            if ledgers.len() <= index {
                ledgers.resize_with(index + 1, || None);
            }
            let ledger = ledgers[index].get_or_insert_with(|| Ledger::new(form, quota, window));
            let outcome = counters.ask(u64::from(request.client), request.time, 1);
            ledger.enter(request.time, 1, outcome.fits());
        }
        let mut cell = Self::default();
        for ledger in ledgers.iter().flatten() {
            let tally = ledger.tally();
            cell.tally.add(tally);
            if tally.exact_denied == 0 {
                cell.blameless += tally.wrongly_denied;
            }
        }
        Some(cell)
    }
}

/// The results of one log for every algorithm and limit.
struct Rows {
    name: String,
    cells: Vec<(Form, Vec<Cell>)>,
}

impl Rows {
    fn measure(name: String, requests: impl Fn(u64, Micros) -> Vec<GeneratedRequest>) -> Self {
        let mut cells: Vec<(Form, Vec<Cell>)> = forms().map(|form| (form, Vec::new())).collect();
        for (quota, seconds) in LIMITS {
            let window = Micros::from_secs(seconds);
            let requests = requests(quota, window);
            for (form, row) in &mut cells {
                let cell = Cell::measure(*form, quota, window, &requests);
                row.push(cell.unwrap_or_default());
            }
        }
        Self { name, cells }
    }

    fn hold(&self, may_swap: bool, broken: &mut Broken) {
        for (form, cells) in &self.cells {
            for ((quota, seconds), cell) in LIMITS.into_iter().zip(cells) {
                let (name, form_name) = (&self.name, form.name());
                let limit = format!("{form_name}, {quota} in {seconds} s, {name}");
                let tally = &cell.tally;
                if let Some(most) = form.most_in_a_window(quota) {
                    broken.unless(tally.worst <= most, || {
                        format!("{limit}: {} hits in a window", tally.worst)
                    });
                }
                broken.unless(tally.denied_below == 0, || {
                    format!("{limit}: {} denied below the limit", tally.denied_below)
                });
                let denied = tally.percent(tally.wrongly_denied);
                if *form == Form::Default && !may_swap {
                    broken.unless(denied < WRONGLY_DENIED_MAX, || {
                        format!("{limit}: {denied:.3} % wrongly denied")
                    });
                }
            }
        }
    }

    fn print(&self) {
        let first = self.cells.first().map_or(&[][..], |(_, cells)| cells);
        let over: String = first
            .iter()
            .map(|cell| format!(" {:.1} % |", cell.tally.percent(cell.tally.exact_denied)))
            .collect();
        println!("| **{}**: over the limit |{over}", self.name);
        for (form, cells) in &self.cells {
            let cell = |cell: &Cell| {
                let [allowed, denied, blameless] = [
                    cell.tally.wrongly_allowed,
                    cell.tally.wrongly_denied,
                    cell.blameless,
                ]
                .map(|count| cell.tally.percent(count));
                format!(" {allowed:.3} / {denied:.3} / {blameless:.3} |")
            };
            let cells: String = cells.iter().map(cell).collect();
            println!("| {} |{cells}", form.name());
        }
    }
}

/// Prints the table.
pub(super) fn print(
    effort: Effort,
    paths: &[PathBuf],
    broken: &mut Broken,
) -> Result<(), Box<dyn Error>> {
    println!(
        "In % of all requests, beside an exact log: wrongly allowed / wrongly denied / wrongly denied to clients whom \
         the exact log denies nothing\n"
    );
    let limits: String = LIMITS
        .iter()
        .map(|(quota, seconds)| format!(" {quota} in {seconds} s |"))
        .collect();
    println!("| log |{limits}\n|---|{}", "---|".repeat(LIMITS.len()));
    for path in paths {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let requests = of_log(path)?;
        let name = format!("{} ({} requests)", name.display(), requests.len());
        let rows = Rows::measure(name, |_, _| requests.clone());
        rows.hold(false, broken);
        rows.print();
    }
    for shape in TrafficShape::ALL {
        let generated = |quota, window| {
            let traffic = Traffic {
                seed: 1,
                shape,
                quota,
                window,
                requests: effort.requests,
            };
            in_seconds(&traffic.requests())
        };
        let rows = Rows::measure(format!("generated: {}", shape.name()), generated);
        rows.hold(shape != TrafficShape::Bursts, broken);
        rows.print();
    }
    println!();
    Ok(())
}

/// The requests of a log in order of time; each client is a number.
fn of_log(path: &Path) -> Result<Vec<GeneratedRequest>, Box<dyn Error>> {
    let file = BufReader::new(File::open(path)?);
    let text: Box<dyn Read> = match path.extension().is_some_and(|end| end == "gz") {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut parser = LineParser::new(None, Fields::default());
    let mut clients: HashMap<String, u32> = HashMap::new();
    let mut requests: Vec<GeneratedRequest> = Vec::new();
    for line in BufReader::new(text).split(b'\n') {
        let line = line?;
        let Ok(record) = parser.parse(&line) else {
            continue;
        };
        let fresh = u32::try_from(clients.len())?;
        let address = record.remote_address.into_owned();
        let client = *clients.entry(address).or_insert(fresh);
        let time = record.time;
        requests.push(GeneratedRequest { time, client });
    }
    // Servers write a line when they have answered, so start times are out of order.
    requests.sort_by_key(|request| request.time);
    Ok(requests)
}

/// The same requests with their times in whole seconds, as in most logs.
fn in_seconds(requests: &[GeneratedRequest]) -> Vec<GeneratedRequest> {
    let whole = |&GeneratedRequest { time, client }| GeneratedRequest {
        time: Timestamp::from_secs(time.as_micros() / 1_000_000),
        client,
    };
    requests.iter().map(whole).collect()
}
