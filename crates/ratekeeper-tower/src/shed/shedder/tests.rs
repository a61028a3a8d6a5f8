use ratekeeper_rules::{Options, Source, load};

use super::*;

/// The rules that `shed` says.
fn rules(shed: &str) -> Arc<ShedRules> {
    let source = Source {
        name: "shed.yaml".to_owned(),
        text: format!("shed: {{ {shed} }}"),
    };
    let loaded = load(&[source], &Options::default());
    let loaded = loaded.unwrap_or_else(|refused| panic!("{refused}"));
    Arc::clone(loaded.rules.shed().expect("there are shedders"))
}

/// Rules with these classes, the least important first.
fn classes(names: &str) -> Arc<ShedRules> {
    rules(&format!(
        "priorities: [{names}], default: read, workers: {{}}"
    ))
}

#[test]
fn counts_follow_the_names_of_their_classes() {
    let shedder = Shedder::default();
    shedder.observe_rules(&classes("test, read, write"));
    for _ in 0..3 {
        shedder.record(Shed::Workers, Class::new(1));
    }
    shedder.record(Shed::Workers, Class::new(2));
    let counted = |shed| {
        let ShedCounts {
            rules, shed: rows, ..
        } = shedder.counts();
        let (_, row) = rows.into_iter().find(|(by, _)| *by == shed).expect("a row");
        let names = rules.priorities.iter().map(ToString::to_string);
        names.zip(row).collect::<Vec<_>>()
    };
    let named = |all: &[(&str, u64)]| {
        let named = all.iter().map(|(name, count)| ((*name).to_owned(), *count));
        named.collect::<Vec<_>>()
    };
    shedder.observe_rules(&classes("batch, test, read, critical"));
    let expected = [("batch", 0), ("test", 0), ("read", 3), ("critical", 0)];
    assert_eq!(counted(Shed::Workers), named(&expected));
    shedder.observe_rules(&classes("read, write"));
    assert_eq!(counted(Shed::Workers), named(&[("read", 3), ("write", 0)]));
}

#[test]
fn without_a_fleet_shedder_no_report_is_missed() {
    let shedder = Shedder::default();
    shedder.observe_rules(&rules("fleet: { capacity: 10 }"));
    shedder.on_fleet_report(None);
    assert!(shedder.uses_fleet() && shedder.fleet_usage().is_stale);
    shedder.follow(None);
    assert!(!shedder.uses_fleet() && !shedder.fleet_usage().is_stale);
}
