//! The flags of commands, made from the table of settings.

use super::layer::{Layers, Origin};
use super::setting::{Group, Setting};
use super::table::{GROUPS, all};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;

/// The flags given on the command line: one for each setting, and `--config`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The settings file to read.
    pub(crate) config: Option<PathBuf>,
    said: Vec<(&'static Setting, String)>,
}

impl Flags {
    /// The flag `--config` alone, if it is given.
    pub(crate) fn of_config(config: Option<PathBuf>) -> Flags {
        let said = Vec::new();
        Flags { config, said }
    }

    /// Puts the given flags over `layers`.
    pub(crate) fn put(&self, layers: &mut Layers) {
        for (setting, text) in &self.said {
            let origin = Origin::Flag(format!("--{}", setting.flag()));
            layers.put(setting, text, origin);
        }
    }

    /// Returns the flags as if that of `setting` had been given, too.
    pub(crate) fn with(mut self, setting: &'static Setting, text: impl Into<String>) -> Flags {
        // Of two, the later counts.
        self.said.push((setting, text.into()));
        self
    }

    fn read(matches: &ArgMatches) -> Flags {
        let said = |setting: &'static Setting| {
            // A flag that this command does not have was not given.
            let text = matches.try_get_one::<String>(setting.key).ok().flatten()?;
            Some((setting, text.clone()))
        };
        Flags {
            config: matches.get_one::<PathBuf>("config").cloned(),
            said: all().filter_map(said).collect(),
        }
    }
}

/// Returns true if only `ratekeeper gateway` has `flag`, written as in `--upstream`.
pub(crate) fn is_gateways(flag: &str) -> bool {
    let mut gateways = GROUPS.iter().filter(|group| group.is_gateways);
    gateways.any(|group| {
        let mut settings = group.settings.iter();
        settings.any(|setting| flag.strip_prefix("--") == Some(&setting.flag()))
    })
}

/// The flags of a command, with those that only `ratekeeper gateway` uses, or without them.
#[derive(Clone, Debug)]
pub(crate) struct CommandFlags<const HAS_GATEWAYS: bool>(pub(crate) Flags);

impl<const HAS_GATEWAYS: bool> Args for CommandFlags<HAS_GATEWAYS> {
    fn augment_args(command: Command) -> Command {
        with_flags(command, |group| HAS_GATEWAYS || !group.is_gateways)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const HAS_GATEWAYS: bool> FromArgMatches for CommandFlags<HAS_GATEWAYS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Flags::read(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = Flags::read(matches);
        Ok(())
    }
}

fn with_flags(command: Command, has: impl Fn(&Group) -> bool) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Settings file [default: ratekeeper.yaml in ., ./config or /etc/ratekeeper]");
    GROUPS
        .iter()
        .filter(|group| has(group))
        .flat_map(|group| {
            let settings = group.settings.iter();
            settings.map(|setting| arg(setting, group.heading))
        })
        .fold(command.arg(config), Command::arg)
}

fn arg(setting: &'static Setting, heading: &'static str) -> Arg {
    let default = match setting.default {
        "" => String::new(),
        "false" if setting.is_switch => String::new(),
        text => format!(" [default: {text}]"),
    };
    let help = setting.help();
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name(setting.value_name)
        .help_heading(heading)
        .hide_short_help(!setting.is_in_short_help)
        .action(ArgAction::Set)
        .help(format!("{}{default}", beginning(&help)))
        .long_help(format!("{help}{default}"));
    if setting.is_switch {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    } else {
        arg
    }
}

/// The shortest beginning of a help text that says anything, in bytes.
const SHORTEST: usize = 16;

/// The text up to a colon, semicolon or full stop, but at least [`SHORTEST`] bytes of it: enough for a list.
fn beginning(help: &str) -> &str {
    let ends = [": ", "; ", ". "]
        .iter()
        .flat_map(|mark| help.match_indices(mark))
        .map(|(end, _)| end);
    match ends.filter(|end| *end >= SHORTEST).min() {
        Some(end) => &help[..end],
        None => help,
    }
}
