//! The state that every listener needs to answer.

pub(crate) mod long_answers;
pub(crate) mod maintenance_tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{
    Check, CheckObserver, Decision, Explanation, Limiter, Pending, RequestDescriptors, Ruling,
};
use ratekeeper_store::{Answer, HashKey};
use ratekeeper_stores::{Stores, StoresTicket};
use ratekeeper_trace::{RequestSpan, TracedCall, TracedMethod};
use tokio::sync::watch;

use crate::access::callers::{Callers, NotPermitted};
use crate::access::{Access, RefusalLog};
use crate::admin_json::moments::unix_seconds;
use crate::config::ServerConfig;
use crate::data_dir::fleet_switches::FleetSwitches;
use crate::data_dir::switches::SwitchFile;
use crate::figures::degraded::Degraded;
use crate::figures::durations::Durations;
use crate::figures::live::Live;
use crate::figures::monitored::Monitored;
use crate::figures::rule_counts::LastCounts;
use crate::figures::statsd::StatsdCounts;
use crate::figures::unenforced::UnenforcedRules;
use crate::listen::LogLimit;
use crate::listen::drain::Drain;
use crate::listen::reading::ReadingRoom;
use crate::listen::tls::Tls;
use crate::logs::denials::CheckOrigin;
use crate::logs::forgotten::ForgottenLog;
use crate::logs::share_alarm::ShareAlarm;
use crate::logs::unreadable::UnreadableRequests;
use crate::regions::RegionLoans;
use crate::reload::ReloadStatus;
use long_answers::LongAnswers;
use maintenance_tasks::MaintenanceTasks;

/// The limiter, and the other state that listeners need.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) limiter: Arc<Limiter<Stores>>,
    pub(crate) config: ServerConfig,
    /// For the line that tells of senders who lack a permission over Envoy's protocol.
    rls_refusals: LogLimit,
    pub(crate) unreadable: UnreadableRequests,
    pub(crate) callers: Callers,
    /// For the admin listener.
    pub(crate) access: Access,
    pub(crate) refusal_log: RefusalLog,
    pub(crate) switches: SwitchFile,
    /// The switches that all nodes of the quota database share, if there is one.
    pub(crate) fleet_switches: FleetSwitches,
    pub(crate) long_answers: LongAnswers,
    pub(crate) reading_room: ReadingRoom,
    pub(crate) drain: Arc<Drain>,
    pub(crate) reloads: watch::Receiver<ReloadStatus>,
    pub(crate) durations: Durations,
    pub(crate) live: Arc<Live>,
    /// The counts for a statsd agent, if there is one.
    pub(crate) statsd: Option<StatsdCounts>,
    /// A random name of this run.
    pub(crate) instance: Box<str>,
    /// Seconds since 1970.
    pub(crate) started_at: u64,
    pub(crate) maintenance: MaintenanceTasks,
    /// The parts other than the limiter that have their own metrics and faults.
    monitored: RwLock<Vec<Arc<dyn Monitored>>>,
    /// Tracks whether a rule's counters are about to fill with denials.
    pub(crate) crowded: ShareAlarm,
    pub(crate) unenforced: UnenforcedRules,
    pub(crate) forgotten: ForgottenLog,
    /// The counts of rules as the last second began.
    pub(crate) last_counts: LastCounts,
    /// The share of decisions that failure modes gave of late.
    pub(crate) degraded: Degraded,
    /// Of the listeners that encrypt.
    pub(crate) tls: Vec<Arc<Tls>>,
    /// True once rules are loaded: the last [`ReloadStatus`] in a form cheap enough to read on each
    /// check.
    is_loaded: AtomicBool,
    /// True if the rules of some domains were refused, so that they have none.
    refuses_some: AtomicBool,
    /// True from the start of the shutdown, which is before the drain.
    is_leaving: AtomicBool,
}

/// The reason that there is nothing to decide by.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoRules {
    /// This node has none.
    #[error("no rules are loaded; see /readyz")]
    AtAll,
    /// Those of this domain were refused. The node is well: other domains are decided.
    #[error(
        "the rules of the domain {0:?} were refused, and there are none before them; see /readyz"
    )]
    Of(Box<str>),
}

