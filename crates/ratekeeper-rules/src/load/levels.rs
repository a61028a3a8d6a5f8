//! Compiles the service levels of all files into a domain of their own.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Options;
use crate::id::Draft;
use crate::parse::descriptors::{Compiler, DomainContext};
use crate::parse::levels::anybody;
use crate::parse::policy::Policy;
use crate::parse::root::Root;
use crate::report::Report;
use crate::slas::conflicts::Taken;
use crate::slas::{SERVICE_LEVELS, ServiceLevels};
use crate::yaml::Mark;
use crate::{Node, Rule, secret};

/// Returns the domain's nodes, none if no file has service levels, and the service levels.
pub(super) fn compile(
    roots: Vec<Root<'_>>,
    options: &Options,
    reports: &mut [Report<'_>],
    (rules, drafts): (&mut Vec<Rule>, &mut Vec<Draft>),
) -> (Vec<Node>, ServiceLevels) {
    if roots.iter().any(|root| !root.service_levels.is_empty()) {
        refuse_namesake(&roots, reports);
    }
    let domain: Arc<str> = SERVICE_LEVELS.into();
    let mut ids: HashMap<Box<str>, String> = HashMap::new();
    let mut taken = Taken::new(options.path_folding);
    let (mut levels, mut nodes) = (Vec::new(), Vec::new());
    for (file, (root, report)) in roots.into_iter().zip(reports).enumerate() {
        // Each service level's policy already includes the file's.
        let around = DomainContext {
            domain: &domain,
            policy: &Policy::default(),
            plans: &[],
            is_secret: &|key| secret::is_secret_by_default(key) || options.secrets.contains(key),
            profile: options.profile,
            on_store_failure: options.on_store_failure,
            path_folding: options.path_folding,
            path_keys: &options.path_keys,
            file,
        };
        for parsed in root.service_levels {
            let place = report.place(parsed.mark).to_string();
            if let Some(earlier) = ids.insert(parsed.id.value.clone(), place) {
                let message = format!("duplicate id '{}' of a service level", parsed.id.value);
                report.error(parsed.mark, message, format!("it is at {earlier} already"));
                continue;
            }
            let mark = parsed.mark;
            let mut compiler = Compiler {
                around: &around,
                report: &mut *report,
                rules: &mut *rules,
                drafts: &mut *drafts,
            };
            let (level, node) = compiler.service_level(parsed);
            if let Some((about, by)) = taken.take(&level) {
                let message = format!("{about} has a service level already: {by}");
                let help = "keep one of the two, or give one `enabled: false`";
                report.error(mark, message, help);
            }
            levels.push(level);
            nodes.push(node);
        }
    }
    let nodes = match nodes.is_empty() {
        true => Vec::new(),
        false => vec![anybody(nodes)],
    };
    (nodes, ServiceLevels::new(levels, options.path_folding))
}

fn refuse_namesake(roots: &[Root<'_>], reports: &mut [Report<'_>]) {
    for (root, report) in roots.iter().zip(reports) {
        let namesake: Option<Mark> = root
            .domain
            .filter(|domain| domain.value == SERVICE_LEVELS)
            .map(|domain| domain.mark);
        if let Some(mark) = namesake {
            let message =
                format!("`domain: {SERVICE_LEVELS}` is what service levels are counted under");
            report.error(mark, message, "give the domain another name");
        }
    }
}
