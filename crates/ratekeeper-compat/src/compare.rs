//! Compares two answers to one request. The answer of envoyproxy/ratelimit, changed only as the
//! list of differences says, must equal ours.

use std::collections::BTreeSet;

use crate::answer::{Answer, Reply, Status};
use crate::differences::Difference;
use crate::request::{Call, has_unknown_unit};
use crate::rules::is_in_quota_mode;
use crate::world::Modes;

/// The result of comparing two answers.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Equal, except for these.
    Equal(BTreeSet<Difference>),
    /// The answer that ours should have been.
    Different(Box<Reply>),
}

/// Compares both answers to `call` at `now`, in seconds since 1970.
pub(crate) fn compare(
    call: &Call,
    modes: Modes,
    now: u64,
    theirs: &Reply,
    ours: &Reply,
) -> Outcome {
    let mut listed = BTreeSet::new();
    let expected = expected(call, modes, now, theirs, &mut listed);
    let equal = match (&expected, ours) {
        // Our messages differ from theirs on purpose.
        (
            Reply::Refused { http, .. },
            Reply::Refused {
                http: our_http,
                body,
            },
        ) => http == our_http && body.ends_with('\n') && body.len() > 1,
        (
            Reply::Failed { code, message },
            Reply::Failed {
                code: our_code,
                message: our_message,
            },
        ) if message.is_empty() => code == our_code && !our_message.is_empty(),
        (expected, ours) => expected == ours,
    };
    if equal {
        Outcome::Equal(listed)
    } else {
        Outcome::Different(Box::new(expected))
    }
}

/// The answer that we must give when envoyproxy/ratelimit gives `theirs`.
fn expected(
    call: &Call,
    modes: Modes,
    now: u64,
    theirs: &Reply,
    listed: &mut BTreeSet<Difference>,
) -> Reply {
    let bad_unit = call.request.descriptors.iter().any(has_unknown_unit);
    let text = (400, "text/plain; charset=utf-8".to_owned());
    match theirs {
        Reply::Failed { code, message } if code == "Unknown" => {
            listed.insert(Difference::GrpcCode);
            Reply::Failed {
                code: "InvalidArgument".to_owned(),
                message: message.clone(),
            }
        }
        Reply::Refused { http, .. } if *http == text => {
            listed.insert(Difference::JsonMessage);
            theirs.clone()
        }
        // It checks the unit only when it counts: the connection ends, or nothing happens in an
        // unknown domain, where nothing is counted. We validate the request first.
        Reply::Closed | Reply::Decided { http: Some(_), .. } if bad_unit => {
            listed.insert(Difference::OverrideUnit);
            Reply::Refused {
                http: text,
                body: String::new(),
            }
        }
        Reply::Decided { http, answer } => {
            let answer = decided(call, modes, now, answer.clone(), listed);
            let http = http.clone().map(|(status, kind)| {
                let status = match (status, answer.overall_code.as_str()) {
                    (200 | 429, "OK") => 200,
                    (200 | 429, "OVER_LIMIT") => 429,
                    (other, _) => other,
                };
                (status, kind)
            });
            Reply::Decided { http, answer }
        }
        other => other.clone(),
    }
}

fn decided(
    call: &Call,
    modes: Modes,
    now: u64,
    mut answer: Answer,
    listed: &mut BTreeSet<Difference>,
) -> Answer {
    if let Some(metadata) = &mut answer.dynamic_metadata {
        for name in ["quotaModeEnabled", "quotaModeViolations"] {
            if metadata.remove(name).is_some() {
                listed.insert(Difference::QuotaMetadata);
            }
        }
    }
    let in_quota_mode = |(index, status): (usize, &Status)| {
        let overridden = call
            .request
            .descriptors
            .get(index)
            .is_some_and(|view| view.limit.is_some());
        let limit = status.current_limit.as_ref();
        modes.quota
            || (!overridden && limit.is_some_and(|limit| is_in_quota_mode(limit.requests_per_unit)))
    };
    let quota: Vec<_> = answer
        .statuses
        .iter()
        .enumerate()
        .map(in_quota_mode)
        .collect();
    for (status, quota) in answer.statuses.iter_mut().zip(&quota) {
        // Only a limit in quota mode that is over has a limit and no reset.
        if let (true, "OK", Some(limit), None) = (
            *quota,
            status.code.as_str(),
            &status.current_limit,
            &status.duration_until_reset,
        ) {
            listed.insert(Difference::QuotaMode);
            status.code = "OVER_LIMIT".to_owned();
            status.duration_until_reset = limit
                .unit()
                .map(|unit| format!("{}s", unit.until_reset(now)));
        }
    }
    if listed.contains(&Difference::QuotaMode) && !modes.shadow {
        // Unlimited rules have no mode.
        let counted = answer
            .statuses
            .iter()
            .zip(&quota)
            .filter(|(status, quota)| **quota && status.limit_remaining != u32::MAX);
        if counted
            .into_iter()
            .all(|(status, _)| status.code == "OVER_LIMIT")
        {
            answer.overall_code = "OVER_LIMIT".to_owned();
        }
    }
    answer
}
