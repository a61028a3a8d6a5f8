use super::*;
use ratekeeper_rules::{Options, Source, TenantKey, load};

fn at(minute: u64) -> Timestamp {
    Timestamp::from_secs(minute * 60 + 30)
}

/// A meter, and two rules of one domain.
struct Metered {
    meter: UsageMeter,
    key: TenantKey,
    rules: RuleSet,
}

impl Metered {
    fn new() -> Self {
        let text = "
domain: d
tenant: customer
evaluation: path
descriptors:
  - key: customer
    rate_limit: { window: 1m, limit: 5 }
    descriptors:
      - key: endpoint
        rate_limit: { window: 1m, limit: 2 }
";
        let source = Source {
            name: "d.yaml".to_owned(),
            text: text.to_owned(),
        };
        let loaded = load(&[source], &Options::default());
        let rules = loaded.expect("the rules are right").rules;
        Self {
            meter: UsageMeter::default(),
            key: TenantKey::from_bytes([1; 16]),
            rules,
        }
    }

    /// Counts a call that matched so many of the rules.
    fn call(&self, tenant: &str, minute: u64, allowed: bool, matched: usize) {
        let matched = self.rules.rules().iter().take(matched);
        let matched = matched.map(|rule| (rule, Counted::answered(allowed)));
        let tenant = self.key.hash(tenant);
        self.meter
            .count(at(minute), tenant, (&self.rules, matched), Some(allowed));
    }

    /// Allowed and denied calls by rule, by minute.
    fn by_minute(&self) -> Vec<(u64, bool, u64, u64)> {
        let counts = self.meter.counts();
        let counts = counts.iter();
        let mut counts: Vec<_> = counts
            .map(|it| (it.minute, it.tenant.is_some(), it.allowed, it.denied))
            .collect();
        counts.sort_unstable();
        counts
    }

    /// Allowed and denied calls by hour, of those that are not written.
    fn by_hour(&self) -> Vec<(u64, bool, u64, u64)> {
        let calls = self.meter.calls();
        let calls = calls.iter();
        let mut calls: Vec<_> = calls
            .map(|it| (it.hour, it.tenant.is_some(), it.allowed, it.denied))
            .collect();
        calls.sort_unstable();
        calls
    }
}

#[test]
fn counts_are_absolute_and_bounded() {
    let metered = Metered::new();
    let call = |tenant: &str, minute, allowed| metered.call(tenant, minute, allowed, 1);
    call("acme", 1, true);
    call("acme", 1, true);
    call("acme", 1, false);
    call("acme", 2, true);
    assert_eq!(metered.by_minute(), [(1, true, 2, 1), (2, true, 1, 0)]);
    call("acme", 1, true);
    let taken_again = metered.by_minute();
    assert_eq!(taken_again, [(1, true, 3, 1), (2, true, 1, 0)]);
    metered.meter.forget_before(at(2));
    let late = "late answers of the last minute still count";
    assert_eq!(metered.by_minute().len(), 2, "{late}");
    metered.meter.forget_before(at(3));
    assert_eq!(metered.by_minute(), [(2, true, 1, 0)]);

    for number in 0..(USAGE_ROWS_MAX as u64 * 3 / 2) {
        call(&number.to_string(), 3, true);
    }
    let counts = metered.meter.counts();
    let of_third: Vec<_> = counts.into_iter().filter(|it| it.minute == 3).collect();
    assert!(of_third.len() <= USAGE_ROWS_MAX + 1, "{}", of_third.len());
    let allowed = |counts: &[UsageCount]| counts.iter().map(|it| it.allowed).sum::<u64>();
    assert_eq!(allowed(&of_third), 150_000);
    let together = of_third.iter().filter(|it| it.tenant.is_none());
    assert_eq!(together.count(), 1);
    let by_hour = metered.by_hour();
    assert!(by_hour.len() <= USAGE_ROWS_MAX + 2, "{}", by_hour.len());
    let all: u64 = by_hour.iter().map(|(_, _, allowed, _)| allowed).sum();
    assert_eq!(all, 150_000 + 4, "and each call is in the hour once");
    // A database that is away for long costs old minutes, not memory.
    (4..20).for_each(|minute| call("acme", minute, true));
    assert!(metered.meter.lost() > 0);
    let counts = metered.meter.counts();
    let minutes = counts.iter().map(|it| it.minute).filter(|it| *it >= 4);
    let minutes: std::collections::HashSet<_> = minutes.collect();
    assert_eq!(minutes.len(), MINUTES_MAX);
}

