use super::*;

/// The ticks of an hour.
const HOUR: u64 = 360;

fn at(tick: u64) -> Timestamp {
    Timestamp::from_secs((80_000_000 + tick) * TICK_SECS)
}

/// Counts so many requests of a caller.
fn count(watch: &GrowthWatch, subject: u64, times: u64) {
    let (domain, rule) = ("d".into(), "d.r".into());
    let name = || format!("customer:{subject}").into();
    (0..times).for_each(|_| watch.count((&domain, &rule), subject, name));
}

/// The requests that were counted, for the rule first, then by caller.
fn drained(watch: &GrowthWatch) -> Vec<(Option<u64>, u64)> {
    let all = watch.drain().into_values();
    let mut all: Vec<_> = all.map(|it| (it.key.subject, it.count)).collect();
    all.sort_unstable();
    all
}

#[test]
fn requests_count_for_their_rule_and_for_each_of_a_number_of_callers() {
    let watch = GrowthWatch::default();
    count(&watch, 1, 3);
    count(&watch, 2, 1);
    assert_eq!(drained(&watch), [(None, 4), (Some(1), 3), (Some(2), 1)]);
    assert_eq!(drained(&watch), []);
    (0..CALLERS_MAX as u64 + 10).for_each(|caller| count(&watch, caller, 2));
    let all = drained(&watch);
    assert_eq!(all.len(), CALLERS_MAX);
    assert_eq!(all[0], (None, 2 * (CALLERS_MAX as u64 + 10)));
    assert!(all[1..].iter().all(|(_, count)| *count == 2));
}

/// Each of those that are counted stands for the others.
#[test]
fn of_many_requests_a_second_some_are_counted() {
    let watch = GrowthWatch::default();
    let seconds = [(1, 1), (1, 2_000), (2, 2_001), (8, 5 * 2_001)];
    for (second, (every, requests)) in (0..).zip(seconds) {
        let before = u64::from(watch.every.load(Ordering::Relaxed));
        count(&watch, 1, requests / before);
        watch.roll(Timestamp::from_secs(800_000_000 + second));
        assert_eq!(watch.every.load(Ordering::Relaxed), every, "{requests}");
    }
    let wanted = (0..80).filter(|_| watch.wants()).count();
    assert_eq!(wanted, 10);
    drop(drained(&watch));
    count(&watch, 1, 3);
    assert_eq!(drained(&watch), [(None, 24), (Some(1), 24)]);
}

#[test]
fn growth_is_told_while_it_goes_on_and_when_it_has_ended() {
    let watch = GrowthWatch::default();
    // In the end a little more than before is calm too.
    let requests_at = |tick| match tick {
        tick if tick < HOUR + 12 => 20,
        tick if tick < HOUR + 30 => 200,
        _ => 28,
    };
    let mut begun = 0;
    for tick in 0..HOUR + 44 {
        count(&watch, 7, requests_at(tick));
        let changes = watch.roll(at(tick));
        let began = |change: &&GrowthChange| matches!(change, GrowthChange::Began(_));
        begun += changes.iter().filter(began).count();
        if tick == HOUR + 29 {
            let active = watch.active();
            let subjects: Vec<_> = active.iter().map(|it| it.subject.as_deref()).collect();
            assert_eq!(subjects, [Some("customer:7"), None]);
            // It was found within a minute, over a minute.
            let minute = ratekeeper_core::Micros::from_secs(60);
            let is_found = |since: Timestamp| {
                let mut ticks = HOUR + 12..HOUR + 18;
                ticks.any(|tick| at(tick) == since.after(minute))
            };
            assert!(active.iter().all(|it| is_found(it.since)), "{active:?}");
            assert_eq!((begun, watch.begun(), watch.watched()), (2, 2, 2));
            assert_eq!(watch.ended(), []);
        }
    }
    let ended = watch.ended();
    assert_eq!(ended.len(), 2);
    for growth in ended {
        assert_eq!(growth.usual_per_minute, 120.0);
        assert_eq!(growth.peak_per_minute, 1_200);
    }
}
