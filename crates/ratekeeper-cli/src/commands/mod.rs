//! One file for each command.

mod admin;
mod audit;
mod bench;
mod completions;
mod config_show;
mod denials;
mod health;
mod key_hash;
mod man;
mod migrate;
mod nodes;
mod quota;
mod regions_retire;
mod replay;
mod rules_check;
mod rules_diff;
mod rules_explain;
mod rules_live;
mod rules_publish;
mod rules_pull;
mod rules_push;
mod rules_schema;
mod rules_test;
mod serve;
mod token;
mod top;
mod usage;
mod why;

use crate::cli::{Audit, Cli, Command, Config, Key, Regions, Rules};
use anyhow::Result;
use rules_live::To;
use std::process::ExitCode;

/// Runs the command that the command line names.
///
/// # Errors
/// The command failed; the message says why in one sentence, for people.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        None => serve::run(&cli.serve.0),
        Some(Command::Serve(flags)) => serve::run(&flags.0),
        Some(Command::Gateway(flags)) => serve::run_gateway(&flags.0),
        Some(Command::Rules(Rules::Check(args))) => rules_check::run(&args),
        Some(Command::Rules(Rules::Test(args))) => rules_test::run(&args),
        Some(Command::Rules(Rules::Diff(args))) => rules_diff::run(&args),
        Some(Command::Rules(Rules::Explain(args))) => rules_explain::run(&args),
        Some(Command::Rules(Rules::List(args))) => rules_live::list(&args),
        Some(Command::Rules(Rules::Enable(args))) => rules_live::switch(&args, To::Enable),
        Some(Command::Rules(Rules::Disable(args))) => rules_live::switch(&args, To::Disable),
        Some(Command::Rules(Rules::Shadow(args))) => rules_live::switch(&args, To::Shadow),
        Some(Command::Rules(Rules::Restore(args))) => rules_live::switch(&args, To::Restore),
        Some(Command::Rules(Rules::Publish(args))) => rules_publish::run(&args),
        Some(Command::Rules(Rules::Pull(args))) => rules_pull::run(&args),
        Some(Command::Rules(Rules::Push(args))) => rules_push::run(&args),
        Some(Command::Rules(Rules::Schema { tests })) => rules_schema::run(tests),
        Some(Command::Regions(Regions::Retire(args))) => regions_retire::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Config(Config::Show { flags, json })) => config_show::run(&flags.0, json),
        Some(Command::Key(Key::Hash { config })) => key_hash::run(config),
        Some(Command::Quota(command)) => quota::run(command),
        Some(Command::Reset(args)) => quota::reset(&args),
        Some(Command::Audit(Audit::List(args))) => audit::list(&args),
        Some(Command::Audit(Audit::Export(args))) => audit::export(&args),
        Some(Command::Audit(Audit::Verify(flags))) => quota::verify(flags),
        Some(Command::Health(args)) => health::run(&args),
        Some(Command::Token(command)) => token::run(&command),
        Some(Command::Top(args)) => top::run(args),
        Some(Command::Nodes(args)) => nodes::run(&args),
        Some(Command::Why(args)) => why::run(&args),
        Some(Command::Denials(args)) => denials::run(&args),
        Some(Command::Usage(args)) => usage::run(&args),
        Some(Command::Completions { shell }) => completions::run(shell),
        Some(Command::Migrate(args)) => migrate::run(&args),
        Some(Command::Man { folder }) => man::run(&folder),
    }
}
