//! The gateway that asks a service instead of deciding itself.

use super::files::{Files, Program};
use super::hurry::Hurry;
use super::rules_from::{self, load};
use super::token_keys::TokenKeys;
use super::{advise, config, gateway, rules_shown, stop};
use crate::home::Home;
use crate::limiter;
use crate::settings::{Flags, Problems, ServiceSettings, Settings};
use crate::traces::Traces;
use anyhow::{Result, anyhow, bail};
use ratekeeper_client::{
    Client, Config, ConfigError, FallbackPolicy, ServiceEnforcer, Tls, Trouble,
};
use ratekeeper_gateway::Gateway;
use ratekeeper_http::UnclearDomain;
use ratekeeper_limiter::Limiter;
use ratekeeper_rules::{Domain, FailureMode, RuleSet};
use ratekeeper_server::{
    DESCRIPTORS_MAX, Families, Followed, GatewayService, Monitored, RulesLoader, Server, Shedding,
    by,
};
use ratekeeper_stores::Stores;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tracing::warn;

pub(super) async fn run(
    flags: &Flags,
    home: &Home,
    settings: &Settings,
    service: &ServiceSettings,
    stop: &stop::Signals,
) -> Result<ExitCode> {
    if !service.contradictions.is_empty() {
        return Err(Problems(service.contradictions.clone()).into());
    }
    let LocalRules { limiter, loader } = LocalRules::new(settings, service)?;
    let keys = TokenKeys::first(settings).await?;
    let snapshot = limiter.snapshot();
    let domain = domain(settings, snapshot.rules())?;
    has_room_for_a_level(settings, snapshot.rules())?;
    warn_of_usage(settings, snapshot.rules().domain(domain));
    let client = Client::new(client_config(settings, service, &limiter));
    let client = client.map_err(|error| blame(service, error))?;
    let mut enforcer = ServiceEnforcer::new(client.clone());
    if *settings.values.service_permits {
        enforcer = enforcer.with_permits();
    }
    if service.reads_rules {
        enforcer = enforcer.with_levels_of(Arc::clone(&limiter) as _);
    }
    let files = Files::of_process(settings, Program::Gateway);
    let mut config = config(settings);
    let traces = Traces::start(settings)?;
    let beside = gateway::Beside {
        fleet: None,
        denials: Arc::clone(&config.denials),
        tracer: traces.as_ref().map(Traces::tracer),
    };
    let gateway = gateway::gateway(flags, home, settings, files, enforcer, domain, beside)?;
    let upstreams = Some(gateway.upstreams());
    let front = RemoteGateway {
        gateway,
        client,
        on_failure: settings.values.on_service_failure.name(),
    };
    files.bound(&mut config);
    gateway::open_only(&mut config, settings);
    let server = Server::bind(config, Arc::clone(&limiter), loader)
        .await
        .map_err(advise)?;
    stop.serve();
    let limits = shown(settings, service, domain, snapshot.rules());
    super::welcome(&server, settings, snapshot.rules(), &limits, upstreams)?;
    let keys_followed = keys.map(|keys| keys.follow(&server));
    if let Some(traces) = &traces {
        server.monitor(traces.report());
    }
    let mut hurry = Hurry::new(stop, server.drain_delay());
    let code = super::until_stopped(server, Some(Arc::new(front)), stop, &mut hurry).await;
    drop(keys_followed);
    let traced = async {
        if let Some(traces) = traces {
            traces.finish().await;
        }
    };
    super::unless_hurried(traced, &mut hurry).await;
    Ok(code)
}

/// The rules that are known here, if any are named: their service levels determine what the service is asked, and with
/// `local` they decide while it is away.
struct LocalRules {
    limiter: Arc<Limiter<Stores>>,
    loader: Option<RulesLoader>,
}

