use std::time::Duration;

use ratekeeper_core::Micros;
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_shed::mix;

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

/// A request of the class at `index` under these rules, by the tenant with this hash.
fn asks(rules: &Arc<ShedRules>, index: u8, tenant: u64) -> ShedContext {
    ShedContext {
        rules: Arc::clone(rules),
        class: Class::new(index),
        tenant,
        deadline: None,
    }
}

#[test]
fn requests_in_flight_keep_their_class_in_a_new_order() {
    let shedder = Arc::new(Shedder::default());
    let site = Arc::new(Site::default());
    let of = |names: &str| {
        rules(&format!(
            "priorities: [{names}], default: read, fleet: {{ capacity: 10 }}"
        ))
    };
    let before = of("read, critical");
    let enter = |index| shedder.admit(&site, &asks(&before, index, 0));
    let critical: Vec<_> = (0..9).map(|_| enter(1).expect("it passes")).collect();
    let read = enter(0).expect("it passes");
    shedder.observe_rules(&of("batch, read, critical"));
    assert_eq!(shedder.fleet_usage().own, 1);
    assert_eq!(shedder.counts().in_flight[..3], [0, 1, 9]);
    drop((critical, read));
    assert_eq!(shedder.counts().in_flight, [0; CLASSES_MAX]);
    // Names come and go, and some requests stay.
    let mut long = Vec::new();
    for number in 0..100 {
        let after = of(&format!("n{number}, read"));
        long.push(
            shedder
                .admit(&site, &asks(&after, 1, 0))
                .expect("the top class"),
        );
        let passes = shedder
            .admit(&site, &asks(&after, 0, 0))
            .expect("one at a time");
        assert_eq!(shedder.counts().in_flight[..2], [1, number + 1]);
        drop(passes);
    }
    drop(long);
    assert_eq!(shedder.counts().in_flight, [0; CLASSES_MAX]);
}

#[test]
fn in_shadow_mode_workers_leave_all_places_to_a_tenant() {
    let enters = |mode: &str| {
        let rules = rules(&format!(
            "workers: {{ mode: {mode} }}, adaptive: {{ min: 32, max: 32 }}"
        ));
        let (shedder, site) = (Arc::new(Shedder::default()), Arc::new(Site::default()));
        // It asks for so much more than others that most of it is beyond its share.
        let mut held = Vec::new();
        for number in 0..4_000 {
            let tenant = if number % 20 == 0 { number } else { 7 };
            let enters = shedder.admit(&site, &asks(&rules, 3, tenant));
            held.extend(enters.ok().filter(|_| tenant == 7));
        }
        held.len()
    };
    assert_eq!(enters("shadow"), enters("\"off\""));
}

#[test]
fn bounds_are_followed_without_requests() {
    let (shedder, site) = (Arc::new(Shedder::default()), Arc::new(Site::default()));
    shedder.observe_rules(&rules("adaptive: { max: 1 }"));
    site.follow_rules_of(&shedder);
    assert_eq!(site.state(&shedder).limit, 1);
}

#[test]
fn gateways_shed_the_same_tenants_whenever_they_began() {
    const TENANTS: u64 = 200;
    let rules = rules("workers: {}");
    let workers = rules.workers.expect("they are there");
    let shed = |ago: Duration| {
        let begun = Instant::now().checked_sub(ago).expect("a time");
        let shedder = Shedder {
            begun,
            ..Shedder::default()
        };
        let site = Site::default();
        let asks = |tenant| asks(&rules, 0, mix(tenant));
        // Three seconds of a service that is fully used.
        let mut now = Timestamp::from_micros(shedder.now().as_micros() - 2_900_000);
        for _ in 0..30 {
            for tenant in 0..TENANTS {
                let ShedContext { class, tenant, .. } = asks(tenant);
                let classes = ClassCount::new(4);
                site.workers.judge(round(), class, classes, tenant);
            }
            let terms = WorkerTerms::default();
            site.workers.on_sample(now, terms, 1.0, Effect::Enforced);
            assert!(site.workers.is_due(now));
            now = now.after(Micros::from_millis(100));
        }
        let is_shed = |tenant: &u64| {
            let asked = shedder.ask_workers(&site, workers, &asks(*tenant));
            asked.is_err()
        };
        (0..TENANTS).filter(is_shed).collect::<Vec<_>>()
    };
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let (young, old) = (shed(minute), shed(minute + 5 * hour));
    let fewer = young.len().min(old.len());
    assert!((20..180).contains(&fewer), "{fewer} are shed");
    // Only the tenants on the threshold's own rung, a sixteenth of them, may differ.
    let same = young.iter().filter(|it| old.contains(it)).count();
    assert!(same + 25 >= fewer, "{same} of {fewer} are the same");
}

#[test]
fn clients_that_give_up_late_shrink_the_limit() {
    let (shedder, site) = (Arc::new(Shedder::default()), Arc::new(Site::default()));
    let rules = rules("adaptive: {}");
    let limit = || site.state(&shedder).limit;
    let before = limit();
    let patience = Duration::from_secs(1);
    let begun = Instant::now()
        .checked_sub(patience)
        .expect("it is up for a second");
    let end = Instant::now() + 10 * patience;
    while limit() == before {
        let mut passage = shedder
            .admit(&site, &asks(&rules, 3, 0))
            .expect("it passes");
        passage.begun(Some(begun));
        passage.given_up();
        assert_eq!(site.state(&shedder).in_flight, 1);
        drop(passage);
        assert!(Instant::now() < end, "the limit stays");
    }
    assert!(limit() < before);
    // One that never reached the service says nothing.
    let now = limit();
    for _ in 0..1_000 {
        let mut passage = shedder
            .admit(&site, &asks(&rules, 3, 0))
            .expect("it passes");
        passage.begun(None);
        passage.given_up();
    }
    assert_eq!(limit(), now);
}
