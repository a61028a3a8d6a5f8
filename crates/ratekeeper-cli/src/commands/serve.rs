//! `ratekeeper serve`, and a bare `ratekeeper`.

mod data_dir;
mod envoy;
mod files;
mod gateway;
mod last_good;
mod leases;
mod owed;
mod paths;
mod peers;
mod profile;
mod regions;
mod remote_gateway;
mod rules_from;
mod sample;
mod stop;
mod token_keys;
mod welcome;

use crate::background::Background;
use crate::home::Home;
use crate::limiter::{self, Served};
use crate::output::{self, count};
use crate::quotas::{Quotas, Unopened};
use crate::settings::{self, Environment, Flags, LogFormat, LogTo, Settings, TlsSettings};
use crate::state::{Saver, State};
use crate::traces::Traces;
use crate::{logging, quotas};
use anyhow::{Result, anyhow};
use files::{Files, Program};
use ratekeeper_limiter::Limiter;
use ratekeeper_rules::RuleSet;
use ratekeeper_server::{
    BindError, ConstantAnswer, DenialLog, DrainDelay, Drained, GatewayService, ListenAddress,
    Server, ServerConfig,
};
use ratekeeper_stores::Stores;
use rules_from::StartRules;
use std::process::ExitCode;
use std::sync::Arc;
use token_keys::TokenKeys;
use tracing::{info, warn};
use welcome::{InFront, Welcome};

pub(crate) fn run(flags: &Flags) -> Result<ExitCode> {
    start(flags, What::Service(None))
}

/// Runs `ratekeeper gateway`: forwards requests that pass, and opens the other listeners that are asked for.
pub(crate) fn run_gateway(flags: &Flags) -> Result<ExitCode> {
    start(flags, What::Gateway)
}

/// The kind of server to start.
enum What {
    /// Decisions, or one answer to all of Envoy's requests over gRPC.
    Service(Option<ConstantAnswer>),
    Gateway,
}

/// Serves as [`run`] does, but answers every request of Envoy's over gRPC with `answer`.
pub(crate) fn run_answering(flags: &Flags, answer: ConstantAnswer) -> Result<ExitCode> {
    start(flags, What::Service(Some(answer)))
}

fn start(flags: &Flags, what: What) -> Result<ExitCode> {
    // Requests are served by the server's worker threads; this one accepts, reloads and tends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // First of all: what renews a certificate or changes rules does not know whether we have started.
    runtime.block_on(async { stop::survive_hangups() })?;
    let home = Home::find();
    let environment = Environment::of_process();
    let loaded = settings::load(flags, &environment, &home);
    if loaded.is_err() && settings::wants_json(flags, &environment, &home) {
        output::complain_in_json();
    }
    let (layers, settings) = loaded?;
    logging::start(&settings.values)?;
    for warning in &layers.warnings {
        warn!("{warning}");
    }
    profile::warn_if_unsaid(&settings.rules);
    envoy::warn_if_open(&settings);
    if let What::Service(_) = what {
        let ignored = settings::ignored_by_serve(&layers).join(", ");
        if !ignored.is_empty() {
            info!(%ignored, "settings that only `ratekeeper gateway` uses");
        }
    }
    let ended = runtime.block_on(serve(flags, &home, &settings, what));
    // After a second signal, tasks that have not ended are not waited for.
    runtime.shutdown_background();
    ended
}

