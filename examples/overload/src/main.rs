//! A service under four times the load that it can take, without and with load shedding.
//!
//! ```sh
//! cargo run -p example-overload -- collapse
//! cargo run -p example-overload -- rescue
//! ```
//!
//! Both send the same load: five seconds of half of what the service can do, ten seconds of four times as much, and
//! five seconds of half again. Without shedding nearly every client gives up before it is answered, and that goes on after the
//! load has ended. With a `ShedLayer` the service goes on answering as many as it can, the critical ones among
//! them.

mod load;
mod service;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use load::Second;
use ratekeeper::tower::ShedLayer;

const RULES: &str = include_str!("../rules.yaml");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let service = service::service();
    let service = match args.next().as_deref() {
        Some("collapse") => service,
        Some("rescue") => {
            let limiter = ratekeeper::from_yaml(RULES)?;
            let rules = limiter.snapshot().shed().cloned();
            service.layer(ShedLayer::new(rules.unwrap_or_default()))
        }
        _ => {
            return Err("write `collapse` or `rescue`, and perhaps the seconds of overload".into());
        }
    };
    let seconds = args.next().map_or(Ok(10), |text| text.parse())?;
    let phases = [(5, 0.5), (seconds, 4.0), (5, 0.5)];
    println!(
        "{:>6}  {:>5}  {:>5}  {:>9}  {:>5}  {:>10}",
        "second", "sent", "good", "critical", "shed", "slowest"
    );
    let mut overload = Vec::new();
    let mut number = 0;
    for (seconds, load) in phases {
        for _ in 0..seconds {
            let second = load::second(&service, load * service::capacity()).await;
            number += 1;
            tokio::spawn(print_later(number, Arc::clone(&second)));
            if load > 1.0 {
                overload.push(second);
            }
        }
    }
    // The clients of the last second are given up by then, and its line is printed.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let sum = |of: fn(&Second) -> &AtomicU32| {
        let all = overload.iter().map(|second| read(of(second)));
        f64::from(all.sum::<u32>())
    };
    let goodput = sum(|it| &it.good) / f64::from(seconds) / service::capacity();
    let critical = sum(|it| &it.critical_good) / sum(|it| &it.critical).max(1.0);
    println!(
        "under overload: goodput {:.0}% of capacity, {:.0}% of critical requests succeeded",
        goodput * 100.0,
        critical * 100.0
    );
    Ok(())
}

/// Prints the counts of a second once its clients have been answered or have given up.
async fn print_later(number: u32, second: Arc<Second>) {
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let [sent, good, shed, slowest] =
        [&second.sent, &second.good, &second.shed, &second.slowest_ms].map(read);
    let critical = format!("{}/{}", read(&second.critical_good), read(&second.critical));
    println!("{number:>6}  {sent:>5}  {good:>5}  {critical:>9}  {shed:>5}  {slowest:>7} ms");
}

fn read(count: &AtomicU32) -> u32 {
    count.load(Ordering::Relaxed)
}
