//! Background work of a server: reloading rules, upkeep of the store and the clock, what nodes share, and what is told to
//! others.
//!
//! None of it is meant to end. If a bug of ours ends it anyway, requests are still answered by the
//! rules in force, so ending the process would turn a stale rule into an outage. Instead the task
//! is restarted, and the log, `/readyz` and a metric say so.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::Limiter;
use ratekeeper_rules::{Change, Entry, RuleSet};
use ratekeeper_stores::Stores;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::admin;
use crate::app::App;
use crate::blocking::blocking;
use crate::config::gateway::GatewayService;
use crate::figures::live::BesideRules;
use crate::figures::statsd::{self, NodeCounts};
use crate::figures::{rule_counts, top_nodes};
use crate::fleet;
use crate::logs::debt::DebtLog;
use crate::logs::dropped::DroppedLog;
use crate::logs::growth;
use crate::logs::shadow::ShadowLog;
use crate::reload::follow::{Followed, follow};
use crate::reload::{Reloader, WatchConfig};

/// The interval at which the limiter's clock is compared with the wall clock and the store is
/// maintained.
const TICK: Duration = Duration::from_secs(1);

/// Keeps the rules in force in step with the files.
pub(crate) async fn reload<A>(app: Arc<App>, reloader: Reloader<A>)
where
    A: Fn(RuleSet) -> Vec<Change> + Send + Sync + 'static,
{
    let status = reloader.status_sender();
    // What remembers the files outlives the task; only one at a time holds the lock.
    let reloader = Arc::new(Mutex::new(reloader));
    let begin = || {
        let reloader = Arc::clone(&reloader);
        async move { reloader.lock().await.run().await }
    };
    let ended = || {
        let error = "reloading the rules failed, which is a mistake of Ratekeeper: see its log";
        status.send_modify(|status| status.error = Some(error.into()));
    };
    app.maintenance.reloading.keep(begin, ended).await;
}

/// Maintains the store and keeps the clock.
pub(crate) async fn upkeep(app: Arc<App>) {
    let begin = || tick(Arc::clone(&app));
    app.maintenance.upkeep.keep(begin, || {}).await;
}

/// Keeps this node in step with those that have the same quota database.
pub(crate) async fn fleet(app: Arc<App>) {
    let begin = || fleet::keep(Arc::clone(&app));
    app.maintenance.fleet.keep(begin, || {}).await;
}

async fn tick(app: Arc<App>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut strays = StrayLog::new();
    let mut dropped = DroppedLog::default();
    let mut debts = DebtLog::default();
    let mut shadow = ShadowLog::default();
    loop {
        let limiter = Arc::clone(&app.limiter);
        let known = limiter.hash_key();
        let key_changed = limiter.store().hash_key_other_than(known);
        tokio::select! {
            _ = ticks.tick() => {}
            // At once: what is counted under another name until then is not seen elsewhere.
            key = key_changed => {
                let limiter = Arc::clone(&limiter);
                // It may forget a memory full of counters, as no request does.
                blocking(move || limiter.adopt_hash_key(key)).await;
                continue;
            }
        }
        strays.look(&limiter);
        dropped.look(&limiter);
        app.forgotten.look(&limiter);
        shadow.look(&limiter);
        growth::look(&limiter);
        app.crowded.look(&limiter);
        let snapshot = limiter.snapshot();
        app.unenforced.look(&snapshot, limiter.clock().now());
        let walked = rule_counts::walk(&snapshot);
        let answers = app.last_counts.end_second(&walked);
        app.degraded.sample(&answers);
        debts.look(&answers);
        if let Some(statsd) = &app.statsd {
            statsd.add(snapshot.rules(), &answers);
        }
        let shed = app.monitored().iter().map(|part| part.shed()).sum();
        let describe = |second: &_| admin::describe(&app, &snapshot, &walked, second);
        let beside = BesideRules::read(limiter.totals(), shed);
        app.live.look(&answers, &app.durations, beside, describe);
        let clock = limiter.clock();
        clock.reanchor();
        let now = clock.now();
        let identity = app.config.auth.describer.identity.clone();
        let maintained = move || {
            limiter.store().maintain(now);
            limiter.maintain();
            match identity.refresh() {
                Ok(false) => {}
                Ok(true) => info!("new identity files in use"),
                Err(error) => {
                    error!(%error, "new identity file refused; the last good one stays in use")
                }
            }
        };
        blocking(maintained).await;
    }
}

/// Tells other nodes which keys are limited most here, if there is a place for that.
pub(crate) async fn share_top(app: Arc<App>) {
    let begin = || {
        let app = Arc::clone(&app);
        async move {
            match &app.config.top_peers {
                Some(peers) => {
                    top_nodes::share(&app.limiter, &**peers, app.config.denials.node()).await;
                }
                None => std::future::pending().await,
            }
        }
    };
    app.maintenance.top.keep(begin, || {}).await;
}

/// Sends counts to the statsd agent, if there is one.
pub(crate) async fn send_counts(app: Arc<App>) {
    let begin = || {
        let app = Arc::clone(&app);
        async move {
            match &app.statsd {
                Some(statsd) => statsd::send(statsd, || counts_of_node(&app)).await,
                None => std::future::pending().await,
            }
        }
    };
    app.maintenance.statsd.keep(begin, || {}).await;
}

