//! Every way in which people change files, on real ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use ratekeeper_limiter::{Limiter, LimiterOptions, Switches};
use ratekeeper_rules::{Options, ReadOptions};
use ratekeeper_store::{MemoryConfig, MemoryStore};
use ratekeeper_testkit::certificates::put;
use ratekeeper_testkit::fragile_log::FragileLog;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::access::{Access, KnownTokens};
use crate::app::App;
use crate::config::ServerConfig;
use crate::data_dir::fleet_switches::FleetSwitches;
use crate::data_dir::switches::SwitchFile;
use crate::server::maintenance;

/// Far more than any change needs; reached only where the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A reloader at work, and the limits that it has put in force.
struct Fixture {
    task: JoinHandle<()>,
    status: channel::Receiver<ReloadStatus>,
    wake: Arc<Notify>,
    quotas: Arc<Mutex<Vec<u64>>>,
    changes: Arc<Mutex<Vec<String>>>,
    writes: Arc<Writes>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fixture {
    /// Loads `path` and watches it; polling is left out unless `config` has it.
    fn start(path: &Path, config: WatchConfig) -> Self {
        let source = RulesSource {
            path: path.to_owned(),
            tenants: None,
            read: ReadOptions::default(),
            options: Options::default(),
        };
        let mut loader = RulesLoader::new(source);
        let loaded = loader.load();
        let quotas = Arc::new(Mutex::new(Vec::new()));
        let changes = Arc::new(Mutex::new(Vec::new()));
        let before = loaded.map(|loaded| loaded.rules).unwrap_or_default();
        quotas.lock().unwrap().extend(quota_of(&before));
        let (sender, status) = channel::channel(loader.reload_status().clone());
        let wake = Arc::new(Notify::new());
        let (put, note) = (Arc::clone(&quotas), Arc::clone(&changes));
        let before = Mutex::new(before);
        let apply = move |rules: RuleSet| {
            let mut before = before.lock().unwrap();
            let changes = rules.changes_since(&before);
            put.lock().unwrap().extend(quota_of(&rules));
            note.lock()
                .unwrap()
                .extend(changes.iter().map(ToString::to_string));
            *before = rules;
            changes
        };
        let mut reloader = Reloader::new(loader, config, sender, Arc::clone(&wake), apply);
        Self {
            writes: Arc::clone(&reloader.writes),
            task: tokio::spawn(async move { reloader.run().await }),
            status,
            wake,
            quotas,
            changes,
        }
    }

    async fn wait(&mut self, what: impl FnMut(&ReloadStatus) -> bool) -> ReloadStatus {
        timeout(PATIENCE, self.status.wait_for(what))
            .await
            .unwrap()
            .unwrap()
            .clone()
    }

    async fn accepted(&mut self, count: u64) -> ReloadStatus {
        self.wait(|status| status.accepted == count).await
    }

    /// Waits until a writer is waited for.
    async fn held_up(&self) {
        let held_up = async {
            while !self.writes.are_waited_for() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, held_up).await.unwrap();
    }

    /// The limit of the last rule of each set that has been in force, in order.
    fn quotas(&self) -> Vec<u64> {
        self.quotas.lock().unwrap().clone()
    }
}

fn quota_of(rules: &RuleSet) -> Option<u64> {
    Some(rules.rules().last()?.limited()?.quota())
}

/// Events only: a change that none of them shows is never seen.
fn by_events() -> WatchConfig {
    WatchConfig {
        enabled: true,
        quiet: Duration::from_millis(20),
        poll_interval: Duration::from_secs(3_600),
    }
}

fn rules(quota: u64) -> String {
    format!(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ unit: minute, requests_per_unit: {quota} }}\n"
    )
}

fn folder_with(quota: u64) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), rules(quota)).unwrap();
    (dir, folder)
}

