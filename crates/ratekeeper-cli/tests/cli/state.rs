//! State files that are damaged, in the way, or cannot be written.

use crate::owed::owed;
use crate::support::{self, Ratekeeper, http, write};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{CounterKey, Extra, Once, Request, Step, Until};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{Signal, eventually};
use ratekeeper_testkit::ratekeeper::Setup;
use ratekeeper_testkit::redis::Server;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::{TempDir, tempdir};

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 1h, limit: 3 } }\n";

fn folder() -> TempDir {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    fs::create_dir(folder.path().join("data")).expect("folders can be made");
    folder
}

fn setup(folder: &Path) -> Setup {
    support::serve(folder).args("--rules rules.yaml --state data/counters.state")
}

fn serve(folder: &Path) -> Ratekeeper {
    setup(folder).start()
}

/// The complaints of a start that has to be refused.
fn refused(folder: &Path) -> String {
    setup(folder).run().refused("")
}

#[test]
fn a_file_damaged_in_any_way_is_set_aside_and_the_service_starts() {
    let whole = {
        let folder = folder();
        let service = serve(folder.path());
        service.check(&[("user", "ada")]);
        assert!(service.stop().success());
        fs::read(folder.path().join("data/counters.state")).expect("it was saved")
    };
    let mut flipped = whole.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    for (damage, bytes) in [
        ("empty", Vec::new()),
        ("zeroed", vec![0; whole.len()]),
        ("a few bytes", whole[..5].to_vec()),
        ("short", whole[..whole.len() - 3].to_vec()),
        ("without its beginning", whole[9..].to_vec()),
        ("a bit flipped", flipped),
        ("text", b"hello\n".to_vec()),
    ] {
        let folder = folder();
        let state = folder.path().join("data/counters.state");
        fs::write(&state, &bytes).expect("files can be written");
        let service = serve(folder.path());
        assert_eq!(
            service.check(&[("user", "ada")])["remaining"],
            2,
            "{damage}"
        );
        let aside = fs::read(folder.path().join("data/counters.state.damaged"));
        assert_eq!(aside.expect(damage), bytes, "{damage}");
        assert!(service.log().contains("counters.state.damaged"), "{damage}");
        let counted = "ratelimit_state_set_aside_total 1";
        assert!(service.metrics().contains(counted), "{damage}");
        assert!(service.stop().success(), "{damage}");
        // What it saves from then on is good again.
        let service = serve(folder.path());
        assert_eq!(
            service.check(&[("user", "ada")])["remaining"],
            1,
            "{damage}"
        );
    }
}

/// A smaller store forgets, which operators would otherwise take for a fault.
#[test]
fn what_has_no_room_after_a_restart_is_told() {
    // Decades, no edge of which is near.
    let window = Micros::from_secs(10_000 * 86_400);
    let spec = LimitSpec::new(Algorithm::FixedWindow, 10, window);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = Timestamp::from_secs(now.expect("it is later").as_secs());
    let limit = Limit::try_new(spec).expect("a valid limit");
    let large = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    for number in 0..20_000_u64 {
        let key = CounterKey {
            subject: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            identity: number,
        };
        let extra = Extra {
            once: Some(Once {
                id: u128::from(number),
                until: Until::After(window),
                content: 0,
            }),
            ..Extra::default()
        };
        let steps = [Step::new(key, limit)];
        let request = Request {
            extra: Some(&extra),
            ..Request::new(&steps, Mode::default(), now)
        };
        assert!(large.decide_now(&request).allowed);
    }
    let folder = folder();
    let mut file = Vec::new();
    // A hash key, and the slots of no rule.
    let header = [&[7; 16][..], &[0; 4]].concat();
    large.save(&mut file, &header, now).expect("it is memory");
    let state = folder.path().join("data/counters.state");
    fs::write(state, file).expect("files can be written");

    let service = setup(folder.path()).args("--memory-limit 1MiB").start();
    let said = service.wait_for_log("no room");
    let line = said.lines().find(|line| line.contains("no room"));
    let line = line.expect("it is there");
    for dropped in ["counters", "requests"] {
        assert!(!line.contains(&format!("{dropped}=0")), "{line}");
        assert_contains(line, dropped);
    }
}

