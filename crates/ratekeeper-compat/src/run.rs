//! Compares the services on one random world after another, until there are enough answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ratekeeper_testkit::redis::Server;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::burst::bursts;
use crate::clients::clients;
use crate::differences::Difference;
use crate::migration::migration;
use crate::play::{Finding, Tally, play};
use crate::probe::probes;
use crate::random::fork;
use crate::record::record;
use crate::refusal::{Disagreement, Refusals, refusals};
use crate::target::{Environment, Pair};
use crate::world::World;

/// Requests for each domain of a world.
const REQUESTS: usize = 250;
/// Bursts in each domain of a world.
const BURSTS: usize = 2;
/// The number of findings after which to stop.
const FINDINGS_MAX: usize = 10;

/// Runs until there are enough answers; returns true if there were only listed differences.
///
/// # Errors
/// A program cannot be run.
pub(crate) async fn run(args: &Args) -> Result<bool> {
    let redis = Server::start();
    let redis_at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), redis.port());
    if let Some(file) = &args.record {
        record(args, redis_at, file).await?;
        return Ok(true);
    }
    migration(args, redis_at).await?;
    if args.only_migration {
        return Ok(true);
    }
    let bar = progress(args.answers);
    let mut tally = Tally::default();
    let mut worlds = 0;
    while tally.answers < args.answers && tally.different.len() < FINDINGS_MAX {
        let world = World::random(&mut fork(args.seed, &[worlds]), worlds);
        tally.add(one_world(args, redis_at, world).await?);
        worlds += 1;
        bar.set_position(tally.answers);
        bar.set_message(format!(
            "{worlds} sets of rules, {} differences",
            tally.different.len()
        ));
    }
    bar.finish_and_clear();
    probes(args, redis_at).await?;
    clients(args).await?;
    drop(redis);
    eprintln!(
        "{} sets of rules, most of them broken, to both checkers",
        args.rules
    );
    let refusals = refusals(&args.checker, &args.ratekeeper, args.seed, args.rules).await?;
    report(args, worlds, &tally);
    tell_refusals(&refusals);
    Ok(tally.different.is_empty() && refusals.disagreements.is_empty())
}

/// Starts both services with the rules of one world, runs all domains concurrently, and stops both.
async fn one_world(args: &Args, redis: SocketAddr, world: World) -> Result<Tally> {
    let dir: TempDir = tempfile::tempdir()?;
    let at = Environment::new(dir.path(), world.environment());
    world.write(&at)?;
    let pair = at.pair(args, redis).await?;
    let (pair, world) = (Arc::new(pair), Arc::new(world));
    let mut tally = Tally::default();
    let unlimited = same_rlconfig(&pair, world.number).await?;
    tally
        .listed
        .insert(Difference::RlconfigUnlimited, unlimited);
    let mut plays = JoinSet::new();
    for (index, domain) in world.domains.iter().enumerate() {
        let rng = fork(args.seed, &[world.number, 1 + index as u64]);
        let (pair, world, domain) = (Arc::clone(&pair), Arc::clone(&world), domain.clone());
        plays.spawn(async move {
            let mut tally = play(&pair, &world, &domain, rng.clone(), REQUESTS).await?;
            tally.add(bursts(&pair, &world, &domain, rng, BURSTS).await?);
            anyhow::Ok(tally)
        });
    }
    while let Some(played) = plays.join_next().await {
        tally.add(played??);
    }
    Ok(tally)
}

/// Compares `/rlconfig` of both; ours marks unlimited rules, for which theirs shows no unit.
async fn same_rlconfig(pair: &Pair, world: u64) -> Result<u64> {
    let (theirs, mut ours) = tokio::try_join!(pair.theirs.rlconfig(), pair.ours.rlconfig())?;
    let mut unlimited = 0;
    for line in &mut ours {
        if let Some(rest) = line.strip_suffix(", unlimited: true") {
            *line = rest.to_owned();
            unlimited += 1;
        }
    }
    let only = |these: &[String], those: &[String]| {
        let alone = these.iter().filter(|line| !those.contains(line));
        alone.cloned().collect::<Vec<_>>()
    };
    if theirs != ours {
        let (theirs, ours) = (only(&theirs, &ours), only(&ours, &theirs));
        bail!("/rlconfig differs in set {world}: only theirs {theirs:#?}, only ours {ours:#?}");
    }
    Ok(unlimited)
}

fn progress(answers: u64) -> ProgressBar {
    let bar = ProgressBar::new(answers);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} answers, {msg}, {eta} to go")
    {
        bar.set_style(style);
    }
    bar
}

fn report(args: &Args, worlds: u64, tally: &Tally) {
    println!(
        "seed {}: {} answers compared, under {worlds} sets of rules",
        args.seed, tally.answers
    );
    println!(
        "  {:>8}  of them deny, {} descriptors met a limit",
        tally.denied, tally.limited
    );
    for (difference, count) in &tally.listed {
        println!("  {count:>8}  differ as listed: {}", difference.name());
    }
    println!(
        "  {:>8}  not compared: the second ended in between",
        tally.clock_moved
    );
    println!(
        "  {:>8}  not compared: two descriptors share a counter there",
        tally.keys_met
    );
    println!("  {:>8}  differ otherwise", tally.different.len());
    for finding in &tally.different {
        show(args, finding);
    }
}

fn tell_refusals(refusals: &Refusals) {
    let Refusals {
        asked,
        refused,
        listed,
        disagreements,
    } = refusals;
    println!(
        "{asked} sets of rules checked, of which it refuses {refused}; about {} we differ",
        disagreements.len()
    );
    for (difference, count) in listed {
        println!("  {count:>8}  differ as listed: {}", difference.name());
    }
    for Disagreement {
        files,
        merge,
        theirs,
        ours,
    } in disagreements.iter().take(FINDINGS_MAX)
    {
        println!(
            "\nmerged: {merge}\ntheirs: {theirs:?}\nours:   {ours:?}\n{}",
            files.join("\n=====\n")
        );
    }
}

fn show(args: &Args, finding: &Finding) {
    let Finding {
        world,
        domain,
        call,
        theirs,
        expected,
        ours,
    } = finding;
    println!(
        "\nseed {}, set {world}, domain {domain:?}\n  call:     {call:?}",
        args.seed
    );
    println!("  theirs:   {theirs:?}\n  expected: {expected:?}\n  ours:     {ours:?}");
    let rules = World::random(&mut fork(args.seed, &[*world]), *world);
    println!("  modes:    {:?}", rules.modes);
    for text in rules
        .domains
        .iter()
        .filter(|known| known.name == *domain)
        .flat_map(|domain| domain.texts())
    {
        println!("{text}");
    }
}
