//! The most hits that pass in any window, by algorithm, limit and kind of caller.

use std::collections::HashMap;

use ratekeeper_testkit::accuracy::{Adversary, Arrivals, Counters, Form, Found, Tally};

use crate::{Broken, Effort, WINDOW};

/// The limits to try: around those at which algorithms change their representation.
const QUOTAS: [u64; 7] = [5, 10, 22, 23, 100, 1_000, 30_000];

/// The limit for which every kind of caller is listed.
const TOLD: u64 = 1_000;

/// Bytes of the table for each counter of the memory store.
const BYTES_IN_LINE: u64 = 57;

/// The result of one algorithm on one limit.
struct Row {
    arrivals: Vec<Tally>,
    found: Found,
}

impl Row {
    fn measure(counters: &mut Counters, effort: Effort) -> Self {
        let arrivals = Arrivals::ALL
            .iter()
            .map(|arrivals| arrivals.play(counters, 1, effort.windows))
            .collect();
        let mut search = |seed| Adversary::new(counters, seed).search(effort.tries);
        let mut found = search(1);
        for seed in 2..=effort.searches {
            let other = search(seed);
            if other.worst > found.worst {
                found = other;
            }
        }
        Self { arrivals, found }
    }

    fn worst(&self) -> u64 {
        let worst = self.arrivals.iter().map(|tally| tally.worst);
        worst.max().unwrap_or_default().max(self.found.worst)
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for tally in &self.arrivals {
            total.add(tally);
        }
        total
    }

    /// The total of the callers that ignore the answers.
    fn open(&self) -> Tally {
        let mut total = Tally::default();
        for (arrivals, tally) in Arrivals::ALL.iter().zip(&self.arrivals) {
            if arrivals.ignores_answers() {
                total.add(tally);
            }
        }
        total
    }

    fn hold(&self, form: Form, quota: u64, broken: &mut Broken) {
        let name = form.name();
        if let Some(most) = form.most_in_a_window(quota) {
            let worst = self.worst();
            broken.unless(worst <= most, || {
                format!("{name}: {worst} hits of {quota} passed in a window, at most {most} may")
            });
        }
        let below = self.total().denied_below;
        broken.unless(below == 0, || {
            format!(
                "{name}, limit {quota}: {below} requests of callers below the limit were denied"
            )
        });
    }
}

/// Prints the tables.
pub(super) fn print(effort: Effort, broken: &mut Broken) {
    let mut rows: HashMap<(Form, u64), Row> = HashMap::new();
    for form in Form::ALL {
        for quota in QUOTAS {
            if let Some(mut counters) = Counters::new(form, quota, WINDOW) {
                let row = Row::measure(&mut counters, effort);
                row.hold(form, quota, broken);
                rows.insert((form, quota), row);
            }
        }
    }
    by_limit(&rows);
    by_caller(&rows);
    below_the_limit(&rows);
}

fn by_limit(rows: &HashMap<(Form, u64), Row>) {
    println!(
        "Most hits in any window, and their ratio to the limit, by all callers and the adversary:\n"
    );
    let limits: String = QUOTAS.iter().map(|quota| format!(" {quota} |")).collect();
    println!(
        "| limit |{limits} bytes a counter of {TOLD} |\n|---|{}",
        "---:|".repeat(QUOTAS.len() + 1)
    );
    for form in Form::ALL {
        let cell = |quota: &u64| match rows.get(&(form, *quota)) {
            Some(row) => format!(" {} ({:.3}) |", row.worst(), ratio(row.worst(), *quota)),
            None => " |".to_owned(),
        };
        let cells: String = QUOTAS.iter().map(cell).collect();
        println!("| {} |{cells} {} |", form.name(), bytes(form));
    }
    println!();
}

/// Bytes of memory that a counter in use takes, its key included.
fn bytes(form: Form) -> String {
    let Some(mut counters) = Counters::new(form, TOLD, WINDOW) else {
        return String::new();
    };
    Arrivals::Random.play(&mut counters, 1, 3);
    (BYTES_IN_LINE + counters.heap_bytes()).to_string()
}

fn by_caller(rows: &HashMap<(Form, u64), Row>) {
    println!(
        "{TOLD} hits in {} s, one kind of caller a row: hits in the worst window to the limit / admitted to what an \
         exact log admits / wrongly denied in % of all requests, where the caller does not go by what it is told\n",
        WINDOW.get() / 1_000_000
    );
    let row_of = |form| rows.get(&(form, TOLD)).map(|row| (form, row));
    let columns: Vec<(Form, &Row)> = Form::ALL.into_iter().filter_map(row_of).collect();
    let names: String = columns
        .iter()
        .map(|(form, _)| format!(" {} |", form.name()))
        .collect();
    println!("| caller |{names}\n|---|{}", "---|".repeat(columns.len()));
    for (index, arrivals) in Arrivals::ALL.into_iter().enumerate() {
        let cell = |(_, row): &(Form, &Row)| {
            let tally = row.arrivals.get(index).copied().unwrap_or_default();
            let wrongly_denied = match arrivals.ignores_answers() {
                true => format!(" / {:.2}", tally.percent(tally.wrongly_denied)),
                false => String::new(),
            };
            let [worst, admitted] = [
                ratio(tally.worst, TOLD),
                ratio(tally.admitted, tally.exact_admitted),
            ];
            format!(" {worst:.3} / {admitted:.3}{wrongly_denied} |")
        };
        let cells: String = columns.iter().map(cell).collect();
        println!("| {} |{cells}", arrivals.name());
    }
    let cell = |(_, row): &(Form, &Row)| format!(" {:.3} |", ratio(row.found.worst, TOLD));
    let cells: String = columns.iter().map(cell).collect();
    println!("| an adversary that searches |{cells}\n");
    println!("What the adversary found, in seconds since an edge of the window:\n");
    for (form, row) in &columns {
        println!("- {}: {}", form.name(), row.found);
    }
    println!();
}

fn below_the_limit(rows: &HashMap<(Form, u64), Row>) {
    println!(
        "Over all limits: requests of all callers and those denied though below the limit; of the callers who do not go \
         by what they are told, how much a form admits, and what it decides wrongly\n"
    );
    println!(
        "| limit | requests | denied though below the limit | admitted / exact | wrongly allowed | wrongly denied |\n\
         |---|---:|---:|---:|---:|---:|"
    );
    for form in Form::ALL {
        let (mut total, mut open) = (Tally::default(), Tally::default());
        for row in QUOTAS.iter().filter_map(|quota| rows.get(&(form, *quota))) {
            total.add(&row.total());
            open.add(&row.open());
        }
        println!(
            "| {} | {} | {} | {:.4} | {:.3} % | {:.3} % |",
            form.name(),
            total.requests,
            total.denied_below,
            ratio(open.admitted, open.exact_admitted),
            open.percent(open.wrongly_allowed),
            open.percent(open.wrongly_denied)
        );
    }
    println!();
}

#[allow(clippy::cast_precision_loss, reason = "a ratio for a table")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