impl LocalRules {
    fn new(settings: &Settings, service: &ServiceSettings) -> Result<Self> {
        let (rules, loader) = match service.reads_rules {
            false => (load_none(settings)?, None),
            true => {
                let path = rules_from::path(settings)?;
                let mut loader = rules_from::of_files(settings, path);
                let rules = load(&mut loader, settings, path)?.rules;
                warn_without(settings, &rules, path);
                (rules, Some(loader))
            }
        };
        let limiter = Arc::new(limiter::fresh(rules, settings)?);
        Ok(Self { limiter, loader })
    }
}

/// No rules: only what the settings say of paths.
fn load_none(settings: &Settings) -> Result<RuleSet> {
    Ok(ratekeeper_rules::load(&[], &settings.rules.options)?.rules)
}

/// The domain that the service is asked about: the settings', else the only one of the rules that are known here; empty
/// if those are service levels alone.
fn domain<'a>(settings: &'a Settings, rules: &'a RuleSet) -> Result<&'a str> {
    let describer = &settings.auth.describer;
    match describer.domain(None, rules) {
        Ok(Some(domain)) => Ok(domain),
        Ok(None) if !rules.service_levels().is_empty() => Ok(""),
        Err(several @ UnclearDomain::Several(_)) => bail!(
            "{several}; say it with `auth: {{ domain: NAME }}` in ratekeeper.yaml, or RATEKEEPER_AUTH='{{domain: NAME}}'"
        ),
        _ => bail!(
            "which domain of the service's rules is the gateway's? They are not known here; say it with \
             `auth: {{ domain: NAME }}` in ratekeeper.yaml, or RATEKEEPER_AUTH='{{domain: NAME}}'"
        ),
    }
}

/// A service level is one more descriptor, and the service refuses more than it takes.
fn has_room_for_a_level(settings: &Settings, rules: &RuleSet) -> Result<()> {
    let count = settings.auth.describer.mapping.descriptors().len();
    if count >= DESCRIPTORS_MAX && !rules.service_levels().is_empty() {
        bail!(
            "auth.descriptors: {count} of them and a service level are more than the {DESCRIPTORS_MAX} that a service takes; \
             leave one out"
        );
    }
    Ok(())
}

fn warn_without(settings: &Settings, rules: &RuleSet, path: &Path) {
    let Some(domain) = settings.auth.describer.domain.as_deref() else {
        return;
    };
    let decides = *settings.values.on_service_failure == FailureMode::Local;
    if decides && !rules.domains().any(|it| it.name() == domain) {
        warn!(
            "the rules in {} have no domain {domain}: while the service is away, every request passes",
            path.display()
        );
    }
}

/// The service takes one hit for each request, whatever its response tells.
fn warn_of_usage(settings: &Settings, domain: Option<&Domain>) {
    let is_of_domain = domain.is_some_and(|domain| domain.usage().is_some());
    let mut routes = settings.routes.routes.iter();
    let is_of_route = routes.any(|route| route.usage.is_some());
    let place = match (is_of_domain, is_of_route) {
        (false, false) => return,
        (true, false) => "the rules",
        (false, true) => "`routes`",
        (true, true) => "the rules and in `routes`",
    };
    warn!(
        "`usage` in {place} is not read: the `service` takes one hit of a budget for each request, whatever it used. For budgets, \
         let gateways count themselves, with `store`"
    );
}

fn client_config(
    settings: &Settings,
    service: &ServiceSettings,
    limiter: &Arc<Limiter<Stores>>,
) -> Config {
    let values = &settings.values;
    let mut config = Config::new("");
    config.endpoints.clone_from(&service.endpoints);
    config.token.clone_from(&values.service_token);
    config.token_file.clone_from(&values.service_token_file);
    config.deadline = *values.service_deadline;
    config.fallback = match *values.on_service_failure {
        FailureMode::Allow => FallbackPolicy::Allow,
        FailureMode::Deny => FallbackPolicy::Deny,
        FailureMode::Local => FallbackPolicy::Local(Arc::clone(limiter) as _),
    };
    config.tls = Tls {
        files: service.files.clone(),
        server_name: values.service_server_name.clone(),
    };
    config
}

