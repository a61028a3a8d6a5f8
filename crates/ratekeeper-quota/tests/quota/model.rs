//! Changes in the database, times and checks, against a model that remembers every change.
//!
//! The way is the whole one: a change is a transaction, a follower reads it, and a limiter decides by it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_quota::{
    Follower, FollowerConfig, Precondition, QuotaError, QuotaStore, TenantId, TenantPut,
};
use ratekeeper_rules::{
    Dated as _, Options, RuleSet, Source, TenantOverride, TenantPlan, TenantQuotas, Term, load,
};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

use crate::support::{Database, editor, run, store, tenant};

const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro]
algorithm: fixed_window
descriptors:
- key: customer
  rate_limit: { unit: minute, requests_per_unit: 3 }
  plans: { pro: { unit: minute, requests_per_unit: 6 } }
  descriptors:
  - { key: endpoint, value: a, rate_limit: { unit: minute, requests_per_unit: 2 } }
";

/// The beginning of the simulated time: a full minute in 2096, so that a change for later is one for later.
const START: u64 = 4_000_000_020;

const TENANTS: [&str; 2] = ["acme", "bob"];

/// The plans by name, with their limits.
const PLANS: [(&str, u64); 2] = [("free", 3), ("pro", 6)];

/// Endpoint `a` has a rule, endpoint `b` has none.
const ENDPOINTS: [&str; 2] = ["a", "b"];

/// The limit of the rule of endpoint `a`.
const RULE_OF_A: u64 = 2;

/// A span of seconds after the start.
type Span = (u64, u64);

/// Plans and overrides of one tenant: of all that it does, or of one endpoint.
#[derive(Clone, Debug, Default)]
struct Quotas {
    plans: Vec<(Span, usize)>,
    overrides: Vec<(Span, Option<usize>, u64)>,
}

#[derive(Clone, Debug)]
enum Act {
    /// Gives a tenant quotas, now or so many seconds from now on.
    Put {
        tenant: usize,
        quotas: Quotas,
        delay: Option<u64>,
    },
    /// Tries to change a version that the tenant does not have.
    PutStale {
        tenant: usize,
    },
    Delete {
        tenant: usize,
    },
    Reset {
        tenant: usize,
    },
    Wait(u64),
    Call {
        tenant: usize,
        endpoint: Option<usize>,
    },
}

fn span() -> impl Strategy<Value = Span> {
    (0..90_u64, 1..200_u64).prop_map(|(from, length)| (from, from + length))
}

fn quotas() -> impl Strategy<Value = Quotas> {
    let plan = (span(), 0..PLANS.len());
    let own = (span(), proptest::option::of(0..ENDPOINTS.len()), 1..8_u64);
    let lists = (
        proptest::collection::vec(plan, 0..3),
        proptest::collection::vec(own, 0..4),
    );
    lists.prop_map(|(mut plans, mut overrides)| {
        // Two of one descriptor that begin together are refused.
        plans.sort();
        plans.dedup_by_key(|((from, _), _)| *from);
        overrides.sort_by_key(|((from, _), endpoint, _)| (*endpoint, *from));
        overrides.dedup_by_key(|((from, _), endpoint, _)| (*endpoint, *from));
        Quotas { plans, overrides }
    })
}

fn act() -> impl Strategy<Value = Act> {
    let tenant = || 0..TENANTS.len();
    prop_oneof![
        4 => (tenant(), quotas(), proptest::option::of(1..120_u64))
            .prop_map(|(tenant, quotas, delay)| Act::Put { tenant, quotas, delay }),
        1 => tenant().prop_map(|tenant| Act::PutStale { tenant }),
        1 => tenant().prop_map(|tenant| Act::Delete { tenant }),
        1 => tenant().prop_map(|tenant| Act::Reset { tenant }),
        4 => (1..50_u64).prop_map(Act::Wait),
        20 => (tenant(), proptest::option::of(0..ENDPOINTS.len()))
            .prop_map(|(tenant, endpoint)| Act::Call { tenant, endpoint }),
    ]
}