/// Sends the counts since the last sending, once no request is decided and no other task counts any more.
pub(crate) async fn send_last_counts(app: &App) {
    let Some(statsd) = &app.statsd else {
        return;
    };
    let snapshot = app.limiter.snapshot();
    let answers = app.last_counts.end_second(&rule_counts::walk(&snapshot));
    statsd.add(snapshot.rules(), &answers);
    statsd::send_last(statsd, counts_of_node(app)).await;
}

/// Does the gateway's own work.
pub(crate) async fn gateway<F: GatewayService>(app: Arc<App>, gateway: Arc<F>) {
    let begin = || gateway.maintenance();
    app.maintenance.gateway.keep(begin, || {}).await;
}

/// Follows files other than the rules.
pub(crate) async fn files(
    app: Arc<App>,
    files: Arc<dyn Followed>,
    config: WatchConfig,
    wake: Arc<Notify>,
) {
    let begin = || follow(Arc::clone(&files), config, Arc::clone(&wake));
    app.maintenance.files.keep(begin, || {}).await;
}

/// The counts since the start that no rule has.
fn counts_of_node(app: &App) -> NodeCounts {
    let servers = app.limiter.store().servers();
    let errors = servers.iter().flat_map(|server| &server.errors);
    let reloads = app.reloads.borrow();
    [
        ("config_load_success", reloads.accepted),
        ("config_load_error", reloads.refused),
        (
            "call.should_rate_limit.redis_error",
            errors.map(|(_, count)| count).sum(),
        ),
    ]
}

/// The interval at which circuit breakers are looked at for those who watch.
const BREAKERS_EVERY: Duration = Duration::from_millis(100);

/// Tells those who watch of circuit breakers that turn, without waiting for the next second.
pub(crate) async fn watch_breakers(app: Arc<App>) {
    let begin = || look_at_breakers(Arc::clone(&app));
    app.maintenance.breakers.keep(begin, || {}).await;
}

async fn look_at_breakers(app: Arc<App>) {
    let mut ticks = interval(BREAKERS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !app.live.is_watched() {
            continue;
        }
        let servers = app.limiter.store().servers();
        let states = servers.iter().filter_map(|server| server.circuit).collect();
        app.live
            .look_at_breakers(states, || admin::describe_breakers(&app));
    }
}

/// The shortest time between two log lines about a name that is probably misspelt.
const STRAY_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Logs what requests that no rule matches may have meant, where the rules have a name like theirs.
struct StrayLog {
    /// The time of the last log line.
    logged: Option<Instant>,
}

impl StrayLog {
    fn new() -> Self {
        Self { logged: None }
    }

    /// Checks the sample taken since the last look, and requests the next one once another line may
    /// be logged.
    fn look(&mut self, limiter: &Limiter<Stores>) {
        let strays = &limiter.totals().strays;
        if let Some(stray) = strays.take() {
            let entries = stray.entries.iter();
            let entries: Vec<_> = entries.map(|(key, value)| Entry { key, value }).collect();
            let snapshot = limiter.snapshot();
            if let Some(nearest) = snapshot.rules().nearest(&stray.domain, &entries) {
                // Values may be secrets, and are left out.
                let keys: Vec<_> = entries.iter().map(|entry| entry.key).collect();
                warn!(
                    domain = ?stray.domain, ?keys, %nearest,
                    "requests match no rule and are allowed; did they mean this name?"
                );
                self.logged = Some(Instant::now());
            }
        }
        if self
            .logged
            .is_none_or(|at| at.elapsed() >= STRAY_LOGGED_EVERY)
        {
            strays.want();
        }
    }
}

/// Listens for SIGHUP from now on, before anyone can rely on it.
#[cfg(unix)]
pub(crate) fn wake_on_hangup(
    app: Arc<App>,
    wakes: Vec<Arc<Notify>>,
) -> impl Future<Output = ()> + Send {
    use tokio::signal::unix::{SignalKind, signal};
    // It outlives the task, so that no signal is missed while that is begun again.
    let hangups = Arc::new(Mutex::new(signal(SignalKind::hangup())));
    async move {
        let begin = || wake_each(Arc::clone(&hangups), wakes.clone());
        app.maintenance.hangup.until_done(begin).await;
    }
}

#[cfg(unix)]
async fn wake_each(
    hangups: Arc<Mutex<std::io::Result<tokio::signal::unix::Signal>>>,
    wakes: Vec<Arc<Notify>>,
) {
    match &mut *hangups.lock().await {
        Ok(hangups) => {
            while hangups.recv().await.is_some() {
                // First: whatever becomes of the log, the files are read.
                wakes.iter().for_each(|wake| wake.notify_one());
                info!("SIGHUP: rereading rules and certificates");
            }
        }
        Err(error) => warn!(%error, "SIGHUP will not reload the rules"),
    }
}

#[cfg(not(unix))]
pub(crate) async fn wake_on_hangup(_: Arc<App>, _: Vec<Arc<Notify>>) {}
