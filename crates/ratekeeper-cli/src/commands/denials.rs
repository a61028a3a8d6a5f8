//! `ratekeeper denials [TENANT]`: who was denied in the last hour, from a running service.

use crate::cli::{DenialKind, Denials};
use crate::output::{self, within_line};
use anyhow::{Context, Result, bail};
use ratekeeper_server::admin_json::{DenialGroup, DeniedRequest, ToldBy};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

/// The interval at which new denials are asked for.
const EVERY: Duration = Duration::from_secs(1);

/// The most requests that one answer may have.
const REQUESTS_MAX: usize = 100;

/// The most bytes of a tenant on standard input.
const TENANT_BYTES_MAX: u64 = 64 << 10;

/// The denials as the admin API tells them, the requests as they came: `--json` passes them on.
#[derive(Deserialize)]
struct DenialsAnswer {
    denials: Vec<Value>,
    groups: Vec<DenialGroup>,
    told_by: ToldBy,
    note: Option<String>,
}

pub(super) fn run(args: &Denials) -> Result<ExitCode> {
    let tenant = match args.tenant.as_deref() {
        Some("-") => Some(read_tenant()?),
        tenant => tenant.map(str::to_owned),
    };
    let limit = match args.follow {
        true => REQUESTS_MAX,
        false => usize::from(args.limit),
    };
    let question = json!({
        "tenant": tenant,
        "rule": args.rule,
        "domain": args.domain,
        "kind": match args.kind {
            None => "all",
            Some(DenialKind::Denied) => "denied",
            Some(DenialKind::WouldBeDenied) => "would_be_denied",
        },
        "limit": limit,
    });
    let question = question.to_string();
    let ask = || {
        args.access
            .ask::<Value>("POST", "/admin/v1/denials", &question)
    };
    if !args.follow {
        let answer = ask()?;
        return output::answer(args.access.json, &answer, || {
            text(&DenialsAnswer::deserialize(&answer)?, args.kind)
        });
    }
    let mut seen = Seen::default();
    loop {
        let answer = ask()?;
        for line in seen.new_lines(&DenialsAnswer::deserialize(&answer)?, args.access.json)? {
            output::print(&format!("{line}\n"))?;
        }
        sleep(EVERY);
    }
}

/// The tenant on standard input.
pub(super) fn read_tenant() -> Result<String> {
    use std::io::{IsTerminal as _, Read as _};

    if std::io::stdin().is_terminal() {
        output::complain("tenant (its value, ~fingerprint, or * and its last characters):");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        return named(&line);
    }
    let mut text = String::new();
    let read = std::io::stdin()
        .take(TENANT_BYTES_MAX + 2)
        .read_to_string(&mut text);
    read.context("cannot read a tenant from standard input")?;
    named(&text)
}

/// The tenant that is all of `text`: a part of it would be another one.
fn named(text: &str) -> Result<String> {
    let tenant = text.trim();
    if tenant.contains('\n') {
        bail!("there is more than one line: name one tenant");
    }
    if tenant.len() as u64 > TENANT_BYTES_MAX {
        bail!("a tenant has at most {TENANT_BYTES_MAX} bytes");
    }
    match tenant.is_empty() {
        false => Ok(tenant.to_owned()),
        true => bail!("name a tenant: by its value, its fingerprint, or * and its last characters"),
    }
}

/// The denials that were printed before.
#[derive(Default)]
struct Seen {
    /// The latest requests, by time and id.
    requests: VecDeque<(String, String)>,
    /// The denials of tenants and rules in shadow.
    shadow: BTreeMap<(Box<str>, Box<str>), u64>,
    is_begun: bool,
}

