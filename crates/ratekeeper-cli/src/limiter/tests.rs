use std::path::Path;
use std::sync::Arc;

use ratekeeper_core::Micros;
use ratekeeper_limiter::{Check, HoldError, Reserve};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{Answer, HashKey, Request, StoreError};
use ratekeeper_stores::{SharedStore, StoreReply};
use tempfile::tempdir;

use super::*;
use crate::home::Home;
use crate::settings::{self, Environment, Flags, Layers};
use crate::state::Saver;

const KEY: &str = "00112233445566778899aabbccddeeff";

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window } }
";

/// The limiter of a node in memory whose settings have this `store_hash_key`, empty for none.
async fn node(hash_key: &str, state: Option<&State>) -> Limiter<Stores> {
    let pairs = [("RATEKEEPER_STORE_HASH_KEY", hash_key)];
    let home = Home::find_in(&[], Path::new("/nowhere/ratekeeper.yaml"));
    let loaded = settings::load(&Flags::default(), &Environment::of(&pairs), &home);
    let (_, settings) = loaded.expect("a key or none");
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    let rules = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
    let served = served(rules, &settings, state).await;
    served.expect("there is memory").limiter
}

fn check(hits: i64) -> Check<'static> {
    Check::new("d").descriptor([("user", "ada")]).hits(hits)
}

async fn left(limiter: &Limiter<Stores>) -> u64 {
    let (decision, _) = limiter.peek(&check(0)).await;
    let binding = decision.answers()[0].binding.expect("a limit matched");
    binding.answered.remaining
}

async fn reserve(limiter: &Limiter<Stores>) -> String {
    let reserve = Reserve {
        hits: 50,
        fixed: &[],
        ttl: Micros::from_secs(3_600),
        key: None,
    };
    let reserved = limiter.caller("me").reserve(&check(50), &reserve).await;
    let reservation = reserved.expect("it is carried out").reservation;
    reservation.expect("half of the limit").token
}

/// It took nothing of the other node's counters, so it gives nothing back there.
#[tokio::test]
async fn a_node_in_memory_settles_no_reservation_of_another_with_its_hash_key() {
    let (one, other) = (node(KEY, None).await, node(KEY, None).await);
    let token = reserve(&one).await;
    reserve(&other).await;
    let cancelled = other.caller("me").cancel(&token).await;
    assert_eq!(cancelled, Err(HoldError::Malformed));
    assert_eq!(left(&other).await, 50);
    let own = one.caller("me").cancel(&token).await;
    assert_eq!(own.expect("it is its own").given_back, 50);
    assert_eq!(left(&one).await, 100);
}

/// Gateways know a tenant by one hash from the time at which all have the key, whatever they have counted before.
#[tokio::test]
async fn a_hash_key_names_tenants_and_secrets_also_where_counters_were_saved_under_another() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("counters.state");
    let before = {
        let state = State::claim(&path).expect("it is nobody's");
        let limiter = Arc::new(node("", Some(&state)).await);
        reserve(&limiter).await;
        Saver::start(Arc::clone(&limiter), state).finish().await;
        limiter
    };
    let state = State::claim(&path).expect("it is nobody's any more");
    let (after, other) = (node(KEY, Some(&state)).await, node(KEY, None).await);
    assert_eq!(left(&after).await, 50, "its counters are found again");
    let hashes = |limiter: &Limiter<Stores>| {
        let snapshot = limiter.snapshot();
        let tenant = snapshot.tenant_hash("api_key", "sekret");
        (tenant, snapshot.fingerprint("sekret"))
    };
    assert_eq!(hashes(&after), hashes(&other));
    assert_ne!(hashes(&after), hashes(&before));
}

/// A store of another kind than Redis, which does not answer.
#[derive(Debug)]
struct Away;

impl SharedStore for Away {
    fn ask(&self, _: CounterSlot, _: &Request<'_>) -> Answer<StoreReply> {
        Answer::Pending(StoreReply::failed(StoreError::Unavailable))
    }

    fn hash_key(&self) -> Option<HashKey> {
        None
    }
}

#[tokio::test]
async fn this_node_decides_while_a_store_of_any_kind_is_away() {
    let nowhere = Home::find_in(&[], Path::new(""));
    let settings = Settings::from_layers(&Layers::default(), &nowhere).expect("the defaults");
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: "domain: d\ndescriptors:\n  - key: user\n    on_store_failure: local\n    \
               rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }\n"
            .to_owned(),
    };
    let rules = load(&[source], &Options::default()).expect("they are right");
    let stores = joined(Backend::Shared(Arc::new(Away)), [], None);
    let limiter = counting_in(stores, rules.rules, options(&settings), &settings, None);
    let limiter = limiter.expect("there is memory");
    let check = Check::new("d").descriptor([("user", "ada")]);
    for is_allowed in [true, false] {
        let decision = limiter.check(&check).await;
        assert_eq!(
            (decision.allowed(), decision.is_degraded()),
            (is_allowed, true)
        );
    }
}
