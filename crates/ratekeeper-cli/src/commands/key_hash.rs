//! `ratekeeper key hash`.

use crate::output;
use crate::settings::{self, Flags};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The longest line that is read: longer than an entry of a request can be.
const LINE_BYTES_MAX: u64 = 128 << 10;

pub(crate) fn run(config: Option<PathBuf>) -> Result<ExitCode> {
    let settings = settings::of_process(&Flags::of_config(config))?;
    let Some(key) = settings.rules.options.tenant_key else {
        bail!(
            "there is no `tenant_key` to hash with; make one with `openssl rand -hex 16`, and set it in \
             ratekeeper.yaml or as RATEKEEPER_TENANT_KEY, here and for the service"
        );
    };
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = String::new();
        let mut bounded = (&mut input).take(LINE_BYTES_MAX);
        if bounded
            .read_line(&mut line)
            .context("cannot read the keys")?
            == 0
        {
            return Ok(ExitCode::SUCCESS);
        }
        let tenant = line.trim_end_matches(['\r', '\n']);
        if line.len() as u64 == LINE_BYTES_MAX {
            bail!("a line has more than 128 KiB, which no key has");
        }
        if !tenant.is_empty() {
            output::print(&format!(
                "hash: \"{}\"{}\n",
                key.hash(tenant),
                ending(tenant)
            ))?;
        }
    }
}

/// A comment with the last characters of a key, if enough others stay hidden.
fn ending(tenant: &str) -> String {
    let hidden = tenant.chars().count().saturating_sub(4);
    if hidden < 8 {
        return String::new();
    }
    let tail: String = tenant.chars().skip(hidden).collect();
    format!("  # ends in {tail}")
}