#[test]
fn a_call_that_matches_two_rules_is_one_call() {
    let metered = Metered::new();
    metered.call("acme", 1, true, 2);
    metered.call("acme", 2, false, 1);
    metered.call("acme", 3, true, 0);
    assert_eq!(metered.by_minute().len(), 3, "one row a rule and minute");
    assert_eq!(metered.by_hour(), [(0, true, 1, 1)]);
}

#[test]
fn hours_are_told_until_they_are_written_and_kept_until_then() {
    let metered = Metered::new();
    metered.call("acme", 59, true, 1);
    metered.call("bob", 59, true, 1);
    let told = metered.meter.calls();
    assert_eq!(told.len(), 2);
    // One more, after they were told.
    metered.call("acme", 59, true, 1);
    metered.meter.written(&told);
    assert_eq!(
        metered.by_hour(),
        [(0, true, 2, 0)],
        "the sum, not what is new"
    );
    metered.meter.forget_before(at(70));
    assert_eq!(
        metered.by_hour(),
        [(0, true, 2, 0)],
        "not written, not dropped"
    );
    metered.meter.written(&metered.meter.calls());
    metered.call("bob", 60, true, 1);
    metered.meter.forget_before(at(60));
    metered.call("acme", 59, true, 1);
    assert_eq!(
        metered.by_hour(),
        [(0, true, 3, 0), (1, true, 1, 0)],
        "an answer that came late counts with its hour"
    );
    // A database that is away for a day costs old hours.
    (2..24).for_each(|hour| metered.call("acme", hour * 60, true, 1));
    let hours: Vec<_> = metered.by_hour().into_iter().map(|it| it.0).collect();
    assert_eq!(hours.last_chunk(), Some(&[21, 22, 23]));
    assert!(
        hours.len() <= 4,
        "bob's hour may lie in a part of its own: {hours:?}"
    );
}

#[test]
fn a_tenant_is_named_once_an_hour() {
    let metered = Metered::new();
    let name = |tenant: &str, minute| {
        let hash = metered.key.hash(tenant);
        let named = || Some(("d".into(), tenant.into()));
        metered.meter.name(at(minute), hash, named);
    };
    name("acme", 1);
    name("acme", 2);
    let names = metered.meter.take_names();
    let told: Vec<_> = names.iter().map(|it| (&*it.shown, it.hour)).collect();
    assert_eq!(told, [("acme", 0)]);
    name("acme", 3);
    assert_eq!(metered.meter.take_names(), []);
    name("acme", 61);
    metered.meter.put_back(names);
    let told: Vec<_> = metered
        .meter
        .take_names()
        .iter()
        .map(|it| it.hour)
        .collect();
    assert_eq!(told, [1], "a later name stays");
    for number in 0..(USAGE_ROWS_MAX * 3 / 2) {
        name(&number.to_string(), 62);
    }
    assert!(metered.meter.take_names().len() <= USAGE_ROWS_MAX);
}

#[test]
fn calls_that_are_counted_together_are_told_by_their_answers() {
    let metered = Metered::new();
    for number in 0..USAGE_ROWS_MAX * 3 / 2 {
        metered.call(&number.to_string(), 1, number.is_multiple_of(2), 1);
    }
    let together = |counts: &[(u64, bool, u64, u64)]| {
        let all = counts.iter().find(|(_, is_one, ..)| !is_one).copied();
        let of = |allowed: fn(&(u64, bool, u64, u64)) -> u64| counts.iter().map(allowed).sum();
        let sums: (u64, u64) = (of(|it| it.2), of(|it| it.3));
        assert_eq!(sums, (75_000, 75_000));
        all.expect("there are too many tenants")
    };
    let (_, _, allowed, denied) = together(&metered.by_minute());
    assert!(allowed > 20_000 && denied > 20_000, "{allowed} {denied}");
    assert_eq!(together(&metered.by_hour()), (0, false, allowed, denied));
    metered.meter.written(&metered.meter.calls());
    assert_eq!(metered.by_hour(), [], "all are written");
    metered.meter.forget_before(at(62));
    metered.call("acme", 62, true, 1);
    assert_eq!(metered.by_hour(), [(1, true, 1, 0)], "and then dropped");
}