/// The client's refusal of its configuration, after the setting that it is about.
fn blame(service: &ServiceSettings, error: ConfigError) -> anyhow::Error {
    match error {
        ConfigError::TlsFile(error) => anyhow!("{}", service.file_settings.blame(&error)),
        ConfigError::TokenFile(..) => anyhow!("service_{error}"),
        other => other.into(),
    }
}

/// Describes for people what limits requests.
fn shown(settings: &Settings, service: &ServiceSettings, domain: &str, rules: &RuleSet) -> String {
    let asked = format!("domain {domain} of the service at {}", service.shown);
    let without = match (
        *settings.values.on_service_failure,
        settings.rules.path.as_deref(),
    ) {
        (FailureMode::Deny, _) => "nothing passes".to_owned(),
        (FailureMode::Local, Some(path)) => rules_shown(rules, &path.display().to_string(), true),
        _ => "everything passes".to_owned(),
    };
    format!("{asked}; while it is away, {without}")
}

/// A gateway, and the client of the service it asks.
#[derive(Debug)]
struct RemoteGateway {
    gateway: Gateway<ServiceEnforcer>,
    client: Client,
    /// The fate of a request without an answer, for labels.
    on_failure: &'static str,
}

impl GatewayService for RemoteGateway {
    type Service = <Gateway<ServiceEnforcer> as GatewayService>::Service;

    fn service(&self) -> Self::Service {
        self.gateway.service()
    }

    fn files(&self) -> Option<Arc<dyn Followed>> {
        self.gateway.files()
    }

    fn maintenance(&self) -> impl Future<Output = ()> + Send + 'static {
        self.gateway.maintenance()
    }
}

impl Monitored for RemoteGateway {
    fn shed(&self) -> u64 {
        self.gateway.shed()
    }

    fn subject(&self) -> &'static str {
        "gateway or service"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        self.gateway.encode(families)?;
        let counts = self.client.counts();
        families.counter(
            "ratelimit_gateway_service_calls",
            "Calls to the rate limit service, without retries",
            counts.calls,
        )?;
        families.counter(
            "ratelimit_gateway_service_retries",
            "Retried calls to the rate limit service",
            counts.retries,
        )?;
        families.counter(
            "ratelimit_gateway_service_held_back",
            "Calls not sent to the rate limit service because it refuses too many",
            counts.held_back,
        )?;
        families.counter(
            "ratelimit_gateway_service_refused",
            "Requests refused because the service cannot decide them",
            counts.refused,
        )?;
        families.counters(
            "ratelimit_gateway_service_fallbacks",
            "Requests that the service did not answer, by what decided instead",
            by("mode", [(self.on_failure, counts.fallbacks)]),
        )?;
        let services = self.client.services();
        let up = services
            .iter()
            .map(|(name, is_up)| (name.as_str(), i64::from(*is_up)));
        let help = "1 if the rate limit service answers, 0 if it is down";
        families.gauges("ratelimit_gateway_service_up", help, by("service", up))
    }

    fn shedding(&self) -> Option<Shedding> {
        self.gateway.shedding()
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.gateway.faults();
        let trouble = self.client.trouble().map(|trouble| match trouble {
            Trouble::Refuses => "refuses to answer",
            _ => "gives no answer",
        });
        faults.extend(
            trouble
                .map(|trouble| format!("the service that decides {trouble}: {}", self.on_failure)),
        );
        let services = self.client.services();
        let down = services
            .iter()
            .filter(|(_, is_up)| services.len() > 1 && !is_up);
        faults.extend(
            down.map(|(name, _)| {
                format!("the service at {name} gives no answer, and is passed over")
            }),
        );
        faults
    }
}
