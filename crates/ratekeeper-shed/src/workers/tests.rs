#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of tests are small"
)]

use super::*;

const TERMS: WorkerTerms = WorkerTerms {
    good_percent: 70,
    bad_percent: 80,
};

/// A service with room for 1,000 requests a second, sampled every 100 ms.
struct Service {
    control: UtilisationControl,
    now: Timestamp,
    shed: f64,
}

impl Service {
    fn new() -> Self {
        Self {
            control: UtilisationControl::new(TERMS),
            now: Timestamp::from_secs(1),
            shed: 0.0,
        }
    }

    fn drive(&mut self, ticks: u32, offered: f64) -> f64 {
        for _ in 0..ticks {
            self.now = self.now.after(TICK);
            let passed = offered * (1.0 - self.shed);
            let load = LoadSample {
                utilisation: passed / 1_000.0,
                arrived: (offered / 10.0) as u32,
                passed: (passed / 10.0) as u32,
            };
            self.shed = self.control.on_sample(self.now, load, Effect::Enforced);
        }
        offered * (1.0 - self.shed) / 1_000.0
    }
}

#[test]
fn a_load_within_bounds_is_left_alone() {
    let mut service = Service::new();
    service.drive(1_000, 790.0);
    assert_eq!(service.shed, 0.0);
}

#[test]
fn a_short_peak_sheds_nothing() {
    let mut service = Service::new();
    service.drive(100, 500.0);
    service.drive(3, 2_000.0);
    assert_eq!(service.shed, 0.0);
    service.drive(100, 500.0);
    assert_eq!(service.shed, 0.0);
}

#[test]
fn overload_is_shed_until_utilisation_is_in_the_dead_zone_and_stays_there() {
    let mut service = Service::new();
    service.drive(50, 4_000.0);
    for _ in 0..600 {
        let used = service.drive(1, 4_000.0);
        assert!((0.69..=0.83).contains(&used), "{used}");
    }
    // Nothing moves in the dead zone.
    let shed = service.shed;
    service.drive(100, 4_000.0);
    assert!((service.shed - shed).abs() < 0.01);
}

#[test]
fn the_end_of_an_overload_ends_shedding_within_a_second() {
    let mut service = Service::new();
    service.drive(100, 4_000.0);
    assert!(service.shed > 0.7);
    service.drive(10, 500.0);
    assert_eq!(service.shed, 0.0);
}

#[test]
fn a_stalled_sampler_and_a_clock_step_leave_something_to_pass() {
    let mut service = Service::new();
    service.drive(100, 4_000.0);
    for now in [Timestamp::from_secs(90_000), Timestamp::EPOCH] {
        service.now = now;
        let used = service.drive(100, 4_000.0);
        assert!((0.6..0.9).contains(&used), "{used}");
    }
}

#[test]
fn in_shadow_mode_it_estimates_and_does_not_wind_up() {
    let mut service = Service::new();
    for _ in 0..100 {
        service.now = service.now.after(TICK);
        let load = LoadSample {
            utilisation: 2.0,
            arrived: 200,
            passed: 200,
        };
        service.shed = service.control.on_sample(service.now, load, Effect::Shadow);
    }
    assert!((service.shed - 0.6).abs() < 0.01, "{}", service.shed);
    // Once it is on, that is about what is to be shed.
    for _ in 0..50 {
        let used = service.drive(1, 2_000.0);
        assert!((0.69..=0.95).contains(&used), "{used}");
    }
    // In shadow mode the end of an overload ends it at once.
    service.now = service.now.after(TICK);
    for _ in 0..10 {
        service.now = service.now.after(TICK);
        let load = LoadSample {
            utilisation: 0.5,
            arrived: 50,
            passed: 50,
        };
        service.shed = service.control.on_sample(service.now, load, Effect::Shadow);
    }
    assert_eq!(service.shed, 0.0);
}