impl Seen {
    /// The lines about what is new in an answer; the first one is the beginning, and nothing in it is.
    fn new_lines(&mut self, told: &DenialsAnswer, in_json: bool) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        // The oldest first.
        for denied in told.denials.iter().rev() {
            let request = DeniedRequest::deserialize(denied)?;
            let name = (request.time.clone(), request.request_id.clone());
            if self.requests.contains(&name) {
                continue;
            }
            self.requests.push_back(name);
            lines.push(match in_json {
                true => denied.to_string(),
                false => within_line(&cells(request).join("  ")).into_owned(),
            });
        }
        let surplus = self.requests.len().saturating_sub(2 * REQUESTS_MAX);
        self.requests.drain(..surplus);
        let shadow = told.groups.iter().filter(|group| group.mode.is_some());
        let mut counts = BTreeMap::new();
        for group in shadow {
            let name = (group.rule.clone(), group.key.clone());
            let before = self.shadow.get(&name).copied().unwrap_or_default();
            counts.insert(name, group.count);
            if group.count > before {
                lines.push(match in_json {
                    true => serde_json::to_string(group)?,
                    false => format!(
                        "{}  {}  {}  would be denied ({}), {} more",
                        time(group.last),
                        within_line(&group.tenant),
                        within_line(&group.rule),
                        group.mode.as_deref().unwrap_or_default(),
                        group.count - before
                    ),
                });
            }
        }
        self.shadow = counts;
        if !std::mem::replace(&mut self.is_begun, true) {
            lines.clear();
        }
        Ok(lines)
    }
}

/// The cells of a denied request, in the order of the heads.
fn cells(request: DeniedRequest) -> [String; 5] {
    // All fields, so that a new one asks whether it is shown.
    let DeniedRequest {
        time,
        request_id,
        tenant,
        rule,
        limit,
        method,
        path,
        enforced,
        protocol: _,
        domain: _,
        key: _,
        scope: _,
        retry_after_ms: _,
        degraded: _,
    } = request;
    let target = method.into_iter().chain(path);
    let target = target.collect::<Vec<_>>().join(" ");
    let rule = match enforced {
        true => format!("{rule} ({limit})"),
        false => format!("{rule} ({limit}), not enforced"),
    };
    [time, tenant, rule, target, request_id]
}

fn text(told: &DenialsAnswer, kind: Option<DenialKind>) -> Result<String> {
    let mut text = groups(&told.groups);
    if told.groups.is_empty() {
        text = match kind {
            None | Some(DenialKind::Denied) => "no one was denied in the last hour\n",
            Some(DenialKind::WouldBeDenied) => "no one would have been denied in the last hour\n",
        }
        .to_owned();
    }
    if let Some(note) = &told.note {
        let _ = writeln!(text, "note: {}", within_line(note));
    }
    if !told.denials.is_empty() {
        let rows = told.denials.iter();
        let rows = rows.map(|denied| Ok(cells(DeniedRequest::deserialize(denied)?)));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        text.push_str("\nLatest denied requests on this node\n");
        let heads = ["TIME", "TENANT", "RULE", "REQUEST", "REQUEST ID"];
        text.push_str(&output::headed(heads, rows));
    }
    Ok(text + &foot(&told.told_by))
}

/// Tenants and rules, denied ones before those that would be.
pub(super) fn groups(groups: &[DenialGroup]) -> String {
    let of_kind = |is_shadow: bool| {
        let rows = groups
            .iter()
            .filter(move |it| it.mode.is_some() == is_shadow);
        rows.map(|group| {
            let rule = match group.limit.as_str() {
                "" => group.rule.to_string(),
                limit => format!("{} ({limit})", group.rule),
            };
            [
                group.tenant.clone(),
                rule,
                group.count.to_string(),
                time(group.since),
                time(group.last),
                match &group.mode {
                    Some(mode) => match group.mode_since {
                        Some(since) => format!("{mode} since {}", time(since)),
                        None => mode.clone(),
                    },
                    None => group.nodes.join(", "),
                },
                fingerprint(group).to_owned(),
            ]
        })
    };
    let mut text = String::new();
    if of_kind(false).next().is_some() {
        let heads = [
            "TENANT",
            "RULE",
            "DENIED",
            "SINCE",
            "LAST",
            "BY NODES",
            "FINGERPRINT",
        ];
        text.push_str("Denied in the last hour\n");
        text.push_str(&output::headed(heads, of_kind(false)));
    }
    if of_kind(true).next().is_some() {
        let heads = [
            "TENANT",
            "RULE",
            "REQUESTS",
            "SINCE",
            "LAST",
            "MODE",
            "FINGERPRINT",
        ];
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(gap);
        text.push_str("Would have been denied in the last hour, were the rule enforced\n");
        text.push_str(&output::headed(heads, of_kind(true)));
    }
    text
}

