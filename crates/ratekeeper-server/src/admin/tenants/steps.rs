//! The answer in a sentence, and what may be done now.

use ratekeeper_core::duration::format_duration;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_rules::time;
use serde::Serialize;
use utoipa::ToSchema;

use super::TenantAnswer;
use super::place::Place;
use crate::admin_json::DenialGroup;

/// The time for which a raise holds, unless the operator chooses another.
const RAISE_DAYS: u64 = 7;

const DAY: u64 = 86_400;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// A step that an operator may take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(super) struct NextStep {
    /// The purpose.
    title: String,
    /// The command line.
    command: String,
}

impl NextStep {
    fn new(title: impl Into<String>, command: String) -> Self {
        Self {
            title: title.into(),
            command,
        }
    }
}

/// The answer in a sentence, as of `now`.
pub(super) fn summary(answer: &TenantAnswer, now: Timestamp) -> String {
    let by = |group: &DenialGroup| match group.limit.as_str() {
        "" => group.rule.to_string(),
        limit => format!("{} ({limit})", group.rule),
    };
    let when = |group: &DenialGroup| {
        let ago = (now.as_micros() / MICROS_PER_SECOND).saturating_sub(group.last);
        let ago = format_duration(Micros::from_secs(ago));
        let since = time::rfc3339(Timestamp::from_secs(group.since));
        format!("since {since}, the last {ago} ago")
    };
    let more = |groups: &[DenialGroup]| match groups.len() {
        0 | 1 => String::new(),
        2 => ", and by 1 other rule".to_owned(),
        rules => format!(", and by {} other rules", rules - 1),
    };
    let mut text = match most(&answer.denials) {
        Some(group) => format!(
            "denied {} in the last hour by {}, {}{}",
            times(group.count),
            by(group),
            when(group),
            more(&answer.denials)
        ),
        None => "not denied in the last hour".to_owned(),
    };
    if let Some(group) = most(&answer.would_be_denied) {
        text.push_str(&format!(
            "; {} requests passed that {} would have denied, {}{}",
            group.count,
            by(group),
            when(group),
            more(&answer.would_be_denied)
        ));
    }
    text
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// The group with the most denials.
fn most<'a>(groups: impl IntoIterator<Item = &'a DenialGroup>) -> Option<&'a DenialGroup> {
    let groups = groups.into_iter();
    groups.max_by_key(|group| (group.count, group.last))
}

/// The steps that may help, as command lines; those about quotas if there is a database of the tenants of `place`, which
/// commands name if it `is_one_of_several`.
pub(super) fn next_steps(
    answer: &TenantAnswer,
    place: Option<Place<'_>>,
    is_one_of_several: bool,
    now: Timestamp,
) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let name = quoted(match &answer.hash {
        // No secret in a history of commands.
        Some(hash) if answer.tenant.starts_with(['…', '~']) => hash,
        _ => &answer.tenant,
    });
    let is_named = !name.starts_with('\'') || !name.contains(['…', '~']);
    let place = place.filter(|_| is_named);
    let domain = place.filter(|_| is_one_of_several);
    let domain = domain.map(|place| format!(" --domain {}", quoted(place.domain.name())));
    let domain = domain.unwrap_or_default();
    let is_tenant = |group: &&DenialGroup| {
        place.is_some_and(|place| place.value(&group.domain, &group.key).is_some())
    };
    if let Some(group) = most(answer.denials.iter().filter(is_tenant)) {
        if let Some(raise) = raise(answer, group, now) {
            let command = format!("ratekeeper quota set {name} --override {raise}{domain}");
            steps.push(NextStep::new(
                format!("twice the limit of {} for a week", group.rule),
                command,
            ));
        }
        let command = format!("ratekeeper reset {name}{domain}");
        steps.push(NextStep::new("its usage starts over at zero", command));
    }
    if place.is_some() && is_undone_by_revert(answer) {
        let command = format!("ratekeeper quota revert {name}{domain}");
        steps.push(NextStep::new(
            "undo the last change of its plans and overrides",
            command,
        ));
    }
    if let Some(group) = most(&answer.would_be_denied) {
        let command = format!(
            "ratekeeper denials --rule {} --kind would-be-denied",
            quoted(&group.rule)
        );
        let title = format!("all whom {} would deny", group.rule);
        steps.push(NextStep::new(title, command));
    }
    if answer.denials.is_empty() && answer.would_be_denied.is_empty() {
        let command = format!("ratekeeper denials {name} --follow");
        steps.push(NextStep::new("watch for its next denial", command));
    }
    steps
}

/// Returns true if the last change is one that `quota revert` undoes. Behind a reset or a step of a policy it would undo an
/// older one, which may have been meant.
fn is_undone_by_revert(answer: &TenantAnswer) -> bool {
    let last = answer.changes.first();
    last.is_some_and(|last| ["put", "delete"].contains(&&*last.action))
}

/// An override with twice the limit of the group's rule: `default=200/1m@..2027-02-07T00:00:00Z`.
fn raise(answer: &TenantAnswer, group: &DenialGroup, now: Timestamp) -> Option<String> {
    let mut used = answer.usage.as_ref()?.usage.values();
    let used = used.find(|used| *used.rule == *group.rule)?;
    let raise = used.raise.as_ref()?;
    let day = now.as_micros() / MICROS_PER_SECOND / DAY;
    let until = Timestamp::from_secs((day + RAISE_DAYS) * DAY);
    Some(quoted(&format!("{raise}@..{}", time::rfc3339(until))))
}

/// A word of a command line, in quotes if a shell would read it as anything else.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_line_are_quoted_where_a_shell_needs_it() {
        for (word, written) in [
            ("acme", "acme"),
            (
                "default=200/1m@..2027-02-07T00:00:00Z",
                "default=200/1m@..2027-02-07T00:00:00Z",
            ),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(rm)", "'$(rm)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), written, "{word}");
        }
    }
}
