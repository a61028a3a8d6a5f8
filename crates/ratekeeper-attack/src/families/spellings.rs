//! Spellings: a request that is over its limit, written another way.
//!
//! Every limit is used up first. Then a spelling is refused, or counted as its subject and denied, or the application takes
//! it for something else; what the application takes for the subject nevertheless has passed.

mod list;

use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http1::{Answer, say};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};
use crate::token;
use crate::upstreams::{App, Kind, Nginx};

use list::{SPELLINGS, SUBJECTS, Spelling, Subject};

/// Requests that each subject may send, in windows whose next edge is decades away.
const LIMIT: usize = 3;

pub(crate) const RULES: &str = "
domain: api
descriptors:
  - key: endpoint
    value: POST /orders/export
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: path
    value: /admin/*
    share_threshold: true
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: api_key
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: session
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: parameter
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: sub
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: host
    value: shop.example
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
";

pub(crate) const MAPPING: &str = "
auth:
  domain: api
  descriptors:
    - - { key: endpoint, from: endpoint }
    - - { key: path, from: path }
    - - { key: api_key, from: header:x-api-key }
    - - { key: session, from: cookie:session }
    - - { key: parameter, from: query:key }
    - - { key: sub, from: claim:sub }
    - - { key: host, from: host }
identity:
  from: [ remote_address ]
  jwt: { secret_file: secret }
";

/// No peer on this host is a proxy: clients of the gateway are strangers.
pub(crate) const STRANGERS: &str = "trusted_proxies: 192.0.2.0/24\n";

/// Settings that let through what services read in different ways.
const PERMISSIVE: &str = "ambiguous_paths: accept\nencoded_slashes: keep\n";

/// Settings that tell paths apart which Express serves alike.
const EXACT: &str = "ignore_path_case: false\nignore_trailing_slash: false\n";

/// Every spelling, to every application, behind NGINX and behind the gateway.
pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut table = Table::default();
    for kind in Kind::available() {
        let app = App::start(kind)?;
        let service = serve(program, MAPPING);
        let nginx = Nginx::start(&app, service.port)?;
        let gateway = gateway(program, &app, "");
        for (front, port, target) in [
            ("NGINX", nginx.port, &service),
            ("gateway", gateway.port, &gateway),
        ] {
            let mut row = Row::new(format!("spellings, {front} and {}", kind.name()));
            let fates = all(&app, port, &mut row);
            row.measure(&target.process);
            rows.push(row);
            table
                .columns
                .push((format!("{front}, {}", kind.name()), fates));
        }
    }
    println!("\n{table}");
    Ok(rows)
}

/// The same where some spellings must pass, or the campaign could not tell: behind settings that let ambiguous paths through,
/// and behind settings by which case and a slash at the end count, in front of Express, where they do not.
pub(crate) fn permissive(program: &Path) -> Result<[Row; 2]> {
    let row = |name: &str, kind, settings| -> Result<Row> {
        let app = App::start(kind)?;
        let gateway = gateway(program, &app, settings);
        let mut row = Row::new(format!("spellings, {name}"));
        all(&app, gateway.port, &mut row);
        row.measure(&gateway.process);
        Ok(row)
    };
    Ok([
        row("permissive settings", Kind::Flask, PERMISSIVE)?,
        row("exact settings", Kind::LaxExpress, EXACT)?,
    ])
}

fn serve(program: &Path, settings: &str) -> Target {
    let setup = Setup::serve(program).rules(RULES).settings(settings);
    setup.file("secret", token::SECRET).start()
}

fn gateway(program: &Path, app: &App, more: &str) -> Target {
    let settings = format!("{MAPPING}{STRANGERS}{more}");
    let setup = Setup::gateway(program, &app.url()).rules(RULES);
    let setup = setup.settings(&settings).file("secret", token::SECRET);
    setup.start()
}

/// For each spelling, true if the application alone takes it for the subject, and its fate behind a limiter.
type Fates = Vec<(bool, Fate)>;

/// Uses every limit up, and then tries every spelling at `port`.
fn all(app: &App, port: u16, row: &mut Row) -> Fates {
    for subject in SUBJECTS {
        let plain = Spelling::plain(subject);
        let fates: Vec<_> = (0..=LIMIT).map(|_| fate(&plain, port)).collect();
        let (within, over) = fates.split_at(LIMIT);
        // Within its limit a request reaches the application and is what it stands for; that is what `Passed` says.
        let is_enforced =
            within.iter().all(|fate| *fate == Fate::Passed) && over == [Fate::Limited];
        row.bound(
            is_enforced,
            format!("{plain} has a limit of {LIMIT}, and got {fates:?}"),
        );
    }
    let attempt = |spelling: &Spelling| {
        let is_taken = fate(spelling, app.port) == Fate::Passed;
        let fate = fate(spelling, port);
        row.count(fate, format!("{spelling} (as {:?})", spelling.subject));
        (is_taken, fate)
    };
    SPELLINGS.iter().map(attempt).collect()
}

/// The fate of one request at `port`.
fn fate(spelling: &Spelling, port: u16) -> Fate {
    let Some(answer) = Answer::try_read(&say(port, bytes(spelling))) else {
        return Fate::Refused;
    };
    match answer.status {
        429 => Fate::Limited,
        200 if is_taken(spelling.subject, &answer.body) => Fate::Passed,
        // The application redirects, or has nothing at that path, or took it for something that has no limit.
        200 | 301..=308 | 404 | 405 => Fate::Harmless,
        _ => Fate::Refused,
    }
}

/// The request on the wire.
fn bytes(spelling: &Spelling) -> Vec<u8> {
    let Spelling {
        method,
        target,
        host,
        lines,
        ..
    } = spelling;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let text = text.replace("{jwt}", &token::of_ada());
    // Latin-1: each character is the byte of its number.
    let byte = |char| u8::try_from(u32::from(char)).unwrap_or(b'?');
    text.chars().map(byte).collect()
}

/// True if the application, which says what it understood, took the request for the subject.
fn is_taken(subject: Subject, told: &str) -> bool {
    let says = |name: &str| {
        let line = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        told.lines().find_map(line).unwrap_or_default()
    };
    match subject {
        Subject::Endpoint => says("route") == "export",
        Subject::Path => says("route") == "admin",
        Subject::Key => says("key").trim() == "ada",
        Subject::Session => says("session").trim() == "abc",
        Subject::Parameter => says("parameter").trim() == "abc",
        Subject::Token => says("sub") == "ada",
        Subject::Host => {
            let host = says("host").to_ascii_lowercase();
            let name = host.split(':').next().unwrap_or_default();
            name.trim_end_matches('.') == "shop.example"
        }
    }
}

/// Each spelling that some application takes for the subject, and what became of it.
#[derive(Default)]
struct Table {
    columns: Vec<(String, Fates)>,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "| spelling | of |")?;
        self.columns
            .iter()
            .try_for_each(|(name, _)| write!(f, " {name} |"))?;
        write!(f, "\n|---|---|")?;
        self.columns.iter().try_for_each(|_| write!(f, "---|"))?;
        writeln!(f)?;
        for (index, spelling) in SPELLINGS.iter().enumerate() {
            let cells = self
                .columns
                .iter()
                .filter_map(|(_, fates)| fates.get(index));
            let cells: Vec<_> = cells.collect();
            if !cells.iter().any(|(is_taken, _)| *is_taken) {
                continue;
            }
            let text = spelling.to_string().replace('|', "\\|");
            write!(f, "| `{text}` | {:?} |", spelling.subject)?;
            for (is_taken, fate) in cells {
                let mark = if *is_taken { "same" } else { "other" };
                write!(f, " {mark}: {} |", fate.name())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
