//! A start with the last good rules, because the files are broken.

use crate::output;
use crate::settings::{LogFormat, OnBrokenRules, Settings};
use anyhow::{Error, Result};
use ratekeeper_rules::Loaded;
use ratekeeper_server::{ReloadStatus, RulesLoader};
use tracing::error;

/// The rules that were in force last, after those of the files were `refused`, as is printed and logged.
///
/// # Errors
/// The refusal, if no such rules were kept, or they are not to be used.
pub(super) fn load(
    loader: &mut RulesLoader,
    settings: &Settings,
    refused: Error,
) -> Result<Loaded> {
    let is_wanted = *settings.values.on_broken_rules == OnBrokenRules::LastGood;
    let Some(loaded) = is_wanted.then(|| loader.load_last_good()).flatten() else {
        return Err(refused);
    };
    let time = time(loader.reload_status()).unwrap_or_default();
    if *settings.values.log_format == LogFormat::Text {
        output::print(&format!(
            "{refused}\n\nStarting with the last good rules, of {time}, until these are mended.\n\n"
        ))?;
    }
    error!(
        %refused, last_good_of = %time,
        "the rules files are broken; the last good rules are in use until they are mended"
    );
    Ok(loaded)
}

/// The mark of the last good rules behind the number of rules, for people; empty of others.
pub(super) fn shown(status: &ReloadStatus) -> String {
    let why = match &status.feed {
        Some(_) => "no others have come yet",
        None => "the files are broken",
    };
    let marked = |time| format!(" (the last good ones, of {time}: {why})");
    time(status).map(marked).unwrap_or_default()
}

fn time(status: &ReloadStatus) -> Option<jiff::Timestamp> {
    let seconds = i64::try_from(status.last_good_of?).ok()?;
    jiff::Timestamp::from_second(seconds).ok()
}
