//! `ratekeeper quota import|export`: many tenants of a running service.

use super::live::read;
use crate::cli::{AdminAccess, QuotaExport, QuotaImport, QuotaUsage, TenantsForm, UsageBy};
use crate::client::Answer;
use crate::commands::admin::{Condition, Refusal, query};
use crate::output::{self, count};
use anyhow::{Context, Result, anyhow, bail};
use ratekeeper_quota::{BulkFormat, BulkLine, read_tenants};
use ratekeeper_server::admin_json::Imported;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// The largest file that is imported.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The bounds of what is sent at once.
#[derive(Clone, Copy)]
struct AtOnce {
    tenants_max: usize,
    /// The bytes beyond which no further tenant is added.
    bytes_max: usize,
}

/// A file as a whole: what a service takes in one transaction.
const WHOLE: AtOnce = AtOnce {
    tenants_max: 10_000,
    bytes_max: 8 << 20,
};

/// A part of a file.
const PART: AtOnce = AtOnce {
    tenants_max: 500,
    bytes_max: 512 << 10,
};

/// The time that a service has for a file as a whole, and some more.
const PATIENCE: Duration = Duration::from_secs(45);

pub(super) fn import(args: &QuotaImport) -> Result<ExitCode> {
    let name = args.file.display().to_string();
    let text = read(&args.file, FILE_BYTES_MAX)?;
    // Editors and shells of Windows begin texts with a mark of their encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let is_csv = args.file.extension().is_some_and(|end| end == "csv");
    let format = match args.format {
        Some(TenantsForm::Csv) => BulkFormat::Csv,
        None if is_csv => BulkFormat::Csv,
        Some(TenantsForm::Jsonl) | None => BulkFormat::JsonLines,
    };
    let lines = read_tenants(format, text).map_err(|bad| match bad.field.as_str() {
        "" => anyhow!("{name}:{}: {bad}", bad.line),
        field => anyhow!("{name}:{}: {field}: {bad}", bad.line),
    })?;
    let import = Import {
        access: &args.access,
        name: &name,
        lines: &lines,
        parts: match args.in_parts {
            true => parts(&lines, PART),
            false => whole(&lines).with_context(|| name.clone())?,
        },
    };
    // Nothing is changed before all of it was checked.
    let checked = match args.dry_run || args.in_parts {
        true => import.send(true, &mut Warnings::default())?,
        false => Imported::default(),
    };
    let mut warnings = Warnings::default();
    let sum = match args.dry_run {
        true => Ok(checked),
        false => import.send(false, &mut warnings),
    };
    // What was changed before a failure is warned of too.
    for warning in warnings.texts {
        output::complain(&format!("warning: {warning}"));
    }
    let sum = sum?;
    let tenants = count(sum.tenants, "tenant");
    output::answer(args.access.json, &sum, || {
        Ok(match args.dry_run {
            true => format!("{tenants} can be imported\n"),
            false => format!(
                "{tenants}: {} new, {} changed, {} as they were\n",
                sum.created, sum.updated, sum.unchanged
            ),
        })
    })
}

/// The most warnings of a file that are passed on.
const WARNINGS_MAX: usize = 100;

/// The warnings of the service, each once for a file.
#[derive(Default)]
struct Warnings {
    texts: Vec<String>,
}

impl Warnings {
    fn take(&mut self, answer: &Answer) {
        let warnings = answer.header("warning").unwrap_or_default();
        // Each is `299 - "text"`.
        for warning in warnings.split('"').skip(1).step_by(2) {
            let is_new = !self.texts.iter().any(|known| known == warning);
            if is_new && self.texts.len() < WARNINGS_MAX {
                self.texts.push(warning.to_owned());
            }
        }
    }
}

/// A file on its way to a service.
struct Import<'a> {
    access: &'a AdminAccess,
    name: &'a str,
    lines: &'a [BulkLine],
    parts: Vec<Chunk>,
}

impl Import<'_> {
    /// Sends all parts, to be checked or to be changed.
    fn send(&self, is_dry: bool, warnings: &mut Warnings) -> Result<Imported> {
        let path = match is_dry {
            true => "/admin/v1/import/quotas?dry_run=true",
            false => "/admin/v1/import/quotas",
        };
        let mut sum = Imported::default();
        for part in &self.parts {
            let body = (&*part.text, Condition::Any);
            let answer = self.access.answer_within(PATIENCE, "POST", path, body);
            let answer = answer.and_then(|answer| self.access.accepted(answer));
            if let Ok(answer) = &answer {
                warnings.take(answer);
            }
            let done: Result<Imported> = answer.and_then(|answer| self.access.read(&answer.body));
            let done = done.map_err(|error| self.failed(error, part, is_dry))?;
            sum.tenants += done.tenants;
            sum.created += done.created;
            sum.updated += done.updated;
            sum.unchanged += done.unchanged;
        }
        Ok(sum)
    }

    /// Says of a failure how far the file has come.
    fn failed(&self, error: anyhow::Error, part: &Chunk, is_dry: bool) -> anyhow::Error {
        let name = self.name;
        let line = line_of(&error.to_string(), &self.lines[part.tenants..]);
        let is_refused = error.downcast_ref::<Refusal>().is_some();
        let (before, all) = (part.tenants, count(self.lines.len(), "tenant"));
        let error = match line {
            Some(line) => error.context(format!("{name}:{line}")),
            None => error.context(name.to_owned()),
        };
        let how_far = match (is_dry, before) {
            (true, _) => "nothing was imported".to_owned(),
            (false, 0) if is_refused || is_unreachable(&error) => "nothing was imported".to_owned(),
            (false, 0) => {
                "it is not known if the tenants were imported: repeat the command".to_owned()
            }
            (false, _) => format!(
                "the first {before} of {all} were imported, up to line {}, and perhaps some after them; repeat the \
                 command: tenants that are as the file says do not change again",
                part.first
            ),
        };
        anyhow!("{}; {how_far}", output::with_causes(&error))
    }
}

