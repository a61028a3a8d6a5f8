//! The verbs of this repository: `cargo xtask build | run | test | check | bench | fuzz | compat | matrix | chaos |
//! regions | help`.
//!
//! `check`, `test`, `matrix` and `fuzz --check` use the dev profile; `build`, `bench`, `compat`, `chaos`, `regions` and
//! `attack` use the release profile. `run` alone uses the profile `quick`, which optimises nothing, so that a first look at the
//! product does not wait for link-time optimisation. Each step prints its command and the time it took, so that a
//! failed step can be repeated by hand.

mod bench;
mod book;
mod campaigns;
mod check;
mod commit;
mod crates;
mod dashboard;
mod envoy_gateway;
mod fuzz;
mod grpc_java;
mod image;
mod manifests;
mod matrix;
mod mutants;
mod need;
mod packages;
mod peers;
mod pgo;
mod run;
mod site;
mod static_binary;
mod steps;
mod test;
mod upgrade;

use std::io::Write as _;
use std::process::ExitCode;

const HELP: &str = "\
The verbs of this repository.

  cargo xtask run [ARGS]          build without optimisation and run; without ARGS it serves config/. With Node 20.19 or
                                  newer, `run` and `build` build the dashboard too
  cargo xtask test [ARGS]         install what the tests need, then run all of them side by side; with ARGS, what cargo
                                  test runs with them
  cargo xtask check               formatting, clippy, rustdoc, cargo deny; warnings are errors
  cargo xtask build               the release binary: target/release/ratekeeper
  cargo xtask bench [grpc] [--quick] [--only NAME] [--before BINARY]
                                  decisions over gRPC, beside the same server deciding nothing and throttlecrab, and
                                  beside another build of the binary
  cargo xtask bench peers [--quick]
                                  other rate limit services over gRPC, and other proxies that limit; needs Go
  cargo xtask bench connections [--quick]
                                  thousands of idle connections, beside NGINX and Envoy; checks while 1,000 clients connect
  cargo xtask bench gateway [--quick]
                                  the gateway, beside itself without limits and NGINX
  cargo xtask bench seed [--quick]
                                  three gateways, 25 tenants, 1,000 calls a second, one Redis: what limits add
  cargo xtask bench modes [--quick]
                                  exact, leased, synced and local: speed, calls to Redis, over- and under-admission
  cargo xtask bench leases [--quick]
                                  four nodes flood leased limits: over- and under-admission, calls to Redis
  cargo xtask bench overload [--quick]
                                  the gateway under up to 4 x what its upstream can take, without and with shedding
  cargo xtask bench shed          what all load shedders together cost a request
  cargo xtask bench tenants [--quick]
                                  a million tenants: memory, look-ups, import; changes on three nodes
  cargo xtask bench dashboard [--quick]
                                  the dashboard open for ten minutes at 10,000 decisions a second: memory of page and node
  cargo xtask bench core          speed and size of a decision in process, beside governor
  cargo xtask bench accuracy [--quick] [--log FILE]
                                  the most that passes in any window, and wrong decisions; fails if a promise is broken
  cargo xtask bench redis [--quick] [PART...]
                                  counters in Redis, in process and over gRPC: scripts, many, hot, mechanisms, latency,
                                  load, neighbours, cluster, grpc, or some of them
  cargo xtask fuzz [--seconds N] [TARGET]
                                  each parser against libFuzzer for N seconds (60), or one of them
  cargo xtask compat [--seed N] [--answers N] [--only-migration]
                                  every answer beside envoyproxy/ratelimit's own, live, and `ratekeeper migrate` from a
                                  running one to a running one, under load; needs Go
  cargo xtask compat grpc-java [--ratekeeper PATH]
                                  the answers that gRPC's library for Java gets
  cargo xtask compat envoy-gateway [--ratekeeper PATH] [--record FILE]
                                  a real Envoy Gateway and Envoy with it as their rate limit service; needs Go and root.
                                  `--record` writes what Envoy Gateway sends, for the test that replays it
  cargo xtask matrix [NAME]       the tests of the Redis store with Redis 6.2 and 7, Valkey 8 and 9, or one of them
  cargo xtask mutants [PART...] [--file PATH] [--shard K/N]
                                  changes the code of core, store, limiter, tenants and spelling, or some of them, one
                                  operator, value or return at a time, and fails if no test notices. All are compiled
                                  at once, and each runs with the tests that reach it, in about a second. `--file` is
                                  one file of one part, `--shard 0/8` the first of eight slices. The lists are in
                                  target/mutants. Changes where no switch can stand, such as those of constants, are
                                  counted and not tried. A change that no test can notice goes into `exclude_re` of
                                  .cargo/mutants.toml, with the reason
  cargo xtask chaos [--quick] [--deadline MS] [FAULT...]
                                  three nodes under load while their Redis fails, in every way there is; `windows` alone
                                  counts what passes window by window while nodes or Redis stand still for moments
  cargo xtask regions [--short] [--ratekeeper PATH] [--plots FOLDER] [SCENARIO...]
                                  three regions that share limits, with oceans between them: what passes in all of them,
                                  what is denied falsely, what is sent; in a quarter of an hour, or four minutes
  cargo xtask loom                the word of a lease in every order in which threads can meet
  cargo xtask simulate [--seeds N] [--seed S]
                                  leases on 1 to 16 simulated nodes with every fault: N seeds (10,000), or seed S again
  cargo xtask book                docs/ as a book with search: target/book/index.html
  cargo xtask site [--binary PATH]
                                  that book with the references of API and library beside it: target/site/index.html
  cargo xtask peers               the five tasks of docs/library.md as governor, tower_governor and actix-governor do them,
                                  built and run
  cargo xtask pgo                 records an execution profile of the static binary under load, deploy/ratekeeper.profdata,
                                  for which `packages` and `image` have it optimised on x86-64
  cargo xtask crates              the crates that are published, packaged and built as users get them
  cargo xtask manifests [--bless]
                                  helm lint, the rendered manifests in deploy/kubernetes, the compose file and the
                                  CloudFormation template; needs Go
  cargo xtask upgrade OLD [NEW] [--quick]
                                  builds two commits, and replaces nodes of one by nodes of the other under load, and
                                  back; `upgrade --binaries OLD NEW` takes what is built
  cargo xtask packages [--binary PATH] [--arch amd64|arm64] [--no-trial]
                                  a .deb, an .rpm and a tarball of the static binary, each installed, run, upgraded and
                                  removed on a root of its own; needs root
  cargo xtask image [--binary PATH | --twice] [--arch amd64|arm64]
                                  a container image from scratch, run in namespaces of its own; `--twice` builds the
                                  binary twice and compares; needs root
  cargo xtask attack [--quick] [FAMILY...]
                                  the service and the gateway against hostile clients, with real applications behind
                                  them; h2spec where Go is there
  cargo xtask help                this text; `cargo xtask VERB --help` is the part about a verb

