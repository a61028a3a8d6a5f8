//! `ratekeeper rules explain DOMAIN key=value,…`.

mod request;
mod shedding;
mod shown;

use crate::cli::{AdminAccess, AdminCredentials, RulesExplain};
use crate::settings::{self, Flags, Settings, row};
use crate::{limiter, output, rules};
use anyhow::{Result, anyhow};
use ratekeeper_limiter::{Check, ENTRY_BYTES_MAX, Explanation, Limiter};
use ratekeeper_rules::entries;
use ratekeeper_server::{DESCRIPTORS_MAX, ENTRIES_MAX};
use ratekeeper_store::memory::MemoryStore;
use serde_json::json;
use std::process::ExitCode;

/// Each descriptor's entries: keys and values.
type Descriptors = Vec<Vec<(String, String)>>;

pub(crate) fn run(args: &RulesExplain) -> Result<ExitCode> {
    let parsed = args.descriptors.iter().map(|text| entries::parse(text));
    let descriptors: Descriptors = match parsed.collect() {
        Ok(descriptors) => descriptors,
        Err(message) => {
            output::complain(&format!("ratekeeper: {message}"));
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(message) = too_much(&descriptors) {
        output::complain(&format!("ratekeeper: {message}"));
        return Ok(ExitCode::from(2));
    }
    let access = args.address.as_ref().map(|address| AdminAccess {
        address: address.clone(),
        credentials: args.credentials.clone(),
        json: args.json,
    });
    if access.is_none() && args.credentials != AdminCredentials::default() {
        output::complain("ratekeeper: credentials mean nothing without --admin");
        return Ok(ExitCode::from(2));
    }
    let explanation = match (&args.request, &access) {
        (Some(request), Some(access)) => {
            let live = shedding::Live::ask(args, access, request)?;
            return output::answer(args.json, &live, || Ok(live.text()));
        }
        (Some(request), None) => return explained_request(args, request),
        (None, Some(access)) => ask(
            access,
            args.domain.as_deref().unwrap_or_default(),
            &descriptors,
        )?,
        (None, None) => explain(args, &descriptors)?,
    };
    output::answer(args.json, &explanation, || Ok(shown::text(&explanation)))
}

/// Says which bound of a service the descriptors exceed: it would refuse them, whatever the rules say.
fn too_much(descriptors: &Descriptors) -> Option<String> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Some(format!("there are more than {DESCRIPTORS_MAX} descriptors"));
    }
    if descriptors.iter().any(|it| it.len() > ENTRIES_MAX) {
        return Some(format!("there are more than {ENTRIES_MAX} entries"));
    }
    let texts = descriptors.iter().flatten();
    let mut texts = texts.flat_map(|(key, value)| [key, value]);
    let is_any = texts.any(|text| text.len() > ENTRY_BYTES_MAX);
    is_any.then(|| format!("a key or a value has more than {ENTRY_BYTES_MAX} bytes"))
}

fn explained_request(args: &RulesExplain, request: &str) -> Result<ExitCode> {
    let (limiter, settings) = fresh_limiter(args)?;
    let (request, explanation) = request::explain(args, request, &limiter, &settings)?;
    let whole = json!({ "request": request, "explanation": explanation });
    output::answer(args.json, &whole, || {
        let decided = match &explanation {
            Some(explanation) => shown::text(explanation),
            None if !request.is_let_in() => String::new(),
            None => "no rule and no service level is asked: would be allowed\n".to_owned(),
        };
        Ok(request.text() + &decided)
    })
}

/// Asks the service that admin commands reach by `access`, which decides by its live counters.
fn ask(access: &AdminAccess, domain: &str, descriptors: &Descriptors) -> Result<Explanation> {
    let entry = |(key, value): &(String, String)| json!({ "key": key, "value": value });
    let descriptor = |entries: &Vec<(String, String)>| {
        let entries: Vec<_> = entries.iter().map(entry).collect();
        json!({ "entries": entries })
    };
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    let check = json!({ "domain": domain, "descriptors": descriptors });
    access.ask("POST", "/admin/v1/explain", &check.to_string())
}

/// A limiter with the rules read here, all of its counters fresh.
fn fresh_limiter(args: &RulesExplain) -> Result<(Limiter<MemoryStore>, Settings)> {
    let mut flags = Flags::of_config(args.config.clone());
    if let Some(path) = &args.rules {
        flags = flags.with(&row::rules, path.display().to_string());
    }
    flags = args.reading.add_to(flags);
    let settings = settings::of_process(&flags)?;
    let path = settings.rules.path.as_deref();
    let path = path.ok_or_else(|| {
        anyhow!("there are no rules here; name them: --rules PATH, or ask a service: --admin URL")
    })?;
    let loaded = rules::load(
        path,
        settings.values.tenants.as_deref(),
        settings.rules.read,
        &settings.rules.options,
    )?;
    let limiter = limiter::fresh::<MemoryStore>(loaded.rules, &settings)?;
    Ok((limiter, settings))
}

fn explain(args: &RulesExplain, descriptors: &Descriptors) -> Result<Explanation> {
    let (limiter, _) = fresh_limiter(args)?;
    let mut check = Check::new(args.domain.as_deref().unwrap_or_default());
    for entries in descriptors {
        check.push(entries.iter().map(|(key, value)| (&**key, &**value)));
    }
    Ok(limiter.explain_now(&check))
}
