//! Limits of files as drafts.

use std::rc::Rc;

use crate::draft::{Field, LimitDraft};
use crate::format::mapping::read_item;
use crate::format::{PlanLimit, RateLimit, Replaces, TenantOverride};
use crate::mark::At;
use crate::policy::Policy;
use crate::report::Report;
use crate::yaml::Node;

/// A mapping that holds a limit.
pub(crate) trait Limited {
    /// The limit as a draft.
    fn draft(at: At<Self>, report: &mut Report<'_>) -> LimitDraft
    where
        Self: Sized;
}

impl Limited for RateLimit {
    fn draft(at: At<Self>, report: &mut Report<'_>) -> LimitDraft {
        let At {
            value: mut limit,
            mark,
        } = at;
        let name = limit.name.take_text();
        let replaces = limit.replaces.take().unwrap_or_default();
        LimitDraft {
            replaces: read_replaces(&replaces, name.as_deref(), report),
            name,
            id: read_id(&mut limit.id, report),
            policy: Policy {
                algorithm: limit.algorithm.copied(),
                enabled: limit.enabled.copied(),
                enforce: limit.enforce.copied(),
                ..Policy::of_counting(&limit.counting, report)
            },
            algorithm: limit.algorithm,
            quota: limit.quota,
            ..LimitDraft::at(mark)
        }
    }
}

impl Limited for PlanLimit {
    fn draft(at: At<Self>, report: &mut Report<'_>) -> LimitDraft {
        let At {
            value: mut limit,
            mark,
        } = at;
        LimitDraft {
            name: limit.name.take_text(),
            policy: Policy {
                algorithm: limit.algorithm.copied(),
                ..Policy::of_counters(&limit.counters, report)
            },
            algorithm: limit.algorithm,
            quota: limit.quota,
            ..LimitDraft::at(mark)
        }
    }
}

impl Limited for TenantOverride {
    fn draft(at: At<Self>, _: &mut Report<'_>) -> LimitDraft {
        let At {
            value: mut limit,
            mark,
        } = at;
        LimitDraft {
            name: limit.name.take_text(),
            algorithm: limit.algorithm,
            quota: limit.quota,
            ..LimitDraft::at(mark)
        }
    }
}

pub(crate) fn read_id(id: &mut Field<Box<str>>, report: &mut Report<'_>) -> Option<At<Box<str>>> {
    let id = id.take_at()?;
    let is_good = (1..=200).contains(&id.value.len()) && !id.value.chars().any(char::is_control);
    if !is_good {
        let message = "an id has 1 to 200 bytes and no control characters";
        report.error(id.mark, message, None);
    }
    is_good.then_some(id)
}

fn read_replaces(
    items: &[Rc<Node>],
    name: Option<&str>,
    report: &mut Report<'_>,
) -> Vec<At<Box<str>>> {
    let mut names = Vec::new();
    for item in items {
        let Some(entry) = read_item::<Replaces>(item, report) else {
            continue;
        };
        let Some(replaced) = entry.value.name.text() else {
            let help = "write `- name: other_limit`";
            report.error(item.mark, "should not have an empty replaces entry", help);
            continue;
        };
        if Some(replaced.value) == name {
            let help = "name another limit, or leave the entry out";
            report.error(
                replaced.mark,
                "replaces should not contain name of same descriptor",
                help,
            );
        }
        names.push(replaced.map(Into::into));
    }
    names
}