impl App {
    pub(crate) fn new(
        limiter: Arc<Limiter<Stores>>,
        config: ServerConfig,
        (access, switches, fleet_switches): (Access, SwitchFile, FleetSwitches),
        reloads: watch::Receiver<ReloadStatus>,
        tls: Vec<Arc<Tls>>,
    ) -> Self {
        let is_loaded = AtomicBool::new(reloads.borrow().is_loaded());
        Self {
            limiter,
            rls_refusals: LogLimit::default(),
            unreadable: UnreadableRequests::new(config.on_unreadable),
            callers: Callers::new(config.callers.clone()),
            access,
            refusal_log: RefusalLog::default(),
            switches,
            fleet_switches,
            long_answers: LongAnswers::new(config.bounds.long_answers_bytes_max),
            reading_room: ReadingRoom::new(config.bounds.long_messages_bytes_max),
            drain: Arc::new(Drain::new()),
            reloads,
            durations: Durations::default(),
            live: Arc::new(Live::new()),
            statsd: config.statsd.clone().map(StatsdCounts::new),
            instance: format!("{:032x}", u128::from_be_bytes(HashKey::random().to_bytes())).into(),
            started_at: unix_seconds(),
            maintenance: MaintenanceTasks::default(),
            monitored: RwLock::default(),
            crowded: ShareAlarm::default(),
            unenforced: UnenforcedRules::default(),
            forgotten: ForgottenLog::default(),
            last_counts: LastCounts::default(),
            degraded: Degraded::default(),
            tls,
            is_loaded,
            refuses_some: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            config,
        }
    }

    /// Asks the limiter for a decision as of `now`, a time just read from its clock, and records
    /// the time taken; `read` turns the ruling into an answer in place. The check is not part of the future.
    pub(crate) fn check<D>(
        &self,
        mut check: Check<'_>,
        now: Timestamp,
        origin: CheckOrigin<'_>,
        read: impl Fn(&Ruling<'_>) -> D,
    ) -> impl Future<Output = D> {
        let asked = self.ask(&mut check, now, origin, &read);
        async move {
            match asked {
                Answer::Decided(answer) => answer,
                Answer::Pending(pending) => self.finish(pending, origin, read).await,
            }
        }
    }

    /// Decides as [`Self::check`] does, without waiting. Only some immediate decisions are timed:
    /// reading a clock twice takes a tenth of the time of one.
    #[inline]
    pub(crate) fn ask<'a, D>(
        &self,
        check: &mut Check<'a>,
        now: Timestamp,
        origin: CheckOrigin<'_>,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> Answer<Pending<'a, StoresTicket>, D> {
        let start = self.durations.start();
        check.observer = self.observer(TracedMethod::Check, origin);
        self.limiter.ask(check, now, |ruling| {
            self.durations.record(start.map(|start| start.elapsed()));
            self.record_ruling(ruling, origin);
            read(ruling)
        })
    }

    /// The observer of a call that decides, if it is traced.
    #[inline]
    pub(crate) fn observer(
        &self,
        method: TracedMethod,
        origin: CheckOrigin<'_>,
    ) -> Option<Arc<dyn CheckObserver>> {
        let tracer = self.config.tracer.as_ref()?;
        let protocol = origin.protocol;
        tracer.check(origin.headers, TracedCall { method, protocol })
    }

    /// The span of a batch of checks, if it is traced.
    pub(crate) fn batch_span(&self, origin: CheckOrigin<'_>) -> Option<RequestSpan> {
        let tracer = self.config.tracer.as_ref()?;
        tracer.batch(origin.headers)
    }

    /// Tells the top keys and the denial log of a decision.
    #[inline]
    pub(crate) fn record_ruling(&self, ruling: &Ruling<'_>, origin: CheckOrigin<'_>) {
        let (decision, asked_at) = (ruling.decision, ruling.asked_at);
        self.record(decision, ruling.descriptors, origin, asked_at);
    }

    /// Tells them likewise of a decision of which no ruling is left, on a request of the time `asked_at`.
    #[inline]
    pub(crate) fn record(
        &self,
        decision: &Decision,
        descriptors: RequestDescriptors<'_>,
        origin: CheckOrigin<'_>,
        asked_at: Timestamp,
    ) {
        if self.limiter.top().wants(decision) {
            self.record_wanted(decision, descriptors, origin, asked_at);
        }
        if !decision.shadowed().is_empty() {
            self.record_shadowed(decision, descriptors);
        }
    }

    /// Tells the top keys of limits that would have denied a request, were they enforced.
    #[cold]
    fn record_shadowed(&self, decision: &Decision, descriptors: RequestDescriptors<'_>) {
        self.limiter.top().count_shadowed(decision, |number| {
            let descriptor = { descriptors }.nth(number)?;
            let snapshot = decision.snapshot();
            Some(snapshot.scope(descriptor.domain, descriptor.entries))
        });
    }

    /// Tells them of a decision that the top keys [want](ratekeeper_limiter::TopKeys::wants).
    #[cold]
    fn record_wanted(
        &self,
        decision: &Decision,
        descriptors: RequestDescriptors<'_>,
        origin: CheckOrigin<'_>,
        asked_at: Timestamp,
    ) {
        let is_first = self.limiter.top().count(decision, descriptors);
        if !decision.allowed() {
            let denials = &self.config.denials;
            denials.record(decision, descriptors, origin, (asked_at, is_first));
        }
    }

    /// Waits for the answer to a check that was asked about.
    pub(crate) async fn finish<D>(
        &self,
        pending: Pending<'_, StoresTicket>,
        origin: CheckOrigin<'_>,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> D {
        let asked_at = pending.asked_at();
        self.limiter
            .finish(pending, |ruling| {
                let took = self.limiter.clock().now().since(asked_at);
                self.durations.add(Duration::from_micros(took.get()));
                self.record_ruling(ruling, origin);
                read(ruling)
            })
            .await
    }

    /// Logs now and then that a request of Envoy's protocol was refused because of its sender:
    /// Envoy lets a request pass if it gets no decision, so it would go unnoticed otherwise.
    #[cold]
    pub(crate) fn log_rls_refusal(&self, why: &NotPermitted) {
        if self.rls_refusals.may_say() {
            tracing::warn!(
                %why,
                "a request of Envoy's protocol is refused (see `envoy_callers`); Envoy lets what it asked about pass, \
                 unless its failure_mode_deny is set"
            );
        }
    }

    /// Returns true if any rules are in force; without rules, nothing is decided.
    pub(crate) fn is_loaded(&self) -> bool {
        // Acquire, with the release below: who sees the flag sees the rules.
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Checks that there are rules to decide by in all `domains`, or that nobody limits them.
    ///
    /// # Errors
    /// There are none at all, or those of a domain were refused and there are none before them.
    #[inline]
    pub(crate) fn require_rules<'d>(
        &self,
        domains: impl IntoIterator<Item = &'d str>,
    ) -> Result<(), NoRules> {
        if !self.is_loaded() {
            return Err(NoRules::AtAll);
        }
        match self.refuses_some.load(Ordering::Acquire) {
            true => self.require_unrefused(domains),
            false => Ok(()),
        }
    }

    #[cold]
    fn require_unrefused<'d>(
        &self,
        domains: impl IntoIterator<Item = &'d str>,
    ) -> Result<(), NoRules> {
        let snapshot = self.limiter.snapshot();
        let refused = snapshot.rules().refused_domains();
        let mut domains = domains.into_iter();
        match domains.find(|domain| refused.contains(*domain)) {
            Some(domain) => Err(NoRules::Of(domain.into())),
            None => Ok(()),
        }
    }

