//! `ratekeeper token create|list|revoke`.

use crate::cli::{Token, TokenPlace};
use crate::output;
use crate::settings::{self, Flags};
use anyhow::{Result, anyhow};
use ratekeeper_server::{AdminToken, Role, Tokens};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

pub(super) fn run(command: &Token) -> Result<ExitCode> {
    match command {
        Token::Create { name, role, place } => {
            let role: Role = role.parse()?;
            let token = tokens(place)?.create(name, role)?;
            output::print(&format!("{token}\n"))?;
            output::complain(&format!(
                "ratekeeper: this is the token of {name} ({}); it is shown only now",
                role.name()
            ));
        }
        Token::List { place, json } => {
            let tokens = tokens(place)?.list()?;
            return output::answer(*json, &shown(&tokens), || Ok(table(&tokens)));
        }
        Token::Revoke { name, place } => {
            tokens(place)?.revoke(name)?;
            output::print(&format!("the token of {name} is revoked\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(place: &TokenPlace) -> Result<Tokens> {
    if let Some(folder) = &place.data_dir {
        return Ok(Tokens::new(folder));
    }
    let settings = settings::of_process(&Flags::of_config(place.config.clone()))?;
    let folder = settings.values.data_dir.clone().ok_or_else(|| {
        anyhow!("there is no data folder to keep tokens in; name the service's with --data-dir DIR")
    })?;
    Ok(Tokens::new(&folder))
}

fn shown(tokens: &[AdminToken]) -> Vec<serde_json::Value> {
    let token = |token: &AdminToken| {
        serde_json::json!({
            "name": token.name,
            "role": token.role,
            "created_at": made_at(token),
        })
    };
    tokens.iter().map(token).collect()
}

fn table(tokens: &[AdminToken]) -> String {
    let row = |token: &AdminToken| {
        [
            token.name.to_string(),
            token.role.name().to_owned(),
            made_at(token),
        ]
    };
    output::headed(["NAME", "ROLE", "MADE"], tokens.iter().map(row))
}

/// The time in UTC.
fn made_at(token: &AdminToken) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(token.created_at));
    let time = time.and_then(|time| jiff::Timestamp::try_from(time).ok());
    time.map_or_else(|| "-".to_owned(), |time| time.to_string())
}
