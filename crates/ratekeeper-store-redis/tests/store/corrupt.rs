//! Keys of counters that hold something else.

use ratekeeper_core::{Algorithm, Limit, Micros, Mode, Timestamp};
use ratekeeper_store::{
    Answer, CounterKey, Extra, Once, Request, Step, StepOutcome, Store, StoreError, Until,
};
use ratekeeper_store_redis::script::KeyName;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::redis::Server;

use crate::support::{LASTING, decide, home, limit, patient, prefix, step};

const QUOTA: u64 = 10;

struct Scene {
    server: Server,
    names: KeyName,
    store: RedisStore,
}

impl Scene {
    async fn new() -> Self {
        let (server, prefix) = (Server::start(), prefix());
        let url = format!("redis://127.0.0.1:{}/?prefix={prefix}", server.port());
        let endpoint = Endpoint::parse(&url).expect("a good URL");
        let store = RedisStore::new(endpoint, patient(), home());
        store.greeted().await;
        let names = KeyName::new(&format!("{prefix}rk:")).on_one_server();
        Self {
            server,
            names,
            store,
        }
    }

    fn name(&self, key: CounterKey) -> String {
        let mut name = Vec::new();
        self.names.counter(key, &mut name);
        String::from_utf8(name).expect("keys are ASCII")
    }

    /// Puts a value that is no counter of any algorithm at the key of `step`.
    fn corrupt(&self, step: &Step) {
        let name = self.name(step.key);
        let made = self.server.client().ask(&["HSET", &name, "field", "value"]);
        assert!(!made.is_error(), "{made:?}");
    }

    async fn remaining(&self, limit: &Limit, number: u64) -> u64 {
        let peek = Step {
            hits: 0,
            ..step(limit, number)
        };
        let verdicts = decide(&self.store, &[peek]).await.expect("it answers");
        match verdicts.outcomes[0] {
            StepOutcome::Counted(outcome) => outcome.remaining,
            other => panic!("{other:?}"),
        }
    }

    fn corrupt_decisions(&self) -> u64 {
        let faults = self.store.shards()[0].faults;
        let found = faults.into_iter().find(|(cause, _)| *cause == "corrupt");
        found.expect("it is counted").1
    }
}

const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::LeakyBucket,
    Algorithm::Concurrency,
];

/// Several decisions in one call, as they are under load.
#[tokio::test]
async fn one_bad_key_fails_its_own_decision_and_no_other() {
    let scene = Scene::new().await;
    let window = Micros::from_secs(3_600);
    let good = limit(Algorithm::FixedWindow, QUOTA, LASTING);
    for (index, algorithm) in (0..).zip(ALGORITHMS) {
        let bad = limit(algorithm, QUOTA, window);
        let numbers = [1, 2, 3].map(|it| 10 * index + it);
        scene.corrupt(&step(&bad, numbers[1]));
        let calls = scene.store.shards()[0].pipelines;
        let steps = [
            [step(&good, numbers[0])],
            [step(&bad, numbers[1])],
            [step(&good, numbers[2])],
        ];
        let (before, its, after) = tokio::join!(
            decide(&scene.store, &steps[0]),
            decide(&scene.store, &steps[1]),
            decide(&scene.store, &steps[2]),
        );
        assert_eq!(its, Err(StoreError::Corrupt), "{algorithm:?}");
        assert!(before.expect("it is decided").allowed, "{algorithm:?}");
        assert!(after.expect("it is decided").allowed, "{algorithm:?}");
        assert_eq!(scene.store.shards()[0].pipelines, calls + 1, "in one call");
        for number in [numbers[0], numbers[2]] {
            assert_eq!(scene.remaining(&good, number).await, QUOTA - 1);
        }
        assert_eq!(scene.corrupt_decisions(), index + 1);
    }
}

/// Its other counters are not charged either: the failure mode answers for the whole request.
#[tokio::test]
async fn a_request_with_a_bad_key_charges_nothing() {
    let scene = Scene::new().await;
    let quota = limit(Algorithm::FixedWindow, QUOTA, LASTING);
    scene.corrupt(&step(&quota, 2));
    for steps in [
        [step(&quota, 1), step(&quota, 2)],
        [step(&quota, 2), step(&quota, 1)],
    ] {
        let answer = decide(&scene.store, &steps).await;
        assert_eq!(answer, Err(StoreError::Corrupt));
    }
    assert_eq!(scene.remaining(&quota, 1).await, QUOTA);
    // Once it is gone, all is well.
    let name = scene.name(step(&quota, 2).key);
    scene.server.client().ask(&["DEL", &name]);
    let steps = [step(&quota, 1), step(&quota, 2)];
    assert!(
        decide(&scene.store, &steps)
            .await
            .expect("it answers")
            .allowed
    );
}

#[tokio::test]
async fn what_lies_where_a_request_is_remembered_fails_that_request_alone() {
    let scene = Scene::new().await;
    let quota = limit(Algorithm::FixedWindow, QUOTA, LASTING);
    for (number, garbage) in [
        (1, &["SET", "garbage"][..]),
        (2, &["LPUSH", "a"]),
        (3, &["SET", ""]),
    ] {
        let steps = [step(&quota, number)];
        let id = u128::from(number);
        let mut name = Vec::new();
        scene.names.once(steps[0].key.subject, id, &mut name);
        let name = String::from_utf8(name).expect("keys are ASCII");
        let made = scene.server.client().ask(&[garbage[0], &name, garbage[1]]);
        assert!(!made.is_error(), "{made:?}");
        let extra = Extra {
            once: Some(Once {
                id,
                until: Until::After(Micros::from_secs(60)),
                content: 1,
            }),
            ..Extra::default()
        };
        let request = Request {
            extra: Some(&extra),
            ..Request::new(&steps, Mode::default(), Timestamp::EPOCH)
        };
        let Answer::Pending(ticket) = scene.store.decide(&request) else {
            panic!("Redis has to be asked");
        };
        assert_eq!(ticket.await, Err(StoreError::Corrupt), "{garbage:?}");
        assert_eq!(scene.remaining(&quota, number).await, QUOTA);
    }
}
