//! The spans of one check: its stages, and the check around them.

use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_limiter::{Check, CheckObserver, Decision, ServiceDecision, Snapshot};

use crate::context::TraceContext;
use crate::span::{SpanClock, SpanKind, SpanValue, TraceSpan, TracedCall};
use crate::tracer::{SpanPlace, Tracer, span_id};

/// The most descriptors whose text is kept until it is known which one decides.
const SCOPES_MAX: usize = 8;

/// A traced check. Its spans are recorded when it is dropped.
#[derive(Debug)]
pub(crate) struct CheckSpan {
    tracer: Tracer,
    place: SpanPlace,
    span_id: u64,
    kind: SpanKind,
    call: TracedCall,
    clock: SpanClock,
    /// One thread at a time uses it; a check may be asked on one, and answered on another.
    stages: Mutex<Stages>,
}

/// The ends of the stages, since the start of the check, and facts about them.
#[derive(Debug, Default)]
struct Stages {
    matched: Option<Duration>,
    answered: Option<Duration>,
    combined: Option<Duration>,
    domain: Option<SpanValue>,
    /// The descriptors, secrets as fingerprints.
    scopes: Vec<String>,
    counters: usize,
    outcome: Vec<(&'static str, SpanValue)>,
    is_degraded: bool,
    /// True if a service is asked, which has the stages in spans of its own.
    is_at_service: bool,
}

impl CheckSpan {
    pub(crate) fn begin(
        tracer: Tracer,
        place: SpanPlace,
        kind: SpanKind,
        call: TracedCall,
    ) -> Self {
        Self {
            tracer,
            place,
            span_id: span_id(),
            kind,
            call,
            clock: SpanClock::start(),
            stages: Mutex::default(),
        }
    }

    fn attributes(&self, stages: &mut Stages) -> Vec<(&'static str, SpanValue)> {
        let protocol = SpanValue::Word(self.call.protocol);
        let mut attributes = vec![("ratekeeper.protocol", protocol)];
        let domain = stages.domain.take();
        attributes.extend(domain.map(|domain| ("ratekeeper.domain", domain)));
        attributes.append(&mut stages.outcome);
        attributes
    }

    /// Records a stage of the check, if it has ended.
    fn stage(
        &self,
        name: &'static str,
        (start, end): (Option<Duration>, Option<Duration>),
        attributes: Vec<(&'static str, SpanValue)>,
        is_error: bool,
    ) {
        let Some((start, end)) = start.zip(end) else {
            return;
        };
        self.tracer.record(TraceSpan {
            trace_id: self.place.trace_id,
            span_id: span_id(),
            parent: Some(self.span_id),
            parent_is_remote: false,
            kind: SpanKind::Internal,
            name,
            start: self.clock.at(start),
            end: self.clock.at(end),
            is_error,
            attributes,
        });
    }
}

impl CheckObserver for CheckSpan {
    fn matched(&self, check: &Check<'_>, snapshot: &Snapshot, counters: usize) {
        let ended = self.clock.elapsed();
        let descriptors = check.descriptors().take(SCOPES_MAX);
        let scopes = descriptors.map(|descriptor| {
            let scope = snapshot.scope(descriptor.domain, descriptor.entries);
            scope.into_text()
        });
        let mut stages = self.stages.lock();
        stages.domain = Some(SpanValue::text(check.domain));
        stages.scopes = scopes.collect();
        stages.counters = counters;
        stages.matched = Some(ended);
    }

    fn answered(&self) {
        self.stages.lock().answered = Some(self.clock.elapsed());
    }

    fn combined(&self, decision: &Decision) {
        let ended = self.clock.elapsed();
        let mut stages = self.stages.lock();
        stages.combined = Some(ended);
        stages.is_degraded = decision.is_degraded();
        stages.record(&ServiceDecision {
            allowed: decision.allowed(),
            degraded: decision.is_degraded(),
            limit: decision.limit_status().as_ref(),
        });
        let number = decision.binding_descriptor();
        if let Some(scope) = number.and_then(|number| stages.scopes.get(number)) {
            let scope = SpanValue::text(scope);
            stages.outcome.push(("ratekeeper.scope", scope));
        }
    }

    fn traceparent_for_service(&self) -> Option<String> {
        self.stages.lock().is_at_service = true;
        let context = TraceContext {
            trace_id: self.place.trace_id,
            span_id: self.span_id,
            is_sampled: true,
        };
        Some(context.text())
    }

