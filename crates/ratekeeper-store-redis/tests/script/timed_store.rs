//! A store that is told the time: one connection, one call for each request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{Answer, Never, Request, Step, Store, Verdicts};
use ratekeeper_store_redis::script::{Call, Clock, Group, Item, KeyName, Script, decode};
use ratekeeper_testkit::conformance::lives::Life;
use ratekeeper_testkit::redis::{Client, Reply, Server, encode};

/// The elements of a server's answer, in the form that the decoder reads.
pub(crate) fn items(reply: &Reply) -> Vec<Item<'_>> {
    let Reply::Array(items) = reply else {
        panic!("{reply:?} is not what a script returns");
    };
    let item = |item| match item {
        &Reply::Null => Item::Null,
        &Reply::Int(number) => Item::Int(number),
        Reply::Bytes(bytes) => Item::Bytes(bytes),
        other => panic!("{other:?} in an answer"),
    };
    items.iter().map(item).collect()
}

/// Appends the call to a pipeline.
pub(crate) fn push(script: &Script, call: &Call, now: Timestamp, pipeline: &mut Vec<u8>) {
    let (count, now) = (call.keys().len().to_string(), now.as_micros().to_string());
    let mut args: Vec<&[u8]> = vec![b"EVALSHA", script.sha1().as_bytes(), count.as_bytes()];
    args.extend(call.keys());
    args.extend([call.plan(), now.as_bytes()]);
    encode(&args, pipeline);
}

/// A script that is told the time, loaded unless the server has it.
pub(crate) fn load(client: &mut Client) -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(Clock::FromCaller));
    let known = client.ask(&["SCRIPT", "EXISTS", SCRIPT.sha1()]);
    if known != Reply::Array(vec![Reply::Int(1)]) {
        let loaded = client.ask(&["SCRIPT", "LOAD", SCRIPT.text()]);
        assert_eq!(loaded.text(), SCRIPT.sha1(), "{loaded:?}");
    }
    &SCRIPT
}

/// The answers to `groups`, in order.
pub(crate) fn answers(groups: &[Group], reply: &Reply) -> Vec<Verdicts> {
    let mut answers = Vec::new();
    let decoded = decode(groups, items(reply), |_, verdicts| answers.push(verdicts));
    assert_eq!(decoded, Ok(()), "{groups:?}\n{reply:?}");
    answers
}

/// A name for the keys of one store.
pub(crate) fn names() -> KeyName {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only that each is another one matters.
    KeyName::new(&format!("t{}:", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// A store with keys of its own.
pub(crate) struct TimedStore {
    client: Mutex<(Client, Timestamp)>,
    script: &'static Script,
    names: KeyName,
}

impl TimedStore {
    pub(crate) fn new(server: &Server) -> Self {
        let mut client = server.client();
        let script = load(&mut client);
        Self {
            client: Mutex::new((client, Timestamp::EPOCH)),
            script,
            names: names(),
        }
    }

    /// The lives of its counters.
    pub(crate) fn lives(&self, server: &Server) -> impl Fn(&Step) -> Life + use<> {
        let (names, client) = (self.names.clone(), Mutex::new(server.client()));
        move |step| {
            let mut key = Vec::new();
            names.counter(step.key, &mut key);
            life(&mut client.lock().expect("no test has panicked"), &key)
        }
    }
}

/// Requests that wait for [`TimedStore::answers`], encoded.
#[derive(Default)]
pub(crate) struct Queue {
    groups: Vec<Group>,
    pipeline: Vec<u8>,
}

impl TimedStore {
    /// Puts a request of some steps behind the others, in a call of its own.
    pub(crate) fn queue(&self, request: &Request<'_>, queue: &mut Queue) {
        let group = Group::new(request);
        let mut call = Call::new();
        call.push(&group, &self.names);
        let (_, now) = &mut *self.client.lock().expect("no test has panicked");
        *now = request.now.max(*now);
        push(self.script, &call, *now, &mut queue.pipeline);
        queue.groups.push(group);
    }

    /// The answers to all requests, sent at once and carried out one after the other.
    pub(crate) fn answers(&self, queue: Queue) -> Vec<Verdicts> {
        let (client, _) = &mut *self.client.lock().expect("no test has panicked");
        client.send(&queue.pipeline);
        let answer = |group| {
            let mut answers = answers(&[group], &client.read());
            assert_eq!(answers.len(), 1);
            answers.remove(0)
        };
        queue.groups.into_iter().map(answer).collect()
    }
}

/// The life of a key.
fn life(client: &mut Client, key: &[u8]) -> Life {
    match client.ask(&[b"PTTL", key]) {
        Reply::Int(-2) => Life::Gone,
        Reply::Int(-1) => Life::Endless,
        // The last millisecond has begun.
        Reply::Int(left) => Life::For(Micros::from_millis(left.unsigned_abs() + 1)),
        other => panic!("{other:?}"),
    }
}

impl Store for TimedStore {
    type Ticket = Never;

    fn decide(&self, request: &Request<'_>) -> Answer<Never> {
        if request.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: Default::default(),
                at: request.now,
                execution: Default::default(),
            });
        }
        let mut queue = Queue::default();
        self.queue(request, &mut queue);
        Answer::Decided(self.answers(queue).remove(0))
    }
}
