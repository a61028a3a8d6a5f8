//! Puts load on a real server of ours and checks that the counts add up.

mod support;

use std::time::Duration;

use ratekeeper_bench::{
    HttpPath, Keys, Load, LoadError, Over, Pace, Question, Service, first_answer, run,
};
use support::TestServer;

const RULES: &str = "domain: d
descriptors:
- { key: user, rate_limit: { window: 1h, limit: 1000000 } }
- { key: scarce, rate_limit: { window: 1h, limit: 5 } }
";

fn question() -> Question {
    Question::new("d", &[("user", "{key}")])
}

fn short(target: String, service: Service) -> Load {
    let mut load = Load::new(target, service);
    load.warm_up = Duration::from_millis(20);
    load.duration = Duration::from_millis(300);
    load
}

/// The same at a pace at which every request counts, however late its answer comes on a busy machine.
fn paced(target: String, service: Service) -> Load {
    let mut load = short(target, service);
    load.pace = Pace::Open { per_second: 300.0 };
    load
}

#[test]
fn a_closed_loop_counts_what_the_server_decided() {
    let server = TestServer::start(RULES);
    let mut load = short(server.grpc(), Service::Rls(question()));
    load.keys = "zipf:50".parse().expect("a spread");
    load.threads = 2;
    load.warm_up = Duration::ZERO;
    load.duration = Duration::from_secs(2);
    let mut looks = 0;
    let report = run(&load, |progress| {
        looks += 1;
        assert!(progress.total == Duration::from_secs(2));
    })
    .expect("it runs");
    assert!(looks > 0);
    assert!(report.errors.is_empty(), "{report}");
    assert!(report.requests > 0, "{report}");
    assert_eq!(report.decisions, report.requests);
    assert_eq!((report.allowed, report.denied), (report.decisions, 0));
    // Some were answered outside the window, at most one per stream at its end.
    let decided = server.decisions();
    assert!(decided >= report.decisions, "{decided} {report}");
    assert!(decided <= report.decisions + 64, "{decided} {report}");
    assert!(report.latency.p50_us > 0.0 && report.latency.p50_us <= report.latency.p99_us);
    assert!(report.latency.p99_us <= report.latency.max_us);
    assert!(report.answer_bytes_min > 5 && report.answer_bytes_min <= report.answer_bytes_max);
    assert!(report.lateness.is_none());
}

#[test]
fn an_open_loop_sends_what_is_due_and_no_more() {
    let server = TestServer::start(RULES);
    let mut load = short(server.grpc(), Service::Rls(question()));
    load.pace = Pace::Open { per_second: 1000.0 };
    load.pid = Some(std::process::id());
    let report = run(&load, |_| {}).expect("it runs");
    assert!(report.errors.is_empty(), "{report}");
    assert_eq!(report.requests, 300, "{report}");
    assert_eq!(report.offered_per_second, Some(1000.0));
    assert!(report.lateness.is_some());
    let server = report.server.expect("a process was watched");
    assert!(server.cpu_us_per_decision > 0.0 && server.resident_bytes > 0);
}

#[test]
fn denials_are_told_apart_over_every_transport() {
    let server = TestServer::start(RULES);
    let scarce = || Question::new("d", &[("scarce", "{key}")]);
    let services = [
        (server.grpc(), Service::Rls(scarce())),
        (server.http(), Service::Http(HttpPath::Check, scarce())),
        (server.http(), Service::Http(HttpPath::Json, scarce())),
        (
            server.http(),
            Service::Batch {
                over: Over::Http,
                question: scarce(),
                size: 10,
            },
        ),
        (
            server.grpc(),
            Service::Batch {
                over: Over::Grpc,
                question: scarce(),
                size: 10,
            },
        ),
    ];
    let mut allowed = 0;
    for (target, service) in services {
        let name = service.name();
        let mut load = paced(target, service);
        load.warm_up = Duration::ZERO;
        let report = run(&load, |_| {}).expect("it runs");
        assert!(report.errors.is_empty(), "{report}");
        assert!(report.denied > 0, "{name}: {report}");
        assert_eq!(report.allowed + report.denied, report.decisions);
        let size = report.decisions / report.requests;
        assert_eq!(
            size,
            if name.starts_with("batch") { 10 } else { 1 },
            "{name}"
        );
        allowed += report.allowed;
    }
    assert_eq!(allowed, 5, "there were five to have over all of them");
}