    fn decided_by_service(&self, decision: &ServiceDecision<'_>) {
        let ended = self.clock.elapsed();
        let mut stages = self.stages.lock();
        stages.combined = Some(ended);
        stages.is_degraded = decision.degraded;
        stages.record(decision);
    }
}

impl Stages {
    /// Records what was decided.
    fn record(&mut self, decision: &ServiceDecision<'_>) {
        let verdict = match decision.allowed {
            true => "allow",
            false => "deny",
        };
        let outcome = &mut self.outcome;
        outcome.push(("ratekeeper.decision", SpanValue::Word(verdict)));
        outcome.push(("ratekeeper.degraded", SpanValue::Bool(decision.degraded)));
        let Some(limit) = decision.limit else {
            return;
        };
        if let Some(rule) = &limit.rule {
            outcome.push(("ratekeeper.rule", SpanValue::text(rule)));
        }
        outcome.push(("ratekeeper.limit", SpanValue::Number(limit.limit)));
        let remaining = SpanValue::Number(limit.remaining);
        outcome.push(("ratekeeper.remaining", remaining));
    }
}

impl Drop for CheckSpan {
    fn drop(&mut self) {
        let ended = self.clock.elapsed();
        let mut stages = std::mem::take(self.stages.get_mut());
        let counters = SpanValue::Number(stages.counters as u64);
        let matching = (Some(Duration::ZERO), stages.matched);
        let counters = vec![("ratekeeper.counters", counters)];
        self.stage("match", matching, counters, false);
        let store = (stages.matched, stages.answered);
        self.stage("store", store, Vec::new(), stages.is_degraded);
        let combining = (stages.answered, stages.combined);
        self.stage("combine", combining, Vec::new(), false);
        let attributes = self.attributes(&mut stages);
        self.tracer.record(TraceSpan {
            trace_id: self.place.trace_id,
            span_id: self.span_id,
            parent: self.place.parent,
            parent_is_remote: self.place.parent_is_remote,
            kind: match stages.is_at_service {
                true => SpanKind::Client,
                false => self.kind,
            },
            name: self.call.method.name(),
            start: self.clock.at(Duration::ZERO),
            end: self.clock.at(ended),
            // The caller did not wait for the answer.
            is_error: stages.combined.is_none(),
            attributes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_limiter::{LimitStatus, Limiter, LimiterOptions};
    use ratekeeper_rules::{Options, Source, load};
    use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

    const RULES: &str = "
domain: api
descriptors:
- { key: api_key, rate_limit: { window: 1h, limit: 1 } }
";

    fn limiter() -> Limiter<MemoryStore> {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default()).expect("the rules are valid");
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        Limiter::new(loaded.rules, store, LimiterOptions::default())
    }

    fn check(limiter: &Limiter<MemoryStore>, tracer: &Tracer) {
        let mut check = Check::new("api").descriptor([("api_key", "very-secret")]);
        check.observer = tracer.check(None, TracedCall::check("test"));
        limiter.check_now(&check);
    }

    #[test]
    fn a_check_has_its_stages_inside() {
        let (tracer, mut queue) = Tracer::new(1.0);
        let limiter = limiter();
        check(&limiter, &tracer);
        let spans = queue.take();
        let names: Vec<_> = spans.iter().map(|span| span.name).collect();
        assert_eq!(names, ["match", "store", "combine", "check"]);
        let [stages @ .., whole] = &spans[..] else {
            panic!("{spans:?}")
        };
        let mut before = whole.start;
        for stage in stages {
            assert_eq!(stage.trace_id, whole.trace_id);
            assert_eq!(stage.parent, Some(whole.span_id));
            assert!(
                before <= stage.start && stage.start <= stage.end,
                "{spans:?}"
            );
            before = stage.end;
        }
        assert!(before <= whole.end, "{spans:?}");
        assert_eq!((whole.parent, whole.is_error), (None, false));
    }

    #[test]
    fn secrets_are_fingerprints() {
        let (tracer, mut queue) = Tracer::new(1.0);
        let limiter = limiter();
        check(&limiter, &tracer);
        check(&limiter, &tracer);
        let spans = queue.take();
        assert!(!format!("{spans:?}").contains("very-secret"), "{spans:?}");
        let last = spans.last().expect("it was traced");
        let has = |name, value| {
            let found = last.attributes.iter().find(|(key, _)| *key == name);
            assert_eq!(found.map(|(_, value)| value), Some(&value), "{name}");
        };
        has("ratekeeper.decision", SpanValue::Word("deny"));
        has("ratekeeper.rule", SpanValue::text("api.api_key"));
        has("ratekeeper.remaining", SpanValue::Number(0));
        let is_scope = |(key, _): &&(&str, SpanValue)| *key == "ratekeeper.scope";
        let scope = last.attributes.iter().find(is_scope);
        assert!(
            matches!(scope, Some((_, SpanValue::Text(text))) if text.starts_with("api_key:~")),
            "{scope:?}"
        );
    }
    #[test]
    fn a_service_gets_the_span_that_waits_for_it() {
        let (tracer, mut queue) = Tracer::new(1.0);
        let observer = tracer.check(None, TracedCall::check("test"));
        let observer = observer.expect("all are traced");
        let told = observer.traceparent_for_service().expect("it is told");
        let told = TraceContext::parse(told.as_bytes()).expect("it is a context");
        observer.decided_by_service(&ServiceDecision {
            allowed: false,
            degraded: false,
            limit: Some(&LimitStatus {
                rule: Some("api.user".into()),
                limit: 5,
                ..LimitStatus::default()
            }),
        });
        drop(observer);
        let [span] = &queue.take()[..] else {
            panic!("the stages are the service's")
        };
        assert_eq!((told.trace_id, told.span_id), (span.trace_id, span.span_id));
        assert!(told.is_sampled);
        assert_eq!((span.kind, span.is_error), (SpanKind::Client, false));
        let rule = ("ratekeeper.rule", SpanValue::text("api.user"));
        assert!(span.attributes.contains(&rule), "{span:?}");
    }

    #[test]
    fn a_service_that_decides_nothing_is_an_error() {
        let (tracer, mut queue) = Tracer::new(1.0);
        let observer = tracer.check(None, TracedCall::check("test"));
        let told = observer.map(|observer| observer.traceparent_for_service());
        assert!(told.is_some());
        assert!(queue.take()[0].is_error);
    }
}
