//! `ratekeeper regions retire NAME`: the share of a region that is gone goes to the others.
//!
//! Nobody but an operator can say that a region is gone, and not just cut off. Once it is said, the others own its share,
//! so this says it only when nothing of that share can still be in use: the region does not answer, and what it lent and
//! admitted before has left all windows.

mod settings_text;

use super::rules_pull::block_on;
use crate::cli::RegionsRetire;
use crate::home::Home;
use crate::output;
use crate::quotas;
use crate::rules;
use crate::settings::{self, Environment, Flags, Settings, row};
use anyhow::{Context, Result, bail};
use ratekeeper_core::{Limit, Micros, Regions, Timestamp};
use ratekeeper_rules::{NodeRegion, Rule, RuleSet, time};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The time that a node of the region is given to answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &RegionsRetire) -> Result<ExitCode> {
    let mut flags = Flags::of_config(args.config.clone());
    if let Some(rules) = &args.rules {
        flags = flags.with(&row::rules, rules.display().to_string());
    }
    let settings = settings::of_process(&flags)?;
    let NodeRegion::In(regions) = &settings.rules.options.region else {
        bail!("the settings name no `region` and `regions`; say --config FILE");
    };
    let retired = regions.retire(&args.name)?;
    refuse_living(&settings, &args.name)?;
    let wait = longest(&settings, regions)?;
    let now = now();
    let since = args.since.unwrap_or(now);
    let due = since.after(wait);
    if now < due {
        bail!("{}", too_early(args, wait, due));
    }
    change_settings(&flags, &args.name, &retired)
}

/// Changes the settings file in use, and says what is left to do. A failure if it is not changed.
fn change_settings(flags: &Flags, name: &str, retired: &Regions) -> Result<ExitCode> {
    let file = settings::file_in_use(flags, &Environment::of_process(), &Home::find());
    let written = match &file {
        Some(file) => settings_text::retired(file, name, retired)
            .map_err(|why| format!("{} is as it was: {why}", file.display())),
        None => Err("no settings file is in use, and nothing was changed".to_owned()),
    };
    let file = file.as_ref().map_or_else(
        || "the settings of this node".to_owned(),
        |file| file.display().to_string(),
    );
    output::print(&done(name, retired, &file, written.is_ok()))?;
    let Err(why) = written else {
        return Ok(ExitCode::SUCCESS);
    };
    output::complain(&format!("ratekeeper: {why}"));
    Ok(ExitCode::FAILURE)
}

/// Refuses to retire a region that answers.
fn refuse_living(settings: &Settings, name: &str) -> Result<()> {
    let weights = settings.values.regions.as_ref();
    let links = weights.map(|weights| &weights.links().nodes);
    let links = links.into_iter().flatten();
    let nodes = links.filter(|(region, _)| **region == *name);
    for address in nodes.flat_map(|(_, nodes)| nodes) {
        if answers(address) {
            bail!(
                "{name} answers at {address}: a region that runs admits requests of its share. Stop its nodes first; if \
                 something else answers there, take the address out of `link`"
            );
        }
    }
    Ok(())
}

/// Returns true if a connection can be made to the node at that URL.
fn answers(url: &str) -> bool {
    let address = url.split_once("://").map_or(url, |(_, rest)| rest);
    let address = address.trim_end_matches('/');
    let mut found = address.to_socket_addrs().into_iter().flatten();
    found.any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok())
}

/// The time after which nothing of a region's share is in use any more, in any rule that regions share.
fn longest(settings: &Settings, regions: &Regions) -> Result<Micros> {
    let rules = with_overrides(settings)?;
    let shared = rules.rules().iter().filter(|rule| rule.share.is_some());
    let waits = shared.filter_map(|rule| Some(wait_of(rule, rule.limited()?, regions)));
    Ok(waits.max().unwrap_or(Micros::ZERO))
}

/// The rules, with the overrides of tenants in files and in the quota database.
fn with_overrides(settings: &Settings) -> Result<RuleSet> {
    let Some(path) = &settings.rules.path else {
        bail!("the rules are not in files here; say --rules PATH, as the wait depends on them");
    };
    let tenants = settings.values.tenants.as_deref();
    let options = &settings.rules.options;
    let rules = rules::load(path, tenants, settings.rules.read, options)?.rules;
    let Some(address) = quotas::address(&settings.quotas, &rules) else {
        return Ok(rules);
    };
    if address.path().is_some_and(|file| !file.exists()) {
        bail!(
            "--quotas {address}: there is no such file here, and the wait depends on the overrides in it: run this on a node"
        );
    }
    let index = block_on(async { quotas::all(&quotas::open_existing(settings, &address)?).await });
    let index = index.with_context(|| format!("--quotas {address}"))?;
    Ok(rules.with_tenants(&index).rules)
}

/// The time after which nothing of a region's share of `rule` is in use: hits that it admitted, and loans that it made.
fn wait_of(rule: &Rule, limit: &Limit, regions: &Regions) -> Micros {
    let window = limit.window().get();
    let counts = limit.counts_for().get();
    let is_lent = rule.share.as_ref().is_some_and(|share| share.is_lent);
    // A loan lasts for whole windows, and its lender would wait a tenth longer.
    let lasts = regions.loan_time().get() / 10 * 11 + window;
    Micros::new(counts.saturating_add(if is_lent { lasts } else { 0 }))
}

fn too_early(args: &RegionsRetire, wait: Micros, due: Timestamp) -> String {
    let (name, due) = (&args.name, time::rfc3339(due));
    let wait = Duration::from_micros(wait.get()).as_secs().max(1);
    match args.since {
        Some(_) => format!(
            "what {name} admitted and lent may still be in use: its share can go to others at {due}, {wait} s after it stopped"
        ),
        None => format!(
            "what {name} admitted and lent may still be in use for {wait} s after it stopped: say --since TIME if you know \
             when that was, or run this again with --since {} from {due} on",
            time::rfc3339(now())
        ),
    }
}

fn done(name: &str, retired: &Regions, file: &str, is_written: bool) -> String {
    let version = retired.version();
    let weight = retired.all().iter().find(|region| *region.name == *name);
    let weight = weight.map_or(0, |region| region.weight);
    let others = retired.all().iter().zip(retired.shares(1_000));
    let others = others.filter(|(region, _)| !region.is_retired);
    let others: Vec<String> = others
        .map(|(region, share)| format!("{} {}.{} %", region.name, share / 10, share % 10))
        .collect();
    let first = match is_written {
        true => {
            format!("{file} is changed. Copy to the settings of all other nodes that are left:\n")
        }
        false => {
            format!("Write in {file}, and in the settings of all other nodes that are left:\n")
        }
    };
    format!(
        "{first}\nregions:\n  version: {version}\n  {name}: {{ weight: {weight}, retired: true }}\n\nand restart them, in any \
         order. Each limit is then owned as follows: {}.\nBefore {name} runs again, give it a share as to a new region.\n",
        others.join(", ")
    )
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = now.map_or(0, |now| now.as_micros());
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}