async fn serve(flags: &Flags, home: &Home, settings: &Settings, what: What) -> Result<ExitCode> {
    if let (What::Gateway, Some(service)) = (&what, &settings.service) {
        return remote_gateway::run(flags, home, settings, service).await;
    }
    let mut start = StartRules::new(settings)?;
    let source = start.take_source();
    let keys = TokenKeys::first(settings).await?;
    // Held until the last save: two services would take turns to overwrite each other's counters.
    data_dir::warn_if_shared(settings.values.data_dir.as_deref());
    let state = settings.kept().map(State::claim).transpose()?;
    let Served { limiter, boards } = limiter::served(start.rules, settings, state.as_ref()).await?;
    let (limiter, meter) = quotas::metered(limiter, settings);
    let limiter = Arc::new(limiter.with_growth_watch());
    leases::tell_defaults(&limiter.snapshot());
    let quotas = quotas::follow(settings, &limiter, meter, boards.as_deref()).await?;
    // Before anything is printed: a supervisor that waits for output may stop us right after it.
    let stop = stop::Signals::listen()?;
    let program = match what {
        What::Service(_) => Program::Service,
        What::Gateway => Program::Gateway,
    };
    let files = Files::of_process(settings, program);
    let mut config = config(settings);
    files.bound(&mut config);
    config.top_peers = boards.as_deref().map(peers::top);
    config.quotas = quotas.as_ref().map(|quotas| quotas.admin.clone());
    let loans = regions::loans(settings, &limiter);
    config.region_loans.clone_from(&loans);
    let traces = Traces::start(settings)?;
    config.tracer = traces.as_ref().map(Traces::tracer);
    let gateway = match what {
        What::Service(answer) => {
            config.constant_answer = answer;
            None
        }
        What::Gateway => {
            gateway::open_only(&mut config, settings);
            let beside = gateway::Beside {
                fleet: boards.as_deref().map(peers::fleet),
                denials: Arc::clone(&config.denials),
                tracer: config.tracer.clone(),
            };
            let gateway = gateway::embedding(flags, home, settings, files, &limiter, beside)?;
            Some(Arc::new(gateway))
        }
    };
    let server = Server::bind(config, Arc::clone(&limiter), start.loader)
        .await
        .map_err(advise)?;
    let snapshot = limiter.snapshot();
    let upstreams = gateway.as_ref().map(|gateway| gateway.upstreams());
    let limits = limits_shown(&server, settings, snapshot.rules(), &start.place);
    welcome(&server, settings, snapshot.rules(), &limits, upstreams)?;
    let following = rules_from::start(&server, source);
    let keys_followed = keys.map(|keys| keys.follow(&server));
    let mut linked = Vec::new();
    if let Some(loans) = loans {
        linked = regions::start(settings, &loans)?;
        server.monitor(loans);
    }
    monitor(&server, state.as_ref(), quotas.as_ref(), traces.as_ref());
    let unopened = match &quotas {
        None => warn_of_tenants(&server, settings, &limiter),
        Some(_) => None,
    };
    let saver = state.map(|state| Saver::start(Arc::clone(&limiter), state));
    let code = until_stopped(server, gateway, &stop).await;
    drop((following, keys_followed, linked, unopened));
    finish(&limiter, traces, quotas, saver).await;
    Ok(code)
}

/// Shows the parts beside the server in its metrics and faults.
fn monitor(
    server: &Server,
    state: Option<&State>,
    quotas: Option<&Quotas>,
    traces: Option<&Traces>,
) {
    if let Some(state) = state {
        server.monitor(state.report());
    }
    if let Some(quotas) = quotas {
        server.monitor(Arc::clone(&quotas.report) as _);
        if let Some(report) = quotas.export_report() {
            server.monitor(report);
        }
    }
    if let Some(traces) = traces {
        server.monitor(traces.report());
    }
}

/// Makes it a fault that rules have tenants by now, for whom no database was opened.
fn warn_of_tenants(
    server: &Server,
    settings: &Settings,
    limiter: &Arc<Limiter<Stores>>,
) -> Option<Background> {
    let unopened = Unopened::of(settings, limiter)?;
    server.monitor(Arc::clone(&unopened) as _);
    let (task, reloads) = (Arc::clone(unopened.task()), server.reloads());
    let warn = move || Arc::clone(&unopened).keep_warning(reloads.clone());
    Some(Background::until_done(task, warn))
}

/// Ends the parts beside the server at the same time: none needs another, each may wait for a server that is away, and
/// whoever stops us kills us if that takes long.
async fn finish(
    limiter: &Limiter<Stores>,
    traces: Option<Traces>,
    quotas: Option<Quotas>,
    saver: Option<Saver>,
) {
    let saved = async {
        if let Some(saver) = saver {
            saver.finish().await;
        }
    };
    let billed = async {
        if let Some(quotas) = quotas {
            quotas.finish().await;
        }
    };
    let settled = async {
        owed::flush(limiter).await;
        limiter.store().close().await;
    };
    let traced = async {
        if let Some(traces) = traces {
            traces.finish().await;
        }
    };
    tokio::join!(saved, billed, settled, traced);
}

/// Prints and logs where `server` listens, and by which rules it limits.
fn welcome(
    server: &Server,
    settings: &Settings,
    rules: &RuleSet,
    limits: &str,
    upstreams: Option<String>,
) -> Result<()> {
    let addresses = server.addresses();
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "ratekeeper".to_owned());
    let in_front = upstreams.map(|upstreams| InFront {
        tls: settings.gateway_tls.clone(),
        upstreams,
    });
    let rls = &settings.envoy;
    paths::warn_if_told_apart(&settings.rules, rules, in_front.is_some());
    if *settings.values.log_format == LogFormat::Text {
        let profile = profile::shown(&settings.rules) + &envoy::shown(rls, settings, &addresses);
        let welcome = Welcome {
            rules,
            limits,
            profile: &profile,
            addresses: &addresses,
            tls: &settings.tls,
            gateway: in_front.as_ref(),
            program: &program,
        };
        match &*settings.values.access_log {
            // Whoever reads the log there reads nothing else.
            Some(LogTo::Stdout) if in_front.is_some() => {
                output::complain(welcome.text().trim_end())
            }
            _ => output::print(&welcome.text())?,
        }
    }
    let shown = |address: &Option<ListenAddress>| address.as_ref().map(ToString::to_string);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        profile = profile::name(&settings.rules),
        envoy_callers = envoy::name(rls.callers()),
        limits,
        grpc = shown(&addresses.grpc),
        http = shown(&addresses.http),
        gateway = shown(&addresses.gateway),
        admin = addresses.admin.to_string(),
        metrics = shown(&addresses.metrics),
        "serving"
    );
    Ok(())
}