    /// Rules are in force from now on; `refuses_some` if domains have none because theirs were refused.
    pub(crate) fn set_loaded(&self, refuses_some: bool) {
        self.refuses_some.store(refuses_some, Ordering::Release);
        self.is_loaded.store(true, Ordering::Release);
    }

    /// Returns true if requests should be sent to this server. It may say so before it has rules.
    pub(crate) fn is_ready(&self) -> bool {
        (self.is_loaded() || self.config.ready_without_rules) && !self.is_leaving()
    }

    /// Returns true if the server is shutting down, though it may still accept connections.
    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed: nothing else is published by it.
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// The state that `/readyz` tells: `serving`, `draining` or `no rules`.
    pub(crate) fn state(&self) -> &'static str {
        match (self.is_leaving(), self.is_loaded()) {
            (true, _) => "draining",
            (false, true) => "serving",
            (false, false) => "no rules",
        }
    }

    /// Returns true if `listener` has a certificate.
    pub(crate) fn is_encrypted(&self, listener: &str) -> bool {
        self.tls.iter().any(|tls| tls.listener == listener)
    }

    /// The loans between this node's region and others, if it is in one.
    pub(crate) fn region_loans(&self) -> Option<Arc<RegionLoans>> {
        self.config.region_loans.clone()
    }

    /// Explains how `check` would be decided, with what other regions have to do with it. Charges nothing.
    pub(crate) async fn explain(&self, check: &Check<'_>) -> Explanation {
        let mut explanation = self.limiter.explain(check).await;
        if let Some(loans) = &self.config.region_loans {
            loans.explain(&mut explanation).await;
        }
        explanation
    }

    /// Adds `part` to those that operators are told about.
    pub(crate) fn monitor(&self, part: Arc<dyn Monitored>) {
        self.monitored.write().push(part);
    }

    /// The parts, other than the limiter, that operators are told about.
    pub(crate) fn monitored(&self) -> Vec<Arc<dyn Monitored>> {
        self.monitored.read().clone()
    }

    /// The background tasks, each with the number of times that it ended early and was begun again.
    pub(crate) fn task_failures(&self) -> Vec<(&'static str, u64)> {
        let own = self.maintenance.all();
        let own = own.map(|task| (task.name(), task.failures()));
        let of_stores = ("stores", self.limiter.store().task_failures());
        let parts = self.monitored();
        let of_parts = parts.iter().flat_map(|part| part.tasks());
        own.into_iter().chain([of_stores]).chain(of_parts).collect()
    }

    /// Not ready any more, from now on.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }
}