/// The fingerprint of a secret.
fn fingerprint(group: &DenialGroup) -> &str {
    let value = group.key.split_once(':').map_or("", |(_, value)| value);
    let fingerprint = value.split('…').next().unwrap_or_default();
    match fingerprint.starts_with('~') {
        true => fingerprint,
        false => "",
    }
}

fn time(seconds: u64) -> String {
    let time = ratekeeper_core::Timestamp::from_secs(seconds);
    ratekeeper_rules::time::rfc3339(time).to_string()
}

/// The nodes that an answer is of, where that is worth saying.
pub(super) fn foot(told_by: &ToldBy) -> String {
    if let Some(why) = &told_by.only_this_node {
        return format!("\nof this node alone: {why}\n");
    }
    let names = told_by.nodes.iter().map(|node| node.name.as_str());
    let mut text = format!(
        "\nof {}: {}",
        output::count(told_by.nodes.len(), "node"),
        within_line(&names.collect::<Vec<_>>().join(", "))
    );
    if told_by.nodes_left_out > 0 {
        text.push_str(&format!("; {} more are not asked", told_by.nodes_left_out));
    }
    if told_by.groups_left_out > 0 {
        text.push_str(&format!(
            "; other nodes leave out {} tenants and rules",
            told_by.groups_left_out
        ));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ids: &[&str], shadow: u64) -> DenialsAnswer {
        let denial = |id: &&str| {
            json!({
                "time": "2027-01-31T00:00:00Z", "tenant": "acme", "rule": "d.r", "limit": "1 per 1m",
                "request_id": id, "enforced": true,
            })
        };
        DenialsAnswer {
            denials: ids.iter().map(denial).collect(),
            groups: vec![DenialGroup {
                rule: "d.s".into(),
                key: "customer:beta".into(),
                tenant: "beta".to_owned(),
                mode: Some("shadow".to_owned()),
                count: shadow,
                ..DenialGroup::default()
            }],
            note: None,
            told_by: ToldBy::default(),
        }
    }

    #[test]
    fn a_tenant_is_taken_whole_or_not_at_all() {
        assert_eq!(named(" acme\r\n").expect("it is one"), "acme");
        let most = "x".repeat(64 << 10);
        assert_eq!(named(&format!("{most}\n")).expect("it fits"), most);
        for (text, why) in [
            (format!("{most}x"), "at most 65536 bytes"),
            ("acme\nother\n".to_owned(), "more than one line"),
            (" \n".to_owned(), "name a tenant"),
        ] {
            let said = named(&text).expect_err("it is refused").to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn an_empty_list_says_of_what_kind_it_is() {
        let told = DenialsAnswer {
            groups: Vec::new(),
            ..told(&[], 0)
        };
        let text = |kind| text(&told, kind).expect("text");
        for kind in [None, Some(DenialKind::Denied)] {
            assert!(text(kind).starts_with("no one was denied in the last hour\n"));
        }
        let shadow = text(Some(DenialKind::WouldBeDenied));
        assert!(
            shadow.starts_with("no one would have been denied in the last hour\n"),
            "{shadow}"
        );
    }

    #[test]
    fn only_what_is_new_is_followed() {
        let mut seen = Seen::default();
        let lines =
            |seen: &mut Seen, told: &DenialsAnswer| seen.new_lines(told, false).expect("lines");
        assert!(lines(&mut seen, &told(&["1"], 5)).is_empty());
        assert!(lines(&mut seen, &told(&["1"], 5)).is_empty());
        let new = lines(&mut seen, &told(&["3", "2", "1"], 7));
        assert_eq!(new.len(), 3, "{new:?}");
        assert!(new[0].ends_with('2') && new[1].ends_with('3'), "{new:?}");
        assert!(
            new[2].contains("beta") && new[2].ends_with("2 more"),
            "{new:?}"
        );
    }
}