/// Serves until a signal says to stop, and drains.
async fn until_stopped<F: GatewayService>(
    server: Server,
    gateway: Option<Arc<F>>,
    stop: &stop::Signals,
) -> ExitCode {
    let delay = server.drain_delay();
    tokio::select! {
        drained = server.run_behind(gateway, stop.first()) => ended(drained),
        () = impatience(stop, &delay) => {
            warn!("second signal: stopped at once");
            ExitCode::FAILURE
        }
    }
}

/// The rules, which come from `place`, and where they count, for people.
fn limits_shown(server: &Server, settings: &Settings, rules: &RuleSet, place: &str) -> String {
    let reloads = server.reloads().borrow().clone();
    format!(
        "{}{}, {}",
        rules_shown(rules, place, reloads.is_loaded()),
        last_good::shown(&reloads),
        counters(settings)
    )
}

/// The number of rules and the place they come from, for people.
fn rules_shown(rules: &RuleSet, place: &str, are_loaded: bool) -> String {
    if !are_loaded {
        return format!("no rules yet, they come from {place}: requests are refused until then");
    }
    if rules.rules().is_empty() {
        return format!("no rules in {place}: every request passes");
    }
    format!(
        "{} in {} from {}",
        count(rules.rules().len(), "rule"),
        count(rules.domains().len(), "domain"),
        place
    )
}

/// The place of the counters, for people.
fn counters(settings: &Settings) -> String {
    let mut text = match &settings.redis {
        Some(redis) => format!("counters in Redis at {}", redis.endpoint.name()),
        None => {
            let most = output::bytes(*settings.values.memory_limit);
            format!("counters in memory ({most} at most)")
        }
    };
    for store in &settings.stores {
        let at = store.redis.endpoint.name();
        text.push_str(&format!(", those of store {} in Redis at {at}", store.name));
    }
    text
}

/// Completes once draining is to be cut short: at the second signal, or at the third if the second one ended
/// the drain delay.
async fn impatience(stop: &stop::Signals, delay: &DrainDelay) {
    stop.second().await;
    if delay.end() {
        info!("second signal: the drain delay ends");
        stop.third().await;
    }
}

fn config(settings: &Settings) -> ServerConfig {
    let values = &settings.values;
    let mut config = ServerConfig {
        grpc: Some(values.grpc.clone()),
        http: Some(values.http.clone()),
        admin: values.admin.clone(),
        metrics: values.metrics.clone(),
        unix_mode: *values.unix_mode,
        tls: settings.tls.clone(),
        worker_threads: Some(*values.worker_threads),
        bounds: values.bounds(),
        drain_delay: *values.drain_delay,
        rls: settings.envoy.clone(),
        on_unreadable: *values.on_unreadable,
        auth: settings.auth.clone(),
        callers: values.callers.clone(),
        data_dir: values.data_dir.clone(),
        denials: Arc::new(DenialLog::new(values.denial_log_config())),
        top_denied_metric: *values.top_denied_metric,
        envoy_metrics: *values.envoy_metrics,
        statsd: values.statsd_config(),
        ..ServerConfig::default()
    };
    config.watch.enabled = *values.watch;
    config.ready_without_rules = *values.start_without_rules;
    config
}

/// Turns the error about a listener into one that says what to do about it.
fn advise(error: BindError) -> anyhow::Error {
    match &error {
        BindError::Listen { name, .. } => {
            let flag = *name;
            let error = anyhow::Error::new(error);
            anyhow!(
                "{error:#}; choose another address with --{flag} HOST:PORT, where port 0 picks a free one"
            )
        }
        BindError::Tls { name, source } => {
            let settings = TlsSettings {
                authorities: format!("{name}_tls_client_ca"),
                ..TlsSettings::of(&format!("{name}_tls_"))
            };
            anyhow!("{}", settings.blame(source))
        }
        _ => error.into(),
    }
}

fn ended(drained: Drained) -> ExitCode {
    match drained.cut {
        0 => info!("stopped: every request was answered"),
        cut => warn!(
            cut,
            "stopped: some connections were closed before they finished"
        ),
    }
    ExitCode::SUCCESS
}
