//! The flags of `serve`, made from the table of settings.

use super::layer::{Layers, Origin, Said};
use super::setting::Setting;
use super::table::SETTINGS;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;

/// What was said on the command line: one flag for each setting, and `--config`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The settings file to read.
    pub(crate) config: Option<PathBuf>,
    said: Vec<(&'static str, String)>,
}

impl Flags {
    /// Puts what was said over `layers`.
    pub(crate) fn put(&self, layers: &mut Layers) {
        for setting in SETTINGS {
            if let Some((_, text)) = self.said.iter().find(|(key, _)| *key == setting.key) {
                let origin = Origin::Flag(format!("--{}", setting.flag()));
                layers.put(
                    setting,
                    Said {
                        text: text.clone(),
                        origin,
                    },
                );
            }
        }
    }

    /// As if `--key text` had been said.
    pub(crate) fn with(mut self, key: &'static str, text: String) -> Flags {
        self.said.retain(|(other, _)| *other != key);
        self.said.push((key, text));
        self
    }

    fn read(matches: &ArgMatches) -> Flags {
        let said = |setting: &'static Setting| {
            let text = matches.get_one::<String>(setting.key)?;
            Some((setting.key, text.clone()))
        };
        Flags {
            config: matches.get_one::<PathBuf>("config").cloned(),
            said: SETTINGS.iter().filter_map(said).collect(),
        }
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help_heading("Settings")
            .value_parser(clap::value_parser!(PathBuf))
            .help("The settings file [default: ./ratekeeper.yaml, else ratekeeper.yaml in ./config or /etc/ratekeeper]");
        SETTINGS
            .iter()
            .map(arg)
            .fold(command.arg(config), Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Flags::read(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::read(matches);
        Ok(())
    }
}

fn arg(setting: &'static Setting) -> Arg {
    let default = match setting.default {
        "" => String::new(),
        "false" if setting.switch => String::new(),
        text => format!(" [default: {text}]"),
    };
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name(setting.value_name)
        .help_heading("Settings")
        .action(ArgAction::Set)
        .help(format!("{}{default}", setting.help));
    if setting.switch {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    } else {
        arg
    }
}
