//! `ratekeeper token create|list|revoke`.

mod confirmed;
mod token_store;

use crate::cli::{Token, TokenPlace};
use crate::output;
use anyhow::Result;
use ratekeeper_server::{AdminToken, Role};
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use token_store::TokenStore;

pub(super) fn run(command: &Token) -> Result<ExitCode> {
    match command {
        Token::Create { name, role, place } => create(name, role.parse()?, place),
        Token::List { place, json } => list(place, *json),
        Token::Revoke { name, place, json } => revoke(name, place, *json),
    }
}

fn create(name: &str, role: Role, place: &TokenPlace) -> Result<ExitCode> {
    let place = TokenStore::of(place)?;
    let is_first = !place.is_required()?;
    place.create(name, role, |secret| {
        Ok(output::print(&format!("{secret}\n"))?)
    })?;
    let role = role.name();
    output::complain(&format!(
        "ratekeeper: this is the token of {name} ({role}); it is shown only now. It counts on {}",
        place.scope()
    ));
    if is_first {
        output::complain(
            "ratekeeper: it is the first one, so access without a token ends now, on this host too: set \
             RATEKEEPER_ADMIN_TOKEN or --token-file for `ratekeeper top`, scripts and other commands; the dashboard asks \
             for it. Metrics and health stay open to this host",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn list(place: &TokenPlace, in_json: bool) -> Result<ExitCode> {
    let place = TokenStore::of(place)?;
    let tokens = place.list()?;
    output::answer(in_json, &shown(&tokens), || Ok(table(&tokens)))
}

fn revoke(name: &str, place: &TokenPlace, in_json: bool) -> Result<ExitCode> {
    match TokenStore::of(place)? {
        TokenStore::Fleet(fleet) => {
            let revoked = fleet.revoke(name)?;
            output::answer(in_json, &revoked.in_json(name), || {
                Ok(revoked.in_words(name))
            })?;
            Ok(revoked.code())
        }
        TokenStore::Node(node) => {
            node.revoke(name)?;
            let scope = node.scope();
            let answer = json!({ "name": name, "scope": "node" });
            output::answer(in_json, &answer, || {
                Ok(format!(
                    "the token of {name} is revoked: it counted on {scope}\n"
                ))
            })
        }
    }
}

/// A token in a list, and where it counts.
type Listed = (AdminToken, &'static str);

fn shown(tokens: &[Listed]) -> Vec<serde_json::Value> {
    let token = |(token, scope): &Listed| {
        json!({
            "name": token.name,
            "role": token.role,
            "created_at": made_at(token),
            "scope": scope,
        })
    };
    tokens.iter().map(token).collect()
}

fn table(tokens: &[Listed]) -> String {
    let row = |(token, scope): &Listed| {
        let scope = match *scope {
            "fleet" => "every node",
            _ => "this node",
        };
        [
            token.name.to_string(),
            token.role.name().to_owned(),
            made_at(token),
            scope.to_owned(),
        ]
    };
    output::headed(
        ["NAME", "ROLE", "MADE", "COUNTS ON"],
        tokens.iter().map(row),
    )
}

/// The time in UTC.
fn made_at(token: &AdminToken) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(token.created_at));
    let time = time.and_then(|time| jiff::Timestamp::try_from(time).ok());
    time.map_or_else(|| "-".to_owned(), |time| time.to_string())
}