`test` uses the dev profile, `run` the profile `quick`, `build`, `bench`, `compat`, `chaos`, `regions` and `attack` the release profile. What a verb needs
beyond Rust it installs where it may (as root on Debian or Ubuntu, and with cargo install), and says so; elsewhere it
names the packages and stops.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", &[][..]),
    };
    if asks_for_help(verb, rest) {
        print(&help_of(verb));
        return ExitCode::SUCCESS;
    }
    let done = match verb {
        "build" => run::build(),
        "run" => run::run(rest),
        "test" => test::test(rest),
        "check" => check::check(),
        "bench" => bench::bench(rest),
        "compat" if rest.first().is_some_and(|part| part == "envoy-gateway") => {
            envoy_gateway::envoy_gateway(rest.get(1..).unwrap_or_default())
        }
        "compat" if rest.first().is_some_and(|part| part == "grpc-java") => {
            grpc_java::grpc_java(rest.get(1..).unwrap_or_default())
        }
        "compat" => campaigns::compat(rest),
        "fuzz" => fuzz::fuzz(rest),
        "matrix" => matrix::matrix(rest),
        "mutants" => mutants::mutants(rest),
        "chaos" => campaigns::chaos(rest),
        "attack" => campaigns::attack(rest),
        "regions" => campaigns::regions(rest),
        "loom" => campaigns::loom(),
        "simulate" => campaigns::simulate(rest),
        "book" => book::book(),
        "crates" => crates::crates(),
        "image" => image::image(rest),
        "manifests" => manifests::manifests(rest),
        "packages" => packages::packages(rest),
        "peers" => peers::peers(),
        "pgo" => pgo::record(),
        "site" => site::site(rest),
        "upgrade" => upgrade::upgrade(rest),
        "help" | "--help" | "-h" => {
            print(HELP);
            Ok(())
        }
        other => {
            eprintln!("xtask: there is no verb {other:?}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask {verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true if `args` ask for the help of a verb, rather than of the program that the verb runs with them.
fn asks_for_help(verb: &str, args: &[String]) -> bool {
    let own = match verb {
        "run" | "test" => &args[..args.len().min(1)],
        _ => args,
    };
    own.iter().any(|arg| arg == "--help" || arg == "-h")
}

/// The lines of the help that tell of `verb`; the whole help if there are none.
fn help_of(verb: &str) -> String {
    let start = format!("  cargo xtask {verb} ");
    let mut is_told = false;
    let lines = HELP.lines().filter(|line| {
        if line.starts_with("  cargo xtask") {
            is_told = line.starts_with(&start);
        }
        is_told && line.starts_with("  ")
    });
    let lines: Vec<&str> = lines.collect();
    match lines.is_empty() {
        true => HELP.to_owned(),
        false => lines.join("\n"),
    }
}

fn print(text: &str) {
    // `cargo xtask help | head` closes the pipe early, which is no fault.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_its_own_help() {
        let args = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
        assert!(asks_for_help("bench", &args(&["redis", "--help"])));
        assert!(!asks_for_help("run", &args(&["serve", "--help"])));
        assert!(asks_for_help("run", &args(&["--help"])));
        let fuzz = help_of("fuzz");
        assert!(
            fuzz.starts_with("  cargo xtask fuzz [--seconds N]"),
            "{fuzz}"
        );
        assert!(
            fuzz.ends_with("or one of them") && fuzz.lines().count() == 2,
            "{fuzz}"
        );
        assert_eq!(help_of("nothing"), HELP);
        let arms = include_str!("main.rs").lines().map(str::trim);
        let verb = |arm: &'static str| arm.strip_prefix('"')?.split_once("\" => ");
        let verbs = arms.filter_map(verb).map(|(verb, _)| verb);
        let verbs: Vec<_> = verbs.filter(|verb| !verb.contains('"')).collect();
        assert!(verbs.len() > 15, "{verbs:?}");
        for verb in verbs {
            assert_ne!(help_of(verb), HELP, "{verb}");
        }
    }
}