impl Quotas {
    /// As the store is given them: times count from `base`.
    fn given(&self, base: u64) -> TenantQuotas {
        let term = |(from, until): &Span| Term {
            from: Timestamp::from_secs(START + base + from),
            until: Timestamp::from_secs(START + base + until),
        };
        let plans = self.plans.iter();
        let overrides = self.overrides.iter();
        TenantQuotas {
            plans: plans
                .map(|(span, plan)| TenantPlan::new(PLANS[*plan].0).during(term(span)))
                .collect(),
            overrides: overrides
                .map(|(span, endpoint, limit)| {
                    let own = TenantOverride {
                        descriptor: endpoint
                            .map(|at| format!("endpoint:{}", ENDPOINTS[at]))
                            .into_iter()
                            .collect(),
                        requests_per_unit: *limit,
                        unit: Some("minute".into()),
                        ..TenantOverride::default()
                    };
                    own.during(term(span))
                })
                .collect(),
            epoch: 0,
        }
    }

    /// The limit of the tenant as a whole, `now` seconds after the base of the times.
    fn whole(&self, now: u64) -> u64 {
        let plans = self.plans.iter().filter(|(span, _)| contains(*span, now));
        let plan = plans.max_by_key(|((from, _), _)| *from);
        let plan = PLANS[plan.map_or(0, |(_, plan)| *plan)].1;
        self.own(None, now).unwrap_or(plan)
    }

    /// The limit of an endpoint.
    fn of(&self, endpoint: usize, now: u64) -> Option<u64> {
        let rule = (endpoint == 0).then_some(RULE_OF_A);
        self.own(Some(endpoint), now).or(rule)
    }

    fn own(&self, endpoint: Option<usize>, now: u64) -> Option<u64> {
        let here = self
            .overrides
            .iter()
            .filter(|(span, of, _)| *of == endpoint && contains(*span, now));
        here.max_by_key(|((from, _), ..)| *from)
            .map(|(.., limit)| *limit)
    }
}

fn contains((from, until): Span, now: u64) -> bool {
    from <= now && now < until
}

/// A tenant: all that it was ever given, the newest last, each with the second from which on it counts.
#[derive(Default)]
struct Tenant {
    given: Vec<(Option<u64>, u64, Quotas)>,
    epoch: u32,
}

impl Tenant {
    /// The limits of a call: of the tenant as a whole, and of the endpoint.
    fn limits(&self, endpoint: Option<usize>, now: u64) -> (u64, Option<u64>) {
        let newest = self.given.iter().rev();
        let mut counting = newest.filter(|(begins, ..)| begins.is_none_or(|begins| begins <= now));
        let nothing = (None, 0, Quotas::default());
        let (_, base, quotas) = counting.next().unwrap_or(&nothing);
        let at = now - base;
        let of_endpoint = endpoint.and_then(|endpoint| quotas.of(endpoint, at));
        (quotas.whole(at), of_endpoint)
    }
}

/// A node: the database, what follows it, and a limiter that decides.
struct Node {
    quotas: QuotaStore,
    follower: Follower,
    limiter: Arc<Limiter<MemoryStore>>,
    rules: RuleSet,
    ids: [TenantId; 2],
}