/// Returns true if nobody listens at the address: nothing was sent then.
fn is_unreachable(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let fault = cause.downcast_ref::<io::Error>();
        fault.is_some_and(|fault| fault.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// All tenants at once.
///
/// # Errors
/// They are too many.
fn whole(lines: &[BulkLine]) -> Result<Vec<Chunk>> {
    let parts = parts(lines, WHOLE);
    match parts.len() {
        0 | 1 => Ok(parts),
        _ => bail!(
            "{} are too many to change together: at most {} of {} MiB go in as a whole; add --in-parts to change up \
             to {} at a time",
            count(lines.len(), "tenant"),
            WHOLE.tenants_max,
            WHOLE.bytes_max >> 20,
            PART.tenants_max
        ),
    }
}

/// A part of a file that is sent at once, as JSON lines, and the number of lines before it.
struct Chunk {
    text: String,
    first: usize,
    /// The number of tenants before it.
    tenants: usize,
}

/// The line of the file that an answer means by `line 3: overrides[1].unit`: the third tenant of `lines`, and its
/// second override.
fn line_of(answer: &str, lines: &[BulkLine]) -> Option<u64> {
    let (_, rest) = answer.split_once("line ")?;
    let (number, field) = rest.split_once(": ").unwrap_or((rest, ""));
    let tenant = lines.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
    let at = |list: &str| {
        let (number, _) = field.strip_prefix(list)?.split_once(']')?;
        number.parse::<usize>().ok()
    };
    let own = match (at("overrides["), at("plans[")) {
        (Some(at), _) => tenant.overrides.get(at),
        (None, Some(at)) => tenant.plans.get(at),
        (None, None) => None,
    };
    Some(own.copied().unwrap_or(tenant.line))
}

fn parts(lines: &[BulkLine], most: AtOnce) -> Vec<Chunk> {
    let mut parts: Vec<Chunk> = Vec::new();
    let mut room = 0;
    for (number, BulkLine { line, tenant, .. }) in lines.iter().enumerate() {
        let written = tenant.written(BulkFormat::JsonLines);
        let is_full = |part: &Chunk| room == 0 || part.text.len() + written.len() > most.bytes_max;
        if parts.last().is_none_or(is_full) {
            let first = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
            let text = String::new();
            parts.push(Chunk {
                text,
                first,
                tenants: number,
            });
            room = most.tenants_max;
        }
        room -= 1;
        if let Some(part) = parts.last_mut() {
            part.text.push_str(&written);
        }
    }
    parts
}

pub(super) fn export(args: &QuotaExport) -> Result<ExitCode> {
    let query = query([
        ("format", Some(form(args.format))),
        ("limit", Some("500")),
        ("domain", args.domain.as_deref()),
    ]);
    print_pages(&args.access, &format!("/admin/v1/export/quotas?{query}"))
}

pub(super) fn usage(args: &QuotaUsage) -> Result<ExitCode> {
    let query = query([
        ("format", Some(form(args.format))),
        ("by", args.by.map(period)),
        ("from", args.from.as_deref()),
        ("until", args.until.as_deref()),
        ("tenant", args.tenant.as_deref()),
        ("domain", args.domain.as_deref()),
    ]);
    print_pages(&args.access, &format!("/admin/v1/export/usage?{query}"))
}

const fn period(by: UsageBy) -> &'static str {
    match by {
        UsageBy::Day => "day",
        UsageBy::Month => "month",
    }
}

const fn form(form: TenantsForm) -> &'static str {
    match form {
        TenantsForm::Jsonl => "jsonl",
        TenantsForm::Csv => "csv",
    }
}