#[test]
fn refusals_are_errors_by_kind() {
    let server = TestServer::start(RULES);
    let nothing = Question::new("", &[("user", "{key}")]);
    let report =
        run(&paced(server.grpc(), Service::Rls(nothing.clone())), |_| {}).expect("it runs");
    assert_eq!(report.requests, 0);
    assert_eq!(
        report.errors.keys().collect::<Vec<_>>(),
        ["grpc 3"],
        "{report}"
    );
    assert!(report.failed() > 0);
    let check = Service::Http(HttpPath::Check, nothing);
    let report = run(&paced(server.http(), check), |_| {}).expect("it runs");
    assert_eq!(
        report.errors.keys().collect::<Vec<_>>(),
        ["http 400"],
        "{report}"
    );
}

#[test]
fn a_server_that_goes_away_is_told_of() {
    let server = TestServer::start(RULES);
    let mut load = short(server.grpc(), Service::Rls(question()));
    load.duration = Duration::from_secs(4);
    let mut server = Some(server);
    let report = run(&load, |progress| {
        if progress.decisions > 0 {
            server.take();
        }
    })
    .expect("it runs to its end");
    assert!(server.is_none(), "it was stopped on the way");
    assert!(report.errors.contains_key("cannot connect"), "{report}");
    assert!(report.to_string().contains("failed"), "{report}");
}

#[test]
fn the_first_answer_is_the_message_itself() {
    let server = TestServer::start(RULES);
    let answer = first_answer(&short(server.grpc(), Service::Rls(question()))).expect("an answer");
    assert_eq!(
        answer.get(..2),
        Some(&[8, 1][..]),
        "OK comes first: {answer:?}"
    );
    let constant = TestServer::constant(RULES, &answer);
    let load = paced(constant.grpc(), Service::Rls(question()));
    assert_eq!(first_answer(&load).expect("an answer"), answer);
    let report = run(&load, |_| {}).expect("it runs");
    assert!(report.errors.is_empty() && report.allowed > 0, "{report}");
    assert_eq!(report.answer_bytes_min, answer.len() + 5);
    assert_eq!(report.answer_bytes_max, answer.len() + 5);
    assert_eq!(constant.decisions(), 0, "it decides nothing");
}

#[test]
fn an_invalid_load_is_refused_before_anything_is_sent() {
    let load = || Load::new("127.0.0.1:1", Service::Rls(question()));
    let refused = |change: &dyn Fn(&mut Load)| {
        let mut load = load();
        change(&mut load);
        match run(&load, |_| {}) {
            Err(LoadError::Invalid(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&|load| load.connections = 0).contains("connections: 0"));
    assert!(refused(&|load| load.streams = 1001).contains("streams: 1001"));
    assert!(refused(&|load| load.duration = Duration::ZERO).contains("duration"));
    assert!(refused(&|load| load.pace = Pace::Open { per_second: 0.0 }).contains("rate"));
    assert!(
        refused(&|load| load.pace = Pace::Open {
            per_second: f64::NAN
        })
        .contains("rate")
    );
    assert!(
        refused(&|load| {
            load.service = Service::Http(HttpPath::Check, question());
        })
        .contains("more connections instead of streams")
    );
    let without_a_place = Question::new("d", &[("user", "ada")]);
    assert!(
        refused(&|load| {
            load.service = Service::Rls(without_a_place.clone());
            load.keys = Keys::Uniform(2);
        })
        .contains("{key}")
    );
    assert!(matches!(
        run(&Load::new("nowhere", Service::Rls(question())), |_| {}),
        Err(LoadError::Target { .. })
    ));
    let refused = run(&load(), |_| {})
        .expect_err("the port is closed")
        .to_string();
    assert!(
        refused.contains("127.0.0.1:1") && refused.contains("grpc"),
        "{refused}"
    );
    let mut watched = load();
    watched.pid = Some(u32::MAX);
    assert!(matches!(
        run(&watched, |_| {}),
        Err(LoadError::Process { .. })
    ));
}
