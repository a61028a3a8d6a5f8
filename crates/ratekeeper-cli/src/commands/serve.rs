//! `ratekeeper serve`, and a bare `ratekeeper`.

mod data_dir;
mod envoy;
mod files;
mod gateway;
mod hurry;
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
use hurry::Hurry;
use ratekeeper_gateway::Gateway;
use ratekeeper_limiter::Limiter;
use ratekeeper_rules::RuleSet;
use ratekeeper_server::{
    BindError, ConstantAnswer, DenialLog, Drained, GatewayService, ListenAddress, RegionLoans,
    Server, ServerConfig,
};
use ratekeeper_stores::Stores;
use rules_from::{FedSource, StartRules};
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
    // First of all: what renews a certificate, changes rules or stops us does not know whether we have started.
    runtime.block_on(async { stop::survive_hangups() })?;
    let stop = stop::Signals::listen()?;
    let home = Home::find();
    let environment = Environment::of_process();
    let loaded = settings::load(flags, &environment, &home);
    if loaded.is_err() && settings::wants_json(flags, &environment, &home) {
        output::complain_in_json();
    }
    let (layers, settings) = loaded?;
    let log = logging::start(&settings.values)?;
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
    let ended = runtime.block_on(serve(flags, &home, &settings, what, stop));
    // After a second signal, tasks that have not ended are not waited for.
    runtime.shutdown_background();
    drop(log);
    ended
}

async fn serve(
    flags: &Flags,
    home: &Home,
    settings: &Settings,
    what: What,
    stop: stop::Signals,
) -> Result<ExitCode> {
    if let (What::Gateway, Some(service)) = (&what, &settings.service) {
        return remote_gateway::run(flags, home, settings, service, &stop).await;
    }
    let opened = open(flags, home, settings, what).await?;
    opened.serve(settings, &stop).await
}

/// Everything that serves, not yet begun.
struct Opened {
    server: Server,
    gateway: Option<Arc<Gateway<Arc<Limiter<Stores>>>>>,
    limiter: Arc<Limiter<Stores>>,
    /// The place of the rules, for people.
    place: String,
    source: Option<FedSource>,
    keys: Option<TokenKeys>,
    state: Option<State>,
    quotas: Option<Quotas>,
    loans: Option<Arc<RegionLoans>>,
    traces: Option<Traces>,
}

/// Reads what there is to serve, asks the servers that are needed for it, and binds the listeners.
async fn open(flags: &Flags, home: &Home, settings: &Settings, what: What) -> Result<Opened> {
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
    Ok(Opened {
        server,
        gateway,
        limiter,
        place: start.place,
        source,
        keys,
        state,
        quotas,
        loans,
        traces,
    })
}

impl Opened {
    /// Serves until `stop` says so, and ends in good order.
    async fn serve(self, settings: &Settings, stop: &stop::Signals) -> Result<ExitCode> {
        let Self {
            server, limiter, ..
        } = self;
        stop.serve();
        let snapshot = limiter.snapshot();
        let upstreams = self.gateway.as_ref().map(|gateway| gateway.upstreams());
        let limits = limits_shown(&server, settings, snapshot.rules(), &self.place);
        welcome(&server, settings, snapshot.rules(), &limits, upstreams)?;
        let following = rules_from::start(&server, self.source);
        let keys_followed = self.keys.map(|keys| keys.follow(&server));
        let mut linked = Vec::new();
        if let Some(loans) = self.loans {
            linked = regions::start(settings, &loans)?;
            server.monitor(loans);
        }
        let (quotas, traces) = (self.quotas, self.traces);
        monitor(
            &server,
            self.state.as_ref(),
            quotas.as_ref(),
            traces.as_ref(),
        );
        let unopened = match &quotas {
            None => warn_of_tenants(&server, settings, &limiter),
            Some(_) => None,
        };
        let saver = self
            .state
            .map(|state| Saver::start(Arc::clone(&limiter), state));
        let mut hurry = Hurry::new(stop, server.drain_delay());
        let code = until_stopped(server, self.gateway, stop, &mut hurry).await;
        drop((following, keys_followed, linked, unopened));
        let others = finish(&limiter, traces, quotas);
        tokio::join!(save(saver), unless_hurried(others, &mut hurry));
        Ok(code)
    }
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

/// Saves the counters for the last time, on this host: nothing to wait for.
async fn save(saver: Option<Saver>) {
    if let Some(saver) = saver {
        saver.finish().await;
    }
}

/// Ends the other parts beside the server at the same time: none needs another, each may wait for a server that is away,
/// and whoever stops us kills us if that takes long.
async fn finish(limiter: &Limiter<Stores>, traces: Option<Traces>, quotas: Option<Quotas>) {
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
    tokio::join!(billed, settled, traced);
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

/// Serves until a signal says to stop, and drains, unless another one says to hurry.
async fn until_stopped<F: GatewayService>(
    server: Server,
    gateway: Option<Arc<F>>,
    stop: &stop::Signals,
    hurry: &mut Hurry,
) -> ExitCode {
    server.monitor(logging::report());
    tokio::select! {
        drained = server.run_behind(gateway, stop.first()) => ended(drained),
        () = hurry.asked() => {
            warn!("another signal: stopped at once");
            ExitCode::FAILURE
        }
    }
}

/// Does `last`, or as much of it as there is time for.
async fn unless_hurried(last: impl Future<Output = ()>, hurry: &mut Hurry) {
    tokio::select! {
        biased;
        () = last => {}
        () = hurry.asked() => warn!("another signal: what was still to be told to other servers is left"),
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