impl Node {
    async fn start(database: &Database) -> Self {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default()).expect("the rules are right");
        let memory = MemoryConfig {
            memory_limit: MemoryConfig::LEAST,
            ..MemoryConfig::default()
        };
        let counters = MemoryStore::new(memory).expect("the size is right");
        let limiter = Limiter::new(loaded.rules.clone(), counters, LimiterOptions::default());
        let limiter = Arc::new(limiter);
        let quotas = store(&database.fresh());
        let applied = Arc::clone(&limiter);
        let apply = move |tenants| applied.replace_tenants(tenants);
        let patience = Duration::from_secs(60);
        let config = FollowerConfig::default();
        Self {
            follower: Follower::start(quotas.clone(), config, apply, patience).await,
            quotas,
            limiter,
            rules: loaded.rules,
            ids: TENANTS.map(tenant),
        }
    }

    /// Waits until a change is in force.
    async fn reach(&self, version: u64) {
        self.follower.look();
        let reached = self.follower.quota_status().reached(version);
        let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
        reached.expect("the change is in force at last");
    }

    fn call(&self, tenant: usize, endpoint: Option<usize>, now: u64) -> bool {
        let customer = ("customer", TENANTS[tenant]);
        let endpoint = endpoint.map(|at| ("endpoint", ENDPOINTS[at]));
        let check = Check::new("d").descriptor([customer].into_iter().chain(endpoint));
        let now = Timestamp::from_secs(START + now);
        let decision = self.limiter.check_at(&check, now);
        decision.allowed()
    }

    /// Carries out a change, and remembers it in `model`.
    async fn change(&self, act: &Act, now: u64, model: &mut [Tenant; 2]) {
        match act {
            Act::Put {
                tenant,
                quotas,
                delay,
            } => {
                let begins = delay.map(|delay| now + delay);
                let base = begins.unwrap_or(now);
                let put = TenantPut {
                    tenant: self.ids[*tenant].clone(),
                    quotas: quotas.given(base),
                    begins: begins.map(|secs| Timestamp::from_secs(START + secs)),
                    listed: None,
                };
                let by = editor();
                let written = self.quotas.put(&put, Precondition::Any, &by, &self.rules);
                let written = written.await.expect("it can be put");
                self.reach(written.record.version).await;
                model[*tenant].given.push((begins, base, quotas.clone()));
            }
            Act::PutStale { tenant } => {
                let put = TenantPut::now(self.ids[*tenant].clone(), TenantQuotas::default());
                let stale = Precondition::Version(1_000_000);
                let refused = self.quotas.put(&put, stale, &editor(), &self.rules).await;
                assert!(
                    matches!(refused, Err(QuotaError::Changed { .. })),
                    "{refused:?}"
                );
            }
            Act::Delete { tenant } => {
                let hash = self.ids[*tenant].hash;
                let by = editor();
                let deleted = self.quotas.delete("d", hash, Precondition::Any, &by).await;
                match deleted {
                    Ok(deleted) => self.reach(deleted.version).await,
                    Err(error) => assert!(matches!(error, QuotaError::NotFound), "{error:?}"),
                }
                model[*tenant].given.clear();
            }
            Act::Reset { tenant } => {
                let by = editor();
                let reset = self
                    .quotas
                    .reset(&self.ids[*tenant], Precondition::Any, &by);
                let record = reset.await.expect("it can be reset");
                self.reach(record.version).await;
                model[*tenant].epoch += 1;
                assert_eq!(record.quotas.epoch, model[*tenant].epoch);
            }
            Act::Wait(_) | Act::Call { .. } => {}
        }
    }
}

#[test]
fn sqlite_decides_as_a_model_that_remembers_every_change() {
    decides_as_the_model(&Database::sqlite());
}

#[test]
fn postgres_decides_as_a_model_that_remembers_every_change() {
    decides_as_the_model(&Database::postgres());
}

/// Runs random courses, each on an empty database.
fn decides_as_the_model(database: &Database) {
    let config = ProptestConfig {
        cases: 24,
        // Courses that once failed are tried again, on both.
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let courses = proptest::collection::vec(act(), 1..60);
    let ended = TestRunner::new(config).run(&courses, |acts| run(follow(database, &acts)));
    if let Err(found) = ended {
        panic!("{found}");
    }
}

/// Carries out a course of changes, waits and calls, and compares each decision with the model's.
async fn follow(database: &Database, acts: &[Act]) -> Result<(), TestCaseError> {
    let node = Node::start(database).await;
    let mut model: [Tenant; 2] = Default::default();
    let (mut now, mut counts) = (0, BTreeMap::<_, u64>::new());
    for act in acts {
        node.change(act, now, &mut model).await;
        match *act {
            Act::Wait(secs) => now += secs,
            Act::Call { tenant, endpoint } => {
                let (whole, own) = model[tenant].limits(endpoint, now);
                let place = |endpoint| (tenant, model[tenant].epoch, endpoint, (START + now) / 60);
                let has_room = |endpoint, limit: u64| {
                    counts
                        .get(&place(endpoint))
                        .is_none_or(|count| *count < limit)
                };
                let expected =
                    has_room(None, whole) && own.is_none_or(|limit| has_room(endpoint, limit));
                if expected {
                    *counts.entry(place(None)).or_default() += 1;
                    if own.is_some() {
                        *counts.entry(place(endpoint)).or_default() += 1;
                    }
                }
                let allowed = node.call(tenant, endpoint, now);
                let of = TENANTS[tenant];
                prop_assert_eq!(allowed, expected, "{} at {}: {:?}", of, now, (whole, own));
            }
            _ => {}
        }
    }
    Ok(())
}
