//! Rules that operators have switched, and requests of senders who are none.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use ratekeeper_limiter::RuleSwitch;

use super::family::{count_of, counter};
use super::rules::RuleRow;

pub(super) fn encode(
    rules: &[RuleRow],
    refused: [(&'static str, u64); 3],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let name = "ratelimit_rules_switched";
    let help = "Rules with a run-time switch, by its position";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for to in RuleSwitch::ALL {
        let count = rules.iter().filter(|row| row.switch == Some(to)).count() as u64;
        let labels = [("switch", to.name())];
        metric.encode_family(&labels)?.encode_gauge(&count)?;
    }
    let mut switched = rules
        .iter()
        .filter_map(|row| Some((row, row.switch?)))
        .peekable();
    if switched.peek().is_some() {
        let name = "ratelimit_rule_switched";
        let help = "1 for each rule with a run-time switch";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (row, to) in switched {
            let [domain, rule] = row.labels();
            let labels = [domain, rule, ("switch", to.name())];
            metric.encode_family(&labels)?.encode_gauge(&1_u64)?;
        }
    }
    let help = "Requests to the admin API refused because of their sender";
    let mut metric = counter(encoder, "ratelimit_admin_refusals", help)?;
    for (reason, count) in refused {
        count_of(&mut metric, [("reason", reason)], count)?;
    }
    Ok(())
}
