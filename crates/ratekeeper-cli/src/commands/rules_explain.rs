//! `ratekeeper rules explain DOMAIN key=value,…`.

mod request;
mod shedding;
mod shown;

use super::admin;
use crate::cli::RulesExplain;
use crate::home::Home;
use crate::settings::{self, Environment, Flags, Settings};
use crate::{client, entries, limiter, output, rules};
use anyhow::{Context, Result, anyhow, bail};
use ratekeeper_limiter::{Check, Descriptor, Explanation, Limiter, Waiting};
use ratekeeper_rules::{Entry, Options};
use ratekeeper_store::memory::MemoryStore;
use ratekeeper_tls::{TlsFiles, TlsIdentity};
use serde_json::json;
use std::process::ExitCode;

/// The path at which a running service explains.
const ENDPOINT: &str = "/admin/v1/explain";

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
    let text = match (&args.request, &args.address) {
        (Some(request), Some(address)) => {
            let live = shedding::Live::ask(args, address, request)?;
            match args.json {
                true => format!("{}\n", serde_json::to_string_pretty(&live)?),
                false => live.text(),
            }
        }
        (Some(request), None) => explained_request(args, request)?,
        (None, Some(address)) => {
            let domain = args.domain.as_deref().unwrap_or_default();
            written(args, &ask(address, &files(args), domain, &descriptors)?)?
        }
        (None, None) => written(args, &explain(args, &descriptors)?)?,
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn written(args: &RulesExplain, explanation: &Explanation) -> Result<String> {
    Ok(if args.json {
        format!("{}\n", serde_json::to_string_pretty(explanation)?)
    } else {
        shown::text(explanation)
    })
}

fn explained_request(args: &RulesExplain, request: &str) -> Result<String> {
    let (limiter, settings) = fresh_limiter(args)?;
    let (request, explanation) = request::explain(args, request, &limiter, &settings)?;
    if args.json {
        let whole = json!({ "request": request, "explanation": explanation });
        return Ok(format!("{}\n", serde_json::to_string_pretty(&whole)?));
    }
    let decided = match &explanation {
        Some(explanation) => shown::text(explanation),
        None => "no rule and no service level is asked: would be allowed\n".to_owned(),
    };
    Ok(request.text() + &decided)
}

/// The files for an encrypted address: the authorities to trust, and the certificate to present.
fn files(args: &RulesExplain) -> TlsFiles {
    let identity = args.cert.clone().zip(args.key.clone());
    TlsFiles {
        authorities: args.ca.clone(),
        identity: identity.map(|(certificate, key)| TlsIdentity { certificate, key }),
    }
}

/// Asks a running service about its live counters.
fn ask(
    address: &str,
    files: &TlsFiles,
    domain: &str,
    descriptors: &Descriptors,
) -> Result<Explanation> {
    let entry = |(key, value): &(String, String)| json!({ "key": key, "value": value });
    let descriptor = |entries: &Vec<(String, String)>| {
        let entries: Vec<_> = entries.iter().map(entry).collect();
        json!({ "entries": entries })
    };
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    let check = json!({ "domain": domain, "descriptors": descriptors });
    let body = check.to_string();
    let environment = Environment::of_process();
    let asked = client::Request {
        method: "POST",
        path: ENDPOINT,
        body: &body,
        token: environment.get(settings::ADMIN_TOKEN),
        condition: None,
    };
    let answer = client::send(address, files, &asked)?;
    match answer.status {
        200 => serde_json::from_str(&answer.body)
            .with_context(|| format!("{address} answers what this version does not understand")),
        404 | 405 => bail!(
            "{address} does not explain; is it the admin address? It is 127.0.0.1:6070 by default"
        ),
        status => bail!(
            "{address} answers {status}: {}",
            admin::detail(&answer.body)
        ),
    }
}

/// A limiter with the rules read here, all of its counters fresh.
fn fresh_limiter(args: &RulesExplain) -> Result<(Limiter<MemoryStore>, Settings)> {
    let mut flags = Flags::default();
    flags.config = args.config.clone();
    if let Some(path) = &args.rules {
        flags = flags.with("rules", path.display().to_string());
    }
    flags = args.reading.add_to(flags);
    let home = Home::find();
    let (_, settings) = settings::load(&flags, &Environment::of_process(), &home)?;
    let path = settings.rules.path.as_deref();
    let path = path.ok_or_else(|| {
        anyhow!("there are no rules here; name them: --rules PATH, or ask a service: --address URL")
    })?;
    let options: Options = settings.rules.options();
    let loaded = rules::load(
        path,
        settings.rules.tenants.as_deref(),
        settings.rules.read,
        &options,
    )?;
    let limiter = limiter::fresh(loaded.rules, &settings)?;
    Ok((limiter, settings))
}

fn explain(args: &RulesExplain, descriptors: &Descriptors) -> Result<Explanation> {
    let (limiter, _) = fresh_limiter(args)?;
    let entries: Vec<Vec<Entry<'_>>> = descriptors.iter().map(|list| borrowed(list)).collect();
    let views: Vec<_> = entries
        .iter()
        .map(|entries| Descriptor::new(entries))
        .collect();
    let check = Check {
        domain: args.domain.as_deref().unwrap_or_default(),
        descriptors: &views,
        waiting: Waiting::Cannot,
        observer: None,
    };
    Ok(limiter.explain_now(&check))
}

fn borrowed(entries: &[(String, String)]) -> Vec<Entry<'_>> {
    entries
        .iter()
        .map(|(key, value)| Entry { key, value })
        .collect()
}