/// Prints all pages of an export as they come.
fn print_pages(access: &AdminAccess, path: &str) -> Result<ExitCode> {
    access.each_page(path, |path| {
        let answer = access.send("GET", path, "", Condition::Any)?;
        output::print_data(&answer.body)?;
        Ok(answer.header("x-next-cursor").map(str::to_owned))
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::AdminCredentials;

    #[test]
    fn a_mistake_has_the_line_of_its_part() {
        let text = "tenant,plan,descriptor,requests_per_unit,unit\n\
                    acme,pro,,,\n\
                    bob,free,a:1,5,minute\n\
                    bob,free,a:2,5,minutes\n";
        let lines = read_tenants(BulkFormat::Csv, text).expect("it is CSV");
        let of = |answer: &str| line_of(answer, &lines);
        assert_eq!(of("400: line 2: overrides[1].unit: no unit"), Some(4));
        assert_eq!(of("400: line 2: overrides[0].unit: no unit"), Some(3));
        assert_eq!(of("400: line 1: plans[0].plan: no plan"), Some(2));
        assert_eq!(of("400: line 2: domain: no domain"), Some(3));
        assert_eq!(of("400: line 3: plan"), None);
        assert_eq!(of("503: the database is away"), None);
    }

    #[test]
    fn a_file_goes_as_a_whole_or_says_how_it_would() {
        let tenants = |most: usize| -> Vec<BulkLine> {
            let text: String = (0..most)
                .map(|it| format!("{{\"tenant\":\"t{it}\"}}\n"))
                .collect();
            read_tenants(BulkFormat::JsonLines, &text).expect("it is JSON")
        };
        let parts_of = |most: usize| whole(&tenants(most)).map(|parts| parts.len()).ok();
        assert_eq!((parts_of(1), parts_of(10_000)), (Some(1), Some(1)));
        let many = tenants(10_001);
        let refused = whole(&many).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|said| said.contains("add --in-parts")));
        let parts = parts(&many, PART);
        assert_eq!(
            (parts.len(), parts[1].tenants, parts[1].first),
            (21, 500, 500)
        );
    }

    /// A service that warns of something else with each answer, and then is gone.
    fn service(warnings: &'static [&'static str]) -> (String, std::thread::JoinHandle<()>) {
        use std::io::{BufRead, BufReader, Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let serve = move || {
            for warning in warnings {
                let (mut stream, _) = listener.accept().expect("somebody asks");
                let mut asked = BufReader::new(stream.try_clone().expect("a second handle"));
                let (mut line, mut length) = (String::new(), 0);
                while asked.read_line(&mut line).expect("a head") > 2 {
                    let lower = line.to_ascii_lowercase();
                    let told = lower.strip_prefix("content-length:");
                    length = told.map_or(length, |told| told.trim().parse().expect("a length"));
                    line.clear();
                }
                let mut body = vec![0; length];
                asked.read_exact(&mut body).expect("a body");
                let text = r#"{"tenants":500,"created":500,"updated":0,"unchanged":0}"#;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nwarning: 299 - \"{warning}\"\r\n\
                     content-length: {}\r\nconnection: close\r\n\r\n{text}",
                    text.len()
                );
                stream.write_all(head.as_bytes()).expect("it is read");
            }
        };
        (address, std::thread::spawn(serve))
    }

    #[test]
    fn each_part_of_a_file_may_have_a_warning_of_its_own() {
        let text: String = (0..1_500)
            .map(|it| format!("{{\"tenant\":\"t{it}\"}}\n"))
            .collect();
        let lines = read_tenants(BulkFormat::JsonLines, &text).expect("it is JSON");
        let (address, served) = service(&["one slip", "files give more", "one slip"]);
        let access = AdminAccess {
            address,
            credentials: AdminCredentials::default(),
            json: false,
        };
        let import = Import {
            access: &access,
            name: "tenants.jsonl",
            lines: &lines,
            parts: parts(&lines, PART),
        };
        let mut warnings = Warnings::default();
        let sum = import.send(false, &mut warnings).expect("it is imported");
        assert_eq!(sum.tenants, 1_500);
        assert_eq!(warnings.texts, ["one slip", "files give more"]);
        served.join().expect("it answered all");
        // Nobody listens any more, and nothing is sent.
        let failed = import.send(false, &mut warnings).err();
        let said = failed.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.ends_with("; nothing was imported"), "{said}");
    }

    #[test]
    fn a_failure_on_the_way_says_how_far_the_file_came() {
        let text: String = (0..1_200)
            .map(|it| format!("{{\"tenant\":\"t{it}\"}}\n"))
            .collect();
        let lines = read_tenants(BulkFormat::JsonLines, &text).expect("it is JSON");
        let access = AdminAccess {
            address: "http://127.0.0.1:1".to_owned(),
            credentials: AdminCredentials::default(),
            json: false,
        };
        let import = Import {
            access: &access,
            name: "tenants.jsonl",
            lines: &lines,
            parts: parts(&lines, PART),
        };
        let said = |part: usize, is_dry| {
            let error = import.failed(anyhow!("the connection broke"), &import.parts[part], is_dry);
            error.to_string()
        };
        let on_the_way = said(2, false);
        for part in [
            "tenants.jsonl: the connection broke; ",
            "the first 1000 of 1200 tenants were imported, up to line 1000, and perhaps some after them",
        ] {
            assert!(on_the_way.contains(part), "{on_the_way}");
        }
        assert!(said(0, false).contains("it is not known if the tenants were imported"));
        assert!(said(2, true).ends_with("; nothing was imported"));
    }
}