#[test]
fn a_folder_that_was_deleted_is_made_again() {
    let folder = folder();
    let service = serve(folder.path());
    service.check(&[("user", "ada")]);
    // A save may be under way, and would put a file into a folder that is being emptied.
    let gone = folder.path().join("gone");
    fs::rename(folder.path().join("data"), &gone).expect("folders can be renamed");
    fs::remove_dir_all(gone).expect("folders can be removed");
    assert!(service.stop().success());
    assert!(folder.path().join("data/counters.state").is_file());
    assert!(folder.path().join("data/counters.state.lock").is_file());
    let service = serve(folder.path());
    assert_eq!(service.check(&[("user", "ada")])["remaining"], 1);
}

#[test]
fn failed_saves_are_counted_and_in_readyz() {
    let folder = folder();
    // A folder where the new file is written cannot be replaced by it.
    let in_the_way = folder.path().join("data/counters.state.tmp");
    fs::create_dir(&in_the_way).expect("folders can be made");
    let service = serve(folder.path());
    eventually("a failed save is counted", || {
        !service
            .metrics()
            .contains(r#"ratelimit_state_saves_total{result="error"} 0"#)
    });
    let (status, readyz) = http(service.port, "GET", "/readyz", "");
    assert_eq!(status, 200, "a node that cannot save still serves");
    assert_contains(&readyz, "counters cannot be saved");
    // It is logged after it is counted.
    let said = service.wait_for_log("counters cannot be saved");
    assert_eq!(
        said.matches("counters cannot be saved").count(),
        1,
        "{said}"
    );

    fs::remove_dir(&in_the_way).expect("folders can be removed");
    // It tries again every ten seconds.
    eventually("it saves again", || {
        !service
            .metrics()
            .contains(r#"ratelimit_state_saves_total{result="success"} 0"#)
    });
    let readyz = http(service.port, "GET", "/readyz", "").1;
    assert!(!readyz.contains("cannot be saved"), "{readyz}");
}

/// Counting from zero would let more pass than the limit, and the next save would write over it.
#[test]
fn a_file_of_a_later_version_is_refused_and_left_as_it_is() {
    let folder = folder();
    let service = serve(folder.path());
    service.check(&[("user", "ada")]);
    assert!(service.stop().success());
    let path = folder.path().join("data/counters.state");
    let mut later = fs::read(&path).expect("it was saved");
    later[8] = 200;
    fs::write(&path, &later).expect("files can be written");
    let said = refused(folder.path());
    let knows = "--state data/counters.state: the state file is of format 200, and this version of Ratekeeper knows format 4: a later version wrote it; run that one, or move it away";
    assert_contains(&said, knows);
    assert_eq!(fs::read(&path).expect("it is there"), later);
}

/// A flood would otherwise take another share of the memory after each restart.
#[test]
fn a_rule_keeps_to_its_share_of_the_memory_over_a_restart() {
    let folder = folder();
    let rule = |key: &str| {
        format!(
            "- {{ key: {key}, rate_limit: {{ window: 10000d, limit: 1, algorithm: fixed_window }} }}\n"
        )
    };
    let flooded = |rules: &[&str], names: &str| {
        let rules: String = rules.iter().map(|key| rule(key)).collect();
        let rules = format!("domain: d\ndescriptors:\n{rules}");
        write(folder.path(), "rules.yaml", &rules);
        let memory = "--memory-limit 1MiB --max-share 10%";
        let service = setup(folder.path()).args(memory).start();
        for part in 0..5 {
            let checks: Vec<_> = (0..1_000)
                .map(|user| {
                    let user = format!("{names}-{part}-{user}");
                    let entries = json!([{ "key": "user", "value": user }]);
                    json!({ "domain": "d", "descriptors": [{ "entries": entries }] })
                })
                .collect();
            let checks = json!({ "checks": checks }).to_string();
            let (status, said) = http(service.port, "POST", "/v1/checks", &checks);
            assert_eq!(status, 200, "{said}");
        }
        let counters = service.metric("ratelimit_store_counters");
        assert!(service.stop().success());
        counters
    };
    let share = flooded(&["user"], "before");
    assert!((1..2_000).contains(&share), "{share} of 5,000 have room");
    // The rule is another one by its number, and its counters are still its own.
    assert_eq!(flooded(&["other", "user"], "after"), share);
}

/// Counters of `consistency: local` are in this process, beside those in Redis.
#[test]
fn with_redis_it_is_said_which_counters_start_afresh() {
    let (server, folder) = (Server::start(), folder());
    let store = format!("--store redis://127.0.0.1:{}", server.port());
    let service = setup(folder.path()).args(store.as_str()).start();
    let said = service.wait_for_log("save no counters");
    assert_contains(&said, "consistency: local");
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_refused_at_once() {
    type Make = fn(&Path);
    let make: [(&str, Make); 3] = [
        ("a FIFO", |path| {
            let made = Command::new("mkfifo").arg(path).status();
            assert!(made.expect("mkfifo starts").success());
        }),
        ("a socket", |path| {
            drop(std::os::unix::net::UnixListener::bind(path).expect("a socket can be made"));
        }),
        ("a folder", |path| {
            fs::create_dir(path).expect("folders can be made")
        }),
    ];
    for name in ["counters.state", "counters.state.lock"] {
        for (kind, make) in &make {
            let folder = folder();
            let path = folder.path().join("data").join(name);
            make(&path);
            let err = refused(folder.path());
            assert!(err.contains(kind) && err.contains(name), "{kind}: {err}");
            assert!(path.exists(), "{kind} was taken away");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_device_is_refused_and_left_alone() {
    let folder = folder();
    let link = folder.path().join("data/counters.state");
    std::os::unix::fs::symlink("/dev/null", &link).expect("links can be made");
    let err = refused(folder.path());
    assert_contains(&err, "a device");
}

#[cfg(unix)]
#[test]
fn a_lock_that_is_a_link_is_refused_and_what_it_names_is_kept() {
    let folder = folder();
    let target = write(folder.path(), "precious.txt", "precious");
    let lock = folder.path().join("data/counters.state.lock");
    std::os::unix::fs::symlink(&target, &lock).expect("links can be made");
    let err = refused(folder.path());
    assert_eq!(
        fs::read_to_string(&target).expect("it is there"),
        "precious"
    );
    assert_contains(&err, "symbolic link");

    fs::remove_file(&lock).expect("links can be removed");
    fs::hard_link(&target, &lock).expect("links can be made");
    assert!(serve(folder.path()).stop().success());
    assert_eq!(
        fs::read_to_string(&target).expect("it is there"),
        "precious"
    );
}

/// A supervisor that stops a node may lose patience: what a crash would lose is saved before a store is waited for.
#[test]
fn the_last_save_does_not_wait_for_a_store_that_is_away() {
    let mut redis = Server::start();
    let folder = folder();
    let rules =
        format!("{RULES}- {{ key: far, store: far, rate_limit: {{ window: 1h, limit: 3 }} }}\n");
    write(folder.path(), "rules.yaml", &rules);
    let settings = format!(
        "stores: {{ far: {{ url: 'redis://127.0.0.1:{}/' }} }}\n",
        redis.port()
    );
    let service = setup(folder.path()).settings(&settings).start();
    eventually("the store decides", || {
        service.check(&[("far", "warm")])["degraded"] == false
    });
    redis.process().kill();
    eventually("hits are owed to it", || {
        service.check(&[("far", "owed")]);
        owed(&service, "owed") > 0
    });
    let state = folder.path().join("data/counters.state");
    let saved_at = || fs::metadata(&state).and_then(|found| found.modified()).ok();
    let before = saved_at();
    service.process.signal(Signal::TERM);
    service.wait_for_log("waiting for the store to count hits");
    eventually("the counters are saved", || saved_at() != before);
    assert!(!service.log().contains("the store did not answer in time"));
    assert!(service.stop().success());
}