#[test]
fn names_of_an_hour_are_bounded_though_some_were_taken() {
    let mut names = Names::default();
    let key = Metered::new().key;
    let name = |names: &mut Names, tenant: &str, hour| {
        names.observe(hour, ("d".into(), key.hash(tenant)), tenant.into(), 2);
    };
    for tenant in ["a", "a", "b"] {
        name(&mut names, tenant, 1);
    }
    assert_eq!(names.take().len(), 2, "one was there twice");
    name(&mut names, "c", 1);
    assert_eq!(names.take(), []);
    for tenant in ["c", "d", "e"] {
        name(&mut names, tenant, 2);
    }
    assert_eq!(names.take().len(), 2);
}

#[test]
fn each_hour_is_written_by_itself() {
    let metered = Metered::new();
    for hour in [0, 1] {
        let mut part = metered.meter.parts[0].lock();
        part.hour(hour).others.count.add(Counted::Allowed);
    }
    let mut part = metered.meter.parts[0].lock();
    for counted in [Counted::Allowed, Counted::Denied] {
        part.minute(7).others.add(counted);
    }
    drop(part);
    assert_eq!(metered.by_minute(), [(7, false, 1, 1)]);
    let told = metered.meter.calls();
    assert_eq!(told.len(), 2);
    metered.meter.written(&told[..1]);
    let left: Vec<_> = metered.meter.calls().iter().map(|it| it.hour).collect();
    assert_eq!(left, [1 - told[0].hour]);
    metered.meter.written(&told[1..]);
    assert_eq!(metered.by_hour(), []);
}

#[test]
fn an_hour_is_dropped_from_all_parts_or_from_none() {
    let metered = Metered::new();
    let count = |part: usize| {
        let mut part = metered.meter.parts[part].lock();
        part.hour(0).others.count.add(Counted::Allowed);
    };
    (0..PARTS).for_each(count);
    metered.meter.written(&metered.meter.calls());
    // Late, and so not written yet.
    count(3);
    metered.meter.forget_before(at(61));
    let all = (0, false, PARTS as u64 + 1, 0);
    assert_eq!(metered.by_hour(), [all], "in place of what was written");
    metered.meter.written(&metered.meter.calls());
    metered.meter.forget_before(at(61));
    let left = metered
        .meter
        .parts
        .iter()
        .map(|part| part.lock().hours.len());
    assert_eq!(left.sum::<usize>(), 0);
}

#[test]
fn names_that_are_put_back_are_bounded() {
    let key = Metered::new().key;
    let (mut names, mut taken) = (Names::default(), Vec::new());
    for hour in 1..4 {
        for name in ["a", "b"] {
            let key = ("d".into(), key.hash(&format!("{name}{hour}")));
            names.observe(hour, key, name.into(), 2);
        }
        // The database was away.
        taken.into_iter().for_each(|name| names.put_back(name, 2));
        taken = names.take();
        assert_eq!(taken.len(), 2, "{hour}");
    }
}

#[test]
fn what_no_reader_takes_is_counted_as_lost() {
    let mut part = Shard::default();
    (0..HOURS_MAX as u64 + 2).for_each(|hour| {
        part.hour(hour);
    });
    assert_eq!((part.lost, part.hours.len()), (2, HOURS_MAX));
    (0..MINUTES_MAX as u64 + 3).for_each(|minute| {
        part.minute(minute);
    });
    assert_eq!((part.lost, part.minutes.len()), (5, MINUTES_MAX));
}

#[test]
fn names_that_could_not_be_written_are_told_again() {
    let metered = Metered::new();
    let hash = metered.key.hash("acme");
    let named = || Some(("d".into(), "acme".into()));
    metered.meter.name(at(1), hash, named);
    let names = metered.meter.take_names();
    assert_eq!(names.len(), 1);
    metered.meter.put_back(names.clone());
    assert_eq!(metered.meter.take_names(), names);
}