#[test]
fn one_caller_takes_each_sample() {
    let shedder = WorkerShedder::default();
    let at = Timestamp::from_secs(1);
    assert!(shedder.is_due(at));
    assert!(!shedder.is_due(at));
    assert!(!shedder.is_due(at.after(Micros::from_millis(99))));
    assert!(shedder.is_due(at.after(TICK)));
    assert!(shedder.is_due(Timestamp::EPOCH), "set back");
}

#[test]
fn without_requests_there_is_nothing_to_shed() {
    let shedder = WorkerShedder::default();
    let classes = ClassCount::new(2);
    assert_eq!(shedder.state(Timestamp::EPOCH), None);
    let mut now = Timestamp::from_secs(1);
    for _ in 0..30 {
        for tenant in 0..100 {
            shedder.judge(Round::at(now), Class::new(0), classes, mix(tenant));
        }
        shedder.on_sample(now, TERMS, 2.0, Effect::Enforced);
        now = now.after(TICK);
    }
    let state = shedder.state(now).expect("a sample was taken a moment ago");
    assert!(
        state.share_shed > 0.1 && state.utilisation > 1.9,
        "{state:?}"
    );
    assert_ne!(state.threshold, Threshold::NOTHING);
    assert_eq!(shedder.state(now.after(STALE)), None);
}

#[test]
fn a_pause_makes_demand_fade_as_requests_do() {
    let shedder = WorkerShedder::default();
    let classes = ClassCount::new(2);
    let mut now = Timestamp::from_secs(1);
    let judge = |tenant: u64, now| {
        shedder
            .judge(Round::at(now), Class::new(0), classes, mix(tenant))
            .share
    };
    for _ in 0..30 {
        for tenant in (0..100).map(|_| 7).chain(100..110) {
            judge(tenant, now);
        }
        shedder.on_sample(now, TERMS, 0.5, Effect::Enforced);
        now = now.after(TICK);
    }
    let storm: Vec<_> = (0..100).map(|_| judge(7, now)).collect();
    assert!(storm.contains(&Share::Beyond));
    now = now.after(Micros::from_secs(60));
    shedder.on_sample(now, TERMS, 0.5, Effect::Enforced);
    let calm: Vec<_> = (0..20)
        .flat_map(|round| [judge(7, now), judge(100 + round % 10, now)])
        .collect();
    assert!(!calm.contains(&Share::Beyond), "{calm:?}");
}

#[test]
fn the_least_important_go_first_and_the_same_tenants_for_an_hour() {
    let shedder = WorkerShedder::default();
    let classes = ClassCount::new(2);
    let (low, high) = (Class::new(0), Class::new(1));
    let mut now = Timestamp::from_secs(7_200);
    let round = |utilisation: Option<f64>, now: Timestamp| {
        let of = |class| {
            let tenants = 0..200_u64;
            let hour = Round::at(now);
            let sheds = |tenant: &u64| shedder.judge(hour, class, classes, mix(*tenant)).is_shed;
            tenants.filter(sheds).collect::<Vec<_>>()
        };
        let shed = (of(low), of(high));
        if let Some(utilisation) = utilisation {
            shedder.on_sample(now, TERMS, utilisation, Effect::Enforced);
        }
        shed
    };
    for _ in 0..30 {
        round(Some(1.0), now);
        now = now.after(TICK);
    }
    let (first, critical) = round(None, now);
    assert!(!first.is_empty() && first.len() < 200, "{}", first.len());
    assert_eq!(critical, []);
    let (again, _) = round(None, now.after(Micros::from_secs(60)));
    // Only the tenants on the threshold's own rung, a sixteenth of them, may differ.
    let differ = first.iter().filter(|it| !again.contains(it)).count();
    assert!(differ <= 20, "{differ}");
    let (later, _) = round(None, now.after(Micros::from_secs(3_600)));
    let differ = first.iter().filter(|it| !later.contains(it)).count();
    assert!(differ > 20, "{differ}");
}