#[tokio::test]
async fn a_file_written_in_place() {
    let (_dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    fs::write(folder.join("a.yaml"), rules(2)).unwrap();
    fixture.accepted(2).await;
    assert_eq!(fixture.quotas(), [1, 2]);
}

#[tokio::test]
async fn a_single_file_written_in_place_and_replaced() {
    let (dir, folder) = folder_with(1);
    let file = folder.join("a.yaml");
    let mut fixture = Fixture::start(&file, by_events());
    fs::write(&file, rules(2)).unwrap();
    fixture.accepted(2).await;
    // Replaced by a file of another folder; the watched inode is gone then.
    let elsewhere = dir.path().join("elsewhere");
    for quota in [3, 4] {
        fs::write(&elsewhere, rules(quota)).unwrap();
        fs::rename(&elsewhere, &file).unwrap();
        fixture.accepted(quota).await;
    }
    assert_eq!(fixture.quotas(), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_file_moved_within_the_folder_and_from_outside() {
    let (dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    fs::write(folder.join(".a.yaml.tmp"), rules(2)).unwrap();
    fs::rename(folder.join(".a.yaml.tmp"), folder.join("a.yaml")).unwrap();
    fixture.accepted(2).await;
    fs::write(dir.path().join("b"), rules(3)).unwrap();
    fs::rename(dir.path().join("b"), folder.join("a.yaml")).unwrap();
    fixture.accepted(3).await;
    assert_eq!(fixture.quotas(), [1, 2, 3]);
}

#[tokio::test]
async fn files_appear_and_go() {
    let (_dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    fs::write(
        folder.join("b.yaml"),
        rules(2).replace("domain: d", "domain: e"),
    )
    .unwrap();
    fixture.accepted(2).await;
    fs::remove_file(folder.join("b.yaml")).unwrap();
    fixture.accepted(3).await;
    fs::create_dir(folder.join("below")).unwrap();
    fs::write(
        folder.join("below/c.yaml"),
        rules(4).replace("domain: d", "domain: f"),
    )
    .unwrap();
    fixture.accepted(4).await;
    assert_eq!(fixture.quotas(), [1, 2, 1, 4]);
}

/// A folder as the kubelet fills it: files are links to `..data/…`, and `..data` is a link to
/// a folder with a time in its name, which is replaced by a rename.
#[tokio::test]
async fn a_config_map_is_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config");
    fs::create_dir(&folder).unwrap();
    let publish = |version: u64| {
        let target = format!("..2026_11_20_{version}");
        fs::create_dir(folder.join(&target)).unwrap();
        fs::write(folder.join(&target).join("a.yaml"), rules(version)).unwrap();
        symlink(&target, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        if version > 1 {
            fs::remove_dir_all(folder.join(format!("..2026_11_20_{}", version - 1))).unwrap();
        }
    };
    publish(1);
    symlink("..data/a.yaml", folder.join("a.yaml")).unwrap();
    let mut fixture = Fixture::start(&folder, by_events());
    for version in 2..5 {
        publish(version);
        fixture.accepted(version).await;
    }
    assert_eq!(fixture.quotas(), [1, 2, 3, 4]);
    assert_eq!(fixture.status.borrow().refused, 0);
}

/// envoyproxy/ratelimit's users do it like this: the folder itself is a link that is replaced.
#[tokio::test]
async fn a_link_above_the_folder_is_swapped() {
    let dir = tempfile::tempdir().unwrap();
    for quota in 1..4 {
        let folder = dir.path().join(format!("v{quota}/config"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.yaml"), rules(quota)).unwrap();
    }
    symlink("v1", dir.path().join("current")).unwrap();
    let mut fixture = Fixture::start(&dir.path().join("current/config"), by_events());
    for quota in 2..4 {
        symlink(format!("v{quota}"), dir.path().join("next")).unwrap();
        fs::rename(dir.path().join("next"), dir.path().join("current")).unwrap();
        fixture.accepted(quota).await;
    }
    assert_eq!(fixture.quotas(), [1, 2, 3]);
}

#[tokio::test]
async fn the_whole_folder_is_moved_away_and_replaced() {
    let (dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    let next = dir.path().join("next");
    fs::create_dir(&next).unwrap();
    fs::write(next.join("a.yaml"), rules(2)).unwrap();
    fs::rename(&folder, dir.path().join("old")).unwrap();
    fs::rename(&next, &folder).unwrap();
    fixture.accepted(2).await;
    fs::write(folder.join("a.yaml"), rules(3)).unwrap();
    fixture.accepted(3).await;
    assert_eq!(fixture.quotas(), [1, 2, 3]);
}

#[tokio::test]
async fn a_link_to_a_file_elsewhere_is_followed() {
    let (dir, folder) = folder_with(1);
    let target = dir.path().join("shared").join("real.yaml");
    fs::create_dir(dir.path().join("shared")).unwrap();
    fs::rename(folder.join("a.yaml"), &target).unwrap();
    symlink(&target, folder.join("a.yaml")).unwrap();
    let mut fixture = Fixture::start(&folder, by_events());
    fs::write(&target, rules(2)).unwrap();
    fixture.accepted(2).await;
    assert_eq!(fixture.quotas(), [1, 2]);
}

#[tokio::test]
async fn a_bad_set_is_refused_whole_and_once() {
    let (_dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    put(&folder.join("a.yaml"), &rules(2));
    put(&folder.join("b.yaml"), "domain: [");
    let status = fixture
        .wait(|status| status.refused == 1 && status.error.is_some())
        .await;
    assert!(status.error.unwrap().contains("b.yaml"));
    // Looking again finds the same set: no second refusal, and the good one comes back as it was.
    fixture.wake.notify_one();
    fs::remove_file(folder.join("b.yaml")).unwrap();
    let status = fixture.wait(|status| status.error.is_none()).await;
    assert_eq!(status.refused, 1);
    assert_eq!(fixture.quotas().last(), Some(&2));
}

#[tokio::test]
async fn going_back_to_what_is_in_force_is_no_reload() {
    let (_dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    put(&folder.join("a.yaml"), "domain: [");
    fixture.wait(|status| status.error.is_some()).await;
    put(&folder.join("a.yaml"), &rules(1));
    let status = fixture.wait(|status| status.error.is_none()).await;
    assert_eq!((status.accepted, status.refused), (1, 1));
    // What was refused before is news again.
    put(&folder.join("a.yaml"), "domain: [");
    fixture.wait(|status| status.refused == 2).await;
    assert_eq!(fixture.quotas(), [1]);
}

#[tokio::test]
async fn a_folder_that_is_gone_is_refused_until_it_is_back() {
    let (dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    fs::rename(&folder, dir.path().join("away")).unwrap();
    let status = fixture.wait(|status| status.error.is_some()).await;
    assert_eq!((status.accepted, status.refused), (1, 1));
    fs::rename(dir.path().join("away"), &folder).unwrap();
    fixture.wait(|status| status.error.is_none()).await;
    assert_eq!(fixture.quotas(), [1]);
}

/// Removing the files first and copying later must not let everyone through in between.
#[tokio::test]
async fn a_folder_that_is_emptied_keeps_the_last_rules() {
    let (dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    let aside = dir.path().join("aside.yaml");
    let only = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    fs::rename(only.path(), &aside).unwrap();
    let status = fixture.wait(|status| status.error.is_some()).await;
    assert!(status.error.as_deref().unwrap().contains("no rules file"));
    assert_eq!(fixture.quotas(), [1]);
    fs::rename(&aside, only.path()).unwrap();
    fixture.wait(|status| status.error.is_none()).await;
}

/// The longest pause of a writer that takes its time.
const PAUSE: Duration = Duration::from_millis(400);

/// A writer that takes its time: what it has written so far would load, and must not.
#[tokio::test]
async fn a_half_written_file_is_not_read() {
    // Where the machine makes a pause longer than that, the file is rightly taken for whole.
    for _ in 0..20 {
        let (_dir, folder) = folder_with(1);
        let config = WatchConfig {
            quiet: PAUSE,
            ..by_events()
        };
        let mut fixture = Fixture::start(&folder, config);
        if write_slowly(&folder.join("a.yaml")).await >= PAUSE / 2 {
            continue;
        }
        fixture.accepted(2).await;
        assert_eq!(fixture.quotas(), [1, 3]);
        assert_eq!(fixture.status.borrow().refused, 0);
        return;
    }
    panic!("this machine makes pauses all the time");
}

/// Writes rules line by line, and returns the longest time between two lines.
async fn write_slowly(path: &Path) -> Duration {
    use std::io::Write;

    let mut file = fs::File::create(path).unwrap();
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    let end = "  - key: l\n    rate_limit: { unit: minute, requests_per_unit: 3 }";
    for line in rules(2).lines().chain([end]) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        writeln!(file, "{line}").unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    longest
}

/// A writer that pauses for longer than readings are apart: its file is whole once it is closed, and no sooner.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_is_open_for_writing_is_waited_for() {
    use std::io::Write;

    let (_dir, folder) = folder_with(1);
    let config = WatchConfig {
        quiet: Duration::from_millis(100),
        ..by_events()
    };
    let mut fixture = Fixture::start(&folder, config);
    // Of the second change only an event tells, so files are watched from there on.
    for quota in [4, 5] {
        fs::write(folder.join("a.yaml"), rules(quota)).unwrap();
        fixture.accepted(quota - 2).await;
    }
    let mut file = fs::File::create(folder.join("a.yaml")).unwrap();
    file.write_all(rules(2).as_bytes()).unwrap();
    fixture.held_up().await;
    file.write_all(b"  - key: l\n    rate_limit: { unit: minute, requests_per_unit: 3 }\n")
        .unwrap();
    drop(file);
    fixture.accepted(4).await;
    assert_eq!(fixture.quotas(), [1, 4, 5, 3]);
}

/// A copy over a network makes its file first, and writes it once bytes have come.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_new_file_of_which_nothing_has_come_yet_is_waited_for() {
    use std::io::Write;

    let (_dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    for quota in [4, 5] {
        fs::write(folder.join("a.yaml"), rules(quota)).unwrap();
        fixture.accepted(quota - 2).await;
    }
    let mut file = fs::File::create(folder.join("b.yaml")).unwrap();
    fixture.held_up().await;
    file.write_all(rules(3).replace("domain: d", "domain: e").as_bytes())
        .unwrap();
    drop(file);
    let status = fixture.accepted(4).await;
    assert_eq!(status.refused, 0);
}

#[tokio::test]
async fn polling_sees_what_no_event_tells() {
    let (_dir, folder) = folder_with(1);
    let config = WatchConfig {
        poll_interval: Duration::from_millis(20),
        ..by_events()
    };
    let mut fixture = Fixture::start(&folder, config);
    // A hard link elsewhere writes the same file, and no event tells of it.
    let link = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
    fs::hard_link(folder.join("a.yaml"), link.path().join("a")).unwrap();
    fs::write(link.path().join("a"), rules(2)).unwrap();
    fixture.accepted(2).await;
    assert_eq!(fixture.quotas(), [1, 2]);
}

#[tokio::test]
async fn without_a_watch_a_wake_is_enough() {
    let (_dir, folder) = folder_with(1);
    let config = WatchConfig {
        enabled: false,
        ..by_events()
    };
    let mut fixture = Fixture::start(&folder, config);
    fs::write(folder.join("a.yaml"), rules(2)).unwrap();
    fixture.wake.notify_one();
    fixture.accepted(2).await;
    assert_eq!(fixture.quotas(), [1, 2]);
}

#[tokio::test]
async fn it_starts_without_rules_and_finds_them() {
    let (_dir, folder) = folder_with(1);
    put(&folder.join("a.yaml"), "domain: [");
    let mut fixture = Fixture::start(&folder, by_events());
    assert!(!fixture.status.borrow().is_loaded());
    put(&folder.join("a.yaml"), &rules(2));
    fixture.accepted(1).await;
    assert_eq!(fixture.quotas(), [2]);
}

#[tokio::test]
async fn what_a_change_does_to_counters_is_told() {
    let (_dir, folder) = folder_with(1);
    let mut fixture = Fixture::start(&folder, by_events());
    fs::write(folder.join("a.yaml"), rules(2)).unwrap();
    fixture.accepted(2).await;
    fs::write(folder.join("a.yaml"), rules(2).replace("minute", "hour")).unwrap();
    fixture.accepted(3).await;
    let changes = fixture.changes.lock().unwrap().clone();
    let [adjusted, afresh] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert!(adjusted.contains("keeps its usage"), "{adjusted}");
    assert!(afresh.starts_with("d.k starts afresh"), "{afresh}");
}

/// A set that makes us panic is not tried over and over, and the next one is taken.
#[tokio::test]
async fn a_panic_is_survived() {
    let (_dir, folder) = folder_with(1);
    let source = RulesSource {
        path: folder.clone(),
        tenants: None,
        read: ReadOptions::default(),
        options: Options::default(),
    };
    let mut loader = RulesLoader::new(source);
    loader.load().unwrap();
    let (sender, mut status) = channel::channel(loader.reload_status().clone());
    let applied = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&applied);
    let apply = move |rules: RuleSet| {
        let quota = quota_of(&rules);
        note.lock().unwrap().push(quota);
        assert_ne!(quota, Some(2), "a mistake of ours");
        Vec::new()
    };
    let reloader = Reloader::new(loader, by_events(), sender, Arc::default(), apply);
    let task = tokio::spawn(maintenance::reload(app(), reloader));
    put(&folder.join("a.yaml"), &rules(2));
    let failed = status.wait_for(|status| status.error.is_some());
    timeout(PATIENCE, failed).await.unwrap().unwrap();
    put(&folder.join("a.yaml"), &rules(3));
    let taken = status.wait_for(|status| status.accepted == 2 && status.error.is_none());
    timeout(PATIENCE, taken).await.unwrap().unwrap();
    assert_eq!(*applied.lock().unwrap(), [Some(2), Some(3)]);
    task.abort();
}

/// A source ends when the server does, and no earlier: nothing would deliver the next set.
#[tokio::test]
async fn a_delivery_that_makes_us_panic_is_refused_and_the_next_one_is_taken() {
    let (loader, feed) = RulesLoader::fed(FeedConfig {
        name: "elsewhere".to_owned(),
        options: Options::default(),
        on_bad_text: OnBadText::RefuseAll,
    });
    let (sender, _status) = channel::channel(ReloadStatus::default());
    let apply = move |rules: RuleSet| {
        assert_ne!(quota_of(&rules), Some(2), "a mistake of ours");
        Vec::new()
    };
    let reloader = Reloader::new(loader, by_events(), sender, Arc::default(), apply);
    let task = tokio::spawn(maintenance::reload(app(), reloader));
    let deliver = async |limit| {
        let text = Source {
            name: "rules.yaml".to_owned(),
            text: rules(limit),
        };
        timeout(PATIENCE, feed.deliver(vec![text])).await.unwrap()
    };
    assert_eq!(deliver(2).await, Err(DeliveryError::Failed));
    assert_eq!(deliver(3).await, Ok(()));
    task.abort();
    task.await.unwrap_err();
    assert_eq!(deliver(4).await, Err(DeliveryError::Ended));
}

/// A log can fail, as anything can.
#[cfg(unix)]
#[tokio::test]
async fn a_hangup_is_waited_for_again_after_a_panic() {
    let app = app();
    let wake = Arc::new(Notify::new());
    let task = maintenance::wake_on_hangup(Arc::clone(&app), vec![Arc::clone(&wake)]);
    let task = tokio::spawn(task);
    let _log = FragileLog::panicking_at("SIGHUP: rereading");
    for _ in 0..2 {
        let own = std::process::id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-HUP", &own])
            .status();
        assert!(sent.unwrap().success());
        timeout(PATIENCE, wake.notified()).await.unwrap();
        // The one that panics is told before the next signal is sent.
        while app.maintenance.hangup.failures() == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(app.maintenance.hangup.failures(), 1);
    task.abort();
}

fn app() -> Arc<App> {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let limiter = Limiter::new(RuleSet::default(), store.into(), LimiterOptions::default());
    let (_, reloads) = channel::channel(ReloadStatus::default());
    let access = Access::new(&[], KnownTokens::new(None, None), false);
    let switches = SwitchFile::restore(None, &limiter);
    Arc::new(App::new(
        Arc::new(limiter),
        ServerConfig::default(),
        (
            access,
            switches,
            FleetSwitches::new(Switches::default(), None),
        ),
        reloads,
        Vec::new(),
    ))
}
